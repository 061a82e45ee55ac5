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

struct Layout {
    int dim, state;  // floats
    std::size_t record_bytes() const {
        return Record::kHeader + sizeof(float) * static_cast<std::size_t>(dim + state);
    }
    float* state_of(char* record) const { return Record::vector(record) + dim; }
};

// Visits the record and slot of every row that is on disk.
using VisitCold = std::function<void(const std::function<void(const char*, Slot)>&)>;

// Lookups may run at once. A change to an id needs its segment for oneself (`Index::segment`).
class Rows {
  public:
    Rows(Layout layout, const Rule& rule, const Initial& initial);

    // The slot of the id's row if that is in RAM; else the first slot on disk whose hash agrees,
    // which the record there has to confirm; else an empty one.
    Slot find(std::int64_t id, std::uint64_t hash) const;
    Slot find_hot(std::int64_t id, std::uint64_t hash) const;
    // The slots on disk whose hash agrees, in the order in which `find` would come to them.
    std::vector<Slot> cold_candidates(std::uint64_t hash) const;

    // Room for that many more in each segment. `visit_cold` is asked if the index has to be made
    // anew. Needs all segments.
    void make_room(const std::array<std::size_t, Index::kSegments>& additional, ThreadPool& pool,
                   const VisitCold& visit_cold);

    // A row with its first values and the given counts, in a slab row that the caller allocated.
    void create(std::int64_t id, std::uint64_t row, std::uint32_t frequency, std::uint32_t step);
    // Enters a record that was written into a slab row.
    void enter(std::int64_t id, std::uint64_t row);
    void drop(std::int64_t id, Slot slot);

    // Ids dropped and not created again since they were last taken; by segment.
    std::vector<std::int64_t> removed() const;
    void forget_removed(const std::vector<std::int64_t>& ids);

    Slab& slab() { return slab_; }
    const Slab& slab() const { return slab_; }
    Index& index() { return index_; }
    const Index& index() const { return index_; }
    Sightings& sightings(std::size_t segment) { return segments_[segment].sightings; }
    const Sightings& sightings(std::size_t segment) const { return segments_[segment].sightings; }
    const Layout& layout() const { return layout_; }
    const Rule& rule() const { return rule_; }
    const Initial& initial() const { return initial_; }
    // Rows on record, hot and cold, the expired ones included.
    std::size_t size() const { return index_.size(); }
    std::uint64_t in_bucket(std::size_t bucket) const {
        return __atomic_load_n(&bucket_counts_[bucket], __ATOMIC_RELAXED);
    }
    std::size_t bytes() const;

  private:
    struct alignas(64) Segment {
        Sightings sightings;
        std::unordered_set<std::int64_t> removed;
    };

    void insert_hot_rows(Index& index, std::size_t first, std::size_t stride) const;

    Layout layout_;
    Rule rule_;
    Initial initial_;
    Slab slab_;
    Index index_;
    std::array<Segment, Index::kSegments> segments_;
    std::array<std::uint64_t, kBuckets> bucket_counts_{};
};

}  // namespace heterps::store
