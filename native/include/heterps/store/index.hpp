// Where each id's row is: open addressing over 8-byte slots.
//
// A slot holds 20 bits of the id's hash, a bit for "on disk", and the row's place there; the id
// itself stands in the record, which is looked at only when those 20 bits agree. The hash's first
// bits choose one of 64 segments, so that threads that own different segments never meet; the next
// ones choose a cache line, at whose first slot the search begins: most ids are found in it.
#pragma once

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "heterps/store/hash.hpp"
#include "heterps/store/pages.hpp"

namespace heterps::store {

struct Slot {
    std::uint64_t bits = 0;

    static constexpr std::uint64_t kUsed = std::uint64_t{1} << 42;
    static constexpr std::uint64_t kCold = std::uint64_t{1} << 43;
    static constexpr std::uint64_t kPlace = kUsed - 1;
    static constexpr int kPrintShift = 44;

    static Slot hot(std::uint64_t hash, std::uint64_t row) {
        return {(hash << kPrintShift) | kUsed | row};
    }
    static Slot cold(std::uint64_t hash, std::uint64_t entry) {
        return {(hash << kPrintShift) | kUsed | kCold | entry};
    }
    explicit operator bool() const { return (bits & kUsed) != 0; }
    bool is_cold() const { return (bits & kCold) != 0; }
    std::uint64_t place() const { return bits & kPlace; }
    bool operator==(Slot other) const { return bits == other.bits; }
};

// Reads may run at once; changes to one segment need that segment for oneself.
class Index {
  public:
    static constexpr std::size_t kSegments = 64;

    Index();

    static std::uint64_t hash(std::int64_t id) { return mix64(static_cast<std::uint64_t>(id)); }
    static std::size_t segment(std::uint64_t hash) { return hash >> 58; }

    void prefetch(std::uint64_t hash) const { __builtin_prefetch(line(hash)); }
    // Where the search for this hash begins.
    const void* line(std::uint64_t hash) const { return slots() + home(hash); }

    // The first slot for which `accept` says yes among those whose 20 bits agree, or an empty one.
    template <class Accept>
    Slot find(std::uint64_t hash, Accept&& accept) const;
    // The first slot whose 20 bits agree, whatever it holds, or an empty one: a good guess for the
    // caller to confirm by the record. Looks at one cache line as a whole if it can.
    Slot guess(std::uint64_t hash) const;
    // The slot must not be there yet, and there must be room (see `lacks_room`).
    void insert(std::uint64_t hash, Slot slot);
    // False if `from` is not there any more.
    bool replace(std::uint64_t hash, Slot from, Slot to);
    bool erase(std::uint64_t hash, Slot slot);

    bool lacks_room(std::size_t segment, std::size_t additional) const;
    // An empty index for `additional` rows more in its fullest segment, at least; the caller
    // inserts all slots anew.
    Index grown(std::size_t additional) const;

    std::size_t size() const;
    std::size_t bytes() const { return kSegments * capacity_ * sizeof(Slot); }

  private:
    struct alignas(64) Load {
        std::size_t used = 0, erased = 0;
    };
    static constexpr std::uint64_t kErased = 1;  // not used, not empty
    static constexpr std::size_t kLine = 8;      // slots in a cache line

    explicit Index(std::size_t capacity);
    Slot* slots() const { return reinterpret_cast<Slot*>(pages_->data()); }
    std::size_t home(std::uint64_t hash) const {
        const std::uint64_t line = ((hash >> 26) & 0xffffffffu) * (capacity_ / kLine) >> 32;
        return segment(hash) * capacity_ + line * kLine;
    }
    std::size_t next(std::size_t at, std::size_t segment) const {
        return at + 1 == (segment + 1) * capacity_ ? segment * capacity_ : at + 1;
    }
    Slot* locate(std::uint64_t hash, Slot slot) const;

    std::size_t capacity_;  // slots per segment, in whole lines
    std::unique_ptr<Pages> pages_;
    std::array<Load, kSegments> load_{};
};

template <class Accept>
Slot Index::find(std::uint64_t hash, Accept&& accept) const {
    const std::size_t part = segment(hash);
    for (std::size_t at = home(hash);; at = next(at, part)) {
        const Slot slot = slots()[at];
        if (slot.bits == 0) return {};
        const bool same = ((slot.bits >> Slot::kPrintShift) ^ hash) << Slot::kPrintShift == 0;
        if (same && slot && accept(slot)) return slot;
    }
}

inline Slot Index::guess(std::uint64_t hash) const {
#if defined(__SSE2__)
    const Slot* line = slots() + home(hash);
    const auto* words = reinterpret_cast<const __m128i*>(line);
    // The upper halves of four slots, without what is not of the 20 bits.
    const auto prints = [](__m128i a, __m128i b) {
        const __m128 upper = _mm_shuffle_ps(_mm_castsi128_ps(a), _mm_castsi128_ps(b), 0xdd);
        return _mm_srli_epi32(_mm_castps_si128(upper), Slot::kPrintShift - 32);
    };
    const __m128i wanted = _mm_set1_epi32(static_cast<int>(hash & 0xfffff));
    const __m128i first = _mm_cmpeq_epi32(prints(words[0], words[1]), wanted);
    const __m128i last = _mm_cmpeq_epi32(prints(words[2], words[3]), wanted);
    const int found =
        _mm_movemask_ps(_mm_castsi128_ps(first)) | _mm_movemask_ps(_mm_castsi128_ps(last)) << 4;
    if (found != 0) {
        const Slot slot = line[__builtin_ctz(static_cast<unsigned>(found))];
        if (slot) return slot;
    }
#endif
    return find(hash, [](Slot) { return true; });
}

}  // namespace heterps::store
