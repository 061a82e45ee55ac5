#include "heterps/store/cold_records.hpp"

#include <algorithm>
#include <cstring>

namespace heterps::store {

void ColdRecords::read(const ColdFile& file, std::size_t stride, std::vector<Slot> slots,
                       ColdFile::Haste haste) {
    std::sort(slots.begin(), slots.end(), [](Slot a, Slot b) { return a.place() < b.place(); });
    slots.erase(std::unique(slots.begin(), slots.end()), slots.end());
    slots_ = std::move(slots);
    stride_ = stride;
    records_.resize(slots_.size() * stride);
    sound_.assign(slots_.size(), 0);
    std::vector<std::uint64_t> entries(slots_.size());
    for (std::size_t i = 0; i < entries.size(); ++i) entries[i] = slots_[i].place();
    file.read(entries, haste, [&](std::size_t i, const char* record) {
        if (record == nullptr) return;
        std::memcpy(records_.data() + i * stride, record, stride);
        sound_[i] = 1;
    });
}

std::size_t ColdRecords::index(Slot slot) const {
    const auto found = std::lower_bound(slots_.begin(), slots_.end(), slot,
                                        [](Slot a, Slot b) { return a.place() < b.place(); });
    return static_cast<std::size_t>(found - slots_.begin());
}

}  // namespace heterps::store
