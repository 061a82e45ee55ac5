#include "heterps/store/sightings.hpp"

#include <utility>

#include "heterps/store/hash.hpp"

namespace heterps::store {

std::size_t Sightings::home(std::int64_t id) const {
    return mix64(static_cast<std::uint64_t>(id)) & (entries_.size() - 1);
}

std::size_t Sightings::place(std::int64_t id) const {
    std::size_t at = home(id);
    while (entries_[at].count != 0 && entries_[at].id != id) at = (at + 1) & (entries_.size() - 1);
    return at;
}

const Sightings::Entry* Sightings::find(std::int64_t id) const {
    if (size_ == 0) return nullptr;
    const Entry& entry = entries_[place(id)];
    return entry.count != 0 ? &entry : nullptr;
}

void Sightings::set(std::int64_t id, std::uint32_t count, std::uint32_t last_seen) {
    if (count == 0) {
        erase(id);
        return;
    }
    if (4 * (size_ + 1) > 3 * entries_.size()) resize(entries_.empty() ? 16 : 2 * entries_.size());
    Entry& entry = entries_[place(id)];
    if (entry.count == 0) ++size_;
    entry = {id, count, last_seen};
}

bool Sightings::erase(std::int64_t id) {
    if (size_ == 0) return false;
    const std::size_t mask = entries_.size() - 1;
    std::size_t hole = place(id);
    if (entries_[hole].count == 0) return false;
    // Later entries of the run move up, so that no marks are needed.
    for (std::size_t at = (hole + 1) & mask; entries_[at].count != 0; at = (at + 1) & mask) {
        const std::size_t wanted = home(entries_[at].id);
        if (((at - wanted) & mask) < ((at - hole) & mask)) continue;
        entries_[hole] = entries_[at];
        hole = at;
    }
    entries_[hole].count = 0;
    --size_;
    return true;
}

void Sightings::erase_before(std::uint32_t step) {
    std::size_t kept = 0;
    for (Entry& entry : entries_) {
        if (entry.count != 0 && entry.last_seen < step) entry.count = 0;
        kept += entry.count != 0;
    }
    if (kept == size_) return;
    std::size_t capacity = 16;
    while (3 * capacity < 4 * (kept + 1)) capacity *= 2;
    resize(capacity);
}

void Sightings::resize(std::size_t capacity) {
    std::vector<Entry> old = std::exchange(entries_, std::vector<Entry>(capacity));
    size_ = 0;
    for (const Entry& entry : old) {
        if (entry.count == 0) continue;
        entries_[place(entry.id)] = entry;
        ++size_;
    }
}

}  // namespace heterps::store
