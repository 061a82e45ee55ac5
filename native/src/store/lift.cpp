#include "heterps/store/lift.hpp"

#include <algorithm>

namespace heterps::store {

namespace {

// By place. Of several that ride for the same row the one that uses it last stays.
void sort_once(std::vector<Rider>& riders) {
    std::sort(riders.begin(), riders.end(), [](const Rider& a, const Rider& b) {
        return a.slot.place() != b.slot.place() ? a.slot.place() < b.slot.place()
                                                : a.used_by > b.used_by;
    });
    const auto same = [](const Rider& a, const Rider& b) {
        return a.slot.place() == b.slot.place();
    };
    riders.erase(std::unique(riders.begin(), riders.end(), same), riders.end());
}

}  // namespace

std::size_t Lift::ask(Request request, std::vector<Rider> riders) {
    for (const Rider& rider : riders) {
        const std::size_t floor = floor_of(rider.slot);
        if (floor >= floors_.size()) floors_.resize(floor + 1);
        floors_[floor].push_back(rider);
    }
    size_ += riders.size();
    stops_.push_back({request, round_, floor_, !riders.empty()});
    settle_requests();
    return riders.size();
}

bool Lift::passed(const Stop& stop) const {
    return size_ == 0 || !stop.rides || round_ > stop.round + 1 ||
           (round_ > stop.round && floor_ >= stop.floor);
}

std::size_t Lift::distance(const Stop& stop) const {
    if (passed(stop)) return 0;
    const bool same_round = round_ == stop.round;
    return same_round ? floors_.size() - floor_ + stop.floor : stop.floor - floor_;
}

double Lift::owed(double from, double to, double coming) const {
    double most = 0;
    for (const Stop& stop : stops_) {
        const double left = static_cast<double>(distance(stop)) - coming;
        if (stop.request.due > to)
            most = std::max(most, left * (to - from) / (stop.request.due - from));
    }
    return most;
}

double Lift::left(double clock, std::uint64_t number) const {
    std::size_t most = 0;
    for (const Stop& stop : stops_)
        if (stop.request.due <= clock || stop.request.number <= number)
            most = std::max(most, distance(stop));
    return static_cast<double>(most);
}

void Lift::take(std::vector<Rider>& floor, std::vector<Rider>& taken) {
    size_ -= floor.size();
    taken.insert(taken.end(), floor.begin(), floor.end());
    std::vector<Rider>().swap(floor);
}

std::vector<Rider> Lift::next(std::size_t floors, std::size_t most) {
    std::vector<Rider> taken;
    if (floors == 0) return taken;
    take(moved_, taken);
    for (; floors > 0 && size_ > 0 && taken.size() < most; --floors) {
        if (floor_ >= floors_.size()) {
            floor_ = 0;
            ++round_;
        }
        take(floors_[floor_++], taken);
        ++travelled_;
    }
    sort_once(taken);
    settle_requests();
    return taken;
}

void Lift::redirect(const std::vector<std::pair<Slot, Slot>>& moves) {
    for (const auto& [from, to] : moves) {
        const std::size_t floor = floor_of(from);
        if (floor >= floors_.size()) continue;
        for (const Rider& rider : floors_[floor])
            if (rider.slot == from) {
                moved_.push_back({to, rider.used_by});
                ++size_;
            }
    }
}

void Lift::settle_requests() {
    while (!stops_.empty() && passed(stops_.front())) {
        served_ = stops_.front().request.number;
        stops_.pop_front();
    }
}

std::size_t Lift::bytes() const {
    return (size_ + moved_.capacity()) * sizeof(Rider) + floors_.size() * sizeof floors_[0];
}

}  // namespace heterps::store
