// The distinct ids of a batch, shared out by index segment, and their gradients summed.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "heterps/store/index.hpp"
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
    std::uint32_t occurrences;
};

// A contiguous run of distinct ids; all ids of one index segment, in order of first occurrence.
struct DistinctRange {
    Distinct* begin_ = nullptr;
    std::size_t count = 0;
    Distinct* begin() const { return begin_; }
    Distinct* end() const { return begin_ + count; }
};

// What one thread needs to sum the gradients of one segment; kept from batch to batch.
class GradientSums {
  public:
    // After `Grouping::sum`: the gradient of the segment's d-th distinct id.
    const float* operator[](std::size_t d) const { return gradient_[d]; }

  private:
    friend class Grouping;
    struct Running {
        std::uint32_t span = 0;
        float* total = nullptr;  // sum of the spans before
        float* part = nullptr;   // sum within the span
    };
    float* fresh_row(int dim);
    void start(std::size_t distinct, std::size_t rows, int dim);

    std::vector<const float*> gradient_;
    std::vector<Running> running_;
    std::vector<float> rows_;
    std::size_t used_ = 0;
};

// Scratch is kept, so that a batch of the usual size allocates nothing. Not thread-safe, except
// that different segments may be visited at once.
class Grouping {
  public:
    // Shares the ids out; `find_distinct` has to follow for each segment, by any thread.
    void group(const std::vector<Span>& spans, ThreadPool& pool);
    DistinctRange find_distinct(std::size_t segment, std::vector<std::uint32_t>& table);

    std::size_t count() const { return count_; }  // ids, distinct or not
    std::size_t distinct() const;
    DistinctRange segment(std::size_t segment);
    // Sums in order of occurrence within each span, then the spans in order.
    void sum(std::size_t segment, int dim, GradientSums& sums) const;

  private:
    struct Occurrence {
        std::int64_t id;
        std::uint32_t index, span;
    };

    void scatter(ThreadPool& pool);
    template <class Visit>
    void visit_chunk(std::size_t chunk, Visit&& visit) const;
    void sum_span(std::size_t segment, int dim, GradientSums& sums) const;
    void sum_spans(std::size_t segment, int dim, GradientSums& sums) const;
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
