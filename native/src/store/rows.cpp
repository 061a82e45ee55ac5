#include "heterps/store/rows.hpp"

#include <algorithm>

namespace heterps::store {

Rows::Rows(Layout layout, const Rule& rule, const Initial& initial)
    : layout_(layout),
      rule_(rule),
      initial_(initial),
      slab_(layout.record_bytes(), Pages::ample()) {}

Slot Rows::find(std::int64_t id, std::uint64_t hash) const {
    Slot cold;
    const Slot hot = index_.find(hash, [&](Slot slot) {
        if (!slot.is_cold()) return Record::id(slab_.at(slot.place())) == id;
        if (!cold) cold = slot;
        return false;
    });
    return hot ? hot : cold;
}

Slot Rows::find_hot(std::int64_t id, std::uint64_t hash) const {
    const Slot slot = find(id, hash);
    return slot.is_cold() ? Slot{} : slot;
}

std::vector<Slot> Rows::cold_candidates(std::uint64_t hash) const {
    std::vector<Slot> found;
    index_.find(hash, [&](Slot slot) {
        if (slot.is_cold()) found.push_back(slot);
        return false;
    });
    return found;
}

void Rows::make_room(const std::array<std::size_t, Index::kSegments>& additional, ThreadPool& pool,
                     const VisitCold& visit_cold) {
    std::size_t most = 0;
    bool lacking = false;
    for (std::size_t s = 0; s < Index::kSegments; ++s) {
        most = std::max(most, additional[s]);
        lacking = lacking || index_.lacks_room(s, additional[s]);
    }
    if (!lacking) return;
    Index grown = index_.grown(most);
    const auto threads = static_cast<std::size_t>(pool.threads());
    pool.run(threads, [&](std::size_t thread) { insert_hot_rows(grown, thread, threads); });
    if (slab_.size() < size())
        visit_cold([&](const char* record, Slot slot) {
            grown.insert(Index::hash(Record::id(record)), slot);
        });
    index_ = std::move(grown);
}

void Rows::insert_hot_rows(Index& index, std::size_t first, std::size_t stride) const {
    constexpr std::size_t kBlock = 32;
    std::array<std::pair<std::uint64_t, Slot>, kBlock> block;
    std::size_t filled = 0;
    const auto flush = [&] {
        for (std::size_t i = 0; i < filled; ++i) index.insert(block[i].first, block[i].second);
        filled = 0;
    };
    for (std::uint64_t word = 0; word < slab_.words(); ++word)
        for (std::uint64_t bits = slab_.word(word); bits != 0; bits &= bits - 1) {
            const std::uint64_t row = word * 64 + static_cast<std::uint64_t>(__builtin_ctzll(bits));
            const std::uint64_t hash = Index::hash(Record::id(slab_.at(row)));
            if (Index::segment(hash) % stride != first) continue;
            index.prefetch(hash);
            block[filled++] = {hash, Slot::hot(hash, row)};
            if (filled == kBlock) flush();
        }
    flush();
}

void Rows::create(std::int64_t id, std::uint64_t row, std::uint32_t frequency, std::uint32_t step) {
    char* record = slab_.at(row);
    Record::set(record, id, frequency, step);
    initial_.fill(id, Record::vector(record), layout_.dim);
    rule_.start(layout_.state_of(record), layout_.dim);
    enter(id, row);
}

void Rows::enter(std::int64_t id, std::uint64_t row) {
    const std::uint64_t hash = Index::hash(id);
    index_.insert(hash, Slot::hot(hash, row));
    __atomic_fetch_add(&bucket_counts_[bucket_of(id)], 1, __ATOMIC_RELAXED);
    auto& removed = segments_[Index::segment(hash)].removed;
    if (!removed.empty()) removed.erase(id);
}

void Rows::drop(std::int64_t id, Slot slot) {
    const std::uint64_t hash = Index::hash(id);
    index_.erase(hash, slot);
    if (!slot.is_cold()) slab_.release(slot.place());
    __atomic_fetch_sub(&bucket_counts_[bucket_of(id)], 1, __ATOMIC_RELAXED);
    segments_[Index::segment(hash)].removed.insert(id);
}

std::vector<std::int64_t> Rows::removed() const {
    std::vector<std::int64_t> ids;
    for (const Segment& segment : segments_)
        ids.insert(ids.end(), segment.removed.begin(), segment.removed.end());
    std::sort(ids.begin(), ids.end());
    return ids;
}

void Rows::forget_removed(const std::vector<std::int64_t>& ids) {
    for (const std::int64_t id : ids) segments_[Index::segment(Index::hash(id))].removed.erase(id);
}

std::size_t Rows::bytes() const {
    std::size_t sum = slab_.bytes() + index_.bytes();
    for (const Segment& segment : segments_) sum += segment.sightings.bytes();
    return sum;
}

}  // namespace heterps::store
