#include "heterps/store/pages.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <new>

namespace heterps::store {

namespace {

constexpr std::size_t kHuge = std::size_t{2} << 20;

std::size_t round_up(std::size_t bytes, std::size_t unit) {
    return (bytes + unit - 1) / unit * unit;
}

}  // namespace

Pages::Pages(std::size_t reserve_bytes) : reserved_(round_up(reserve_bytes, kHuge)) {
    const std::size_t padded = reserved_ + kHuge;
    void* raw =
        mmap(nullptr, padded, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (raw == MAP_FAILED) throw std::bad_alloc();
    auto* start = static_cast<char*>(raw);
    const auto address = reinterpret_cast<std::uintptr_t>(raw);
    const std::size_t before = round_up(address, kHuge) - address;
    if (before > 0) munmap(start, before);
    if (kHuge - before > 0) munmap(start + before + reserved_, kHuge - before);
    data_ = start + before;
}

Pages::~Pages() {
    if (data_ != nullptr) munmap(data_, reserved_);
}

void Pages::commit(std::size_t bytes) {
    if (bytes <= committed_) return;
    // In steps that grow, to keep the number of system calls small; untouched pages cost nothing.
    const std::size_t step = std::max(kHuge, round_up(committed_ / 8, kHuge));
    const std::size_t target =
        std::min(round_up(std::max(bytes, committed_ + step), kHuge), reserved_);
    if (bytes > target) throw std::bad_alloc();
    if (mprotect(data_ + committed_, target - committed_, PROT_READ | PROT_WRITE) != 0)
        throw std::bad_alloc();
    // Not for the first small step: a small table should not cost a huge page per structure.
    if (target > kHuge) madvise(data_ + committed_, target - committed_, MADV_HUGEPAGE);
    committed_ = target;
}

void Pages::release_beyond(std::size_t bytes) {
    const std::size_t keep = round_up(bytes, kHuge);
    if (keep < committed_) madvise(data_ + keep, committed_ - keep, MADV_DONTNEED);
}

std::size_t Pages::ample() {
    const auto pages = static_cast<std::size_t>(std::max(1L, sysconf(_SC_PHYS_PAGES)));
    return pages * static_cast<std::size_t>(sysconf(_SC_PAGESIZE)) * 4;
}

}  // namespace heterps::store
