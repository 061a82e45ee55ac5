// The table's side of the cold tier: bringing rows in, making room, loading ahead.
#include <algorithm>
#include <future>
#include <shared_mutex>

#include "heterps/store/table.hpp"

namespace heterps::store {

namespace {

constexpr std::size_t kSlice = 8192;             // rows loaded ahead under one hold of the lock
constexpr std::uint64_t kBytesPerRow = 8 << 10;  // of the file, read for one row; see work_ahead
constexpr std::chrono::seconds kPatience{1};
constexpr std::size_t kFew = 64;           // rows that are read at once rather than waited for
constexpr int kCleanings = 4;              // extents written anew in a slice, at most
constexpr std::uint64_t kRetrySteps = 16;  // after a failed write

}  // namespace

VisitCold Table::visit_cold() {
    return [this](const std::function<void(const char*, Slot)>& visit) {
        if (!cold_) return;
        const ColdFile& file = cold_->file();
        const ColdFile::Snapshot wanted = file.snapshot();
        AlignedBuffer buffer;
        for (std::size_t e = 0; e < wanted.newest.size(); ++e) {
            const std::uint64_t* bits = wanted.wanted.data() + e * file.words();
            if (std::all_of(bits, bits + file.words(), [](std::uint64_t w) { return w == 0; }))
                continue;
            file.read_extent(e, bits, buffer, [&](std::uint64_t entry, const char* record) {
                visit(record, Slot::cold(Index::hash(Record::id(record)), entry));
            });
        }
    };
}

// The slow way, for the rare id whose 20 bits agree with another's on disk.
Slot Table::bring_in_one(std::int64_t id) {
    for (const Slot slot : rows_.cold_candidates(Index::hash(id))) {
        ColdRecords found;
        found.read(cold_->file(), rows_.slab().stride(), {slot});
        if (found.at(0) == nullptr)
            throw StoreError("the cold file is torn: entry " + std::to_string(slot.place()) +
                             " is not what was written");
        if (Record::id(found.at(0)) != id) continue;
        cold_->bring_in(found, {}, places_);
        return places_[0];
    }
    return {};
}

void Table::settle(const std::vector<Distinct*>& cold) {
    std::vector<Slot> slots;
    for (const Distinct* distinct : cold) slots.push_back(distinct->slot);
    ColdRecords found;
    found.read(cold_->file(), rows_.slab().stride(), std::move(slots));
    counters_.misses += cold.size();
    cold_->bring_in(found, {}, places_);
    std::vector<Distinct*> others;
    for (Distinct* distinct : cold) {
        const std::size_t at = found.index(distinct->slot);
        if (found.at(at) != nullptr && Record::id(found.at(at)) == distinct->id)
            distinct->slot = places_[at];
        else
            others.push_back(distinct);
    }
    for (Distinct* distinct : others) distinct->slot = bring_in_one(distinct->id);
}

void Table::bring_in_all(const std::int64_t* ids, std::size_t count) {
    if (!cold_) return;
    std::vector<Distinct> distinct;
    for (std::size_t i = 0; i < count; ++i) {
        const Slot slot = rows_.find(ids[i], Index::hash(ids[i]));
        if (slot.is_cold()) distinct.push_back({ids[i], slot, 0});
    }
    std::sort(distinct.begin(), distinct.end(),
              [](const Distinct& a, const Distinct& b) { return a.id < b.id; });
    std::vector<Distinct*> once;
    for (Distinct& d : distinct)
        if (once.empty() || once.back()->id != d.id) once.push_back(&d);
    if (!once.empty()) settle(once);
}

// Rows that are being loaded ahead come sooner by waiting than by reading them one by one, which
// would also slow the round down. Ends when few are missing, or when all that was asked for by now
// has been loaded.
void Table::await_ahead(const std::int64_t* ids, float* out, std::vector<Miss>& misses,
                        std::shared_lock<TableLock>& lock) {
    std::unique_lock<std::mutex> ahead(ahead_mutex_);
    const std::uint64_t asked = asked_;
    ++urgent_;
    ahead_changed_.notify_all();
    while (misses.size() > kFew && served_ < asked) {
        lock.unlock();
        const std::uint64_t slices = slices_;
        ahead_changed_.wait(ahead, [&] { return slices_ != slices || served_ >= asked; });
        ahead.unlock();
        lock.lock();
        std::vector<Miss> left;
        PullCounts counts;
        for (const Miss& miss : misses) {
            const std::int64_t id = ids[miss.index];
            const Slot slot = rows_.find(id, Index::hash(id));
            if (slot.is_cold())
                left.push_back({miss.index, slot});
            else
                pull_row(id, slot, out + miss.index * static_cast<std::size_t>(options_.dim),
                         counts);
        }
        counters_.awaited += misses.size() - left.size();
        misses = std::move(left);
        ahead.lock();
    }
    --urgent_;
}

void Table::pull_cold(const std::int64_t* ids, float* out, std::vector<Miss>& misses) {
    const auto dim = static_cast<std::size_t>(options_.dim);
    std::vector<Slot> slots;
    for (const Miss& miss : misses) slots.push_back(miss.slot);
    ColdRecords found;
    found.read(cold_->file(), rows_.slab().stride(), std::move(slots));
    counters_.misses += misses.size();
    const std::unique_lock<TableLock> lock(lock_);
    cold_->bring_in(found, {}, places_);
    PullCounts counts;
    for (const Miss& miss : misses) {
        const std::int64_t id = ids[miss.index];
        const char* record = found.at(found.index(miss.slot));
        if (record != nullptr && Record::id(record) == id) {
            copy_row(id, record, out + miss.index * dim);
            continue;
        }
        Slot slot = rows_.find(id, Index::hash(id));
        if (slot.is_cold()) slot = bring_in_one(id);
        pull_row(id, slot, out + miss.index * dim, counts);
    }
    make_room();
}

// Keeps to the budget. A failed write leaves the rows where they are, above the budget, and is
// tried again some steps later.
void Table::make_room() {
    if (!cold_) return;
    while (cold_->surplus(0) > 0 && step_ >= retry_step_) {
        cold_->choose(step_, outgoing_);
        if (outgoing_.size() == 0) break;
        if (write_out(outgoing_, buffer_))
            cold_->let_go(outgoing_, capture_);
        else
            retry_step_ = step_ + kRetrySteps;
    }
    cold_->trim(capture_);
    const bool tidy = cold_->surplus(spare_places()) > 0 || cold_->wants_cleaning();
    if (!tidy || step_ < retry_step_) return;
    const std::lock_guard<std::mutex> lock(ahead_mutex_);
    tidy_ = true;
    ahead_changed_.notify_all();
}

// While the disk refuses what is above the budget, no step may add to it.
void Table::insist_on_room() {
    if (!cold_ || step_ >= retry_step_ || cold_->surplus(0) == 0) return;
    retry_step_ = step_;
    make_room();
    if (step_ < retry_step_) throw StoreError(cold_error());
}

bool Table::write_out(Outgoing& outgoing, AlignedBuffer& buffer) {
    try {
        cold_->write(outgoing, buffer);
        return true;
    } catch (const StoreError& error) {
        note_cold_error(error);
        return false;
    }
}

void Table::note_cold_error(const StoreError& error) {
    ++counters_.cold_errors;
    const std::lock_guard<std::mutex> lock(ahead_mutex_);
    cold_error_ = error.what();
}

std::string Table::cold_error() const {
    const std::lock_guard<std::mutex> lock(ahead_mutex_);
    return cold_error_;
}

std::uint64_t Table::spare_places() const { return 4 * cold_->file().entries_per_extent(); }

void Table::prefetch(const std::int64_t* ids, std::size_t count) {
    if (!cold_) return;
    const std::lock_guard<std::mutex> lock(ahead_mutex_);
    ahead_.insert(ahead_.end(), ids, ids + count);
    ids_ahead_ += static_cast<std::int64_t>(count);
    ++asked_;
    ahead_changed_.notify_all();
}

void Table::drain() {
    if (!cold_) return;
    std::unique_lock<std::mutex> lock(ahead_mutex_);
    const std::uint64_t mine = asked_;
    ++urgent_;
    ahead_changed_.notify_all();
    ahead_changed_.wait(lock, [&] { return served_ >= mine; });
    --urgent_;
}

// The rows to load are visited like floors by a lift: in order of place, round and round, and what
// is asked for meanwhile is taken along. A round costs the same however many ride, so it pauses
// while few do, unless somebody waits or some have waited for long.
void Table::work_ahead() {
    std::vector<std::int64_t> ids;
    bool enough = false;
    std::unique_lock<std::mutex> lock(ahead_mutex_);
    const auto go = [&] {
        return stop_ || tidy_ || !ahead_.empty() ||
               (served_ < asked_ && (slice_ || enough || urgent_ > 0 || taken_ < asked_));
    };
    for (;;) {
        const bool called = ahead_changed_.wait_for(lock, kPatience, go);
        if (stop_) return;
        if (!called && served_ == asked_) continue;
        ids.clear();
        ids.swap(ahead_);
        const std::uint64_t asked = std::exchange(taken_, asked_);
        const std::uint64_t request = taken_;
        const bool urgent = urgent_ > 0 || !called;
        tidy_ = false;
        lock.unlock();
        bool more = false;
        try {
            if (request != asked) lift_.ask(request, cold_slots(ids));
            enough = lift_.size() >= riders_for_a_round();
            more = work_slice(enough || urgent ? kSlice : 0);
        } catch (const StoreError& error) {
            note_cold_error(error);  // a hint that failed; a pull will say so if it is still so
        }
        lock.lock();
        served_ = lifted_;
        ++slices_;
        tidy_ = tidy_ || more;
        ahead_changed_.notify_all();
    }
}

// A round takes as long as it takes the traffic to ask for twice the rows that ride. So there
// should be many of them, but no more than a quarter of what is asked ahead, or they would come too
// late.
std::size_t Table::riders_for_a_round() const {
    const double in_time = 0.25 * static_cast<double>(ids_ahead_) * cold_share_;
    const double worthwhile = static_cast<double>(cold_->file().bytes_on_disk()) / kBytesPerRow;
    return static_cast<std::size_t>(std::max(1.0, std::min(in_time, worthwhile)));
}

// How many steps from now the ids that are asked for ahead will be used.
std::uint64_t Table::steps_ahead() const {
    const double steps = static_cast<double>(ids_ahead_) / std::max(1.0, ids_per_step_.load());
    return static_cast<std::uint64_t>(std::min(steps, 100.0)) + 4;
}

void Table::note_pulled(std::size_t count) {
    pulled_in_step_ += count;
    std::int64_t ahead = ids_ahead_;
    const auto pulled = static_cast<std::int64_t>(count);
    while (!ids_ahead_.compare_exchange_weak(ahead, std::max<std::int64_t>(0, ahead - pulled))) {
    }
}

void Table::note_step() {
    const auto pulled = static_cast<double>(pulled_in_step_.exchange(0));
    ids_per_step_ = ids_per_step_ > 0 ? 0.9 * ids_per_step_ + 0.1 * pulled : pulled;
}

std::vector<Slot> Table::cold_slots(const std::vector<std::int64_t>& ids) {
    constexpr std::size_t kAhead = 16;
    std::vector<Slot> slots;
    const std::shared_lock<TableLock> lock(lock_);
    const std::uint64_t used_by = step_ + steps_ahead();
    for (std::size_t i = 0; i < ids.size(); ++i) {
        if (i + kAhead < ids.size()) rows_.index().prefetch(Index::hash(ids[i + kAhead]));
        // A guess by the 20 bits is enough here.
        const Slot slot = rows_.index().find(Index::hash(ids[i]), [](Slot) { return true; });
        if (slot.is_cold())
            slots.push_back(slot);
        else if (slot)
            cold_->guard(slot.place(), used_by);
    }
    if (!ids.empty())
        cold_share_ += 0.1 * (static_cast<double>(slots.size()) / static_cast<double>(ids.size()) -
                              cold_share_);
    std::sort(slots.begin(), slots.end(), [](Slot a, Slot b) { return a.bits < b.bits; });
    slots.erase(std::unique(slots.begin(), slots.end()), slots.end());
    // Rows loaded ahead must not push each other out.
    slots.resize(std::min<std::size_t>(slots.size(), cold_->capacity() / 2));
    return slots;
}

// One slice of the round is read while the one before it is brought in. The table is locked twice:
// to choose what goes, and, once that is written, to exchange it for what comes.
bool Table::work_slice(std::size_t most) {
    auto coming = std::make_unique<Slice>(cold_->file());
    std::vector<Slot> slots = lift_.next(most);
    coming->served = lift_.served();
    cold_->file().keep_wanted(slots);  // some were pulled before their turn came
    const std::uint64_t first = slots.empty() ? 1 : slots.front().place();
    const std::uint64_t last = slots.empty() ? 0 : slots.back().place();
    std::future<void> reading = std::async(std::launch::async, [&] {
        coming->found.read(cold_->file(), rows_.slab().stride(), std::move(slots));
    });
    const bool cleaning = exchange(slice_ ? slice_->found : ColdRecords());
    if (slice_) lifted_ = slice_->served;
    slice_.reset();
    const bool more = cleaning && clean(first, last);
    reading.get();
    if (coming->found.size() > 0)
        slice_ = std::move(coming);
    else
        lifted_ = coming->served;
    return more;
}

// Brings in what was found, and as much goes out. Returns whether the file should be cleaned.
bool Table::exchange(const ColdRecords& found) {
    const bool cleaning = choose_outgoing(found.size());
    std::size_t written = 0;
    while (written < moved_ && write_out(moving_[written], moving_buffer_)) ++written;
    if (moved_ == 0 && found.size() == 0) return cleaning;
    const std::unique_lock<TableLock> lock(lock_);
    if (written < moved_) retry_step_ = step_ + kRetrySteps;
    for (std::size_t i = 0; i < written; ++i) cold_->let_go(moving_[i], capture_);
    cold_->bring_in(found, step_ + steps_ahead(), places_);
    counters_.loaded_ahead += found.size();
    return cleaning;
}

// Writes what is wanted of the emptiest extents anew, but not of those that are being read. Returns
// whether there is more to do.
bool Table::clean(std::uint64_t busy_first, std::uint64_t busy_last) {
    for (int i = 0; i < kCleanings; ++i) {
        moved_ = 0;
        Outgoing& outgoing = next_moving();
        cold_->choose_from_disk(busy_first, busy_last, outgoing, moving_buffer_);
        if (outgoing.size() == 0 || !write_out(outgoing, moving_buffer_)) return false;
        ColdTier::Moves moves;
        {
            const std::unique_lock<TableLock> lock(lock_);
            cold_->let_go(outgoing, capture_, &moves);
        }
        lift_.redirect(moves);
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
    const std::unique_lock<TableLock> lock(lock_);
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
    return capture_ == nullptr && cold_->wants_cleaning();
}

}  // namespace heterps::store
