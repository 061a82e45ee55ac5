#include "heterps/store/index.hpp"

#include <algorithm>

namespace heterps::store {

namespace {

constexpr std::size_t kSmallest = 16;
constexpr double kFullest = 0.8;

}  // namespace

Index::Index() : Index(kSmallest) {}

Index::Index(std::size_t capacity)
    : capacity_(capacity), pages_(std::make_unique<Pages>(kSegments * capacity * sizeof(Slot))) {
    pages_->commit(bytes());
}

void Index::insert(std::uint64_t hash, Slot slot) {
    const std::size_t part = segment(hash);
    std::size_t at = home(hash);
    while (slots()[at]) at = next(at, part);
    if (slots()[at].bits == kErased) --load_[part].erased;
    slots()[at] = slot;
    ++load_[part].used;
}

Slot* Index::locate(std::uint64_t hash, Slot slot) const {
    const std::size_t part = segment(hash);
    for (std::size_t at = home(hash); slots()[at].bits != 0; at = next(at, part))
        if (slots()[at] == slot) return slots() + at;
    return nullptr;
}

bool Index::replace(std::uint64_t hash, Slot from, Slot to) {
    Slot* slot = locate(hash, from);
    if (slot == nullptr) return false;
    *slot = to;
    return true;
}

bool Index::erase(std::uint64_t hash, Slot slot) {
    Slot* found = locate(hash, slot);
    if (found == nullptr) return false;
    const std::size_t part = segment(hash);
    const std::size_t after = next(static_cast<std::size_t>(found - slots()), part);
    // A run of slots ends at an empty one, so the last of a run leaves no mark.
    const bool last = slots()[after].bits == 0;
    found->bits = last ? 0 : kErased;
    if (!last) ++load_[part].erased;
    --load_[part].used;
    return true;
}

bool Index::lacks_room(std::size_t segment, std::size_t additional) const {
    const Load& load = load_[segment];
    const auto full = static_cast<std::size_t>(kFullest * static_cast<double>(capacity_));
    return load.used + load.erased + additional > full;
}

Index Index::grown(std::size_t additional) const {
    std::size_t most = 0;
    for (const Load& load : load_) most = std::max(most, load.used);
    const auto least = static_cast<std::size_t>(static_cast<double>(most + additional) / kFullest);
    std::size_t capacity = kSmallest;
    // A fixed ladder of sizes, a step of room above what is needed now.
    while (capacity < least + least / 8 + 8) capacity += capacity / 2 / kLine * kLine;
    return Index(capacity);
}

std::size_t Index::size() const {
    std::size_t sum = 0;
    for (const Load& load : load_) sum += load.used;
    return sum;
}

}  // namespace heterps::store
