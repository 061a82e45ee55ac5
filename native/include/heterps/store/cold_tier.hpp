// Which rows are in RAM and which on disk, within a budget of memory.
//
// Moving rows out has three steps, so that the disk can be waited for without the table's lock:
// choose and copy them, write the copy, and let go of those that have not changed meanwhile.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "heterps/store/capture.hpp"
#include "heterps/store/cold_file.hpp"
#include "heterps/store/cold_records.hpp"
#include "heterps/store/pages.hpp"
#include "heterps/store/rows.hpp"

namespace heterps::store {

// Records on their way to disk.
struct Outgoing {
    std::vector<Slot> from;
    std::vector<std::uint8_t> marks;  // of those in RAM, when they were chosen
    std::vector<char> records;
    std::uint64_t first = 0;  // the entry of the first, once written
    std::size_t size() const { return from.size(); }
    void clear();
};

// "Locked": the caller has the table for itself. "Readable": it may be read meanwhile.
class ColdTier {
  public:
    ColdTier(Rows& rows, const std::string& path, std::uint64_t memory_bytes);

    ColdFile& file() { return file_; }
    const ColdFile& file() const { return file_; }

    // Rows that fit in RAM beside the index. Readable.
    std::uint64_t capacity() const;
    // How many should go out to leave `spare` places. Readable.
    std::uint64_t surplus(std::uint64_t spare) const;

    // The least useful rows by frequency and recency, as many as go in one write. Readable, by one
    // thread.
    void choose(std::uint64_t step, Outgoing& outgoing);
    // What is wanted of the emptiest extents, without the `busy` ones, which ascend and to which it
    // adds them; takes the file's own locks only. The table may change meanwhile, so the caller has
    // frozen the file.
    void choose_from_disk(std::vector<std::size_t>& busy, Outgoing& outgoing,
                          AlignedBuffer& buffer) const;
    // Throws StoreError; then nothing has changed.
    void write(Outgoing& outgoing, AlignedBuffer& buffer);
    // `moves`, if given, receives where rows went from one place on disk to another. Locked.
    using Moves = std::vector<std::pair<Slot, Slot>>;
    void let_go(const Outgoing& outgoing, HotCapture* capture, Moves* moves = nullptr);

    // Brings rows back from their records, except those whose slots are out of date or that were
    // not read well; with `riders`, one for each, they stay until those have used them. `places`
    // receives each one's slot in RAM, or an empty one. Locked.
    void bring_in(const ColdRecords& found, const Rider* riders, std::vector<Slot>& places);

    // Moves a bounded number of rows from beyond the capacity to places within it, so that memory
    // which a burst of rows took is given back; and sees that new rows can be guarded. Locked.
    void trim(HotCapture* capture);

    // A row in RAM that will be used by `step`: it stays until then. Readable.
    void guard(std::uint64_t row, std::uint64_t step);

    bool wants_cleaning() const;
    // What the table needs besides to load rows ahead; it counts as well. By any thread.
    void set_working_bytes(std::uint64_t bytes) { working_bytes_ = bytes; }
    std::uint64_t memory_bytes() const { return memory_bytes_; }
    std::size_t bytes() const;

  private:
    double worth(std::uint64_t row, std::uint64_t step);
    // The step until which a row stays, as a number from 1 to kGuardCycle; 0: none.
    void set_mark(std::uint64_t row, std::uint8_t mark);
    std::uint8_t mark(std::uint64_t row) const;

    Rows& rows_;
    ColdFile file_;
    std::uint64_t memory_bytes_;
    std::atomic<std::uint64_t> working_bytes_{0};
    std::uint64_t hand_ = 0;  // the slab word at which the choice goes on
    Pages guards_;
    struct Candidate {
        double worth;
        std::uint64_t row;
    };
    std::vector<Candidate> candidates_;
    std::vector<std::uint64_t> entries_, forgotten_,
        rows_taken_;  // scratch of those that are locked
};

}  // namespace heterps::store
