#include "heterps/store/grouping.hpp"

#include <algorithm>
#include <cstring>
#include <limits>

namespace heterps::store {

namespace {

constexpr std::size_t kChunk = 4096;
constexpr std::size_t kFew = std::numeric_limits<std::uint16_t>::max();

void add(std::vector<float>& sum, const std::vector<float>& row) {
    for (std::size_t c = 0; c < sum.size(); ++c) sum[c] = sum[c] + row[c];
}

template <class T>
void fit(std::vector<T>& values, std::size_t count) {
    if (values.size() < count) values.resize(count);
}

}  // namespace

void Grouping::group(const std::vector<Span>& spans, ThreadPool& pool) {
    spans_ = spans;
    offsets_.assign(1, 0);
    for (const Span& span : spans_) offsets_.push_back(offsets_.back() + span.count);
    count_ = offsets_.back();
    fit(occurrences_, count_);
    fit(belongs_, count_);
    fit(distinct_, count_);
    scatter(pool);
}

template <class Visit>
void Grouping::visit_chunk(std::size_t chunk, Visit&& visit) const {
    std::size_t at = count_ * chunk / chunks_;
    const std::size_t end = count_ * (chunk + 1) / chunks_;
    auto span = static_cast<std::size_t>(std::upper_bound(offsets_.begin(), offsets_.end(), at) -
                                         offsets_.begin() - 1);
    for (; at < end; ++span) {
        const std::size_t stop = std::min(end, offsets_[span + 1]);
        for (; at < stop; ++at) visit(span, at - offsets_[span]);
    }
}

// A stable counting sort by segment.
void Grouping::scatter(ThreadPool& pool) {
    chunks_ = std::max<std::size_t>(
        1, std::min(static_cast<std::size_t>(pool.threads()) * 2, count_ / kChunk));
    cursors_.resize(chunks_);
    pool.run(chunks_, [&](std::size_t chunk) {
        auto& counts = cursors_[chunk];
        counts.fill(0);
        visit_chunk(chunk, [&](std::size_t span, std::size_t i) {
            ++counts[Index::segment(Index::hash(spans_[span].ids[i]))];
        });
    });
    std::size_t sum = 0;
    for (std::size_t s = 0; s < Index::kSegments; ++s) {
        begins_[s] = sum;
        for (auto& counts : cursors_) {
            const std::size_t count = counts[s];
            counts[s] = sum;
            sum += count;
        }
    }
    begins_[Index::kSegments] = sum;
    pool.run(chunks_, [&](std::size_t chunk) {
        auto& cursors = cursors_[chunk];
        visit_chunk(chunk, [&](std::size_t span, std::size_t i) {
            const std::int64_t id = spans_[span].ids[i];
            occurrences_[cursors[Index::segment(Index::hash(id))]++] = {
                id, static_cast<std::uint32_t>(i), static_cast<std::uint32_t>(span)};
        });
    });
}

DistinctRange Grouping::find_distinct(std::size_t segment, Tables& tables) {
    const bool few = begins_[segment + 1] - begins_[segment] <= kFew;
    return few ? find_distinct_in(segment, tables.few) : find_distinct_in(segment, tables.many);
}

// Whether an id was there before cannot be foreseen, so no branch depends on it: each id is written
// down as if it were new, and that stands unless it is found.
template <class Number>
DistinctRange Grouping::find_distinct_in(std::size_t segment, std::vector<Number>& table) {
    const std::size_t begin = begins_[segment], end = begins_[segment + 1];
    std::size_t size = 16;
    while (size < 2 * (end - begin)) size *= 2;
    table.assign(size, 0);
    Distinct* const distinct = distinct_.data() + begin;
    std::uint32_t found = 0;
    for (std::size_t i = begin; i < end; ++i) {
        const std::int64_t id = occurrences_[i].id;
        distinct[found] = {id, Slot{}, 0, 0};
        std::size_t at = Index::hash(id) & (size - 1);
        std::uint32_t d;
        for (;; at = (at + 1) & (size - 1)) {
            const std::uint32_t number = table[at];
            d = number != 0 ? number - 1 : found;
            if (distinct[d].id == id) break;
        }
        table[at] = static_cast<Number>(d + 1);
        ++distinct[d].occurrences;
        found += d == found ? 1 : 0;
        belongs_[i] = d;
    }
    distinct_counts_[segment] = found;
    return {distinct, found};
}

std::size_t Grouping::distinct() const {
    std::size_t sum = 0;
    for (const std::size_t count : distinct_counts_) sum += count;
    return sum;
}

DistinctRange Grouping::segment(std::size_t segment) {
    return {distinct_.data() + begins_[segment], distinct_counts_[segment]};
}

const float* Grouping::gradient(const Occurrence& occurrence, int dim) const {
    return spans_[occurrence.span].gradients +
           std::size_t{occurrence.index} * static_cast<std::size_t>(dim);
}

// A stable counting sort by distinct id.
void Grouping::order_gradients(std::size_t segment, int dim, GradientSums& sums) {
    const std::size_t begin = begins_[segment], count = begins_[segment + 1] - begin;
    Distinct* const distinct = distinct_.data() + begin;
    std::uint32_t end = 0;
    for (std::size_t d = 0; d < distinct_counts_[segment]; ++d) {
        distinct[d].first = end;
        end += distinct[d].occurrences;
    }
    sums.dim_ = dim;
    sums.sum_ = sum_rows_function(dim);
    sums.sum_row_.resize(static_cast<std::size_t>(dim));
    sums.part_.resize(static_cast<std::size_t>(dim));
    fit(sums.rows_, count + kRowsAhead);
    const bool several = spans_.size() > 1;
    sums.spans_.resize(several ? count : 0);
    for (std::size_t i = begin; i < begin + count; ++i) {
        const std::uint32_t at = distinct[belongs_[i]].first++;
        sums.rows_[at] = gradient(occurrences_[i], dim);
        if (several) sums.spans_[at] = occurrences_[i].span;
    }
    for (std::size_t d = 0; d < distinct_counts_[segment]; ++d)
        distinct[d].first -= distinct[d].occurrences;
    if (count > 0) std::fill_n(sums.rows_.begin() + count, kRowsAhead, sums.rows_[count - 1]);
}

const float* GradientSums::of(const Distinct& distinct) {
    const float* const* rows = rows_.data() + distinct.first;
    if (distinct.occurrences == 1) {
        __builtin_prefetch(rows[kRowsAhead]);
        __builtin_prefetch(rows[kRowsAhead] + dim_ - 1);
        return rows[0];
    }
    if (!spans_.empty()) return across_spans(distinct);
    sum_(rows, distinct.occurrences, dim_, sum_row_.data());
    return sum_row_.data();
}

const float* GradientSums::across_spans(const Distinct& distinct) {
    const std::size_t stop = distinct.first + distinct.occurrences;
    for (std::size_t at = distinct.first; at < stop;) {
        std::size_t end = at + 1;
        while (end < stop && spans_[end] == spans_[at]) ++end;
        const bool first = at == distinct.first;
        sum_(rows_.data() + at, end - at, dim_, first ? sum_row_.data() : part_.data());
        if (!first) add(sum_row_, part_);
        at = end;
    }
    return sum_row_.data();
}

}  // namespace heterps::store
