// The order and the pace in which rows are loaded ahead.
//
// The rows to load are visited like floors by a lift: extent by extent, round and round, and what
// is asked for meanwhile is taken along. A round costs about the same however many ride, so it goes
// as slowly as the requests allow: each of them is due at a time, and within a round of being made
// it has been visited.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

#include "heterps/store/index.hpp"

namespace heterps::store {

// A row on disk that will be used by a step.
struct Rider {
    Slot slot;
    std::uint64_t used_by;
};

// Not thread-safe.
class Lift {
  public:
    struct Request {
        std::uint64_t number;  // ascends
        double due;            // on the clock of `owed`
    };

    explicit Lift(std::size_t entries_per_floor) : per_floor_(entries_per_floor) {}

    // Gives how many ride for it; the same row may be among them more than once.
    std::size_t ask(Request request, std::vector<Rider> riders);
    // How many floors to pass while the clock goes on, so that no request that is due later comes
    // late, when `coming` floors are to be passed at once anyway.
    double owed(double from, double to, double coming) const;
    // How many are left for the requests that are due, and for those up to `number`.
    double left(double clock, std::uint64_t number) const;
    // The riders of the next floors, each once, by place; it stops early at `most` riders.
    std::vector<Rider> next(std::size_t floors, std::size_t most);
    std::uint64_t travelled() const { return travelled_; }  // floors passed
    // Rows have moved; those that ride are visited next.
    void redirect(const std::vector<std::pair<Slot, Slot>>& moves);

    std::size_t floors() const { return floors_.size(); }
    std::size_t size() const { return size_; }
    std::size_t bytes() const;
    // All requests up to this one have been visited.
    std::uint64_t served() const { return served_; }

  private:
    struct Stop {
        Request request;
        std::uint64_t round;
        std::size_t floor;
        bool rides;
    };
    std::size_t floor_of(Slot slot) const { return slot.place() / per_floor_; }
    bool passed(const Stop& stop) const;
    std::size_t distance(const Stop& stop) const;
    void take(std::vector<Rider>& floor, std::vector<Rider>& taken);
    void settle_requests();

    std::size_t per_floor_;
    std::vector<std::vector<Rider>> floors_;
    std::vector<Rider> moved_;
    std::deque<Stop> stops_;
    std::size_t size_ = 0, floor_ = 0;
    std::uint64_t round_ = 0, travelled_ = 0, served_ = 0;
};

}  // namespace heterps::store
