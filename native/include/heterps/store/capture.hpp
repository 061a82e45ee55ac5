// The rows of a table as they were at one moment, read while the table goes on.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include "heterps/store/hash.hpp"
#include "heterps/store/rows.hpp"

namespace heterps::store {

struct RowBatch {
    std::vector<std::int64_t> ids;
    std::vector<float> values, state;
    std::vector<std::uint32_t> frequency, last_seen;

    void clear();
    void add(const RowView& row, const Layout& layout);
    void add(const RowBatch& from, std::size_t begin, std::size_t end, const Layout& layout);
    // Becomes the rows of `from` by ascending bucket; those of one bucket keep their order.
    void order_by_bucket(const RowBatch& from, const Layout& layout);
};

// What a capture knows besides the rows.
struct CaptureSummary {
    std::uint64_t rows = 0;
    std::array<std::uint64_t, kBuckets> bucket_counts{};
    std::uint64_t step = 0;
    std::int64_t committed = -1;
    std::vector<std::int64_t> removed;
    std::vector<Sightings::Entry> pending;
};

// The rows in RAM that a capture still has to read. One bit a row; whoever is about to change,
// remove or move a row preserves it first.
class HotCapture {
  public:
    // Rows last seen at `since` or before are left out. Nothing may change meanwhile.
    HotCapture(const Rows& rows, std::int64_t since);

    // Counts the rows wanted into `summary`. Nothing may change meanwhile.
    void count(CaptureSummary& summary) const;

    // Called by the owner of the row's segment; several threads at once.
    void preserve(std::uint64_t row) {
        if (row / 64 >= todo_.size()) return;
        const std::uint64_t bit = std::uint64_t{1} << (row % 64);
        if ((__atomic_load_n(&todo_[row / 64], __ATOMIC_RELAXED) & bit) != 0) keep(row, bit);
    }

    // Adds at most `max_rows` rows; adds none only at the end. Nothing may change meanwhile, and
    // one thread calls.
    void next(std::size_t max_rows, RowBatch& batch);

    // Of a record, or of a head in the slab.
    bool wants(const char* head) const {
        return static_cast<std::int64_t>(Record::last_seen(head)) > since_;
    }

  private:
    void keep(std::uint64_t row, std::uint64_t bit);

    const Rows& rows_;
    std::int64_t since_;
    std::vector<std::uint64_t> todo_;
    std::size_t cursor_ = 0;
    std::mutex mutex_;
    std::vector<char> kept_;  // records
};

}  // namespace heterps::store
