#include "heterps/store/cold_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <new>

#include "heterps/store/hash.hpp"
#include "heterps/store/slab.hpp"

namespace heterps::store {

namespace {

constexpr std::size_t kSector = 4096;
constexpr int kReaders = 8, kReadersAhead = 4;
// Reading through a gap costs less than another request; see docs/parameter-server.md.
constexpr std::uint64_t kGap = 32 << 10;
constexpr std::size_t kGrowBytes = 64 << 20;

std::uint64_t down(std::uint64_t at) { return at / kSector * kSector; }
std::uint64_t up(std::uint64_t at) { return down(at + kSector - 1); }

int open_nameless(const std::string& folder, int flags) {
    std::string name = folder + "/cold-XXXXXX";
    const int file = mkostemp(name.data(), O_CLOEXEC | flags);
    if (file >= 0) unlink(name.c_str());
    return file;
}

}  // namespace

void AlignedBuffer::Free::operator()(char* p) const { std::free(p); }

void AlignedBuffer::fit(std::size_t bytes) {
    if (bytes <= bytes_) return;
    bytes_ = up(bytes);
    data_.reset(static_cast<char*>(std::aligned_alloc(kSector, bytes_)));
    if (!data_) throw std::bad_alloc();
    std::memset(data_.get(), 0, bytes_);
}

ColdFile::ColdFile(const std::string& path, std::size_t record_bytes, std::size_t extent_bytes,
                   std::size_t read_bytes)
    : path_(path),
      record_bytes_(record_bytes),
      entry_bytes_(record_bytes + sizeof(std::uint32_t)),
      extent_bytes_(up(std::max(extent_bytes, entry_bytes_))),
      read_bytes_(up(std::max(read_bytes, entry_bytes_ + kSector))),
      per_extent_(extent_bytes_ / entry_bytes_),
      words_((per_extent_ + 63) / 64),
      readers_(kReaders),
      readers_ahead_(kReadersAhead) {
    mkdir(path.c_str(), 0700);  // if it fails, the next call says why
    file_ = open_nameless(path, O_DIRECT);
    if (file_ < 0 && errno == EINVAL) {
        direct_ = false;
        file_ = open_nameless(path, 0);
    }
    if (file_ < 0) throw StoreError(failure("cannot be created"));
}

ColdFile::~ColdFile() {
    if (file_ >= 0) close(file_);
}

std::string ColdFile::failure(const char* what) const {
    return "the cold file in " + path_ + " " + what + ": " + std::strerror(errno);
}

std::uint32_t ColdFile::checksum(std::uint64_t entry, const char* record) const {
    std::uint64_t sum = (entry + 1) * kGolden;
    std::size_t at = 0;
    for (; at + 8 <= record_bytes_; at += 8) {
        std::uint64_t word;
        std::memcpy(&word, record + at, 8);
        sum = (sum ^ word) * 0xbf58476d1ce4e5b9u;
        sum ^= sum >> 29;
    }
    std::uint64_t rest = 0;
    std::memcpy(&rest, record + at, record_bytes_ - at);
    return static_cast<std::uint32_t>(mix64(sum ^ rest));
}

const char* ColdFile::checked(std::uint64_t entry, const char* at) const {
    std::uint32_t sum;
    std::memcpy(&sum, at, sizeof sum);
    const char* record = at + sizeof sum;
    return sum == checksum(entry, record) ? record : nullptr;
}

void ColdFile::write_fully(const char* data, std::size_t bytes, std::uint64_t offset) const {
    for (std::size_t done = 0; done < bytes;) {
        const ssize_t n =
            pwrite(file_, data + done, bytes - done, static_cast<off_t>(offset + done));
        if (n < 0 && errno == EINTR) continue;
        if (n == 0) errno = ENOSPC;
        if (n <= 0) throw StoreError(failure("cannot be written"));
        done += static_cast<std::size_t>(n);
    }
    counters_.written_bytes += bytes;
    if (direct_) return;
    fdatasync(file_);
    posix_fadvise(file_, static_cast<off_t>(offset), static_cast<off_t>(bytes),
                  POSIX_FADV_DONTNEED);
}

void ColdFile::read_fully(char* data, std::size_t bytes, std::uint64_t offset) const {
    for (std::size_t done = 0; done < bytes;) {
        const ssize_t n =
            pread(file_, data + done, bytes - done, static_cast<off_t>(offset + done));
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) throw StoreError(failure("cannot be read"));
        if (n == 0) {  // past the end: what is missing fails its checksum
            std::memset(data + done, 0, bytes - done);
            break;
        }
        done += static_cast<std::size_t>(n);
    }
    ++counters_.reads;
    counters_.read_bytes += bytes;
    if (!direct_)
        posix_fadvise(file_, static_cast<off_t>(offset), static_cast<off_t>(bytes),
                      POSIX_FADV_DONTNEED);
}

// Space is taken in large steps, so that single writes need not extend the file.
void ColdFile::grow() {
    const std::size_t step = std::max<std::size_t>(1, kGrowBytes / extent_bytes_);
    const std::size_t more = std::min(step, std::max<std::size_t>(16, allocated_));
    const auto begin = static_cast<off_t>(allocated_ * extent_bytes_);
    if (fallocate(file_, 0, begin, static_cast<off_t>(more * extent_bytes_)) != 0 &&
        errno != EOPNOTSUPP)
        throw StoreError(failure("cannot grow"));
    allocated_ += more;
}

std::size_t ColdFile::take_extent() {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::size_t extent = extents_.size();
    if (!free_.empty()) {
        extent = free_.back();
        free_.pop_back();
    } else {
        if ((extent + 1) * per_extent_ > kMostPlaces)
            throw StoreError("the cold file in " + path_ +
                             " holds 4,294,967,296 rows, its most: use more servers");
        if (extents_.size() == allocated_) grow();
        extents_.emplace_back();
        bits_.resize(extents_.size() * words_);
    }
    extents_[extent] = {0, 0, true, false};
    ++used_extents_;
    return extent;
}

void ColdFile::give_back(std::size_t extent) {
    extents_[extent] = {};
    --used_extents_;
    if (frozen_.empty())
        free_.push_back(extent);
    else
        waiting_.push_back({extent, freezes_});
}

std::uint64_t ColdFile::write(const std::vector<const char*>& records, AlignedBuffer& buffer) {
    buffer.fit(extent_bytes_);
    const std::size_t extent = take_extent();
    const std::uint64_t first = extent * per_extent_;
    std::uint32_t newest = 0;
    for (std::size_t i = 0; i < records.size(); ++i) {
        char* at = buffer.data() + i * entry_bytes_;
        const std::uint32_t sum = checksum(first + i, records[i]);
        std::memcpy(at, &sum, sizeof sum);
        std::memcpy(at + sizeof sum, records[i], record_bytes_);
        newest = std::max(newest, Record::last_seen(records[i]));
    }
    try {
        write_fully(buffer.data(), up(records.size() * entry_bytes_), extent * extent_bytes_);
    } catch (...) {
        const std::lock_guard<std::mutex> lock(mutex_);
        give_back(extent);
        throw;
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    extents_[extent].newest = newest;
    return first;
}

void ColdFile::want(std::uint64_t first, const std::vector<std::uint64_t>& entries) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const std::size_t extent = first / per_extent_;
    for (const std::uint64_t entry : entries) {
        const std::size_t k = entry % per_extent_;
        bits_[extent * words_ + k / 64] |= std::uint64_t{1} << (k % 64);
    }
    extents_[extent].wanted = static_cast<std::uint32_t>(entries.size());
    extents_[extent].sealed = true;
    size_ += entries.size();
    release_if_empty(extent);
}

void ColdFile::forget(const std::vector<std::uint64_t>& entries) {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const std::uint64_t entry : entries) {
        const std::size_t extent = entry / per_extent_, k = entry % per_extent_;
        bits_[extent * words_ + k / 64] &= ~(std::uint64_t{1} << (k % 64));
        --extents_[extent].wanted;
        release_if_empty(extent);
    }
    size_ -= entries.size();
}

void ColdFile::keep_wanted(std::vector<Rider>& riders) const {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto gone = [&](const Rider& rider) {
        const std::uint64_t entry = rider.slot.place();
        const std::size_t extent = entry / per_extent_, k = entry % per_extent_;
        return ((bits_[extent * words_ + k / 64] >> (k % 64)) & 1) == 0;
    };
    riders.erase(std::remove_if(riders.begin(), riders.end(), gone), riders.end());
}

void ColdFile::release_if_empty(std::size_t extent) {
    if (extents_[extent].sealed && extents_[extent].wanted == 0) give_back(extent);
}

std::vector<ColdFile::Run> ColdFile::runs(const std::vector<std::uint64_t>& entries) const {
    std::vector<Run> result;
    for (std::size_t i = 0; i < entries.size(); ++i) {
        const std::uint64_t begin = down(offset_of(entries[i]));
        const std::uint64_t end = up(offset_of(entries[i]) + entry_bytes_);
        const bool joins = !result.empty() && begin <= result.back().end + kGap &&
                           end - result.back().begin <= read_bytes_;
        if (joins) {
            result.back().end = std::max(result.back().end, end);
            result.back().last = i + 1;
        } else {
            result.push_back({i, i + 1, begin, end});
        }
    }
    return result;
}

AlignedBuffer ColdFile::take_buffer() const {
    const std::lock_guard<std::mutex> lock(buffers_mutex_);
    if (buffers_.empty()) return {};
    AlignedBuffer buffer = std::move(buffers_.back());
    buffers_.pop_back();
    return buffer;
}

void ColdFile::give_buffer(AlignedBuffer buffer) const {
    const std::lock_guard<std::mutex> lock(buffers_mutex_);
    if (buffers_.size() < (kReaders + kReadersAhead) / 2) buffers_.push_back(std::move(buffer));
}

void ColdFile::read(const std::vector<std::uint64_t>& entries, Haste haste,
                    const Take& take) const {
    const auto start = std::chrono::steady_clock::now();
    const std::vector<Run> todo = runs(entries);
    std::atomic<std::size_t> next{0};
    ThreadPool& readers = haste == Haste::kNow ? readers_ : readers_ahead_;
    const auto threads = std::min(todo.size(), static_cast<std::size_t>(readers.threads()));
    readers.run(threads, [&](std::size_t) {
        AlignedBuffer buffer = take_buffer();
        for (std::size_t r; (r = next.fetch_add(1)) < todo.size();) {
            const Run& run = todo[r];
            buffer.fit(run.end - run.begin);
            read_fully(buffer.data(), run.end - run.begin, run.begin);
            for (std::size_t i = run.first; i < run.last; ++i)
                take(i, checked(entries[i], buffer.data() + (offset_of(entries[i]) - run.begin)));
        }
        give_buffer(std::move(buffer));
    });
    counters_.read_ns +=
        static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                       std::chrono::steady_clock::now() - start)
                                       .count());
}

void ColdFile::read_extent(
    std::size_t extent, const std::uint64_t* wanted, AlignedBuffer& buffer,
    const std::function<void(std::uint64_t entry, const char* record)>& take) const {
    buffer.fit(extent_bytes_);
    read_fully(buffer.data(), extent_bytes_, extent * extent_bytes_);
    for (std::size_t word = 0; word < words_; ++word)
        for (std::uint64_t bits = wanted[word]; bits != 0; bits &= bits - 1) {
            const std::size_t k = word * 64 + static_cast<std::size_t>(__builtin_ctzll(bits));
            const std::uint64_t entry = extent * per_extent_ + k;
            const char* record = checked(entry, buffer.data() + k * entry_bytes_);
            if (record == nullptr)
                throw StoreError("the cold file in " + path_ + " is torn: entry " +
                                 std::to_string(entry) + " is not what was written");
            take(entry, record);
        }
}

ColdFile::Snapshot ColdFile::snapshot() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    Snapshot result{bits_, {}};
    for (const Extent& extent : extents_) result.newest.push_back(extent.newest);
    return result;
}

std::uint64_t ColdFile::freeze() {
    const std::lock_guard<std::mutex> lock(mutex_);
    frozen_.insert(++freezes_);
    return freezes_;
}

void ColdFile::thaw(std::uint64_t number) {
    const std::lock_guard<std::mutex> lock(mutex_);
    frozen_.erase(number);
    while (!waiting_.empty() && (frozen_.empty() || *frozen_.begin() > waiting_.front().number)) {
        free_.push_back(waiting_.front().extent);
        waiting_.pop_front();
    }
}

std::size_t ColdFile::extents() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return extents_.size();
}

std::uint64_t ColdFile::size() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return size_;
}

std::uint64_t ColdFile::garbage() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return used_extents_ * per_extent_ - size_;
}

std::size_t ColdFile::bytes_in_memory() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return bits_.size() * 8 + extents_.size() * sizeof(Extent) +
           (kReaders + kReadersAhead) / 2 * read_bytes_;
}

std::uint64_t ColdFile::bytes_on_disk() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return allocated_ * extent_bytes_;
}

std::vector<std::size_t> ColdFile::emptiest(const std::vector<std::size_t>& busy) const {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::vector<std::size_t> order;
    for (std::size_t e = 0; e < extents_.size(); ++e)
        if (extents_[e].sealed && extents_[e].wanted < per_extent_ &&
            !std::binary_search(busy.begin(), busy.end(), e))
            order.push_back(e);
    const std::size_t most = std::min<std::size_t>(order.size(), 16);
    std::partial_sort(
        order.begin(), order.begin() + static_cast<std::ptrdiff_t>(most), order.end(),
        [&](std::size_t a, std::size_t b) { return extents_[a].wanted < extents_[b].wanted; });
    std::size_t chosen = 0, rows = 0;
    while (chosen < most && rows < per_extent_) rows += extents_[order[chosen++]].wanted;
    order.resize(chosen);
    return order;
}

std::vector<std::uint64_t> ColdFile::wanted_in(std::size_t extent) const {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto begin = bits_.begin() + static_cast<std::ptrdiff_t>(extent * words_);
    return {begin, begin + static_cast<std::ptrdiff_t>(words_)};
}

}  // namespace heterps::store
