#include "heterps/store/slab.hpp"

#include <algorithm>

#include "heterps/store/errors.hpp"
#include "heterps/store/index.hpp"

namespace heterps::store {

namespace {

constexpr std::size_t kLine = 64;

}  // namespace

Slab::Slab(std::size_t head_bytes, std::size_t body_bytes, std::size_t reserve_bytes)
    : head_bytes_(head_bytes),
      body_bytes_(body_bytes),
      per_group_(4 * head_bytes <= kLine ? 4 : 3),
      heads_at_(per_group_ * body_bytes),
      // Where bodies fill whole lines, groups begin with one.
      group_bytes_(heads_at_ + (heads_at_ % kLine == 0 ? kLine : per_group_ * head_bytes)),
      rows_(reserve_bytes),
      bits_(reserve_bytes / bytes_of(1) / 8 + 64) {}

void Slab::allocate(std::size_t count, std::uint64_t* rows) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const std::size_t taken = size_ < end_ ? take_holes(count, rows) : 0;
    const std::uint64_t fresh_end = end_ + (count - taken);
    if (fresh_end > kMostPlaces)
        throw StoreError("a table holds at most 4,294,967,296 rows in memory: use more servers");
    rows_.commit(whole_groups(fresh_end));
    bits_.commit((fresh_end + 63) / 64 * 8);
    for (std::size_t i = taken; i < count; ++i) {
        const std::uint64_t row = end_++;
        __atomic_fetch_or(bits() + row / 64, std::uint64_t{1} << (row % 64), __ATOMIC_RELAXED);
        rows[i] = row;
    }
    __atomic_fetch_add(&size_, count, __ATOMIC_RELAXED);
}

std::size_t Slab::take_holes(std::size_t count, std::uint64_t* rows) {
    std::size_t taken = 0;
    for (std::uint64_t visited = 0; visited < words() && taken < count; ++visited) {
        if (cursor_ >= words()) cursor_ = 0;
        std::uint64_t holes = ~word(cursor_);
        for (; holes != 0 && taken < count; holes &= holes - 1) {
            const std::uint64_t bit = static_cast<std::uint64_t>(__builtin_ctzll(holes));
            const std::uint64_t row = cursor_ * 64 + bit;
            if (row >= end_) break;
            __atomic_fetch_or(bits() + cursor_, std::uint64_t{1} << bit, __ATOMIC_RELAXED);
            rows[taken++] = row;
        }
        if (taken < count) ++cursor_;
    }
    return taken;
}

bool Slab::allocate_below(std::uint64_t limit, std::uint64_t* row) {
    const std::uint64_t whole = std::min(limit, end_) / 64;
    for (std::uint64_t visited = 0; visited < whole; ++visited) {
        if (cursor_ >= whole) cursor_ = 0;
        if (const std::uint64_t holes = ~word(cursor_)) {
            const auto bit = static_cast<std::uint64_t>(__builtin_ctzll(holes));
            *row = cursor_ * 64 + bit;
            bits()[cursor_] |= std::uint64_t{1} << bit;
            ++size_;
            return true;
        }
        ++cursor_;
    }
    return false;
}

void Slab::shrink() {
    constexpr std::size_t kWorthIt = std::size_t{4} << 20;
    touched_ = std::max(touched_, end_);
    std::uint64_t used_words = words();
    while (used_words > 0 && word(used_words - 1) == 0) --used_words;
    end_ = std::min(end_, used_words * 64);
    if (bytes_of(touched_ - end_) < kWorthIt) return;
    rows_.release_beyond(whole_groups(end_));
    touched_ = end_;
}

void Slab::release(std::uint64_t row) {
    __atomic_fetch_and(bits() + row / 64, ~(std::uint64_t{1} << (row % 64)), __ATOMIC_RELAXED);
    __atomic_fetch_sub(&size_, 1, __ATOMIC_RELAXED);
}

}  // namespace heterps::store
