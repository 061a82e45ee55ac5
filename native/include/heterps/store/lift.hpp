// The order in which rows are loaded ahead.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

#include "heterps/store/index.hpp"

namespace heterps::store {

// Not thread-safe.
class Lift {
  public:
    // Requests are numbered in ascending order.
    void ask(std::uint64_t request, std::vector<Slot> slots);
    // The next few slots, by place, from where it stopped; round again after the last.
    std::vector<Slot> next(std::size_t most);
    // Rows have moved from one place to another.
    void redirect(const std::vector<std::pair<Slot, Slot>>& moves);
    std::size_t size() const { return waiting_.size(); }
    // All requests up to this one have been visited.
    std::uint64_t served() const { return served_; }

  private:
    struct Request {
        std::uint64_t number, round, place;
    };
    void merge(std::vector<Slot> slots);
    void settle_requests();

    std::vector<Slot> waiting_;  // by place
    std::deque<Request> requests_;
    std::uint64_t round_ = 0, place_ = 0, served_ = 0;
};

}  // namespace heterps::store
