// Loading rows ahead of their use, in a thread of the table.
#include <algorithm>
#include <future>
#include <iterator>
#include <shared_mutex>
#include <utility>

#include "heterps/store/id_block.hpp"
#include "heterps/store/table.hpp"

namespace heterps::store {

namespace {

constexpr std::size_t kSlice = 32768;    // rows loaded under one hold of the lock, about
constexpr std::size_t kFloors = 256;     // of the lift in a slice, at most
constexpr std::size_t kFewFloors = 16;   // that are not worth a slice
constexpr int kBoarding = 4;             // requests before others are loaded
constexpr std::size_t kLookedUp = 4096;  // ids under one hold of the lock
constexpr int kCleanings = 4;            // extents written anew in a slice, at most
constexpr double kLeeway = 1.0 / 4;      // of the time until a row is used
constexpr std::uint64_t kIdsShare = 8 * sizeof(std::int64_t);  // of the budget, for ids
constexpr double kFarthest = 100;                              // steps for which rows are kept
constexpr std::uint64_t kRetrySteps = 16;                      // after a failed write

// Most repeats are of a few ids. Whether an id is one cannot be foreseen, so no branch depends on
// it.
std::vector<std::int64_t> without_most_repeats(const std::vector<std::int64_t>& ids) {
    constexpr std::size_t kRecent = 16384;
    // No hash that belongs into a place is the complement of the place's number.
    std::vector<std::uint64_t> recent(kRecent);
    for (std::size_t i = 0; i < kRecent; ++i) recent[i] = ~std::uint64_t{i};
    std::vector<std::int64_t> result(ids.size());
    std::size_t kept = 0;
    for (const std::int64_t id : ids) {
        const std::uint64_t hash = Index::hash(id);
        result[kept] = id;
        kept += std::exchange(recent[hash % kRecent], hash) == hash ? 0 : 1;
    }
    result.resize(kept);
    return result;
}

}  // namespace

std::uint64_t Table::spare_places() const { return 4 * cold_->file().entries_per_extent(); }

// The clock counts ids that were pulled. What is asked for ahead is taken to be pulled in the same
// order, after all that was asked for before it.
void Table::prefetch(const std::int64_t* ids, std::size_t count) {
    if (!cold_) return;
    // A hint that would take too much memory until its turn comes is kept without its ids.
    const bool fits = waiting_ids_.fetch_add(count) + count < cold_->memory_bytes() / kIdsShare;
    if (!fits) waiting_ids_ -= count;
    Ahead ahead{{ids, ids + (fits ? count : 0)}, 0, 0, 0};
    const std::lock_guard<std::mutex> lock(ahead_mutex_);
    ahead.number = ++asked_;
    const double before = ids_ahead_;
    const double leeway = std::max(before * kLeeway, 2 * ids_per_step_);
    ahead.due = clock_ + std::max(0.0, before - leeway);
    ids_ahead_ += static_cast<double>(count);
    ahead.used = clock_ + ids_ahead_;
    expected_.emplace_back(ahead.number, ahead.used);
    ahead_.push_back(std::move(ahead));
    ahead_changed_.notify_all();
}

// The last request whose rows should be there by now; with ahead_mutex_ held.
std::uint64_t Table::asked_for_now() const {
    std::uint64_t number = 0;
    for (const auto& [request, used] : expected_)
        if (used <= clock_) number = request;
    return number;
}

void Table::note_pulled(std::size_t count) {
    if (!cold_) return;
    const auto pulled = static_cast<double>(count);
    const std::lock_guard<std::mutex> lock(ahead_mutex_);
    pulled_in_step_ += pulled;
    clock_ += pulled;
    ids_ahead_ = std::max(0.0, ids_ahead_ - pulled);
    if (served_ < asked_) ahead_changed_.notify_all();
}

void Table::note_step(std::size_t count) {
    if (!cold_) return;
    std::unique_lock<std::mutex> lock(ahead_mutex_);
    const double pulled = std::exchange(pulled_in_step_, 0);
    if (pulled > 0) {
        ids_per_step_ = ids_per_step_ > 0 ? 0.9 * ids_per_step_ + 0.1 * pulled : pulled;
        return;
    }
    lock.unlock();
    note_pulled(count);  // who only pushes has a clock too
    lock.lock();
    pulled_in_step_ = 0;
}

void Table::drain() {
    if (!cold_) return;
    std::unique_lock<std::mutex> lock(ahead_mutex_);
    const std::uint64_t mine = asked_;
    drained_ = std::max(drained_, mine);
    ahead_changed_.notify_all();
    ahead_changed_.wait(lock, [&] { return served_ >= mine; });
}

void Table::work_ahead() {
    bool more = false;
    std::unique_lock<std::mutex> lock(ahead_mutex_);
    const auto go = [&] {
        return stop_ || tidy_ || more || slice_ || !ahead_.empty() ||
               (served_ < asked_ && (clock_ != pace_.clock || drained_ > pace_.drained));
    };
    for (;;) {
        ahead_changed_.wait(lock, go);
        if (stop_) return;
        std::move(ahead_.begin(), ahead_.end(), std::back_inserter(waiting_));
        ahead_.clear();
        const Pace now{clock_, ids_per_step_, drained_, pace_.floors};
        tidy_ = false;
        lock.unlock();
        try {
            const bool cleaning = prepare(now);
            const std::size_t floors = floors_due(now);
            more = floors == kFloors || (!waiting_.empty() && !crowded_);
            if (floors > 0 || moved_ > 0 || slice_ || cleaning) work_slice(floors, cleaning);
            if (!slice_) lifted_ = lift_->served();
            count_working_bytes();
        } catch (const std::exception& error) {  // no memory and no thread to be had as well
            note_cold_error(error);  // a hint that failed; a pull will say so if it is still so
            slice_.reset();
            lifted_ = lift_->served();
        }
        lock.lock();
        served_ = lifted_;
        while (!expected_.empty() && expected_.front().first <= served_) expected_.pop_front();
        ++slices_;
        ahead_changed_.notify_all();
    }
}

// What is under way to and from the disk, besides the rows themselves.
void Table::count_working_bytes() {
    std::uint64_t bytes = lift_->bytes() + waiting_ids_ * sizeof(std::int64_t);
    if (slice_) bytes += slice_->riders.size() * (sizeof(Rider) + layout().record_bytes());
    for (const Outgoing& outgoing : moving_) bytes += outgoing.records.capacity();
    cold_->set_working_bytes(bytes);
}

// How far the lift should go now.
std::size_t Table::floors_due(const Pace& now) {
    const double owed = lift_->owed(pace_.clock, now.clock, pace_.floors);
    const double late = lift_->left(now.clock, now.drained);
    pace_ = now;
    pace_.floors = lift_->size() > 0 ? std::max(pace_.floors + owed, late) : 0;
    const std::size_t few = std::min(kFewFloors, 1 + lift_->floors() / 64);
    const bool worthwhile = late > 0 || pace_.floors >= static_cast<double>(few);
    return worthwhile ? std::min(kFloors, static_cast<std::size_t>(pace_.floors) + 1) : 0;
}

// All is decided here, with the table's lock for reading and never for long; `exchange` does it.
// Says whether to clean the file.
bool Table::prepare(const Pace& now) {
    board_waiting(now);
    moved_ = 0;
    choose_outgoing(slice_ ? slice_->found.size() : 0);
    moved_from_ram_ = moved_;
    const std::shared_lock<TableLock> lock(lock_);
    const bool writable = step_ >= retry_step_;
    // What a capture still reads could not be given back.
    const std::lock_guard<std::mutex> capture_lock(capture_mutex_);
    return writable && capture_ == nullptr && cold_->wants_cleaning();
}

// Rows loaded ahead must not push each other out. So what is too far ahead waits until others have
// been used, unless somebody drains; then it is dropped.
void Table::board_waiting(const Pace& now) {
    while (!aboard_.empty() && aboard_.front().used <= now.clock) {
        riders_aboard_ -= aboard_.front().riders;
        aboard_.pop_front();
    }
    std::shared_lock<TableLock> lock(lock_);
    const std::uint64_t most = cold_->capacity() / 2;
    lock.unlock();
    crowded_ = false;
    for (int i = 0; i < kBoarding && !waiting_.empty(); ++i, waiting_.pop_front()) {
        const Ahead& request = waiting_.front();
        crowded_ = riders_aboard_ >= most && request.number > now.drained;
        if (crowded_) return;
        const std::size_t riders = board(request, now, most - std::min(most, riders_aboard_));
        riders_aboard_ += riders;
        aboard_.push_back({request.used, riders});
        waiting_ids_ -= request.ids.size();
    }
}

// Rows on disk become riders of the lift, those in RAM stay until they are used. The lock is let go
// now and then, since a push may wait for it: what changes meanwhile is noticed when riders arrive.
std::size_t Table::board(const Ahead& request, const Pace& now, std::size_t most) {
    const double steps = (request.used - now.clock) / std::max(1.0, now.ids_per_step);
    const auto ahead = static_cast<std::uint64_t>(std::clamp(steps, 0.0, kFarthest)) + 4;
    const std::vector<std::int64_t> ids = without_most_repeats(request.ids);
    std::vector<Rider> riders;
    for (std::size_t from = 0; from < ids.size(); from += kLookedUp) {
        const std::shared_lock<TableLock> lock(lock_);
        board_some(ids.data() + from, std::min(kLookedUp, ids.size() - from), step_ + ahead,
                   riders);
    }
    riders.resize(std::min(riders.size(), most));
    return lift_->ask({request.number, request.due}, std::move(riders));
}

void Table::board_some(const std::int64_t* ids, std::size_t count, std::uint64_t used_by,
                       std::vector<Rider>& riders) {
    constexpr std::size_t kBlock = 32;
    IdBlock<kBlock> blocks[2];
    IdBlock<2 * kBlock> late;
    const auto board_late = [&] {
        for (std::size_t k = 0; k < late.count; ++k) rows_.fetch_cold_line(late.hashes[k]);
        for (std::size_t k = 0; k < late.count; ++k) {
            if (const Slot slot = rows_.find_hot(ids[late.at[k]], late.hashes[k])) {
                cold_->guard(slot.place(), used_by);
                continue;
            }
            // Which of several it is shows when they have been read.
            rows_.visit_cold_candidates(late.hashes[k], [&](Slot slot) {
                const Rider rider{slot, used_by};
                if (!(slice_ && slice_->keep_for(rider))) riders.push_back(rider);
            });
        }
        late.count = 0;
    };
    for (std::size_t from = 0; from < count + kBlock; from += kBlock) {
        if (from < count) blocks[from / kBlock % 2].fetch_lines(rows_, ids, from, count);
        if (from == 0) continue;
        auto& block = blocks[(from / kBlock + 1) % 2];
        block.find_in_first_lines(rows_, ids, late);
        for (std::size_t k = 0; k < block.count; ++k) cold_->guard(block.slots[k].place(), used_by);
        if (late.count >= kBlock) board_late();
    }
    board_late();
}

// One slice of the round is read while the one before it is brought in.
void Table::work_slice(std::size_t floors, bool cleaning) {
    auto coming = std::make_unique<Slice>(cold_->file());
    const std::uint64_t before = lift_->travelled();
    coming->riders = lift_->next(floors, kSlice);
    pace_.floors -= static_cast<double>(lift_->travelled() - before);
    coming->served = lift_->served();
    cold_->file().keep_wanted(coming->riders);  // some were pulled before their turn came
    const auto how = coming->riders.empty() ? std::launch::deferred : std::launch::async;
    std::future<void> reading = std::async(how, [&] { coming->read(rows_, *cold_); });
    try {
        if (cleaning) clean(coming->extents(cold_->file()));
        exchange(slice_.get());
    } catch (...) {
        reading.wait();
        throw;
    }
    if (slice_) lifted_ = slice_->served;
    slice_.reset();
    reading.get();
    if (coming->riders.empty())
        lifted_ = coming->served;
    else
        slice_ = std::move(coming);
}

void Table::Slice::read(const Rows& rows, const ColdTier& cold) {
    std::vector<Slot> slots;
    slots.reserve(riders.size());
    for (const Rider& rider : riders) slots.push_back(rider.slot);
    found.read(cold.file(), rows.layout().record_bytes(), std::move(slots),
               ColdFile::Haste::kAhead);
}

bool Table::Slice::keep_for(const Rider& rider) {
    const std::uint64_t place = rider.slot.place();
    if (riders.empty() || place > riders.back().slot.place()) return false;
    const auto found = std::partition_point(riders.begin(), riders.end(), [&](const Rider& other) {
        return other.slot.place() < place;
    });
    if (!(found->slot == rider.slot)) return false;
    found->used_by = std::max(found->used_by, rider.used_by);
    return true;
}

std::vector<std::size_t> Table::Slice::extents(const ColdFile& file) const {
    std::vector<std::size_t> result;
    for (const Rider& rider : riders) {
        const std::size_t extent = rider.slot.place() / file.entries_per_extent();
        if (result.empty() || result.back() != extent) result.push_back(extent);
    }
    return result;
}

// Copies what is wanted of the emptiest extents, but not of those that are being read, to be
// written anew: a few at a time, so that it keeps the pace of the traffic.
void Table::clean(std::vector<std::size_t> busy) {
    for (int i = 0; i < kCleanings; ++i) {
        Outgoing& outgoing = next_moving();
        cold_->choose_from_disk(busy, outgoing, moving_buffer_);
        if (outgoing.size() > 0) continue;
        --moved_;
        return;
    }
}

// Brings in what was found, and lets go of what was chosen.
void Table::exchange(const Slice* coming) {
    std::size_t written = 0;
    while (written < moved_ && write_out(moving_[written], moving_buffer_)) ++written;
    const std::size_t count = coming != nullptr ? coming->found.size() : 0;
    if (moved_ == 0 && count == 0) return;
    ColdTier::Moves moves;
    const std::unique_lock<TableLock> lock(lock_);
    if (written < moved_) retry_step_ = step_ + kRetrySteps;
    for (std::size_t i = 0; i < std::min(written, moved_from_ram_); ++i)
        cold_->let_go(moving_[i], capture_);
    if (count > 0) cold_->bring_in(coming->found, coming->riders.data(), places_);
    for (std::size_t i = moved_from_ram_; i < written; ++i)
        cold_->let_go(moving_[i], capture_, &moves);
    lift_->redirect(moves);
    counters_.loaded_ahead += count;
}

Outgoing& Table::next_moving() {
    if (moving_.size() == moved_) moving_.emplace_back();
    return moving_[moved_++];
}

// Copies what has to go for `places` and the usual spare ones, an extent at a time, so that a push
// need not wait for all of them. The copies take memory themselves, so there is a bound to how many
// go at once.
void Table::choose_outgoing(std::size_t places) {
    for (std::uint64_t chosen = 0;;) {
        const std::shared_lock<TableLock> lock(lock_);
        if (step_ < retry_step_) return;
        const std::uint64_t surplus =
            std::min(cold_->surplus(places + spare_places()), places + 2 * spare_places());
        if (chosen >= surplus) return;
        Outgoing& outgoing = next_moving();
        cold_->choose(step_, outgoing);
        if (outgoing.size() == 0) {
            --moved_;
            return;
        }
        chosen += outgoing.size();
    }
}

}  // namespace heterps::store
