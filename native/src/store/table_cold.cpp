// The table's side of the cold tier: bringing rows in and making room.
#include <algorithm>
#include <shared_mutex>

#include "heterps/store/table.hpp"

namespace heterps::store {

namespace {

constexpr std::size_t kFew = 64;           // rows that are read at once rather than waited for
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
                visit(record, Slot::cold(entry));
            });
        }
    };
}

// The slow way, for the rare id whose 16 bits agree with another's on disk. It may have come in as
// what another id was taken for.
Slot Table::bring_in_one(std::int64_t id) {
    if (const Slot hot = rows_.find_hot(id, Index::hash(id))) return hot;
    std::vector<Slot> candidates;
    rows_.visit_cold_candidates(Index::hash(id), [&](Slot slot) { candidates.push_back(slot); });
    for (const Slot slot : candidates) {
        ColdRecords found;
        found.read(cold_->file(), layout().record_bytes(), {slot});
        if (found.at(0) == nullptr)
            throw StoreError("the cold file is torn: entry " + std::to_string(slot.place()) +
                             " is not what was written");
        if (Record::id(found.at(0)) != id) continue;
        cold_->bring_in(found, nullptr, places_);
        return places_[0];
    }
    return {};
}

void Table::settle(const std::vector<Distinct*>& cold) {
    std::vector<Slot> slots;
    for (const Distinct* distinct : cold) slots.push_back(distinct->slot);
    ColdRecords found;
    found.read(cold_->file(), layout().record_bytes(), std::move(slots));
    counters_.misses += cold.size();
    cold_->bring_in(found, nullptr, places_);
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
// would also slow the round down. Ends when few are missing, or when all that was to be there by
// now has been loaded.
void Table::await_ahead(const std::int64_t* ids, float* out, std::vector<Miss>& misses,
                        std::shared_lock<TableLock>& lock) {
    std::unique_lock<std::mutex> ahead(ahead_mutex_);
    const std::uint64_t mine = asked_for_now();
    while (misses.size() > kFew && served_ < mine) {
        lock.unlock();
        const std::uint64_t slices = slices_;
        ahead_changed_.wait(ahead, [&] { return slices_ != slices || served_ >= mine; });
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
}

void Table::pull_cold(const std::int64_t* ids, float* out, std::vector<Miss>& misses) {
    const auto dim = static_cast<std::size_t>(options_.dim);
    std::vector<Slot> slots;
    for (const Miss& miss : misses) slots.push_back(miss.slot);
    ColdRecords found;
    found.read(cold_->file(), layout().record_bytes(), std::move(slots));
    counters_.misses += misses.size();
    const std::unique_lock<TableLock> lock(lock_);
    cold_->bring_in(found, nullptr, places_);
    PullCounts counts;
    for (const Miss& miss : misses) {
        const std::int64_t id = ids[miss.index];
        const char* record = found.at(found.index(miss.slot));
        if (record != nullptr && Record::id(record) == id) {
            copy_row(record, Record::vector(record), out + miss.index * dim);
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

void Table::note_cold_error(const std::exception& error) {
    ++counters_.cold_errors;
    const std::lock_guard<std::mutex> lock(ahead_mutex_);
    cold_error_ = error.what();
}

std::string Table::cold_error() const {
    const std::lock_guard<std::mutex> lock(ahead_mutex_);
    return cold_error_;
}

}  // namespace heterps::store
