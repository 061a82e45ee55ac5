#include "heterps/store/capture.hpp"

#include <algorithm>
#include <utility>

namespace heterps::store {

void RowBatch::clear() {
    ids.clear();
    values.clear();
    state.clear();
    frequency.clear();
    last_seen.clear();
}

void RowBatch::add(const RowView& row, const Layout& layout) {
    ids.push_back(row.id);
    frequency.push_back(row.frequency);
    last_seen.push_back(row.last_seen);
    values.insert(values.end(), row.vector, row.vector + layout.dim);
    state.insert(state.end(), row.state, row.state + layout.state);
}

void RowBatch::add(const RowBatch& from, std::size_t begin, std::size_t end, const Layout& layout) {
    const auto append = [&](auto& to, const auto& source, int width) {
        const auto columns = static_cast<std::size_t>(width);
        to.insert(to.end(), source.data() + begin * columns, source.data() + end * columns);
    };
    append(ids, from.ids, 1);
    append(values, from.values, layout.dim);
    append(state, from.state, layout.state);
    append(frequency, from.frequency, 1);
    append(last_seen, from.last_seen, 1);
}

void RowBatch::order_by_bucket(const RowBatch& from, const Layout& layout) {
    const std::size_t count = from.ids.size();
    std::vector<std::uint32_t> places(count);
    std::array<std::uint32_t, kBuckets> next{};
    for (std::size_t i = 0; i < count; ++i) ++next[places[i] = bucket_of(from.ids[i])];
    std::uint32_t first = 0;
    for (std::uint32_t& place : next) first += std::exchange(place, first);
    for (std::uint32_t& place : places) place = next[place]++;
    const auto put = [&](auto& to, const auto& source, int width) {
        const auto columns = static_cast<std::size_t>(width);
        to.resize(source.size());
        for (std::size_t i = 0; i < count; ++i)
            std::copy_n(source.data() + i * columns, columns, to.data() + places[i] * columns);
    };
    put(ids, from.ids, 1);
    put(values, from.values, layout.dim);
    put(state, from.state, layout.state);
    put(frequency, from.frequency, 1);
    put(last_seen, from.last_seen, 1);
}

HotCapture::HotCapture(const Rows& rows, std::int64_t since)
    : rows_(rows), since_(since), todo_(rows.slab().words()) {
    for (std::size_t i = 0; i < todo_.size(); ++i) todo_[i] = rows.slab().word(i);
}

void HotCapture::count(CaptureSummary& summary) const {
    for (std::size_t word = 0; word < todo_.size(); ++word)
        for (std::uint64_t bits = todo_[word]; bits != 0; bits &= bits - 1) {
            const char* head = rows_.slab().head(word * 64 + __builtin_ctzll(bits));
            if (!wants(head)) continue;
            ++summary.rows;
            ++summary.bucket_counts[bucket_of(Record::id(head))];
        }
}

void HotCapture::keep(std::uint64_t row, std::uint64_t bit) {
    __atomic_fetch_and(&todo_[row / 64], ~bit, __ATOMIC_RELAXED);
    if (!wants(rows_.slab().head(row))) return;
    const std::lock_guard<std::mutex> lock(mutex_);
    kept_.resize(kept_.size() + rows_.layout().record_bytes());
    rows_.write_record(row, kept_.data() + kept_.size() - rows_.layout().record_bytes());
}

void HotCapture::next(std::size_t max_rows, RowBatch& batch) {
    const Layout& layout = rows_.layout();
    const std::size_t stride = layout.record_bytes();
    const std::size_t before = batch.ids.size();
    for (; !kept_.empty() && batch.ids.size() - before < max_rows;) {
        batch.add(RowView::of(kept_.data() + kept_.size() - stride, layout), layout);
        kept_.resize(kept_.size() - stride);
    }
    for (; cursor_ < todo_.size(); ++cursor_) {
        for (std::uint64_t& bits = todo_[cursor_]; bits != 0; bits &= bits - 1) {
            if (batch.ids.size() - before >= max_rows) return;
            const std::uint64_t row = cursor_ * 64 + __builtin_ctzll(bits);
            if (wants(rows_.slab().head(row))) batch.add(rows_.view(row), layout);
        }
    }
    if (kept_.empty()) kept_.shrink_to_fit();
}

}  // namespace heterps::store
