// What every table does: construction, pull, push, synchronous batches.
#include "heterps/store/table.hpp"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include <algorithm>
#include <cmath>
#include <cstring>
#include <shared_mutex>
#include <stdexcept>

#include "heterps/store/id_block.hpp"

namespace heterps::store {

namespace {

class Stopwatch {
  public:
    explicit Stopwatch(std::atomic<std::uint64_t>& total_ns) : total_ns_(total_ns) {}
    ~Stopwatch() {
        const auto spent = std::chrono::steady_clock::now() - start_;
        total_ns_ += static_cast<std::uint64_t>(
            std::chrono::duration_cast<std::chrono::nanoseconds>(spent).count());
    }

  private:
    std::atomic<std::uint64_t>& total_ns_;
    std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

constexpr std::size_t kLine = 64;

// So much does not stay in the cache until it is read; written past it, it leaves what is there,
// and is not fetched before it is overwritten. `flush_lines_out` makes it seen by other threads.
constexpr std::size_t kTooMuchToCache = std::size_t{4} << 20;

#if defined(__SSE2__)
void write_line_out(const char* from, char* to) {
    for (std::size_t at = 0; at < kLine; at += 16)
        _mm_stream_si128(reinterpret_cast<__m128i*>(to + at),
                         _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + at)));
}
void flush_lines_out() { _mm_sfence(); }
#else
void write_line_out(const char* from, char* to) { std::memcpy(to, from, kLine); }
void flush_lines_out() {}
#endif

template <class Block>
void copy_lines_out(const Block& block, float* out) {
    for (std::size_t k = 0; k < block.count; ++k)
        write_line_out(block.places[k], reinterpret_cast<char*>(out) + block.at[k] * kLine);
}

Layout layout_of(const TableOptions& options, const Rule& rule) {
    if (options.dim < 1) throw std::invalid_argument("dim must be at least 1");
    return {options.dim, rule.state_width(options.dim)};
}

}  // namespace

Table::Table(const TableOptions& options)
    : options_(options),
      pool_(options.threads),
      rows_(layout_of(options, Rule(options.rule, options.rule_options)),
            Rule(options.rule, options.rule_options),
            Initial(initial_kind(options.initial), options.scale, options.seed),
            options.memory_bytes > 0),
      update_(rows_),
      lr_(options.lr) {
    if (options.memory_bytes == 0 || options.path.empty()) {
        if (options.memory_bytes > 0)
            throw std::invalid_argument("memory_bytes needs a path for the cold file");
        return;
    }
    cold_ = std::make_unique<ColdTier>(rows_, options.path, options.memory_bytes);
    lift_ = std::make_unique<Lift>(cold_->file().entries_per_extent());
    ahead_thread_ = std::thread([this] { work_ahead(); });
}

Table::~Table() {
    if (!ahead_thread_.joinable()) return;
    {
        const std::lock_guard<std::mutex> lock(ahead_mutex_);
        stop_ = true;
        ahead_changed_.notify_all();
    }
    ahead_thread_.join();
}

void Table::pull(const std::int64_t* ids, std::size_t count, float* out) {
    const Stopwatch watch(counters_.pull_ns);
    const auto dim = static_cast<std::size_t>(options_.dim);
    const std::size_t chunk =
        std::max<std::size_t>(1024, count / (16 * static_cast<std::size_t>(pool_.threads())));
    const bool past_cache = dim * sizeof(float) == kLine && count * kLine >= kTooMuchToCache &&
                            reinterpret_cast<std::uintptr_t>(out) % kLine == 0;
    std::mutex mutex;
    std::vector<Miss> misses;
    std::shared_lock<TableLock> lock(lock_);
    pool_.run((count + chunk - 1) / chunk, [&](std::size_t part) {
        const std::size_t begin = part * chunk, end = std::min(count, begin + chunk);
        PullCounts counts;
        std::vector<Miss> missed;
        pull_chunk(ids + begin, end - begin, out + begin * dim, past_cache, counts, missed);
        counters_.hits += counts.hits;
        counters_.unseen += counts.unseen;
        if (missed.empty()) return;
        const std::lock_guard<std::mutex> guard(mutex);
        for (const Miss& miss : missed) misses.push_back({begin + miss.index, miss.slot});
    });
    ++counters_.pulls;
    counters_.pulled_ids += count;
    note_pulled(count);
    if (misses.empty()) return;
    await_ahead(ids, out, misses, lock);
    const Frozen frozen(cold_->file());
    lock.unlock();  // others go on while the disk is read
    if (!misses.empty()) pull_cold(ids, out, misses);
}

void Table::fill_unseen(std::int64_t id, float* out) const {
    if (options_.admission > 0)
        std::fill(out, out + options_.dim, 0.0f);
    else
        rows_.initial().fill(id, out, options_.dim);
}

void Table::copy_row(const char* head, const float* vector, float* out) const {
    if (options_.evict_after > 0 && Record::last_seen(head) < oldest_live(step_))
        return fill_unseen(Record::id(head), out);
    if (options_.dim == 16)  // the usual width, copied without a call
        std::memcpy(out, vector, 16 * sizeof(float));
    else
        std::memcpy(out, vector, static_cast<std::size_t>(options_.dim) * sizeof(float));
}

void Table::pull_row(std::int64_t id, Slot slot, float* out, PullCounts& counts) {
    if (!slot) {
        ++counts.unseen;
        return fill_unseen(id, out);
    }
    ++counts.hits;
    copy_row(rows_.slab().head(slot.place()), rows_.vector(slot.place()), out);
}

// Blocks in three stages, each a block behind the one before: fetch the line of the index, fetch
// the row, copy it. Ids that are not in the first line of their search are collected in a block of
// their own.
void Table::pull_chunk(const std::int64_t* ids, std::size_t count, float* out, bool past_cache,
                       PullCounts& counts, std::vector<Miss>& misses) {
    constexpr std::size_t kBlock = 64;
    IdBlock<kBlock> blocks[3];
    IdBlock<2 * kBlock> late;
    const auto dim = static_cast<std::size_t>(options_.dim);
    const std::size_t bytes = dim * sizeof(float);
    const bool may_expire = options_.evict_after > 0;
    const auto copy_checked = [&](const auto& block) {
        for (std::size_t k = 0; k < block.count; ++k) {
            const std::size_t i = block.at[k];
            if (block.slots[k].is_cold())
                misses.push_back({i, block.slots[k]});
            else
                pull_row(ids[i], block.slots[k], out + i * dim, counts);
        }
    };
    const auto copy = [&](const auto& block) {
        if (may_expire) return copy_checked(block);
        counts.hits += block.count;
        if (past_cache)
            copy_lines_out(block, out);
        else if (bytes == kLine)
            block.template copy<kLine>(out, bytes);
        else
            block.template copy<0>(out, bytes);
    };
    const auto copy_late = [&] {
        late.find(rows_, ids);
        late.fetch_found(rows_, bytes);
        copy_checked(late);
        late.count = 0;
    };
    const std::size_t steps = (count + kBlock - 1) / kBlock;
    for (std::size_t step = 0; step < steps + 2; ++step) {
        if (step < steps) blocks[step % 3].fetch_lines(rows_, ids, step * kBlock, count);
        if (step >= 1 && step <= steps) {
            auto& block = blocks[(step - 1) % 3];
            block.find_in_first_lines(rows_, ids, late);
            block.fetch_bodies(bytes);
        }
        if (step >= 2) copy(blocks[(step - 2) % 3]);
        if (late.count >= kBlock) copy_late();
    }
    copy_late();
    if (past_cache) flush_lines_out();
}

void Table::push(const std::int64_t* ids, std::size_t count, const float* gradients,
                 std::optional<double> lr) {
    const Stopwatch watch(counters_.push_ns);
    const std::unique_lock<TableLock> lock(lock_);
    apply_step({{ids, gradients, count}}, lr.value_or(lr_));
    ++counters_.pushes;
    counters_.pushed_ids += count;
}

UpdateLimits Table::limits_at(std::uint64_t step) const {
    return {static_cast<std::uint32_t>(step), oldest_live(step), options_.admission,
            options_.evict_after > 0};
}

void Table::apply_step(const std::vector<Span>& spans, double lr) {
    insist_on_room();
    const std::size_t before = rows_.size();
    const RuleStep rule = rows_.rule().at(lr, step_ + 1, options_.dim);
    const auto bring_in = [&](const std::vector<Distinct*>& cold) { settle(cold); };
    update_.run(spans, limits_at(step_ + 1), rule, pool_, bring_in, visit_cold(), capture_, seen_);
    ++step_;
    counters_.distinct_ids += update_.distinct();
    counters_.created += rows_.size() - std::min(before, rows_.size());
    // Expired rows are invisible already. Each step looks at a few places, so that a row is passed
    // about twice while it expires.
    const std::uint64_t words = rows_.slab().words();
    if (options_.evict_after > 0)
        drop_expired(std::min(words, 16 + 2 * words / options_.evict_after));
    if (options_.max_rows > 0) keep_to_max_rows();
    note_step(update_.ids());
    make_room();  // does not throw: the step is done
}

void Table::announce(std::int64_t batch, std::size_t parts, std::optional<double> lr) {
    std::unique_lock<std::mutex> lock(batches_mutex_);
    if (batch <= committed_) return;
    batches_.announce(batch, parts, lr);
    commit_whole_batches(lock);
}

bool Table::accumulate(std::int64_t batch, PartKey key, const std::int64_t* ids, std::size_t count,
                       const float* gradients) {
    const Span given{ids, gradients, count};
    std::unique_lock<std::mutex> lock(batches_mutex_);
    if (batch <= committed_) return false;
    bool added = false;
    if (!batches_.has(batch, key)) {
        const bool now = !committing_ && batch == committed_ + 1 && batches_.lacks_one(batch);
        Part part;
        if (now) {
            part.borrowed = given;  // committed below, before the lock is let go
        } else {
            part = batches_.spare_part();
            lock.unlock();  // others need not wait for the copy
            part.copy(given, options_.dim);
            lock.lock();
        }
        // The same part may have come in meanwhile, and its batch may even have been committed.
        added = batch > committed_ && !batches_.has(batch, key);
        if (added) batches_.add(batch, key, std::move(part));
    }
    commit_whole_batches(lock);
    return added;
}

// The lock is that of the batches; it is held when this begins and ends.
void Table::commit_whole_batches(std::unique_lock<std::mutex>& lock) {
    while (!committing_ && batches_.whole(committed_ + 1)) {
        const std::int64_t number = committed_ + 1;
        Batch batch = batches_.take(number);
        committing_ = true;
        lock.unlock();
        try {
            commit_batch(number, batch);
        } catch (...) {
            for (auto& [key, part] : batch.parts)
                if (part.borrowed) part.copy(*part.borrowed, options_.dim);
            lock.lock();
            committing_ = false;
            if (number > committed_) batches_.give_back(number, std::move(batch));
            throw;
        }
        lock.lock();
        committing_ = false;
        batches_.recycle(std::move(batch));
    }
}

void Table::commit_batch(std::int64_t number, const Batch& batch) {
    const Stopwatch watch(counters_.push_ns);
    const std::unique_lock<TableLock> lock(lock_);
    apply_step(batch.spans(), batch.lr.value_or(lr_));
    ++counters_.commits;
    for (const auto& [key, part] : batch.parts) counters_.pushed_ids += part.ids.size();
    const std::lock_guard<std::mutex> batches_lock(batches_mutex_);
    committed_ = number;
    batches_changed_.notify_all();
}

bool Table::wait(std::int64_t batch, double timeout_s) {
    const std::int64_t wanted = batch - 1 - static_cast<std::int64_t>(options_.staleness);
    std::unique_lock<std::mutex> lock(batches_mutex_);
    const auto ready = [&] { return committed_ >= wanted; };
    if (timeout_s < 0 || !std::isfinite(timeout_s)) {
        batches_changed_.wait(lock, ready);
        return true;
    }
    // A clock that is set back must not lengthen the wait, hence steady; capped against overflow.
    const auto span = std::chrono::duration<double>(std::min(timeout_s, 1e8));
    const auto deadline = std::chrono::steady_clock::now() +
                          std::chrono::duration_cast<std::chrono::steady_clock::duration>(span);
    return batches_changed_.wait_until(lock, deadline, ready);
}

std::int64_t Table::committed() const {
    const std::lock_guard<std::mutex> lock(batches_mutex_);
    return committed_;
}

void Table::set_committed(std::int64_t batch) {
    {
        const std::unique_lock<TableLock> table(lock_);
        const std::lock_guard<std::mutex> lock(batches_mutex_);
        committed_ = batch;
        batches_.forget_up_to(batch);
        batches_changed_.notify_all();
    }
    std::unique_lock<std::mutex> lock(batches_mutex_);
    commit_whole_batches(lock);
}

}  // namespace heterps::store
