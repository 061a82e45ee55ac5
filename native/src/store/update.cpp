#include "heterps/store/update.hpp"

#include <algorithm>
#include <atomic>
#include <limits>

namespace heterps::store {

namespace {

constexpr std::size_t kSmall = 2048;  // below this many ids, threads cost more than they bring
constexpr std::size_t kAhead = 24;
constexpr std::size_t kBlock = 32;

void prefetch_record(const char* record, std::size_t bytes) {
    __builtin_prefetch(record);
    __builtin_prefetch(record + 64);
    __builtin_prefetch(record + bytes - 1);
}

}  // namespace

void SeenCounts::merge(SeenCounts& other) {
    for (const auto& [step, count] : other.counts_) {
        std::int64_t& sum = counts_[step];
        sum += count;
        if (sum == 0) counts_.erase(step);
    }
    other.counts_.clear();
}

std::uint64_t SeenCounts::since(std::uint32_t step) const {
    std::int64_t sum = 0;
    for (const auto& [seen, count] : counts_)
        if (seen >= step) sum += count;
    return static_cast<std::uint64_t>(sum);
}

template <class Work>
void Update::for_segments(ThreadPool& pool, Work&& work) {
    const auto threads = static_cast<std::size_t>(pool.threads());
    std::atomic<std::size_t> next{0};
    pool.run(grouping_.count() < kSmall ? 1 : threads, [&](std::size_t thread) {
        for (std::size_t s; (s = next.fetch_add(1)) < Index::kSegments;) work(s, scratch_[thread]);
    });
}

void Update::run(const std::vector<Span>& spans, const UpdateLimits& limits, const RuleStep& step,
                 ThreadPool& pool, const Settle& settle, const VisitCold& visit_cold,
                 HotCapture* capture, SeenCounts& seen) {
    const Context context{limits, step, rows_.rule().function(step.dim), capture};
    scratch_.resize(static_cast<std::size_t>(pool.threads()));
    grouping_.group(spans, pool);
    // With rows on disk nothing may change before all have been read. Otherwise a segment is
    // finished while its records are in the cache.
    const bool at_once = rows_.slab().size() == rows_.size();
    for_segments(pool, [&](std::size_t s, Scratch& scratch) {
        const DistinctRange range = grouping_.find_distinct(s, rows_.index(), scratch.table);
        const std::size_t missing = look_up(range, scratch);
        done_[s] = at_once && !rows_.index().lacks_room(s, missing);
        if (done_[s]) apply_segment(s, context, scratch);
    });
    if (std::count(done_.begin(), done_.end(), false) > 0)
        finish(context, pool, settle, visit_cold);
    for (Scratch& scratch : scratch_) seen.merge(scratch.seen);
}

void Update::finish(const Context& context, ThreadPool& pool, const Settle& settle,
                    const VisitCold& visit_cold) {
    std::vector<Distinct*> cold;
    for (Scratch& scratch : scratch_) {
        cold.insert(cold.end(), scratch.cold.begin(), scratch.cold.end());
        scratch.cold.clear();
    }
    if (!cold.empty()) settle(cold);
    std::array<std::size_t, Index::kSegments> additional{};
    for (std::size_t s = 0; s < Index::kSegments; ++s)
        if (!done_[s])
            for (const Distinct& distinct : grouping_.segment(s)) additional[s] += !distinct.slot;
    rows_.make_room(additional, pool, visit_cold);
    for_segments(pool, [&](std::size_t s, Scratch& scratch) {
        if (!done_[s]) apply_segment(s, context, scratch);
    });
}

// Guesses where the rows are and fetches them; in two loops, see Table::pull_chunk.
void Update::fetch_records(Distinct* begin, std::size_t count) const {
    const char* records[kBlock];
    for (std::size_t k = 0; k < count; ++k) {
        begin[k].slot = rows_.index().guess(Index::hash(begin[k].id));
        const bool hot = begin[k].slot && !begin[k].slot.is_cold();
        records[k] = rows_.slab().at(hot ? begin[k].slot.place() : 0);
    }
    for (std::size_t k = 0; k < count; ++k) __builtin_prefetch(records[k]);
    for (std::size_t k = 0; k < count; ++k) __builtin_prefetch(records[k] + 64);
    const std::size_t last = rows_.slab().stride() - 1;
    for (std::size_t k = 0; k < count; ++k) __builtin_prefetch(records[k] + last);
}

// How many have no row. Blocks in two stages: what one fetches, the next confirms.
std::size_t Update::look_up(DistinctRange range, Scratch& scratch) {
    std::size_t missing = 0;
    const auto fetch = [&](std::size_t from) {
        if (from < range.count)
            fetch_records(range.begin() + from, std::min(kBlock, range.count - from));
    };
    fetch(0);
    for (std::size_t i = 0; i < range.count; ++i) {
        if (i % kBlock == 0) fetch(i + kBlock);
        Distinct& distinct = range.begin()[i];
        const Slot slot = distinct.slot;
        if (slot.is_cold() || (slot && Record::id(rows_.slab().at(slot.place())) != distinct.id))
            distinct.slot = rows_.find(distinct.id, Index::hash(distinct.id));
        missing += !distinct.slot;
        if (distinct.slot.is_cold()) scratch.cold.push_back(&distinct);
    }
    return missing;
}

void Update::apply_segment(std::size_t segment, const Context& context, Scratch& scratch) {
    const DistinctRange range = grouping_.segment(segment);
    if (range.count == 0) return;
    grouping_.order_gradients(segment, rows_.layout().dim, scratch.sums);
    if (context.limits.oldest > 0) drop_expired(range, context, scratch);
    admit(segment, range, context, scratch);
    create(range, context, scratch);
    apply_rule(range, context, scratch);
}

void Update::drop_expired(DistinctRange range, const Context& context, Scratch& scratch) {
    for (Distinct& distinct : range) {
        if (!distinct.slot) continue;
        const std::uint64_t row = distinct.slot.place();
        const std::uint32_t last_seen = Record::last_seen(rows_.slab().at(row));
        if (last_seen >= context.limits.oldest) continue;
        if (context.capture != nullptr) context.capture->preserve(row);
        scratch.seen.add(last_seen, -1);
        rows_.drop(distinct.id, distinct.slot);
        distinct.slot = {};
    }
}

// Chooses the ids that get a row now; counts a sighting for the others.
void Update::admit(std::size_t segment, DistinctRange range, const Context& context,
                   Scratch& scratch) {
    const UpdateLimits& limits = context.limits;
    Sightings& sightings = rows_.sightings(segment);
    scratch.fresh.clear();
    for (std::size_t i = 0; i < range.count; ++i) {
        const Distinct& distinct = range.begin()[i];
        if (distinct.slot) continue;
        const Sightings::Entry* entry = sightings.find(distinct.id);
        const bool counts = entry != nullptr && entry->last_seen >= limits.oldest;
        const std::uint32_t before = counts ? entry->count : 0;
        if (std::uint64_t{before} + 1 < limits.admission) {
            sightings.set(distinct.id, before + 1, limits.step);
            continue;
        }
        if (entry != nullptr) sightings.erase(distinct.id);
        scratch.fresh.push_back({i, before});
    }
}

void Update::create(DistinctRange range, const Context& context, Scratch& scratch) {
    if (scratch.fresh.empty()) return;
    scratch.allocated.resize(scratch.fresh.size());
    rows_.slab().allocate(scratch.fresh.size(), scratch.allocated.data());
    for (std::size_t i = 0; i < scratch.fresh.size(); ++i) {
        Distinct& distinct = range.begin()[scratch.fresh[i].index];
        const std::uint64_t row = scratch.allocated[i];
        rows_.create(distinct.id, row, scratch.fresh[i].frequency, context.limits.step);
        distinct.slot = Slot::hot(Index::hash(distinct.id), row);
        if (context.limits.count_seen) scratch.seen.add(context.limits.step);
    }
}

void Update::apply_rule(DistinctRange range, const Context& context, Scratch& scratch) {
    const Layout& layout = rows_.layout();
    const std::uint32_t step = context.limits.step;
    for (std::size_t i = 0; i < range.count; ++i) {
        if (i + kAhead < range.count) {
            prefetch_record(rows_.slab().at(range.begin()[i + kAhead].slot.place()),
                            rows_.slab().stride());
        }
        const Distinct& distinct = range.begin()[i];
        if (!distinct.slot) continue;
        const std::uint64_t row = distinct.slot.place();
        char* record = rows_.slab().at(row);
        if (context.capture != nullptr) context.capture->preserve(row);
        if (context.limits.count_seen) {
            scratch.seen.add(Record::last_seen(record), -1);
            scratch.seen.add(step);
        }
        const std::uint32_t frequency = Record::frequency(record);
        const bool most = frequency == std::numeric_limits<std::uint32_t>::max();
        Record::set_seen(record, most ? frequency : frequency + 1, step);
        context.apply(context.step, Record::vector(record), layout.state_of(record),
                      scratch.sums.of(distinct));
    }
}

}  // namespace heterps::store
