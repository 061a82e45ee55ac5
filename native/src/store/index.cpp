#include "heterps/store/index.hpp"

#include <algorithm>

namespace heterps::store {

namespace {

constexpr std::size_t kSmallest = 4;  // lines

template <class LineOf>
constexpr double kMostInLine = LineOf::kSlots * LineOf::kPercent / 100.0;

}  // namespace

template <class LineOf>
LineIndex<LineOf>::LineIndex() : LineIndex(kSmallest) {}

template <class LineOf>
LineIndex<LineOf>::LineIndex(std::size_t capacity)
    : capacity_(capacity), pages_(std::make_unique<Pages>(kSegments * capacity * sizeof(LineOf))) {
    pages_->commit(bytes());
}

template <class LineOf>
std::uint64_t LineIndex<LineOf>::find_further(std::uint64_t hash, Key key) const {
    std::uint64_t place = kNowhere;
    visit(hash, key, [&](const LineOf& line, int slot) {
        place = line.places[slot];
        return true;
    });
    return place;
}

template <class LineOf>
auto LineIndex<LineOf>::locate(std::uint64_t hash, Key key, std::uint64_t place) const -> Found {
    Found found;
    visit(hash, key, [&](LineOf& line, int slot) {
        if (line.places[slot] != place) return false;
        found = {&line, slot};
        return true;
    });
    return found;
}

template <class LineOf>
void LineIndex<LineOf>::insert(std::uint64_t hash, Key key, std::uint64_t place) {
    const std::size_t part = segment(hash);
    std::size_t at = home(hash);
    for (; lines()[at].full(); at = next(at, part)) lines()[at].count_passing();
    lines()[at].put(key, static_cast<std::uint32_t>(place));
    ++used_[part].count;
}

template <class LineOf>
bool LineIndex<LineOf>::replace(std::uint64_t hash, Key key, std::uint64_t from, std::uint64_t to) {
    const Found found = locate(hash, key, from);
    if (found.line == nullptr) return false;
    found.line->places[found.slot] = static_cast<std::uint32_t>(to);
    return true;
}

template <class LineOf>
bool LineIndex<LineOf>::erase(std::uint64_t hash, Key key, std::uint64_t place) {
    const Found found = locate(hash, key, place);
    if (found.line == nullptr) return false;
    const std::size_t part = segment(hash);
    found.line->state &= ~(1u << found.slot);
    for (std::size_t at = home(hash); lines() + at != found.line; at = next(at, part))
        lines()[at].discount_passing();
    --used_[part].count;
    return true;
}

template <class LineOf>
bool LineIndex<LineOf>::lacks_room(std::size_t segment_size) const {
    return static_cast<double>(segment_size) > kMostInLine<LineOf> * static_cast<double>(capacity_);
}

template <class LineOf>
std::size_t LineIndex<LineOf>::capacity_for(std::size_t segment_size) {
    const double wanted = static_cast<double>(segment_size) * (1 + 1.0 / LineOf::kGrowth);
    return kSmallest + static_cast<std::size_t>(wanted / kMostInLine<LineOf>);
}

template <class LineOf>
bool LineIndex<LineOf>::has_too_much_room(std::size_t segment_size) const {
    return capacity_ > capacity_for(segment_size) * 4 / 3;
}

template <class LineOf>
LineIndex<LineOf> LineIndex<LineOf>::sized_for(std::size_t segment_size) {
    return LineIndex(capacity_for(segment_size));
}

template <class LineOf>
std::size_t LineIndex<LineOf>::size() const {
    std::size_t sum = 0;
    for (const Used& used : used_) sum += used.count;
    return sum;
}

template class LineIndex<HotLine>;
template class LineIndex<ColdLine>;

}  // namespace heterps::store
