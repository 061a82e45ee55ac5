#include "heterps/store/update.hpp"

#include <algorithm>
#include <atomic>
#include <limits>

namespace heterps::store {

namespace {

constexpr std::size_t kSmall = 2048;  // below this many ids, threads cost more than they bring
constexpr std::size_t kAhead = 24;
constexpr std::size_t kBlock = 32;

}  // namespace

void SeenCounts::merge(SeenCounts& other) {
    for (const auto& [step, count] : other.counts_) add(step, count);
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
    const bool at_once = rows_.all_in_ram();
    for_segments(pool, [&](std::size_t s, Scratch& scratch) {
        scratch.missing = 0;
        look_up(grouping_.find_distinct(s, scratch.tables), at_once, scratch);
        done_[s] = at_once && !rows_.lacks_room(s, scratch.missing);
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
    Rows::PerSegment additional{};
    for (std::size_t s = 0; s < Index::kSegments; ++s)
        if (!done_[s])
            for (const Distinct& distinct : grouping_.segment(s)) additional[s] += !distinct.slot;
    rows_.make_room(additional, pool, visit_cold);
    for_segments(pool, [&](std::size_t s, Scratch& scratch) {
        if (done_[s]) return;
        const DistinctRange range = grouping_.segment(s);
        for (std::size_t at = 0; at < range.count; at += kBlock) {
            std::uint64_t rows[kBlock];
            std::size_t count = 0;
            for (const Distinct& distinct : range.part(at, kBlock))
                rows[count++] = distinct.slot.place();
            fetch_rows(rows, count);
        }
        apply_segment(s, context, scratch);
    });
}

// In blocks of two stages, as in Table::pull_chunk: fetch the lines of one, find the rows of the
// one before it and, if they are used at once, fetch those. What is not in the first line of its
// search waits until the others are done.
void Update::look_up(DistinctRange range, bool at_once, Scratch& scratch) {
    for (std::size_t at = 0; at < range.count + kBlock; at += kBlock) {
        if (at < range.count) fetch_lines(range.part(at, kBlock));
        if (at > 0) find_rows(range.part(at - kBlock, kBlock), at_once, scratch);
    }
    look_up_late(scratch);
}

void Update::fetch_lines(DistinctRange range) const {
    const void* lines[kBlock];
    std::size_t count = 0;
    for (const Distinct& distinct : range)
        lines[count++] = rows_.index().line(Index::hash(distinct.id));
    for (std::size_t k = 0; k < count; ++k) __builtin_prefetch(lines[k]);
}

void Update::find_rows(DistinctRange range, bool at_once, Scratch& scratch) {
    const Index& index = rows_.index();
    std::uint64_t rows[kBlock];
    std::size_t found = 0;
    for (Distinct& distinct : range) {
        const std::uint64_t hash = Index::hash(distinct.id);
        const std::uint64_t row = index.find_in_first_line(index.line(hash), distinct.id);
        if (__builtin_expect(row != Index::kNowhere, 1)) {
            distinct.slot = Slot::hot(row);
            rows[found++] = row;
        } else {
            index.prefetch_second_line(hash);
            scratch.late.push_back(&distinct);
        }
    }
    if (at_once) fetch_rows(rows, found);
}

void Update::fetch_rows(const std::uint64_t* rows, std::size_t count) const {
    for (std::size_t k = 0; k < count; ++k) __builtin_prefetch(rows_.slab().body(rows[k]));
    for (std::size_t k = 0; k < count; ++k) __builtin_prefetch(rows_.slab().head(rows[k]));
}

void Update::look_up_late(Scratch& scratch) {
    for (Distinct* distinct : scratch.late) {
        distinct->slot = rows_.find(distinct->id, Index::hash(distinct->id));
        scratch.missing += !distinct->slot;
        if (distinct->slot.is_cold())
            scratch.cold.push_back(distinct);
        else
            rows_.fetch(distinct->slot.place());
    }
    scratch.late.clear();
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
        const std::uint32_t last_seen = Record::last_seen(rows_.slab().head(row));
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
        distinct.slot = Slot::hot(row);
        if (context.limits.count_seen) scratch.seen.add(context.limits.step);
    }
}

void Update::apply_rule(DistinctRange range, const Context& context, Scratch& scratch) {
    const std::uint32_t step = context.limits.step;
    for (std::size_t i = 0; i < range.count; ++i) {
        if (i + kAhead < range.count) rows_.fetch(range.begin()[i + kAhead].slot.place());
        const Distinct& distinct = range.begin()[i];
        if (!distinct.slot) continue;
        const std::uint64_t row = distinct.slot.place();
        char* head = rows_.slab().head(row);
        if (context.capture != nullptr) context.capture->preserve(row);
        if (context.limits.count_seen) {
            scratch.seen.add(Record::last_seen(head), -1);
            scratch.seen.add(step);
        }
        const std::uint32_t frequency = Record::frequency(head);
        const bool most = frequency == std::numeric_limits<std::uint32_t>::max();
        Record::set_seen(head, most ? frequency : frequency + 1, step);
        context.apply(context.step, rows_.vector(row), rows_.state(row), scratch.sums.of(distinct));
    }
}

}  // namespace heterps::store
