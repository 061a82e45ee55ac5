// Memory straight from the kernel, in huge pages where they exist.
#pragma once

#include <cstddef>

namespace heterps::store {

// A range of addresses that is reserved at once and filled from its start as it grows, so that what
// lies in it never moves. Zero until written. Not thread-safe; readers of the part that is already
// committed may go on while it grows.
class Pages {
  public:
    explicit Pages(std::size_t reserve_bytes);  // throws std::bad_alloc
    ~Pages();
    Pages(const Pages&) = delete;
    Pages& operator=(const Pages&) = delete;

    // Makes at least the first `bytes` usable; throws std::bad_alloc.
    void commit(std::size_t bytes);
    // Gives back what lies beyond; it reads as zero until it is written again.
    void release_beyond(std::size_t bytes);
    char* data() const { return data_; }
    std::size_t committed() const { return committed_; }
    std::size_t reserved() const { return reserved_; }

    // What one growing structure may ask for: more than the machine could ever fill.
    static std::size_t ample();

  private:
    char* data_ = nullptr;
    std::size_t reserved_ = 0, committed_ = 0;
};

}  // namespace heterps::store
