// A sparse table: 64-bit ids to rows, with the optimizer rule beside them.
//
// All methods may be called by several threads at once. Pulls run beside each other; a push, a
// commit or a restore has the table for itself and is seen by a pull as a whole or not at all.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <string>
#include <vector>

#include "heterps/store/batches.hpp"
#include "heterps/store/capture.hpp"
#include "heterps/store/cold_records.hpp"
#include "heterps/store/cold_tier.hpp"
#include "heterps/store/errors.hpp"
#include "heterps/store/lift.hpp"
#include "heterps/store/rows.hpp"
#include "heterps/store/table_lock.hpp"
#include "heterps/store/thread_pool.hpp"
#include "heterps/store/update.hpp"

namespace heterps::store {

struct TableOptions {
    int dim = 0;
    std::string rule;
    double lr = 0;
    RuleOptions rule_options;
    std::string initial = "zeros";
    double scale = 0;
    std::uint64_t seed = 0;
    int threads = 0;
    std::uint64_t memory_bytes = 0;  // 0: no bound
    std::string path;                // of the cold file; empty: none
    std::uint32_t admission = 0, evict_after = 0;
    std::uint64_t max_rows = 0;
    std::uint32_t staleness = 0;
};

class Capture;

class Table {
  public:
    explicit Table(const TableOptions& options);  // throws std::invalid_argument, StoreError
    ~Table();
    Table(const Table&) = delete;
    Table& operator=(const Table&) = delete;

    // `out` is [count, dim]. Changes nothing but, maybe, which rows are in RAM.
    void pull(const std::int64_t* ids, std::size_t count, float* out);
    // `gradients` is [count, dim]. If it throws, nothing has changed.
    void push(const std::int64_t* ids, std::size_t count, const float* gradients,
              std::optional<double> lr);

    // Synchronous mode; see docs/parameter-server.md. A batch commits in the call that makes it
    // whole, or in the one that commits the batch before it. If that call throws StoreError, the
    // part is kept, and the next announcement or part tries again.
    void announce(std::int64_t batch, std::size_t parts, std::optional<double> lr);
    bool accumulate(std::int64_t batch, PartKey part, const std::int64_t* ids, std::size_t count,
                    const float* gradients);
    // Whether a pull for `batch` may go ahead, at the latest after `timeout_s` (negative: no
    // limit).
    bool wait(std::int64_t batch, double timeout_s);
    std::int64_t committed() const;
    void set_committed(std::int64_t batch);

    // Returns at once; rows on disk are brought in by a thread of the table.
    void prefetch(const std::int64_t* ids, std::size_t count);
    void drain();

    double lr() const;
    void set_lr(double lr);
    std::uint64_t step() const;
    void set_step(std::uint64_t step);
    std::size_t size() const;
    std::map<std::string, double> stats() const;
    std::string cold_error() const;  // the last failure of the cold file's writes; empty: none

    // One capture may be open at a time; throws std::invalid_argument for a second one.
    std::unique_ptr<Capture> capture(std::int64_t since_step);

    void restore(const std::int64_t* ids, std::size_t count, const float* values,
                 const float* state, const std::uint32_t* frequency,
                 const std::uint32_t* last_seen);
    void restore_pending(const std::int64_t* ids, std::size_t count, const std::uint32_t* counts,
                         const std::uint32_t* last_seen);
    void remove(const std::int64_t* ids, std::size_t count);

    const Layout& layout() const { return rows_.layout(); }

  private:
    friend class Capture;
    struct Counters {
        std::atomic<std::uint64_t> pulls{0}, pulled_ids{0}, hits{0}, misses{0}, unseen{0};
        std::atomic<std::uint64_t> pushes{0}, pushed_ids{0}, distinct_ids{0}, commits{0};
        std::atomic<std::uint64_t> created{0}, evicted{0}, loaded_ahead{0}, awaited{0},
            cold_errors{0};
        std::atomic<std::uint64_t> pull_ns{0}, push_ns{0};
    };
    // A prefetch; the times are on `clock_`.
    struct Ahead {
        std::vector<std::int64_t> ids;
        std::uint64_t number;
        double due, used;  // when its rows should be there, and when they will have been used
    };
    struct Pace {
        double clock = 0, ids_per_step = 0;
        std::uint64_t drained = 0;
        double floors = 0;  // that the lift has yet to pass by now
    };
    // Rows read and not yet brought in.
    struct Slice {
        explicit Slice(ColdFile& file) : frozen(file) {}
        void read(const Rows& rows, const ColdTier& cold);
        std::vector<std::size_t> extents(const ColdFile& file) const;
        // Whether the row is among these; then it stays for the later use too.
        bool keep_for(const Rider& rider);
        Frozen frozen;
        std::vector<Rider> riders;  // by place
        ColdRecords found;          // one for each
        std::uint64_t served = 0;   // requests that are done once it has been brought in
    };
    struct PullCounts {
        std::uint64_t hits = 0, unseen = 0;
    };

    struct Miss {
        std::size_t index;  // of the id in the call
        Slot slot;
    };

    void pull_chunk(const std::int64_t* ids, std::size_t count, float* out, bool past_cache,
                    PullCounts& counts, std::vector<Miss>& misses);
    void pull_row(std::int64_t id, Slot slot, float* out, PullCounts& counts);
    // `head` may be a record's.
    void copy_row(const char* head, const float* vector, float* out) const;
    void await_ahead(const std::int64_t* ids, float* out, std::vector<Miss>& misses,
                     std::shared_lock<TableLock>& lock);
    void pull_cold(const std::int64_t* ids, float* out, std::vector<Miss>& misses);
    void fill_unseen(std::int64_t id, float* out) const;

    // With the table locked for writing:
    void apply_step(const std::vector<Span>& spans, double lr);
    UpdateLimits limits_at(std::uint64_t step) const;
    void drop_row(std::int64_t id, Slot slot, std::uint32_t last_seen);
    void drop_expired(std::uint64_t words);  // in the next so many words of the slab
    void drop_expired_on_disk();
    void keep_to_max_rows();
    void restore_row(std::int64_t id, const float* values, const float* state,
                     std::uint32_t frequency, std::uint32_t last_seen);
    void make_room_for(const std::int64_t* ids, std::size_t count);
    VisitCold visit_cold();
    void settle(const std::vector<Distinct*>& cold);
    Slot bring_in_one(std::int64_t id);
    void bring_in_all(const std::int64_t* ids, std::size_t count);
    void make_room();
    void insist_on_room();  // throws StoreError

    // In the thread that works ahead, with nothing locked:
    void work_ahead();
    bool prepare(const Pace& now);
    void board_waiting(const Pace& now);
    void count_working_bytes();
    std::size_t board(const Ahead& request, const Pace& now, std::size_t most);
    // With the table locked for reading:
    void board_some(const std::int64_t* ids, std::size_t count, std::uint64_t used_by,
                    std::vector<Rider>& riders);

    // With nothing locked again:
    std::size_t floors_due(const Pace& now);
    void work_slice(std::size_t floors, bool cleaning);
    void exchange(const Slice* coming);
    void clean(std::vector<std::size_t> busy);
    void choose_outgoing(std::size_t places);
    Outgoing& next_moving();

    bool write_out(Outgoing& outgoing, AlignedBuffer& buffer);
    void note_cold_error(const std::exception& error);
    std::uint64_t spare_places() const;
    void note_pulled(std::size_t count);
    void note_step(std::size_t count);
    std::uint64_t asked_for_now() const;

    std::uint32_t oldest_live(std::uint64_t step) const;  // rows last seen before it have expired
    std::uint64_t live_rows() const;
    void commit_whole_batches(std::unique_lock<std::mutex>& lock);
    void commit_batch(std::int64_t number, const Batch& batch);

    const TableOptions options_;
    ThreadPool pool_;

    mutable TableLock lock_;  // guards all down to the blank line
    Rows rows_;
    Update update_;
    SeenCounts seen_;
    std::uint64_t step_ = 0;
    std::uint64_t sweep_ = 0;  // the slab word at which the search for expired rows goes on
    HotCapture* capture_ = nullptr;
    bool has_base_ = false;  // a capture that went well, or a load: a delta may follow
    std::unique_ptr<ColdTier> cold_;
    Outgoing outgoing_;
    std::vector<Slot> places_;
    AlignedBuffer buffer_;
    std::uint64_t retry_step_ = 0;  // no writing to disk before this step

    // This and all down to the mutex belong to the thread that works ahead.
    std::unique_ptr<Lift> lift_;
    std::unique_ptr<Slice> slice_;
    std::uint64_t lifted_ = 0;
    Pace pace_;
    std::deque<Ahead> waiting_;  // for their turn to board the lift
    struct Aboard {
        double used;
        std::size_t riders;
    };
    std::deque<Aboard> aboard_;  // not used yet
    std::size_t riders_aboard_ = 0;
    bool crowded_ = false;          // no more may board
    std::vector<Outgoing> moving_;  // the first `moved_` of them, the last ones from disk
    std::size_t moved_ = 0, moved_from_ram_ = 0;
    AlignedBuffer moving_buffer_;
    mutable std::mutex ahead_mutex_;  // after lock_; guards down to the blank line
    std::condition_variable ahead_changed_;
    std::vector<Ahead> ahead_;                               // not yet looked at
    std::deque<std::pair<std::uint64_t, double>> expected_;  // not yet served, and when used
    std::uint64_t asked_ = 0, served_ = 0, slices_ = 0;
    std::uint64_t drained_ = 0;  // requests up to this one are waited for
    double clock_ = 0;           // ids pulled
    double ids_ahead_ = 0;       // asked for ahead and not pulled yet
    double ids_per_step_ = 0, pulled_in_step_ = 0;
    bool tidy_ = false, stop_ = false;
    std::string cold_error_;

    mutable std::mutex batches_mutex_;  // after lock_ where both are held
    std::condition_variable batches_changed_;
    Batches batches_;
    std::int64_t committed_ = -1;
    bool committing_ = false;

    std::atomic<std::uint64_t> waiting_ids_{0};  // that were asked for ahead and not looked at
    std::mutex capture_mutex_;
    std::atomic<double> lr_;
    Counters counters_;
    std::thread ahead_thread_;  // last: it uses all the others
};

// A table as it was at one moment. Used by one thread; the table must outlive it.
class Capture {
  public:
    ~Capture();
    const CaptureSummary& summary() const { return summary_; }
    const Layout& layout() const { return table_.layout(); }
    // Replaces the batch by the next rows, at most `max_rows`, by ascending bucket; false after
    // the last. The table stands still for a small part of them at a time.
    bool next(std::size_t max_rows, RowBatch& batch);
    // With `ok`, later captures no longer report what was removed before this one.
    void finish(bool ok);

  private:
    friend class Table;
    Capture(Table& table, std::int64_t since);

    Table& table_;
    CaptureSummary summary_;
    void count_cold();
    void stage(std::size_t max_rows);
    void stage_cold(std::size_t max_rows);

    std::int64_t since_;
    std::unique_ptr<HotCapture> hot_;
    ColdFile::Snapshot cold_;
    std::unique_ptr<Frozen> frozen_;
    std::size_t extent_ = 0;
    RowBatch extent_rows_;  // of the extent that is being read
    std::size_t extent_given_ = 0;
    RowBatch staged_;  // in the order in which they were found
    AlignedBuffer buffer_;
    bool open_ = true;
};

}  // namespace heterps::store
