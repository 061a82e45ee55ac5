// The rows of a table and how they are found; no locks, no disk.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <unordered_set>
#include <vector>

#include "heterps/store/index.hpp"
#include "heterps/store/initial.hpp"
#include "heterps/store/rules.hpp"
#include "heterps/store/sightings.hpp"
#include "heterps/store/slab.hpp"
#include "heterps/store/thread_pool.hpp"

namespace heterps::store {

// What a row consists of, in RAM (head and body) and on disk (a record).
struct Layout {
    int dim, state;  // floats
    // A single float of state stands in the head, so that a vector of 16 is one cache line.
    bool state_in_head() const { return state == 1; }
    std::size_t head_bytes() const {
        return Record::kHeader + (state_in_head() ? sizeof(float) : 0);
    }
    std::size_t body_bytes() const { return record_bytes() - head_bytes(); }
    std::size_t record_bytes() const {
        return Record::kHeader + sizeof(float) * static_cast<std::size_t>(dim + state);
    }
};

struct RowView {
    std::int64_t id;
    std::uint32_t frequency, last_seen;
    const float *vector, *state;

    static RowView of(const char* record, const Layout& layout) {
        const float* vector = Record::vector(record);
        return {Record::id(record), Record::frequency(record), Record::last_seen(record), vector,
                vector + layout.dim};
    }
};

// Visits the record and slot of every row that is on disk.
using VisitCold = std::function<void(const std::function<void(const char*, Slot)>&)>;

// Lookups may run at once. A change to an id needs its segment for oneself (`Index::segment`).
class Rows {
  public:
    // `tiered`: rows may be on disk; then the index of those has room for all rows at any time.
    Rows(Layout layout, const Rule& rule, const Initial& initial, bool tiered);

    // The slot of the id's row if that is in RAM; else the first slot on disk whose hash agrees,
    // which the record there has to confirm; else an empty one.
    Slot find(std::int64_t id, std::uint64_t hash) const {
        const std::uint64_t row = index_.find(hash, id);
        if (row != Index::kNowhere) return Slot::hot(row);
        return tiered_ ? find_cold(hash) : Slot{};
    }
    Slot find_hot(std::int64_t id, std::uint64_t hash) const;
    // The slots on disk whose hash agrees, in the order in which `find` would come to them.
    template <class Visit>
    void visit_cold_candidates(std::uint64_t hash, Visit&& visit) const {
        cold_index_.visit(hash, cold_key(hash), [&](const ColdLine& line, int slot) {
            visit(Slot::cold(line.places[slot]));
            return false;
        });
    }

    // For so many more in a segment.
    bool lacks_room(std::size_t segment, std::size_t additional) const;
    using PerSegment = std::array<std::size_t, Index::kSegments>;
    // Room for that many more in each segment. `visit_cold` is asked if the index of rows on disk
    // has to be made anew. Needs all segments.
    void make_room(const PerSegment& additional, ThreadPool& pool, const VisitCold& visit_cold);
    // The same in the index of rows in RAM alone, for rows that come from disk. It reads all slab
    // rows in use, so those that come must not have been allocated yet.
    void make_room_in_ram(const PerSegment& additional, ThreadPool* pool);
    // Makes the index of rows in RAM smaller after a burst, if it pays. Needs all segments.
    void give_room_back();

    // A row with its first values and the given counts, in a slab row that the caller allocated.
    void create(std::int64_t id, std::uint64_t row, std::uint32_t frequency, std::uint32_t step);
    // Enters what was written into a slab row.
    void enter(std::int64_t id, std::uint64_t row);
    void drop(std::int64_t id, Slot slot);
    // The row has another place from now on; either may be in RAM or on disk. False if it was not
    // where it is said to be. The slab is left to the caller.
    bool move(std::int64_t id, Slot from, Slot to);

    float* vector(std::uint64_t row) { return reinterpret_cast<float*>(slab_.body(row)); }
    const float* vector(std::uint64_t row) const {
        return reinterpret_cast<const float*>(slab_.body(row));
    }
    float* state(std::uint64_t row) {
        if (layout_.state_in_head())
            return reinterpret_cast<float*>(slab_.head(row) + Record::kHeader);
        return vector(row) + layout_.dim;
    }
    RowView view(std::uint64_t row) const;
    // A row in the form of a record.
    void write_record(std::uint64_t row, char* record) const;
    void read_record(std::uint64_t row, const char* record);
    bool equals_record(std::uint64_t row, const char* record) const;
    void copy(std::uint64_t from, std::uint64_t to);
    // Fetches the lines where a search for the id begins.
    [[gnu::always_inline]] void fetch_lines(std::int64_t id) const {
        const std::uint64_t hash = Index::hash(id);
        index_.prefetch(hash);
        if (tiered_) cold_index_.prefetch(hash);
    }
    [[gnu::always_inline]] void fetch_cold_line(std::uint64_t hash) const {
        cold_index_.prefetch(hash);
    }
    // Fetches all of a row into the cache.
    [[gnu::always_inline]] void fetch(std::uint64_t row) const {
        __builtin_prefetch(slab_.head(row));
        const char* body = slab_.body(row);
        for (std::size_t at = 0; at < last_of_body_; at += 64) __builtin_prefetch(body + at);
        __builtin_prefetch(body + last_of_body_);
    }

    // Ids dropped and not created again since they were last forgotten, while they are kept.
    std::vector<std::int64_t> removed() const;
    void keep_removed(bool keep);
    void forget_removed(const std::vector<std::int64_t>& ids);

    Slab& slab() { return slab_; }
    const Slab& slab() const { return slab_; }
    const Index& index() const { return index_; }
    Sightings& sightings(std::size_t segment) { return segments_[segment].sightings; }
    const Sightings& sightings(std::size_t segment) const { return segments_[segment].sightings; }
    const Layout& layout() const { return layout_; }
    const Rule& rule() const { return rule_; }
    const Initial& initial() const { return initial_; }
    // Rows on record, hot and cold, the expired ones included.
    std::size_t size() const { return index_.size() + cold_index_.size(); }
    bool all_in_ram() const { return !tiered_ || cold_index_.size() == 0; }
    std::uint64_t in_bucket(std::size_t bucket) const {
        return __atomic_load_n(&bucket_counts_[bucket], __ATOMIC_RELAXED);
    }
    std::size_t bytes() const;

  private:
    struct alignas(64) Segment {
        Sightings sightings;
        std::unordered_set<std::int64_t> removed;
    };

    Slot find_cold(std::uint64_t hash) const;
    void resize_index(std::size_t segment_size, ThreadPool* pool);
    void insert_hot_rows(Index& index, std::size_t first, std::size_t stride) const;

    Layout layout_;
    bool tiered_;
    bool keeps_removed_ = false;
    std::size_t last_of_body_;
    Rule rule_;
    Initial initial_;
    Slab slab_;
    Index index_;
    ColdIndex cold_index_;
    std::array<Segment, Index::kSegments> segments_;
    std::array<std::uint64_t, kBuckets> bucket_counts_{};
};

}  // namespace heterps::store
