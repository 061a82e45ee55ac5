// Where each id's row is: open addressing over 8-byte slots.
//
// A slot holds 20 bits of the id's hash, a bit for "on disk", and the row's place there; the id
// itself stands in the record, which is looked at only when those 20 bits agree. The hash's first
// bits choose one of 64 segments, so that threads that own different segments never meet.
#pragma once

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

    void prefetch(std::uint64_t hash) const { __builtin_prefetch(slots() + home(hash)); }

    // The first slot for which `accept` says yes among those whose 20 bits agree, or an empty one.
    template <class Accept>
    Slot find(std::uint64_t hash, Accept&& accept) const;
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

    explicit Index(std::size_t capacity);
    Slot* slots() const { return reinterpret_cast<Slot*>(pages_->data()); }
    std::size_t home(std::uint64_t hash) const {
        const std::uint64_t position = ((hash >> 26) & 0xffffffffu) * capacity_ >> 32;
        return segment(hash) * capacity_ + position;
    }
    std::size_t next(std::size_t at, std::size_t segment) const {
        return at + 1 == (segment + 1) * capacity_ ? segment * capacity_ : at + 1;
    }
    Slot* locate(std::uint64_t hash, Slot slot) const;

    std::size_t capacity_;  // slots per segment
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

}  // namespace heterps::store
