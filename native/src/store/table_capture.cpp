// Opening, reading and closing a capture.
#include <algorithm>
#include <shared_mutex>

#include "heterps/store/table.hpp"

namespace heterps::store {

namespace {
constexpr std::size_t kRowsAtOnce = 65'536;  // some milliseconds
}

std::unique_ptr<Capture> Table::capture(std::int64_t since_step) {
    if (options_.evict_after > 0) {  // so that what has expired is named as removed
        const std::unique_lock<TableLock> lock(lock_);
        drop_expired(rows_.slab().words());
        drop_expired_on_disk();
    }
    return std::unique_ptr<Capture>(new Capture(*this, since_step));
}

void Table::drop_expired_on_disk() {
    const std::uint32_t oldest = oldest_live(step_);
    if (!cold_ || oldest == 0) return;
    std::vector<std::pair<std::int64_t, Slot>> expired;
    std::vector<std::uint32_t> last_seen;
    visit_cold()([&](const char* record, Slot slot) {
        if (Record::last_seen(record) >= oldest) return;
        expired.emplace_back(Record::id(record), slot);
        last_seen.push_back(Record::last_seen(record));
    });
    for (std::size_t i = 0; i < expired.size(); ++i)
        drop_row(expired[i].first, expired[i].second, last_seen[i]);
    counters_.evicted += expired.size();
}

// Under the lock for readers: pulls go on, and nothing else can change. What is written, `capture_`
// and that removed ids are kept, is read under the lock for writers, or with the mutex of captures.
Capture::Capture(Table& table, std::int64_t since) : table_(table), since_(since) {
    std::shared_lock<TableLock> lock(table.lock_);
    const std::lock_guard<std::mutex> capture_lock(table.capture_mutex_);
    if (table.capture_ != nullptr) throw std::invalid_argument("another capture is open");
    const std::uint32_t oldest = table.oldest_live(table.step_);
    since_ = std::max(since, static_cast<std::int64_t>(oldest) - 1);
    summary_.step = table.step_;
    summary_.removed = table.rows_.removed();
    table.rows_.keep_removed(true);  // for the delta that may follow this one
    for (std::size_t s = 0; s < Index::kSegments; ++s)
        table.rows_.sightings(s).visit([&](const Sightings::Entry& entry) {
            if (entry.last_seen >= oldest) summary_.pending.push_back(entry);
        });
    hot_ = std::make_unique<HotCapture>(table.rows_, since_);
    if (since_ < 0) {
        summary_.rows = table.rows_.size();
        for (std::size_t b = 0; b < kBuckets; ++b)
            summary_.bucket_counts[b] = table.rows_.in_bucket(b);
    } else {
        hot_->count(summary_);
    }
    summary_.committed = table.committed();
    if (table.cold_) {
        frozen_ = std::make_unique<Frozen>(table.cold_->file());
        cold_ = table.cold_->file().snapshot();
    }
    table.capture_ = hot_.get();
    lock.unlock();
    try {
        if (since_ >= 0) count_cold();  // what is frozen can be read without the lock
    } catch (...) {
        finish(false);
        throw;
    }
}

void Capture::count_cold() {
    const ColdFile* file = table_.cold_ ? &table_.cold_->file() : nullptr;
    for (std::size_t e = 0; e < cold_.newest.size(); ++e)
        if (static_cast<std::int64_t>(cold_.newest[e]) > since_)
            file->read_extent(e, cold_.wanted.data() + e * file->words(), buffer_,
                              [&](std::uint64_t, const char* record) {
                                  if (!hot_->wants(record)) return;
                                  ++summary_.rows;
                                  ++summary_.bucket_counts[bucket_of(Record::id(record))];
                              });
}

Capture::~Capture() { finish(false); }

bool Capture::next(std::size_t max_rows, RowBatch& batch) {
    if (!open_) throw std::invalid_argument("the capture is finished");
    max_rows = std::max<std::size_t>(1, max_rows);
    staged_.clear();
    for (std::size_t left = max_rows; left > 0;) {
        stage(std::min(kRowsAtOnce, left));
        if (max_rows - staged_.ids.size() == left) break;
        left = max_rows - staged_.ids.size();
    }
    batch.order_by_bucket(staged_, layout());
    return !batch.ids.empty();
}

// Adds none only at the end.
void Capture::stage(std::size_t max_rows) {
    const std::size_t before = staged_.ids.size();
    {
        const std::shared_lock<TableLock> lock(table_.lock_);
        hot_->next(max_rows, staged_);
    }
    if (staged_.ids.size() == before) stage_cold(max_rows);
}

// Rows that were on disk when the capture began: the file is frozen, so no lock is needed.
void Capture::stage_cold(std::size_t max_rows) {
    const ColdFile* file = table_.cold_ ? &table_.cold_->file() : nullptr;
    while (extent_given_ == extent_rows_.ids.size()) {
        if (extent_ == cold_.newest.size()) return;
        extent_rows_.clear();
        extent_given_ = 0;
        if (static_cast<std::int64_t>(cold_.newest[extent_]) > since_)
            file->read_extent(extent_, cold_.wanted.data() + extent_ * file->words(), buffer_,
                              [&](std::uint64_t, const char* record) {
                                  if (hot_->wants(record))
                                      extent_rows_.add(RowView::of(record, layout()), layout());
                              });
        ++extent_;
    }
    const std::size_t end = std::min(extent_rows_.ids.size(), extent_given_ + max_rows);
    staged_.add(extent_rows_, extent_given_, end, layout());
    extent_given_ = end;
}

void Capture::finish(bool ok) {
    if (!open_) return;
    open_ = false;
    const std::unique_lock<TableLock> lock(table_.lock_);
    table_.capture_ = nullptr;
    frozen_.reset();
    table_.has_base_ = table_.has_base_ || ok;
    if (ok) table_.rows_.forget_removed(summary_.removed);
    table_.rows_.keep_removed(table_.has_base_);
    hot_.reset();
}

}  // namespace heterps::store
