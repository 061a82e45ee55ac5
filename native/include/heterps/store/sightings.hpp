// Counters of ids that have no row yet: open addressing, 16 bytes an id.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace heterps::store {

// Not thread-safe.
class Sightings {
  public:
    struct Entry {
        std::int64_t id;
        std::uint32_t count;  // 0: empty
        std::uint32_t last_seen;
    };

    const Entry* find(std::int64_t id) const;
    void set(std::int64_t id, std::uint32_t count, std::uint32_t last_seen);
    bool erase(std::int64_t id);
    // Drops what was last seen before `step`.
    void erase_before(std::uint32_t step);

    std::size_t size() const { return size_; }
    std::size_t bytes() const { return entries_.capacity() * sizeof(Entry); }
    template <class Visit>
    void visit(Visit&& visit) const {
        for (const Entry& entry : entries_)
            if (entry.count != 0) visit(entry);
    }

  private:
    std::size_t home(std::int64_t id) const;
    std::size_t place(std::int64_t id) const;  // where it is, or the empty place for it
    void resize(std::size_t capacity);

    std::vector<Entry> entries_;  // a power of two
    std::size_t size_ = 0;
};

}  // namespace heterps::store
