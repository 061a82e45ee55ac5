// Opening, reading and closing a capture.
#include <algorithm>
#include <shared_mutex>

#include "heterps/store/table.hpp"

namespace heterps::store {

std::unique_ptr<Capture> Table::capture(std::int64_t since_step) {
    if (options_.evict_after > 0) {  // so that what has expired is named as removed
        const std::unique_lock<TableLock> lock(lock_);
        drop_expired(rows_.slab().words());
    }
    return std::unique_ptr<Capture>(new Capture(*this, since_step));
}

// Under the lock for readers: pulls go on, and nothing else can change. The one thing written,
// `capture_`, is read under the lock for writers only.
Capture::Capture(Table& table, std::int64_t since) : table_(table) {
    const std::lock_guard<std::mutex> capture_lock(table.capture_mutex_);
    const std::shared_lock<TableLock> lock(table.lock_);
    if (table.capture_ != nullptr) throw std::invalid_argument("another capture is open");
    const std::uint32_t oldest = table.oldest_live(table.step_);
    since = std::max(since, static_cast<std::int64_t>(oldest) - 1);
    summary_.step = table.step_;
    summary_.removed = table.rows_.removed();
    for (std::size_t s = 0; s < Index::kSegments; ++s)
        table.rows_.sightings(s).visit([&](const Sightings::Entry& entry) {
            if (entry.last_seen >= oldest) summary_.pending.push_back(entry);
        });
    hot_ = std::make_unique<HotCapture>(table.rows_, since);
    if (since < 0) {
        summary_.rows = table.rows_.size();
        for (std::size_t b = 0; b < kBuckets; ++b)
            summary_.bucket_counts[b] = table.rows_.in_bucket(b);
    } else {
        hot_->count(summary_);
    }
    const std::lock_guard<std::mutex> batches_lock(table.batches_mutex_);
    summary_.committed = table.committed_;
    table.capture_ = hot_.get();
}

Capture::~Capture() { finish(false); }

bool Capture::next(std::size_t max_rows, RowBatch& batch) {
    batch.clear();
    if (!open_) throw std::invalid_argument("the capture is finished");
    const std::shared_lock<TableLock> lock(table_.lock_);
    hot_->next(std::max<std::size_t>(1, max_rows), batch);
    return !batch.ids.empty();
}

void Capture::finish(bool ok) {
    if (!open_) return;
    open_ = false;
    const std::unique_lock<TableLock> lock(table_.lock_);
    table_.capture_ = nullptr;
    if (ok) table_.rows_.forget_removed(summary_.removed);
    hot_.reset();
}

}  // namespace heterps::store
