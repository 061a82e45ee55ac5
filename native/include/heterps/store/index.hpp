// Where each id's row is: open addressing over cache lines.
//
// Rows in RAM and rows on disk have an index each. In RAM a line holds five ids and the places of
// their rows, so that a row is found without looking at it. For what is on disk it holds ten places
// with 16 bits of the id's hash, and the record has to confirm the id.
//
// The hash's first bits choose one of 64 segments, so that threads that own different segments
// never meet; the next ones choose the line at which the search begins. What finds a line full goes
// on to the next, and lines count what has passed them: a search ends at a line that nothing has
// passed, and what is erased leaves no mark.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "heterps/store/hash.hpp"
#include "heterps/store/pages.hpp"

namespace heterps::store {

// A row's place in RAM or on disk, or none.
struct Slot {
    std::uint64_t bits = 0;

    static constexpr std::uint64_t kUsed = std::uint64_t{1} << 62;
    static constexpr std::uint64_t kCold = std::uint64_t{1} << 63;
    static constexpr std::uint64_t kPlace = kUsed - 1;

    static Slot hot(std::uint64_t row) { return {kUsed | row}; }
    static Slot cold(std::uint64_t entry) { return {kUsed | kCold | entry}; }
    explicit operator bool() const { return bits != 0; }
    bool is_cold() const { return (bits & kCold) != 0; }
    std::uint64_t place() const { return bits & kPlace; }
    bool operator==(Slot other) const { return bits == other.bits; }
};

constexpr std::uint64_t kMostPlaces = std::uint64_t{1} << 32;  // of one index

// An index is full with `Percent` of its slots in use; it is made for a part in `Growth` more than
// is needed.
template <class KeyOf, int Slots, int Percent, int Growth>
struct alignas(64) Line {
    using Key = KeyOf;
    static constexpr int kSlots = Slots, kPercent = Percent, kGrowth = Growth;
    static constexpr std::uint32_t kAll = (1u << Slots) - 1;

    Key keys[Slots];
    std::uint32_t places[Slots];
    std::uint32_t state;  // a bit for each slot in use; above them the number that passed

    std::uint32_t matches(Key key) const {
        std::uint32_t found = 0;
        for (int i = 0; i < Slots; ++i) found |= static_cast<std::uint32_t>(keys[i] == key) << i;
        return found & state & kAll;
    }
    bool full() const { return (state & kAll) == kAll; }
    bool passed() const { return state > kAll; }
    void count_passing() { state += kAll + 1; }
    void discount_passing() { state -= kAll + 1; }
    void put(Key key, std::uint32_t place) {
        const int free = __builtin_ctz(~state);
        keys[free] = key;
        places[free] = place;
        state |= 1u << free;
    }
};

using HotLine = Line<std::int64_t, 5, 80, 2>;
// Making this one anew means reading the disk; but what it takes is missing for rows in RAM.
using ColdLine = Line<std::uint16_t, 10, 90, 4>;
static_assert(sizeof(HotLine) == 64 && sizeof(ColdLine) == 64);

// Reads may run at once; changes to one segment need that segment for oneself.
template <class LineOf>
class LineIndex {
  public:
    using Key = typename LineOf::Key;
    static constexpr std::size_t kSegments = 64;
    static constexpr std::uint64_t kNowhere = ~std::uint64_t{0};

    LineIndex();

    static std::uint64_t hash(std::int64_t id) { return mix64(static_cast<std::uint64_t>(id)); }
    static std::size_t segment(std::uint64_t hash) { return hash >> 58; }

    // Inlined by force, as all that only fetches: it would be taken for a call without effect.
    [[gnu::always_inline]] void prefetch(std::uint64_t hash) const {
        __builtin_prefetch(line(hash));
    }
    // Where the search for this hash begins.
    const void* line(std::uint64_t hash) const { return lines() + home(hash); }

    // The first place that was entered under the key, or `kNowhere`.
    std::uint64_t find(std::uint64_t hash, Key key) const {
        const std::uint64_t place = find_in_first_line(line(hash), key);
        return place != kNowhere ? place : find_further(hash, key);
    }
    // For those who have better to do than to wait for a second line.
    std::uint64_t find_in_first_line(const void* line, Key key) const {
        const LineOf& first = *static_cast<const LineOf*>(line);
        const std::uint32_t found = first.matches(key);
        return found != 0 ? first.places[__builtin_ctz(found)] : kNowhere;
    }
    [[gnu::always_inline]] void prefetch_second_line(std::uint64_t hash) const {
        __builtin_prefetch(lines() + next(home(hash), segment(hash)));
    }
    // All the places under a key, until `visit` says true.
    template <class Visit>
    void visit(std::uint64_t hash, Key key, Visit&& visit) const;

    // There must be room (see `lacks_room`).
    void insert(std::uint64_t hash, Key key, std::uint64_t place);
    // False if it is not there any more.
    bool replace(std::uint64_t hash, Key key, std::uint64_t from, std::uint64_t to);
    bool erase(std::uint64_t hash, Key key, std::uint64_t place);

    // For so many in all in a segment.
    bool lacks_room(std::size_t segment_size) const;
    bool has_too_much_room(std::size_t segment_size) const;
    // An empty index with room for so many in a segment, and some more; the caller enters all anew.
    static LineIndex sized_for(std::size_t segment_size);

    std::size_t size() const;
    std::size_t size(std::size_t segment) const { return used_[segment].count; }
    std::size_t bytes() const { return kSegments * capacity_ * sizeof(LineOf); }

  private:
    struct alignas(64) Used {
        std::size_t count = 0;
    };
    struct Found {
        LineOf* line = nullptr;
        int slot = 0;
    };

    explicit LineIndex(std::size_t capacity);
    static std::size_t capacity_for(std::size_t segment_size);
    LineOf* lines() const { return reinterpret_cast<LineOf*>(pages_->data()); }
    std::size_t home(std::uint64_t hash) const {
        const std::uint64_t line = ((hash >> 26) & 0xffffffffu) * capacity_ >> 32;
        return segment(hash) * capacity_ + line;
    }
    std::size_t next(std::size_t at, std::size_t segment) const {
        return at + 1 == (segment + 1) * capacity_ ? segment * capacity_ : at + 1;
    }
    std::uint64_t find_further(std::uint64_t hash, Key key) const;
    Found locate(std::uint64_t hash, Key key, std::uint64_t place) const;

    std::size_t capacity_;  // lines per segment
    std::unique_ptr<Pages> pages_;
    std::array<Used, kSegments> used_{};
};

using Index = LineIndex<HotLine>;
using ColdIndex = LineIndex<ColdLine>;

// Bits of the hash that choose neither segment nor line.
inline std::uint16_t cold_key(std::uint64_t hash) { return static_cast<std::uint16_t>(hash); }

template <class LineOf>
template <class Visit>
void LineIndex<LineOf>::visit(std::uint64_t hash, Key key, Visit&& visit) const {
    std::size_t at = home(hash);
    // Every line may have been passed, so the number of steps is bounded.
    for (std::size_t n = 0; n < capacity_; ++n, at = next(at, segment(hash))) {
        LineOf& line = lines()[at];
        for (std::uint32_t found = line.matches(key); found != 0; found &= found - 1)
            if (visit(line, __builtin_ctz(found))) return;
        if (!line.passed()) return;
    }
}

extern template class LineIndex<HotLine>;
extern template class LineIndex<ColdLine>;

}  // namespace heterps::store
