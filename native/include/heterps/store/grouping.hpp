// The distinct ids of a batch, shared out by index segment, and their gradients summed.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "heterps/store/index.hpp"
#include "heterps/store/row_sums.hpp"
#include "heterps/store/thread_pool.hpp"

namespace heterps::store {

// Ids and gradients that one caller gave; several of them make a batch, in ascending order.
struct Span {
    const std::int64_t* ids;
    const float* gradients;
    std::size_t count;
};

// One id of a batch, and where the index says its row is.
struct Distinct {
    std::int64_t id;
    Slot slot;
    std::uint32_t occurrences = 0,
                  first = 0;  // where its gradients begin among those of its segment
};

// A contiguous run of distinct ids; all ids of one index segment, in order of first occurrence.
struct DistinctRange {
    Distinct* begin_ = nullptr;
    std::size_t count = 0;
    Distinct* begin() const { return begin_; }
    Distinct* end() const { return begin_ + count; }
    DistinctRange part(std::size_t from, std::size_t most) const {
        return {begin_ + from, std::min(most, count - from)};
    }
};

// The gradients of one segment, ordered by distinct id; kept by a thread from batch to batch.
class GradientSums {
  public:
    // The gradient of one of the segment's distinct ids: within each span in order of occurrence,
    // then the spans in order. Valid until the next call.
    const float* of(const Distinct& distinct);

  private:
    friend class Grouping;
    const float* across_spans(const Distinct& distinct);

    int dim_ = 0;
    SumRows sum_ = nullptr;
    std::vector<const float*> rows_;    // and kRowsAhead more
    std::vector<std::uint32_t> spans_;  // of each row, if there are several
    std::vector<float> sum_row_, part_;
};

// Scratch is kept, so that a batch of the usual size allocates nothing. Not thread-safe, except
// that different segments may be visited at once.
class Grouping {
  public:
    // Shares the ids out; `find_distinct` has to follow for each segment, by any thread.
    void group(const std::vector<Span>& spans, ThreadPool& pool);
    // Where they are found again; kept by a thread. Half as large where few are looked for.
    struct Tables {
        std::vector<std::uint16_t> few;
        std::vector<std::uint32_t> many;
    };
    DistinctRange find_distinct(std::size_t segment, Tables& tables);

    std::size_t count() const { return count_; }  // ids, distinct or not
    std::size_t distinct() const;
    DistinctRange segment(std::size_t segment);
    void order_gradients(std::size_t segment, int dim, GradientSums& sums);

  private:
    struct Occurrence {
        std::int64_t id;
        std::uint32_t index, span;
    };

    void scatter(ThreadPool& pool);
    template <class Number>
    DistinctRange find_distinct_in(std::size_t segment, std::vector<Number>& table);
    template <class Visit>
    void visit_chunk(std::size_t chunk, Visit&& visit) const;
    const float* gradient(const Occurrence& occurrence, int dim) const;

    std::vector<Span> spans_;
    std::vector<std::size_t> offsets_;  // of each span in the batch
    std::size_t count_ = 0, chunks_ = 0;
    std::vector<std::array<std::size_t, Index::kSegments>> cursors_;  // per chunk
    std::array<std::size_t, Index::kSegments + 1> begins_{};
    std::array<std::size_t, Index::kSegments> distinct_counts_{};
    std::vector<Occurrence> occurrences_;  // by segment, in order
    std::vector<std::uint32_t> belongs_;   // which distinct id of its segment an occurrence is
    std::vector<Distinct> distinct_;
};

}  // namespace heterps::store
