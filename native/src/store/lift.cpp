#include "heterps/store/lift.hpp"

#include <algorithm>

namespace heterps::store {

namespace {

bool before(Slot a, Slot b) { return a.place() < b.place(); }

}  // namespace

void Lift::ask(std::uint64_t request, std::vector<Slot> slots) {
    merge(std::move(slots));
    requests_.push_back({request, round_, place_});
    settle_requests();
}

void Lift::merge(std::vector<Slot> slots) {
    std::sort(slots.begin(), slots.end(), before);
    const auto known = static_cast<std::ptrdiff_t>(waiting_.size());
    waiting_.insert(waiting_.end(), slots.begin(), slots.end());
    std::inplace_merge(waiting_.begin(), waiting_.begin() + known, waiting_.end(), before);
    waiting_.erase(std::unique(waiting_.begin(), waiting_.end()), waiting_.end());
}

// The old places stay, and are found to be empty when their turn comes.
void Lift::redirect(const std::vector<std::pair<Slot, Slot>>& moves) {
    std::vector<Slot> moved;
    for (const auto& [from, to] : moves) {
        const auto found = std::lower_bound(waiting_.begin(), waiting_.end(), from, before);
        if (found != waiting_.end() && *found == from) moved.push_back(to);
    }
    merge(std::move(moved));
}

std::vector<Slot> Lift::next(std::size_t most) {
    if (waiting_.empty() || most == 0) return {};
    auto begin = std::partition_point(waiting_.begin(), waiting_.end(),
                                      [&](Slot slot) { return slot.place() < place_; });
    if (begin == waiting_.end()) {
        begin = waiting_.begin();
        ++round_;
    }
    const auto count =
        std::min<std::ptrdiff_t>(static_cast<std::ptrdiff_t>(most), waiting_.end() - begin);
    std::vector<Slot> result(begin, begin + count);
    waiting_.erase(begin, begin + count);
    place_ = result.back().place() + 1;
    settle_requests();
    return result;
}

void Lift::settle_requests() {
    while (!requests_.empty()) {
        const Request& first = requests_.front();
        const bool passed = round_ > first.round && place_ >= first.place;
        if (!waiting_.empty() && !passed && round_ <= first.round + 1) return;
        served_ = first.number;
        requests_.pop_front();
    }
}

}  // namespace heterps::store
