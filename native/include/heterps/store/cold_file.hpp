// Rows on disk: a scratch file of equal extents, each written once, in one piece.
//
// An entry is a record's number in the file. Entries that are no longer wanted are only marked; an
// extent is used again when it holds none that is wanted. The file has no name: it is gone with the
// process, whatever ends that.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "heterps/store/errors.hpp"
#include "heterps/store/index.hpp"
#include "heterps/store/lift.hpp"
#include "heterps/store/thread_pool.hpp"

namespace heterps::store {

// Memory that can be read into past the page cache.
class AlignedBuffer {
  public:
    void fit(std::size_t bytes);
    char* data() const { return data_.get(); }

  private:
    struct Free {
        void operator()(char* p) const;
    };
    std::unique_ptr<char, Free> data_;
    std::size_t bytes_ = 0;
};

// Thread-safe, except where it says otherwise. Errors of the disk are StoreErrors.
class ColdFile {
  public:
    struct Counters {
        std::atomic<std::uint64_t> reads{0}, read_bytes{0}, written_bytes{0}, read_ns{0};
    };
    // Which entries were wanted at some moment.
    struct Snapshot {
        std::vector<std::uint64_t> wanted;  // extent after extent, `words()` each
        std::vector<std::uint32_t> newest;  // the latest last_seen of each extent
    };

    // In the folder `path`, which is made if it does not exist. A read takes in up to `read_bytes`.
    ColdFile(const std::string& path, std::size_t record_bytes, std::size_t extent_bytes,
             std::size_t read_bytes);
    ~ColdFile();
    ColdFile(const ColdFile&) = delete;
    ColdFile& operator=(const ColdFile&) = delete;

    std::size_t entries_per_extent() const { return per_extent_; }

    // Writes `count` records, at most an extent's worth; gives the first's entry, the others
    // follow. None of them is wanted yet. `records` is overwritten with what was written.
    std::uint64_t write(const std::vector<const char*>& records, AlignedBuffer& buffer);
    // Wants `entries` of the extent that begins with `first`, which was just written. Others never
    // will be: it is given back when none of these is wanted any more.
    void want(std::uint64_t first, const std::vector<std::uint64_t>& entries);
    void forget(const std::vector<std::uint64_t>& entries);
    // Leaves those that are wanted.
    void keep_wanted(std::vector<Rider>& riders) const;

    // Calls `take(i, record)` for each of the entries, which ascend; `record` is null if it is not
    // what was written as that entry. By several threads at once; others for what is waited for
    // than for what is read ahead, which would be in its way.
    enum class Haste { kNow, kAhead };
    using Take = std::function<void(std::size_t index, const char* record)>;
    void read(const std::vector<std::uint64_t>& entries, Haste haste, const Take& take) const;
    // Calls `take(entry, record)` for the wanted entries of one extent; throws if one is torn.
    void read_extent(
        std::size_t extent, const std::uint64_t* wanted, AlignedBuffer& buffer,
        const std::function<void(std::uint64_t entry, const char* record)>& take) const;

    Snapshot snapshot() const;
    // What is wanted from now on stays readable as it is, even when it is forgotten, until `thaw`
    // of the number that this gives: its extents are not used again before.
    std::uint64_t freeze();
    void thaw(std::uint64_t number);

    std::size_t extents() const;
    std::size_t words() const { return words_; }  // of the use bits of an extent
    std::uint64_t size() const;                   // wanted entries
    std::uint64_t garbage() const;                // entries that are not, in extents in use
    std::size_t bytes_in_memory() const;          // with the buffers of reads
    std::uint64_t bytes_on_disk() const;
    const Counters& counters() const { return counters_; }
    // The extents with the fewest wanted entries, enough to fill one with what is wanted of them;
    // none of `busy`, which ascend.
    std::vector<std::size_t> emptiest(const std::vector<std::size_t>& busy) const;
    std::vector<std::uint64_t> wanted_in(std::size_t extent) const;

  private:
    struct Extent {
        std::uint32_t wanted = 0, newest = 0;
        bool used = false, sealed = false;
    };
    struct Run {
        std::size_t first, last;   // of the entries asked for
        std::uint64_t begin, end;  // bytes
    };

    AlignedBuffer take_buffer() const;
    void give_buffer(AlignedBuffer buffer) const;
    std::size_t take_extent();
    void give_back(std::size_t extent);         // with mutex_ held
    void release_if_empty(std::size_t extent);  // with mutex_ held
    void grow();
    void write_fully(const char* data, std::size_t bytes, std::uint64_t offset) const;
    void read_fully(char* data, std::size_t bytes, std::uint64_t offset) const;
    std::vector<Run> runs(const std::vector<std::uint64_t>& entries) const;
    std::uint64_t offset_of(std::uint64_t entry) const {
        return entry / per_extent_ * extent_bytes_ + entry % per_extent_ * entry_bytes_;
    }
    std::uint32_t checksum(std::uint64_t entry, const char* record) const;
    const char* checked(std::uint64_t entry, const char* at) const;
    std::string failure(const char* what) const;

    std::string path_;
    std::size_t record_bytes_, entry_bytes_, extent_bytes_, read_bytes_, per_extent_, words_;
    int file_ = -1;
    bool direct_ = true;
    mutable ThreadPool readers_, readers_ahead_;
    mutable std::mutex buffers_mutex_;
    mutable std::vector<AlignedBuffer> buffers_;  // not in use just now
    mutable Counters counters_;

    mutable std::mutex mutex_;  // guards what follows
    std::vector<Extent> extents_;
    std::vector<std::uint64_t> bits_;
    std::vector<std::size_t> free_;
    struct Waiting {
        std::size_t extent;
        std::uint64_t number;  // of the last freeze before it was given back
    };
    std::deque<Waiting> waiting_;
    std::uint64_t size_ = 0, used_extents_ = 0;
    std::size_t allocated_ = 0;  // extents that the file has room for
    std::uint64_t freezes_ = 0;
    std::set<std::uint64_t> frozen_;
};

// What is wanted of a file stays readable, as it is, while this lives.
class Frozen {
  public:
    explicit Frozen(ColdFile& file) : file_(file), number_(file.freeze()) {}
    ~Frozen() { file_.thaw(number_); }
    Frozen(const Frozen&) = delete;
    Frozen& operator=(const Frozen&) = delete;

  private:
    ColdFile& file_;
    std::uint64_t number_;
};

}  // namespace heterps::store
