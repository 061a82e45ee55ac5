// Records read from the cold file in one go.
#pragma once

#include <cstdint>
#include <vector>

#include "heterps/store/cold_file.hpp"
#include "heterps/store/index.hpp"

namespace heterps::store {

class ColdRecords {
  public:
    // Each slot once, by place. Throws StoreError.
    void read(const ColdFile& file, std::size_t stride, std::vector<Slot> slots,
              ColdFile::Haste haste = ColdFile::Haste::kNow);

    std::size_t size() const { return slots_.size(); }
    Slot slot(std::size_t i) const { return slots_[i]; }
    // Null where the file holds something else than what was written.
    const char* at(std::size_t i) const {
        return sound_[i] != 0 ? records_.data() + i * stride_ : nullptr;
    }
    // Of a slot that was read.
    std::size_t index(Slot slot) const;

  private:
    std::vector<Slot> slots_;
    std::vector<char> records_;
    std::vector<std::uint8_t> sound_;
    std::size_t stride_ = 0;
};

}  // namespace heterps::store
