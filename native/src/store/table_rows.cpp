// Rows that are put in, taken out or counted from outside, and rows that have to go.
#include <algorithm>
#include <shared_mutex>

#include "heterps/store/table.hpp"

namespace heterps::store {

std::uint32_t Table::oldest_live(std::uint64_t step) const {
    if (options_.evict_after == 0 || step <= options_.evict_after) return 0;
    return static_cast<std::uint32_t>(step - options_.evict_after);
}

std::uint64_t Table::live_rows() const {
    return options_.evict_after > 0 ? seen_.since(oldest_live(step_)) : rows_.size();
}

std::size_t Table::size() const {
    const std::shared_lock<TableLock> lock(lock_);
    return live_rows();
}

double Table::lr() const { return lr_; }
void Table::set_lr(double lr) { lr_ = lr; }

std::uint64_t Table::step() const {
    const std::shared_lock<TableLock> lock(lock_);
    return step_;
}

void Table::set_step(std::uint64_t step) {
    const std::unique_lock<TableLock> lock(lock_);
    step_ = step;
}

void Table::drop_row(std::int64_t id, Slot slot) {
    const std::uint64_t row = slot.place();
    if (capture_ != nullptr) capture_->preserve(row);
    if (options_.evict_after > 0) seen_.add(Record::last_seen(rows_.slab().at(row)), -1);
    rows_.drop(id, slot);
}

void Table::drop_expired(std::uint64_t words) {
    const std::uint32_t oldest = oldest_live(step_);
    if (oldest == 0) return;
    for (std::uint64_t i = 0; i < words; ++i) {
        sweep_ = sweep_ + 1 < rows_.slab().words() ? sweep_ + 1 : 0;
        for (std::uint64_t bits = rows_.slab().word(sweep_); bits != 0; bits &= bits - 1) {
            const std::uint64_t row =
                sweep_ * 64 + static_cast<std::uint64_t>(__builtin_ctzll(bits));
            const char* record = rows_.slab().at(row);
            if (Record::last_seen(record) >= oldest) continue;
            const std::int64_t id = Record::id(record);
            drop_row(id, Slot::hot(Index::hash(id), row));
            ++counters_.evicted;
        }
    }
    if (step_ % options_.evict_after == 0)
        for (std::size_t s = 0; s < Index::kSegments; ++s) rows_.sightings(s).erase_before(oldest);
}

namespace {

struct Worth {
    double score;
    std::uint64_t hash;
    std::int64_t id;
    Slot slot;
    // The least useful first; among equals the larger hash.
    bool operator<(const Worth& other) const {
        return score != other.score ? score < other.score : hash > other.hash;
    }
};

}  // namespace

void Table::keep_to_max_rows() {
    if (live_rows() <= options_.max_rows) return;
    std::vector<Worth> all;
    all.reserve(rows_.size());
    const std::uint32_t oldest = oldest_live(step_);
    std::size_t expired = 0;
    const Slab& slab = rows_.slab();
    for (std::uint64_t word = 0; word < slab.words(); ++word)
        for (std::uint64_t bits = slab.word(word); bits != 0; bits &= bits - 1) {
            const std::uint64_t row = word * 64 + static_cast<std::uint64_t>(__builtin_ctzll(bits));
            const char* record = slab.at(row);
            const std::int64_t id = Record::id(record);
            const std::uint32_t seen = Record::last_seen(record);
            const bool gone = seen < oldest;
            expired += gone;
            const double age = 1.0 + (static_cast<double>(step_) - static_cast<double>(seen));
            const double score = gone ? -1.0 : static_cast<double>(Record::frequency(record)) / age;
            const std::uint64_t hash = Index::hash(id);
            all.push_back({score, hash, id, Slot::hot(hash, row)});
        }
    const std::size_t kept = std::max<std::size_t>(1, options_.max_rows * 15 / 16);
    const std::size_t surplus = all.size() - std::min(kept, all.size() - expired);
    std::nth_element(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(surplus), all.end());
    for (std::size_t i = 0; i < surplus; ++i) drop_row(all[i].id, all[i].slot);
    counters_.evicted += surplus;
}

void Table::make_room_for(const std::int64_t* ids, std::size_t count) {
    std::array<std::size_t, Index::kSegments> additional{};
    for (std::size_t i = 0; i < count; ++i) ++additional[Index::segment(Index::hash(ids[i]))];
    rows_.make_room(additional, pool_, visit_cold());
}

void Table::restore(const std::int64_t* ids, std::size_t count, const float* values,
                    const float* state, const std::uint32_t* frequency,
                    const std::uint32_t* last_seen) {
    constexpr std::size_t kChunk = 65536;  // pulls get their turn between chunks
    const auto dim = static_cast<std::size_t>(layout().dim);
    const auto width = static_cast<std::size_t>(layout().state);
    for (std::size_t begin = 0; begin < count; begin += kChunk) {
        const std::size_t end = std::min(count, begin + kChunk);
        const std::unique_lock<TableLock> lock(lock_);
        make_room_for(ids + begin, end - begin);
        for (std::size_t i = begin; i < end; ++i)
            restore_row(ids[i], values + i * dim, state + i * width, frequency[i], last_seen[i]);
    }
}

void Table::restore_row(std::int64_t id, const float* values, const float* state,
                        std::uint32_t frequency, std::uint32_t last_seen) {
    const std::uint64_t hash = Index::hash(id);
    const Slot slot = rows_.find(id, hash);
    std::uint64_t row = slot.place();
    if (!slot) {
        rows_.slab().allocate(1, &row);
    } else {
        if (capture_ != nullptr) capture_->preserve(row);
        if (options_.evict_after > 0) seen_.add(Record::last_seen(rows_.slab().at(row)), -1);
    }
    char* record = rows_.slab().at(row);
    Record::set(record, id, frequency, last_seen);
    std::copy(values, values + layout().dim, Record::vector(record));
    std::copy(state, state + layout().state, layout().state_of(record));
    if (!slot) rows_.enter(id, row);
    if (options_.evict_after > 0) seen_.add(last_seen);
    rows_.sightings(Index::segment(hash)).erase(id);
}

void Table::restore_pending(const std::int64_t* ids, std::size_t count, const std::uint32_t* counts,
                            const std::uint32_t* last_seen) {
    const std::unique_lock<TableLock> lock(lock_);
    for (std::size_t i = 0; i < count; ++i)
        rows_.sightings(Index::segment(Index::hash(ids[i]))).set(ids[i], counts[i], last_seen[i]);
}

void Table::remove(const std::int64_t* ids, std::size_t count) {
    const std::unique_lock<TableLock> lock(lock_);
    for (std::size_t i = 0; i < count; ++i) {
        const std::uint64_t hash = Index::hash(ids[i]);
        rows_.sightings(Index::segment(hash)).erase(ids[i]);
        if (const Slot slot = rows_.find(ids[i], hash)) drop_row(ids[i], slot);
    }
}

std::map<std::string, double> Table::stats() const {
    const std::shared_lock<TableLock> lock(lock_);
    const std::uint32_t oldest = oldest_live(step_);
    std::size_t pending = 0;
    for (std::size_t s = 0; s < Index::kSegments; ++s)
        rows_.sightings(s).visit(
            [&](const Sightings::Entry& entry) { pending += entry.last_seen >= oldest; });
    std::map<std::string, double> stats;
    const auto put = [&](const char* name, auto value) {
        stats[name] = static_cast<double>(value);
    };
    put("rows", live_rows());
    put("hot_rows", rows_.slab().size());
    put("cold_rows", rows_.size() - rows_.slab().size());
    put("pending", pending);
    put("memory_bytes", rows_.bytes());
    put("pulls", counters_.pulls.load());
    put("pulled_ids", counters_.pulled_ids.load());
    put("hits", counters_.hits.load());
    put("misses", counters_.misses.load());
    put("unseen", counters_.unseen.load());
    put("pushes", counters_.pushes.load());
    put("pushed_ids", counters_.pushed_ids.load());
    put("distinct_ids", counters_.distinct_ids.load());
    put("commits", counters_.commits.load());
    put("created", counters_.created.load());
    put("evicted", counters_.evicted.load());
    put("pull_s", static_cast<double>(counters_.pull_ns.load()) * 1e-9);
    put("push_s", static_cast<double>(counters_.push_ns.load()) * 1e-9);
    const std::lock_guard<std::mutex> batches(batches_mutex_);
    put("open_batches", batches_.size() + (committing_ ? 1 : 0));
    return stats;
}

}  // namespace heterps::store
