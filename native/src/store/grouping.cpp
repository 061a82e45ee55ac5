#include "heterps/store/grouping.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace heterps::store {

namespace {

constexpr std::size_t kChunk = 4096;
constexpr std::size_t kAhead = 12;

void add(float* __restrict sum, const float* __restrict row, int dim) {
    for (int c = 0; c < dim; ++c) sum[c] = sum[c] + row[c];
}

// Rows of the caller need not begin with a cache line.
void prefetch_row(const float* row, int dim) {
    __builtin_prefetch(row);
    __builtin_prefetch(row + dim - 1);
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

DistinctRange Grouping::find_distinct(std::size_t segment, std::vector<std::uint32_t>& table) {
    const std::size_t begin = begins_[segment], count = begins_[segment + 1] - begin;
    std::size_t size = 16;
    while (size < 2 * count) size *= 2;
    fit(table, size);
    std::memset(table.data(), 0, size * sizeof table[0]);
    Distinct* distinct = distinct_.data() + begin;
    std::uint32_t found = 0;
    for (std::size_t i = begin; i < begin + count; ++i) {
        const std::int64_t id = occurrences_[i].id;
        std::size_t at = Index::hash(id) & (size - 1);
        while (table[at] != 0 && distinct[table[at] - 1].id != id) at = (at + 1) & (size - 1);
        if (table[at] == 0) {
            distinct[found] = {id, Slot{}, 0};
            table[at] = ++found;
        }
        belongs_[i] = table[at] - 1;
        ++distinct[table[at] - 1].occurrences;
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

void Grouping::sum(std::size_t segment, int dim, GradientSums& sums) const {
    const std::size_t begin = begins_[segment], count = begins_[segment + 1] - begin;
    const std::size_t distinct = distinct_counts_[segment];
    // An id that occurs once needs no sum; of the others there are half as many as occurrences, at
    // most, with two sums each when there are several spans.
    const std::size_t rows = std::min(2 * distinct, count);
    sums.start(distinct, rows, dim);
    if (spans_.size() == 1)
        sum_span(segment, dim, sums);
    else
        sum_spans(segment, dim, sums);
}

void Grouping::sum_span(std::size_t segment, int dim, GradientSums& sums) const {
    const Distinct* distinct = distinct_.data() + begins_[segment];
    const std::size_t end = begins_[segment + 1];
    for (std::size_t i = begins_[segment]; i < end; ++i) {
        if (i + kAhead < end) prefetch_row(gradient(occurrences_[i + kAhead], dim), dim);
        const std::uint32_t d = belongs_[i];
        const float* row = gradient(occurrences_[i], dim);
        if (distinct[d].occurrences == 1) {
            sums.gradient_[d] = row;
        } else if (sums.gradient_[d] == nullptr) {
            sums.running_[d].part = sums.fresh_row(dim);
            std::copy(row, row + dim, sums.running_[d].part);
            sums.gradient_[d] = sums.running_[d].part;
        } else {
            add(sums.running_[d].part, row, dim);
        }
    }
}

void Grouping::sum_spans(std::size_t segment, int dim, GradientSums& sums) const {
    const Distinct* distinct = distinct_.data() + begins_[segment];
    for (std::size_t i = begins_[segment]; i < begins_[segment + 1]; ++i) {
        const std::uint32_t d = belongs_[i];
        const float* row = gradient(occurrences_[i], dim);
        if (distinct[d].occurrences == 1) {
            sums.gradient_[d] = row;
            continue;
        }
        GradientSums::Running& running = sums.running_[d];
        if (running.part != nullptr && running.span == occurrences_[i].span) {
            add(running.part, row, dim);
            continue;
        }
        if (running.part == nullptr)
            running.part = sums.fresh_row(dim);
        else if (running.total == nullptr)
            running.total = std::exchange(running.part, sums.fresh_row(dim));
        else
            add(running.total, running.part, dim);
        std::copy(row, row + dim, running.part);
        running.span = occurrences_[i].span;
    }
    for (std::size_t d = 0; d < distinct_counts_[segment]; ++d) {
        GradientSums::Running& running = sums.running_[d];
        if (running.part == nullptr) continue;
        if (running.total != nullptr) add(running.total, running.part, dim);
        sums.gradient_[d] = running.total != nullptr ? running.total : running.part;
    }
}

void GradientSums::start(std::size_t distinct, std::size_t rows, int dim) {
    gradient_.assign(distinct, nullptr);
    running_.assign(distinct, Running{});
    fit(rows_, rows * static_cast<std::size_t>(dim));
    used_ = 0;
}

float* GradientSums::fresh_row(int dim) {
    return rows_.data() + used_++ * static_cast<std::size_t>(dim);
}

}  // namespace heterps::store
