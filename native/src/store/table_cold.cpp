// The table's side of the cold tier: bringing rows in, making room, loading ahead.
#include <algorithm>
#include <shared_mutex>

#include "heterps/store/table.hpp"

namespace heterps::store {

namespace {

constexpr std::size_t kSlice = 2048;       // rows loaded ahead under one hold of the lock
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
        if (Record::id(found.at(0)) == id) return cold_->bring_in(found.at(0), slot, step_, false);
    }
    return {};
}

void Table::settle(const std::vector<Distinct*>& cold) {
    std::vector<Slot> slots;
    for (const Distinct* distinct : cold) slots.push_back(distinct->slot);
    ColdRecords found;
    found.read(cold_->file(), rows_.slab().stride(), std::move(slots));
    counters_.misses += cold.size();
    for (Distinct* distinct : cold) {
        const char* record = found.find(distinct->slot);
        const bool sound = record != nullptr && Record::id(record) == distinct->id;
        distinct->slot = sound ? cold_->bring_in(record, distinct->slot, step_, false)
                               : bring_in_one(distinct->id);
    }
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

void Table::pull_cold(const std::int64_t* ids, float* out, std::vector<Miss>& misses) {
    const auto dim = static_cast<std::size_t>(options_.dim);
    std::vector<Slot> slots;
    for (const Miss& miss : misses) slots.push_back(miss.slot);
    ColdRecords found;
    found.read(cold_->file(), rows_.slab().stride(), std::move(slots));
    counters_.misses += misses.size();
    const std::unique_lock<TableLock> lock(lock_);
    for (std::size_t i = 0; i < found.size(); ++i)
        if (found.at(i) != nullptr) cold_->bring_in(found.at(i), found.slot(i), step_, false);
    PullCounts counts;
    for (const Miss& miss : misses) {
        const std::int64_t id = ids[miss.index];
        const char* record = found.find(miss.slot);
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
    ++asked_;
    ahead_changed_.notify_all();
}

void Table::drain() {
    if (!cold_) return;
    std::unique_lock<std::mutex> lock(ahead_mutex_);
    const std::uint64_t mine = asked_;
    ahead_changed_.wait(lock, [&] { return served_ >= mine; });
}

// The rows to load are visited like floors by a lift: in order of place, round and round, and what
// is asked for meanwhile is taken along. So each round through the file serves all who wait.
void Table::work_ahead() {
    std::vector<std::int64_t> ids;
    std::unique_lock<std::mutex> lock(ahead_mutex_);
    for (;;) {
        ahead_changed_.wait(lock, [&] { return stop_ || tidy_ || served_ < asked_; });
        if (stop_) return;
        ids.clear();
        ids.swap(ahead_);
        const std::uint64_t asked = asked_;
        tidy_ = false;
        lock.unlock();
        bool more = false;
        try {
            lift_.ask(asked, cold_slots(ids));
            load_slice();
            more = tidy();
        } catch (const StoreError& error) {
            note_cold_error(error);  // a hint that failed; a pull will say so if it is still so
        }
        lock.lock();
        served_ = lift_.served();
        tidy_ = tidy_ || more;
        ahead_changed_.notify_all();
    }
}

std::vector<Slot> Table::cold_slots(const std::vector<std::int64_t>& ids) const {
    constexpr std::size_t kAhead = 16;
    std::vector<Slot> slots;
    const std::shared_lock<TableLock> lock(lock_);
    for (std::size_t i = 0; i < ids.size(); ++i) {
        if (i + kAhead < ids.size()) rows_.index().prefetch(Index::hash(ids[i + kAhead]));
        // A guess by the 20 bits is enough here.
        const Slot slot = rows_.index().find(Index::hash(ids[i]), [](Slot) { return true; });
        if (slot.is_cold()) slots.push_back(slot);
    }
    // Rows loaded ahead must not push each other out.
    slots.resize(std::min<std::size_t>(slots.size(), cold_->capacity() / 4));
    return slots;
}

void Table::load_slice() {
    const Frozen frozen(cold_->file());
    std::vector<Slot> slots = lift_.next(kSlice);
    // Some were pulled before their turn came.
    const auto gone = [&](Slot slot) { return !cold_->file().wanted(slot.place()); };
    slots.erase(std::remove_if(slots.begin(), slots.end(), gone), slots.end());
    if (slots.empty()) return;
    ColdRecords found;
    found.read(cold_->file(), rows_.slab().stride(), std::move(slots));
    move_out(found.size());
    const std::unique_lock<TableLock> lock(lock_);
    for (std::size_t i = 0; i < found.size(); ++i)
        if (found.at(i) != nullptr) cold_->bring_in(found.at(i), found.slot(i), step_, true);
    counters_.loaded_ahead += found.size();
}

// Leaves `places` free, without the lock while the disk works.
void Table::move_out(std::uint64_t places) {
    for (;;) {
        {
            const std::unique_lock<TableLock> lock(lock_);
            if (cold_->surplus(places) == 0 || step_ < retry_step_) return;
            cold_->choose(step_, moving_);
            if (moving_.size() == 0) return;
        }
        const bool written = write_out(moving_, moving_buffer_);
        const std::unique_lock<TableLock> lock(lock_);
        if (!written) {
            retry_step_ = step_ + kRetrySteps;
            return;
        }
        cold_->let_go(moving_, capture_);
    }
}

// Returns whether there is more to do.
bool Table::tidy() {
    move_out(spare_places());
    if (!cold_->wants_cleaning()) return false;
    const Frozen frozen(cold_->file());
    {
        const std::shared_lock<TableLock> lock(lock_);
        // What a capture still reads could not be given back.
        if (capture_ != nullptr || step_ < retry_step_) return false;
    }
    cold_->choose_from_disk(moving_, moving_buffer_);
    if (moving_.size() == 0 || !write_out(moving_, moving_buffer_)) return false;
    const std::unique_lock<TableLock> lock(lock_);
    cold_->let_go(moving_, capture_);
    return true;
}

}  // namespace heterps::store
