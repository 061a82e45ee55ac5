// Some ids of a call on their way to their rows.
//
// A cache miss of one id is to be waited for while others are worked on. So what is to be fetched
// is first worked out and then fetched in a loop of nothing else: a fetch holds up what follows it
// while its address is translated, and in a short loop many of them overlap.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "heterps/store/rows.hpp"

namespace heterps::store {

template <std::size_t Size>
struct IdBlock {
    std::size_t count = 0;
    std::size_t at[Size];  // which ids of the call
    std::uint64_t hashes[Size];
    Slot slots[Size];
    const char* places[Size];

    void take(std::size_t index, std::uint64_t hash) {
        at[count] = index;
        hashes[count++] = hash;
    }

    // The lines at which the index begins to search for ids[from] and those after it.
    void fetch_lines(const Rows& rows, const std::int64_t* ids, std::size_t from, std::size_t all) {
        count = 0;
        for (std::size_t i = from; i < std::min(from + Size, all); ++i)
            take(i, Index::hash(ids[i]));
        for (std::size_t k = 0; k < count; ++k)
            places[k] = static_cast<const char*>(rows.index().line(hashes[k]));
        for (std::size_t k = 0; k < count; ++k) __builtin_prefetch(places[k]);
    }

    // Leaves to `later` what is not in its first line; all the others are in RAM.
    template <class Later>
    void find_in_first_lines(const Rows& rows, const std::int64_t* ids, Later& later) {
        const Index& index = rows.index();
        std::size_t kept = 0;
        for (std::size_t k = 0; k < count; ++k) {
            const std::size_t i = at[k];
            const std::uint64_t row = index.find_in_first_line(places[k], ids[i]);
            if (__builtin_expect(row != Index::kNowhere, 1)) {
                at[kept] = i;
                slots[kept] = Slot::hot(row);
                places[kept++] = rows.slab().body(row);
            } else {
                index.prefetch_second_line(hashes[k]);
                later.take(i, hashes[k]);
            }
        }
        count = kept;
    }

    // Inlined by force: a function that only fetches is taken for one without effect.
    [[gnu::always_inline]] void fetch_bodies(std::size_t bytes) const {
        for (std::size_t offset = 0; offset < bytes; offset += 64)
            for (std::size_t k = 0; k < count; ++k) __builtin_prefetch(places[k] + offset);
        if (bytes % 64 != 0)
            for (std::size_t k = 0; k < count; ++k) __builtin_prefetch(places[k] + bytes - 1);
    }

    // With `Bytes` known beforehand there is no call.
    template <std::size_t Bytes>
    void copy(float* out, std::size_t bytes) const {
        for (std::size_t k = 0; k < count; ++k)
            std::memcpy(reinterpret_cast<char*>(out) + at[k] * bytes, places[k],
                        Bytes > 0 ? Bytes : bytes);
    }

    void find(const Rows& rows, const std::int64_t* ids) {
        for (std::size_t k = 0; k < count; ++k) slots[k] = rows.find(ids[at[k]], hashes[k]);
    }

    void fetch_found(const Rows& rows, std::size_t bytes) {
        for (std::size_t k = 0; k < count; ++k)
            places[k] = rows.slab().body(slots[k].is_cold() ? 0 : slots[k].place());
        fetch_bodies(bytes);
    }
};

}  // namespace heterps::store
