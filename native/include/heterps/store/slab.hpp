// Rows in RAM, a head and a body of fixed size each, with a bit that says whether it is in use.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <utility>

#include "heterps/store/pages.hpp"

namespace heterps::store {

// A record is [id 8 | frequency 4 | last_seen 4 | vector | state], aligned to 4 bytes only. A head
// in the slab begins in the same way.
struct Record {
    static constexpr std::size_t kHeader = 16;

    static std::int64_t id(const char* at) { return load<std::int64_t>(at); }
    static std::uint32_t frequency(const char* at) { return load<std::uint32_t>(at + 8); }
    static std::uint32_t last_seen(const char* at) { return load<std::uint32_t>(at + 12); }
    static float* vector(char* at) { return reinterpret_cast<float*>(at + kHeader); }
    static const float* vector(const char* at) {
        return reinterpret_cast<const float*>(at + kHeader);
    }
    static void set(char* at, std::int64_t id, std::uint32_t frequency, std::uint32_t last_seen) {
        std::memcpy(at, &id, 8);
        set_seen(at, frequency, last_seen);
    }
    static void set_seen(char* at, std::uint32_t frequency, std::uint32_t last_seen) {
        std::memcpy(at + 8, &frequency, 4);
        std::memcpy(at + 12, &last_seen, 4);
    }

  private:
    template <class T>
    static T load(const char* at) {
        T value;
        std::memcpy(&value, at, sizeof value);
        return value;
    }
};

// `allocate` and `release` may be called by several threads at once; a row itself is guarded by
// whoever owns its id. Rows never move.
//
// Three or four rows are a group: their bodies, then their heads, which share a cache line. So a
// body of 64 bytes is a cache line too, and its head is not far: what is near costs half as much.
class Slab {
  public:
    Slab(std::size_t head_bytes, std::size_t body_bytes, std::size_t reserve_bytes);

    char* head(std::uint64_t row) { return const_cast<char*>(std::as_const(*this).head(row)); }
    const char* head(std::uint64_t row) const {
        const std::uint64_t group = group_of(row);
        return rows_.data() + group * group_bytes_ + heads_at_ +
               (row - group * per_group_) * head_bytes_;
    }
    char* body(std::uint64_t row) { return const_cast<char*>(std::as_const(*this).body(row)); }
    const char* body(std::uint64_t row) const {
        const std::uint64_t group = group_of(row);
        return rows_.data() + group * group_bytes_ + (row - group * per_group_) * body_bytes_;
    }
    // What so many rows take.
    std::size_t bytes_of(std::uint64_t rows) const {
        return (rows * group_bytes_ + per_group_ - 1) / per_group_;
    }

    void allocate(std::size_t count, std::uint64_t* rows);  // throws StoreError
    void release(std::uint64_t row);
    // One row below `limit`, or false. Not beside the two above.
    bool allocate_below(std::uint64_t limit, std::uint64_t* row);
    // Gives memory back beyond the last row in use. Not beside anything else.
    void shrink();

    bool used(std::uint64_t row) const { return (word(row / 64) >> (row % 64)) & 1; }
    // The use bits of rows 64 * index to 64 * index + 63.
    std::uint64_t word(std::uint64_t index) const {
        return __atomic_load_n(bits() + index, __ATOMIC_RELAXED);
    }
    std::uint64_t words() const { return (end_ + 63) / 64; }
    std::uint64_t end() const { return end_; }  // rows ever used are below this
    std::uint64_t size() const { return __atomic_load_n(&size_, __ATOMIC_RELAXED); }
    std::size_t bytes() const { return bytes_of(end_) + end_ / 8; }

  private:
    std::uint64_t* bits() const { return reinterpret_cast<std::uint64_t*>(bits_.data()); }
    std::size_t take_holes(std::size_t count, std::uint64_t* rows);

    std::uint64_t group_of(std::uint64_t row) const { return per_group_ == 3 ? row / 3 : row / 4; }
    std::size_t whole_groups(std::uint64_t rows) const {
        return (group_of(rows) + 1) * group_bytes_;
    }

    std::size_t head_bytes_, body_bytes_, per_group_, heads_at_, group_bytes_;
    Pages rows_, bits_;
    std::mutex mutex_;
    std::uint64_t end_ = 0, size_ = 0;
    std::uint64_t touched_ = 0;  // rows below this may have memory
    std::uint64_t cursor_ = 0;   // the word where the search for holes goes on
};

}  // namespace heterps::store
