// Loading rows ahead of their use, in a thread of the table.
#include <algorithm>
#include <future>
#include <iterator>
#include <shared_mutex>

#include "heterps/store/table.hpp"

namespace heterps::store {

namespace {

constexpr std::size_t kSlice = 8192;       // rows loaded under one hold of the lock, about
constexpr std::size_t kFloors = 64;        // of the lift in a slice, at most
constexpr std::size_t kFewFloors = 16;     // that are not worth a slice
constexpr int kCleanings = 4;              // extents written anew in a slice, at most
constexpr double kLeeway = 1.0 / 8;        // of the time until a row is used
constexpr double kFarthest = 100;          // steps for which rows are kept
constexpr std::uint64_t kRetrySteps = 16;  // after a failed write

}  // namespace

std::uint64_t Table::spare_places() const { return 4 * cold_->file().entries_per_extent(); }

// The clock counts ids that were pulled. What is asked for ahead is taken to be pulled in the same
// order, after all that was asked for before it.
void Table::prefetch(const std::int64_t* ids, std::size_t count) {
    if (!cold_) return;
    Ahead ahead{{ids, ids + count}, 0, 0, 0};
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
            board_waiting(now);
            more = work_slice(floors_due(now));
        } catch (const StoreError& error) {
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

// How far the lift should go now.
std::size_t Table::floors_due(const Pace& now) {
    const double owed = lift_->owed(pace_.clock, now.clock);
    const double late = lift_->left(now.clock, now.drained);
    pace_ = now;
    pace_.floors = lift_->size() > 0 ? std::max(pace_.floors + owed, late) : 0;
    const std::size_t few = std::min(kFewFloors, 1 + lift_->floors() / 64);
    const bool worthwhile = late > 0 || pace_.floors >= static_cast<double>(few);
    return worthwhile ? std::min(kFloors, static_cast<std::size_t>(pace_.floors) + 1) : 0;
}

// Rows loaded ahead must not push each other out. So what is too far ahead waits until others have
// been used, unless somebody drains; then it is dropped.
void Table::board_waiting(const Pace& now) {
    while (!aboard_.empty() && aboard_.front().used <= now.clock) {
        riders_aboard_ -= aboard_.front().riders;
        aboard_.pop_front();
    }
    if (waiting_.empty()) return;
    std::shared_lock<TableLock> lock(lock_);
    const std::uint64_t most = cold_->capacity() / 2;
    lock.unlock();
    for (; !waiting_.empty(); waiting_.pop_front()) {
        const Ahead& request = waiting_.front();
        if (riders_aboard_ >= most && request.number > now.drained) return;
        const std::size_t riders = board(request, now, most - std::min(most, riders_aboard_));
        riders_aboard_ += riders;
        aboard_.push_back({request.used, riders});
    }
}

// Rows on disk become riders of the lift, those in RAM stay until they are used.
std::size_t Table::board(const Ahead& request, const Pace& now, std::size_t most) {
    constexpr std::size_t kAhead = 16;
    const std::vector<std::int64_t>& ids = request.ids;
    std::vector<Rider> riders;
    {
        const std::shared_lock<TableLock> lock(lock_);
        const double steps = (request.used - now.clock) / std::max(1.0, now.ids_per_step);
        const std::uint64_t used_by =
            step_ + static_cast<std::uint64_t>(std::clamp(steps, 0.0, kFarthest)) + 4;
        for (std::size_t i = 0; i < ids.size(); ++i) {
            if (i + kAhead < ids.size()) rows_.index().prefetch(Index::hash(ids[i + kAhead]));
            // A guess by the 20 bits is enough here.
            const Slot slot = rows_.index().find(Index::hash(ids[i]), [](Slot) { return true; });
            if (slot.is_cold())
                riders.push_back({slot, used_by});
            else if (slot)
                cold_->guard(slot.place(), used_by);
        }
    }
    riders.resize(std::min(riders.size(), most));
    lift_->ask({request.number, request.due}, riders);
    return riders.size();
}

// One slice of the round is read while the one before it is brought in. The table is locked twice:
// to choose what goes, and, once that is written, to exchange it for what comes. Returns whether
// there is more to do at once.
bool Table::work_slice(std::size_t floors) {
    auto coming = std::make_unique<Slice>(cold_->file());
    const std::uint64_t before = lift_->travelled();
    coming->riders = lift_->next(floors, kSlice);
    pace_.floors -= static_cast<double>(lift_->travelled() - before);
    coming->served = lift_->served();
    cold_->file().keep_wanted(coming->riders);  // some were pulled before their turn came
    const auto how = coming->riders.empty() ? std::launch::deferred : std::launch::async;
    std::future<void> reading = std::async(how, [&] { coming->read(rows_, *cold_); });
    bool more = false;
    try {
        const bool cleaning = exchange(slice_.get());
        if (slice_) lifted_ = slice_->served;
        slice_.reset();
        more = cleaning && clean(coming->extents(cold_->file()));
    } catch (...) {
        reading.wait();
        throw;
    }
    reading.get();
    if (coming->riders.empty())
        lifted_ = coming->served;
    else
        slice_ = std::move(coming);
    return more || floors == kFloors;
}

void Table::Slice::read(const Rows& rows, const ColdTier& cold) {
    std::vector<Slot> slots;
    slots.reserve(riders.size());
    for (const Rider& rider : riders) slots.push_back(rider.slot);
    found.read(cold.file(), rows.slab().stride(), std::move(slots));
}

std::vector<std::size_t> Table::Slice::extents(const ColdFile& file) const {
    std::vector<std::size_t> result;
    for (const Rider& rider : riders) {
        const std::size_t extent = rider.slot.place() / file.entries_per_extent();
        if (result.empty() || result.back() != extent) result.push_back(extent);
    }
    return result;
}

// Brings in what was found, and as much goes out. Returns whether the file should be cleaned.
bool Table::exchange(const Slice* coming) {
    const std::size_t count = coming != nullptr ? coming->found.size() : 0;
    const bool cleaning = choose_outgoing(count);
    std::size_t written = 0;
    while (written < moved_ && write_out(moving_[written], moving_buffer_)) ++written;
    if (moved_ == 0 && count == 0) return cleaning;
    const std::unique_lock<TableLock> lock(lock_);
    if (written < moved_) retry_step_ = step_ + kRetrySteps;
    for (std::size_t i = 0; i < written; ++i) cold_->let_go(moving_[i], capture_);
    if (count > 0) cold_->bring_in(coming->found, coming->riders.data(), places_);
    counters_.loaded_ahead += count;
    return cleaning;
}

// Writes what is wanted of the emptiest extents anew, but not of those that are being read. Returns
// whether there is more to do.
bool Table::clean(const std::vector<std::size_t>& busy) {
    for (int i = 0; i < kCleanings; ++i) {
        moved_ = 0;
        Outgoing& outgoing = next_moving();
        cold_->choose_from_disk(busy, outgoing, moving_buffer_);
        if (outgoing.size() == 0 || !write_out(outgoing, moving_buffer_)) return false;
        ColdTier::Moves moves;
        {
            const std::unique_lock<TableLock> lock(lock_);
            cold_->let_go(outgoing, capture_, &moves);
        }
        lift_->redirect(moves);
        if (!cold_->wants_cleaning()) return false;
    }
    return true;
}

Outgoing& Table::next_moving() {
    if (moving_.size() == moved_) moving_.emplace_back();
    return moving_[moved_++];
}

// Copies what has to go for `places` and the usual spare ones; says whether to clean the file too.
bool Table::choose_outgoing(std::size_t places) {
    moved_ = 0;
    const std::shared_lock<TableLock> lock(lock_);
    if (step_ < retry_step_) return false;
    const std::uint64_t surplus = cold_->surplus(places + spare_places());
    for (std::uint64_t chosen = 0; chosen < surplus;) {
        Outgoing& outgoing = next_moving();
        cold_->choose(step_, outgoing);
        if (outgoing.size() == 0) {
            --moved_;
            break;
        }
        chosen += outgoing.size();
    }
    // What a capture still reads could not be given back.
    const std::lock_guard<std::mutex> capture_lock(capture_mutex_);
    return capture_ == nullptr && cold_->wants_cleaning();
}

}  // namespace heterps::store
