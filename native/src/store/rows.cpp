#include "heterps/store/rows.hpp"

#include <algorithm>
#include <cstring>

namespace heterps::store {

Rows::Rows(Layout layout, const Rule& rule, const Initial& initial, bool tiered)
    : layout_(layout),
      tiered_(tiered),
      last_of_body_(layout.body_bytes() - 1),
      rule_(rule),
      initial_(initial),
      slab_(layout.head_bytes(), layout.body_bytes(), Pages::ample()) {}

Slot Rows::find_cold(std::uint64_t hash) const {
    const std::uint64_t entry = cold_index_.find(hash, cold_key(hash));
    return entry != ColdIndex::kNowhere ? Slot::cold(entry) : Slot{};
}

Slot Rows::find_hot(std::int64_t id, std::uint64_t hash) const {
    const std::uint64_t row = index_.find(hash, id);
    return row != Index::kNowhere ? Slot::hot(row) : Slot{};
}

bool Rows::lacks_room(std::size_t segment, std::size_t additional) const {
    const std::size_t hot = index_.size(segment) + additional;
    return index_.lacks_room(hot) ||
           (tiered_ && cold_index_.lacks_room(hot + cold_index_.size(segment)));
}

void Rows::make_room(const PerSegment& additional, ThreadPool& pool, const VisitCold& visit_cold) {
    std::size_t most = 0;
    for (std::size_t s = 0; s < Index::kSegments; ++s)
        most = std::max(most, index_.size(s) + cold_index_.size(s) + additional[s]);
    if (tiered_ && cold_index_.lacks_room(most)) {
        ColdIndex grown = ColdIndex::sized_for(most);
        visit_cold([&](const char* record, Slot slot) {
            const std::uint64_t hash = ColdIndex::hash(Record::id(record));
            grown.insert(hash, cold_key(hash), slot.place());
        });
        cold_index_ = std::move(grown);
    }
    make_room_in_ram(additional, &pool);
}

void Rows::make_room_in_ram(const PerSegment& additional, ThreadPool* pool) {
    std::size_t most = 0;
    for (std::size_t s = 0; s < Index::kSegments; ++s)
        most = std::max(most, index_.size(s) + additional[s]);
    if (index_.lacks_room(most)) resize_index(most, pool);
}

void Rows::give_room_back() {
    std::size_t most = 0;
    for (std::size_t s = 0; s < Index::kSegments; ++s) most = std::max(most, index_.size(s));
    if (index_.has_too_much_room(most)) resize_index(most, nullptr);
}

void Rows::resize_index(std::size_t segment_size, ThreadPool* pool) {
    Index resized = Index::sized_for(segment_size);
    if (pool == nullptr) {
        insert_hot_rows(resized, 0, 1);
    } else {
        const auto threads = static_cast<std::size_t>(pool->threads());
        pool->run(threads, [&](std::size_t thread) { insert_hot_rows(resized, thread, threads); });
    }
    index_ = std::move(resized);
}

void Rows::insert_hot_rows(Index& index, std::size_t first, std::size_t stride) const {
    constexpr std::size_t kBlock = 32;
    struct Entry {
        std::uint64_t hash, row;
        std::int64_t id;
    };
    std::array<Entry, kBlock> block;
    std::size_t filled = 0;
    const auto flush = [&] {
        for (std::size_t i = 0; i < filled; ++i)
            index.insert(block[i].hash, block[i].id, block[i].row);
        filled = 0;
    };
    for (std::uint64_t word = 0; word < slab_.words(); ++word)
        for (std::uint64_t bits = slab_.word(word); bits != 0; bits &= bits - 1) {
            const std::uint64_t row = word * 64 + static_cast<std::uint64_t>(__builtin_ctzll(bits));
            const std::int64_t id = Record::id(slab_.head(row));
            const std::uint64_t hash = Index::hash(id);
            if (Index::segment(hash) % stride != first) continue;
            index.prefetch(hash);
            block[filled++] = {hash, row, id};
            if (filled == kBlock) flush();
        }
    flush();
}

void Rows::create(std::int64_t id, std::uint64_t row, std::uint32_t frequency, std::uint32_t step) {
    Record::set(slab_.head(row), id, frequency, step);
    initial_.fill(id, vector(row), layout_.dim);
    rule_.start(state(row), layout_.dim);
    enter(id, row);
}

void Rows::enter(std::int64_t id, std::uint64_t row) {
    const std::uint64_t hash = Index::hash(id);
    index_.insert(hash, id, row);
    __atomic_fetch_add(&bucket_counts_[bucket_of(id)], 1, __ATOMIC_RELAXED);
    auto& removed = segments_[Index::segment(hash)].removed;
    if (!removed.empty()) removed.erase(id);
}

void Rows::drop(std::int64_t id, Slot slot) {
    const std::uint64_t hash = Index::hash(id);
    if (slot.is_cold()) {
        cold_index_.erase(hash, cold_key(hash), slot.place());
    } else {
        index_.erase(hash, id, slot.place());
        slab_.release(slot.place());
    }
    __atomic_fetch_sub(&bucket_counts_[bucket_of(id)], 1, __ATOMIC_RELAXED);
    if (keeps_removed_) segments_[Index::segment(hash)].removed.insert(id);
}

bool Rows::move(std::int64_t id, Slot from, Slot to) {
    const std::uint64_t hash = Index::hash(id);
    const std::uint16_t key = cold_key(hash);
    if (from.is_cold() && to.is_cold())
        return cold_index_.replace(hash, key, from.place(), to.place());
    if (!from.is_cold() && !to.is_cold()) return index_.replace(hash, id, from.place(), to.place());
    if (to.is_cold()) {
        if (!index_.erase(hash, id, from.place())) return false;
        cold_index_.insert(hash, key, to.place());
    } else {
        if (!cold_index_.erase(hash, key, from.place())) return false;
        index_.insert(hash, id, to.place());
    }
    return true;
}

RowView Rows::view(std::uint64_t row) const {
    const char* head = slab_.head(row);
    const float* state = layout_.state_in_head()
                             ? reinterpret_cast<const float*>(head + Record::kHeader)
                             : vector(row) + layout_.dim;
    return {Record::id(head), Record::frequency(head), Record::last_seen(head), vector(row), state};
}

void Rows::write_record(std::uint64_t row, char* record) const {
    const std::size_t body = layout_.body_bytes(), rest = layout_.head_bytes() - Record::kHeader;
    std::memcpy(record, slab_.head(row), Record::kHeader);
    std::memcpy(record + Record::kHeader, slab_.body(row), body);
    std::memcpy(record + Record::kHeader + body, slab_.head(row) + Record::kHeader, rest);
}

void Rows::read_record(std::uint64_t row, const char* record) {
    const std::size_t body = layout_.body_bytes(), rest = layout_.head_bytes() - Record::kHeader;
    std::memcpy(slab_.head(row), record, Record::kHeader);
    std::memcpy(slab_.body(row), record + Record::kHeader, body);
    std::memcpy(slab_.head(row) + Record::kHeader, record + Record::kHeader + body, rest);
}

bool Rows::equals_record(std::uint64_t row, const char* record) const {
    const std::size_t body = layout_.body_bytes(), rest = layout_.head_bytes() - Record::kHeader;
    const char* head = slab_.head(row);
    return std::memcmp(head, record, Record::kHeader) == 0 &&
           std::memcmp(slab_.body(row), record + Record::kHeader, body) == 0 &&
           std::memcmp(head + Record::kHeader, record + Record::kHeader + body, rest) == 0;
}

void Rows::copy(std::uint64_t from, std::uint64_t to) {
    std::memcpy(slab_.head(to), slab_.head(from), layout_.head_bytes());
    std::memcpy(slab_.body(to), slab_.body(from), layout_.body_bytes());
}

std::vector<std::int64_t> Rows::removed() const {
    std::vector<std::int64_t> ids;
    for (const Segment& segment : segments_)
        ids.insert(ids.end(), segment.removed.begin(), segment.removed.end());
    std::sort(ids.begin(), ids.end());
    return ids;
}

void Rows::keep_removed(bool keep) {
    keeps_removed_ = keep;
    if (keep) return;
    for (Segment& segment : segments_) segment.removed.clear();
}

void Rows::forget_removed(const std::vector<std::int64_t>& ids) {
    for (const std::int64_t id : ids) segments_[Index::segment(Index::hash(id))].removed.erase(id);
}

std::size_t Rows::bytes() const {
    std::size_t sum = slab_.bytes() + index_.bytes() + (tiered_ ? cold_index_.bytes() : 0);
    constexpr std::size_t kRemoved = 32;  // a node of the set, as it is allocated
    for (const Segment& segment : segments_) {
        sum += segment.sightings.bytes() + segment.removed.size() * kRemoved;
        const std::size_t buckets = segment.removed.bucket_count();
        if (buckets > 1) sum += buckets * sizeof(void*);
    }
    return sum;
}

}  // namespace heterps::store
