#include "heterps/store/cold_tier.hpp"

#include <algorithm>

namespace heterps::store {

namespace {

constexpr std::size_t kExtent = 256 << 10;
constexpr std::size_t kRead = 512 << 10;
constexpr std::size_t kSampled = 4;           // rows looked at for each that goes
constexpr double kHorizon = 256;              // steps after which a sighting counts half
constexpr std::uint64_t kFarthestStep = 127;  // that a row can be kept for
constexpr std::uint64_t kGuardCycle = 255;
constexpr std::uint64_t kFewestRows = 64;
constexpr std::size_t kAhead = 16;
constexpr std::size_t kMostMoved = 16384;

// Small tables get small extents, so that one of them is a small part of the budget.
std::size_t extent_bytes(std::uint64_t memory_bytes) {
    return std::min<std::uint64_t>(kExtent, memory_bytes / 128);
}

}  // namespace

void Outgoing::clear() {
    from.clear();
    marks.clear();
    records.clear();
}

ColdTier::ColdTier(Rows& rows, const std::string& path, std::uint64_t memory_bytes)
    : rows_(rows),
      file_(path, rows.layout().record_bytes(), extent_bytes(memory_bytes),
            std::min<std::uint64_t>(kRead, memory_bytes / 512)),
      memory_bytes_(memory_bytes),
      guards_(Pages::ample() / rows.layout().record_bytes()) {}

std::size_t ColdTier::bytes() const {
    return file_.bytes_in_memory() + working_bytes_ + rows_.slab().end();
}

std::uint64_t ColdTier::capacity() const {
    const std::uint64_t others =
        rows_.bytes() - rows_.slab().bytes() + file_.bytes_in_memory() + working_bytes_;
    const std::uint64_t left = memory_bytes_ > others ? memory_bytes_ - others : 0;
    // Beside its record a row has a use bit and a guard.
    return std::max(kFewestRows, left * 8 / (rows_.slab().bytes_of(8) + 9));
}

std::uint64_t ColdTier::surplus(std::uint64_t spare) const {
    const std::uint64_t fits = capacity(), used = rows_.slab().size();
    const std::uint64_t wanted = fits - std::min(fits / 4, spare);
    return used > wanted ? used - wanted : 0;
}

// Marks are set by readers too, so they are atomic; memory for them is added when locked.
void ColdTier::set_mark(std::uint64_t row, std::uint8_t mark) {
    if (row < guards_.committed())
        __atomic_store_n(reinterpret_cast<std::uint8_t*>(guards_.data() + row), mark,
                         __ATOMIC_RELAXED);
}

std::uint8_t ColdTier::mark(std::uint64_t row) const {
    if (row >= guards_.committed()) return 0;
    return __atomic_load_n(reinterpret_cast<const std::uint8_t*>(guards_.data() + row),
                           __ATOMIC_RELAXED);
}

void ColdTier::guard(std::uint64_t row, std::uint64_t step) {
    set_mark(row, static_cast<std::uint8_t>(1 + step % kGuardCycle));
}

double ColdTier::worth(std::uint64_t row, std::uint64_t step) {
    const char* head = rows_.slab().head(row);
    const std::uint64_t last_seen = Record::last_seen(head);
    const std::uint64_t age = step > last_seen ? step - last_seen : 0;
    const double worth = static_cast<double>(Record::frequency(head)) * kHorizon /
                         (kHorizon + static_cast<double>(age));
    const std::uint64_t until = mark(row);
    if (until == 0) return worth;
    const std::uint64_t left = (until - 1 + kGuardCycle - step % kGuardCycle) % kGuardCycle;
    if (left <= kFarthestStep) return worth + 1e12;  // its use is still to come
    set_mark(row, 0);
    return worth;
}

void ColdTier::choose(std::uint64_t step, Outgoing& outgoing) {
    outgoing.clear();
    candidates_.clear();
    const Slab& slab = rows_.slab();
    const std::size_t most = std::min<std::size_t>(file_.entries_per_extent(), slab.size() / 2);
    for (std::uint64_t i = 0; i < slab.words() && candidates_.size() < kSampled * most; ++i) {
        const std::uint64_t word = hand_ < slab.words() ? hand_ : 0;  // it may have shrunk
        hand_ = word + 1 < slab.words() ? word + 1 : 0;
        for (std::uint64_t row = hand_ * 64; row < hand_ * 64 + 64; row += 3)
            __builtin_prefetch(slab.head(row));  // for the next word; three heads share a line
        for (std::uint64_t bits = slab.word(word); bits != 0; bits &= bits - 1) {
            const std::uint64_t row = word * 64 + static_cast<std::uint64_t>(__builtin_ctzll(bits));
            candidates_.push_back({worth(row, step), row});
        }
    }
    const std::size_t count = std::min(most, candidates_.size());
    std::nth_element(candidates_.begin(), candidates_.begin() + static_cast<std::ptrdiff_t>(count),
                     candidates_.end(),
                     [](const Candidate& a, const Candidate& b) { return a.worth < b.worth; });
    const std::size_t bytes = rows_.layout().record_bytes();
    outgoing.records.resize(count * bytes);
    for (std::size_t i = 0; i < count; ++i) {
        if (i + kAhead < count) rows_.fetch(candidates_[i + kAhead].row);
        outgoing.from.push_back(Slot::hot(candidates_[i].row));
        outgoing.marks.push_back(mark(candidates_[i].row));
        rows_.write_record(candidates_[i].row, outgoing.records.data() + i * bytes);
    }
}

void ColdTier::choose_from_disk(std::vector<std::size_t>& busy, Outgoing& outgoing,
                                AlignedBuffer& buffer) const {
    outgoing.clear();
    const std::size_t stride = rows_.layout().record_bytes();
    const std::vector<std::size_t> emptiest = file_.emptiest(busy);
    busy.insert(busy.end(), emptiest.begin(), emptiest.end());
    std::sort(busy.begin(), busy.end());
    for (const std::size_t extent : emptiest)
        file_.read_extent(extent, file_.wanted_in(extent).data(), buffer,
                          [&](std::uint64_t entry, const char* record) {
                              if (outgoing.size() == file_.entries_per_extent()) return;
                              outgoing.from.push_back(Slot::cold(entry));
                              outgoing.records.insert(outgoing.records.end(), record,
                                                      record + stride);
                          });
}

void ColdTier::write(Outgoing& outgoing, AlignedBuffer& buffer) {
    std::vector<const char*> records;
    records.reserve(outgoing.size());
    const std::size_t stride = rows_.layout().record_bytes();
    for (std::size_t i = 0; i < outgoing.size(); ++i)
        records.push_back(outgoing.records.data() + i * stride);
    outgoing.first = file_.write(records, buffer);
}

void ColdTier::let_go(const Outgoing& outgoing, HotCapture* capture, Moves* moves) {
    const std::size_t stride = rows_.layout().record_bytes();
    const auto touch = [&](std::size_t i) {
        if (i >= outgoing.size()) return;
        rows_.fetch_lines(Record::id(outgoing.records.data() + i * stride));
        if (!outgoing.from[i].is_cold()) rows_.fetch(outgoing.from[i].place());
    };
    entries_.clear();
    forgotten_.clear();
    for (std::size_t i = 0; i < kAhead; ++i) touch(i);
    for (std::size_t i = 0; i < outgoing.size(); ++i) {
        touch(i + kAhead);
        const char* record = outgoing.records.data() + i * stride;
        const Slot from = outgoing.from[i];
        const Slot to = Slot::cold(outgoing.first + i);
        // Not if it has changed meanwhile, or will be used, as has become known.
        const bool same = from.is_cold() || (mark(from.place()) == outgoing.marks[i] &&
                                             rows_.equals_record(from.place(), record));
        if (!same || !rows_.move(Record::id(record), from, to)) continue;
        entries_.push_back(outgoing.first + i);
        if (from.is_cold()) {
            forgotten_.push_back(from.place());
            if (moves != nullptr) moves->emplace_back(from, to);
        } else {
            if (capture != nullptr) capture->preserve(from.place());
            rows_.slab().release(from.place());
        }
    }
    file_.want(outgoing.first, entries_);
    file_.forget(forgotten_);
}

void ColdTier::bring_in(const ColdRecords& found, const Rider* riders, std::vector<Slot>& places) {
    places.assign(found.size(), Slot{});
    Rows::PerSegment additional{};
    for (std::size_t i = 0; i < found.size(); ++i)
        if (found.at(i) != nullptr)
            ++additional[Index::segment(Index::hash(Record::id(found.at(i))))];
    rows_.make_room_in_ram(additional, nullptr);
    rows_taken_.resize(found.size());
    rows_.slab().allocate(found.size(), rows_taken_.data());
    guards_.commit(rows_.slab().end());
    forgotten_.clear();
    const auto touch = [&](std::size_t i) {
        if (i >= found.size() || found.at(i) == nullptr) return;
        rows_.fetch_lines(Record::id(found.at(i)));
        rows_.fetch(rows_taken_[i]);
    };
    for (std::size_t i = 0; i < kAhead; ++i) touch(i);
    for (std::size_t i = 0; i < found.size(); ++i) {
        touch(i + kAhead);
        const std::uint64_t row = rows_taken_[i];
        const char* record = found.at(i);
        const Slot hot = Slot::hot(row);
        if (record == nullptr || !rows_.move(Record::id(record), found.slot(i), hot)) {
            rows_.slab().release(row);
            continue;
        }
        rows_.read_record(row, record);
        if (riders != nullptr)
            guard(row, riders[i].used_by);
        else
            set_mark(row, 0);
        forgotten_.push_back(found.slot(i).place());
        places[i] = hot;
    }
    file_.forget(forgotten_);
}

void ColdTier::trim(HotCapture* capture) {
    Slab& slab = rows_.slab();
    guards_.commit(slab.end());
    rows_.give_room_back();
    const std::uint64_t fits = (capacity() + 63) / 64 * 64;
    if (slab.end() <= fits + kMostMoved / 4) return;
    std::size_t moved = 0;
    for (std::uint64_t row = slab.end(); row-- > fits && moved < kMostMoved;) {
        if (!slab.used(row)) continue;
        std::uint64_t place;
        if (!slab.allocate_below(fits, &place)) break;
        if (capture != nullptr) capture->preserve(row);
        rows_.copy(row, place);
        set_mark(place, mark(row));
        rows_.move(Record::id(slab.head(place)), Slot::hot(row), Slot::hot(place));
        slab.release(row);
        ++moved;
    }
    slab.shrink();
}

bool ColdTier::wants_cleaning() const {
    const std::uint64_t garbage = file_.garbage();
    return garbage > 4 * file_.entries_per_extent() && garbage > file_.size() / 2;
}

}  // namespace heterps::store
