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
    has_base_ = true;
    rows_.keep_removed(true);
}

void Table::drop_row(std::int64_t id, Slot slot, std::uint32_t last_seen) {
    if (slot.is_cold())
        cold_->file().forget({slot.place()});
    else if (capture_ != nullptr)
        capture_->preserve(slot.place());
    if (options_.evict_after > 0) seen_.add(last_seen, -1);
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
            const char* head = rows_.slab().head(row);
            if (Record::last_seen(head) >= oldest) continue;
            drop_row(Record::id(head), Slot::hot(row), Record::last_seen(head));
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
    std::uint32_t last_seen;
    // The least useful first; among equals the larger hash.
    bool operator<(const Worth& other) const {
        return score != other.score ? score < other.score : hash > other.hash;
    }
};

Worth worth_of(const char* head, Slot slot, std::uint64_t step, std::uint32_t oldest) {
    const std::uint32_t seen = Record::last_seen(head);
    const double age = 1.0 + (static_cast<double>(step) - static_cast<double>(seen));
    const double score = static_cast<double>(Record::frequency(head)) / age;
    const std::int64_t id = Record::id(head);
    return {seen < oldest ? -1.0 : score, Index::hash(id), id, slot, seen};
}

}  // namespace

void Table::keep_to_max_rows() {
    const std::uint64_t live = live_rows();
    if (live <= options_.max_rows) return;
    std::vector<Worth> all;
    all.reserve(rows_.size());
    const std::uint32_t oldest = oldest_live(step_);
    const Slab& slab = rows_.slab();
    for (std::uint64_t word = 0; word < slab.words(); ++word)
        for (std::uint64_t bits = slab.word(word); bits != 0; bits &= bits - 1) {
            const std::uint64_t row = word * 64 + static_cast<std::uint64_t>(__builtin_ctzll(bits));
            all.push_back(worth_of(slab.head(row), Slot::hot(row), step_, oldest));
        }
    try {
        visit_cold()([&](const char* record, Slot slot) {
            all.push_back(worth_of(record, slot, step_, oldest));
        });
    } catch (const StoreError& error) {
        return note_cold_error(error);  // the step is done; the next one tries again
    }
    // What has expired comes first of all and does not count as kept.
    const std::uint64_t kept =
        std::min(std::max<std::uint64_t>(1, options_.max_rows * 15 / 16), live);
    const std::size_t surplus = all.size() - kept;
    std::nth_element(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(surplus), all.end());
    for (std::size_t i = 0; i < surplus; ++i) drop_row(all[i].id, all[i].slot, all[i].last_seen);
    counters_.evicted += surplus;
}

void Table::make_room_for(const std::int64_t* ids, std::size_t count) {
    Rows::PerSegment additional{};
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
        bring_in_all(ids + begin, end - begin);
        for (std::size_t i = begin; i < end; ++i)
            restore_row(ids[i], values + i * dim, state + i * width, frequency[i], last_seen[i]);
        make_room();
    }
}

void Table::restore_row(std::int64_t id, const float* values, const float* state,
                        std::uint32_t frequency, std::uint32_t last_seen) {
    const std::uint64_t hash = Index::hash(id);
    const Slot slot = rows_.find_hot(id, hash);
    std::uint64_t row = slot.place();
    if (!slot) {
        rows_.slab().allocate(1, &row);
    } else {
        if (capture_ != nullptr) capture_->preserve(row);
        if (options_.evict_after > 0) seen_.add(Record::last_seen(rows_.slab().head(row)), -1);
    }
    Record::set(rows_.slab().head(row), id, frequency, last_seen);
    std::copy(values, values + layout().dim, rows_.vector(row));
    std::copy(state, state + layout().state, rows_.state(row));
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
    bring_in_all(ids, count);
    for (std::size_t i = 0; i < count; ++i) {
        const std::uint64_t hash = Index::hash(ids[i]);
        rows_.sightings(Index::segment(hash)).erase(ids[i]);
        if (const Slot slot = rows_.find_hot(ids[i], hash))
            drop_row(ids[i], slot, Record::last_seen(rows_.slab().head(slot.place())));
    }
    make_room();
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
    put("memory_bytes", rows_.bytes() + (cold_ ? cold_->bytes() : 0));
    if (cold_) {
        const ColdFile& file = cold_->file();
        put("hot_capacity", cold_->capacity());
        put("cold_bytes", file.bytes_on_disk());
        put("cold_garbage_rows", file.garbage());
        put("cold_reads", file.counters().reads.load());
        put("cold_read_bytes", file.counters().read_bytes.load());
        put("cold_written_bytes", file.counters().written_bytes.load());
        put("cold_read_s", static_cast<double>(file.counters().read_ns.load()) * 1e-9);
        put("cold_errors", counters_.cold_errors.load());
        put("awaited", counters_.awaited.load());
        put("loaded_ahead", counters_.loaded_ahead.load());
    }
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
