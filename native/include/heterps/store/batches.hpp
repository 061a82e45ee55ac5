// Gradients of batches that are not whole yet.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "heterps/store/grouping.hpp"

namespace heterps::store {

// (micro-batch, layer); sums run over parts in ascending order.
using PartKey = std::pair<std::int64_t, std::int64_t>;

struct Part {
    std::vector<std::int64_t> ids;
    std::vector<float> gradients;
    // Where the caller has them, if not above: of a part that is committed in the call that brings
    // it.
    std::optional<Span> borrowed{};

    Span span() const {
        return borrowed ? *borrowed : Span{ids.data(), gradients.data(), ids.size()};
    }
    void copy(const Span& from, int dim);
};

struct Batch {
    std::map<PartKey, Part> parts;
    std::optional<std::size_t> announced;
    std::optional<double> lr;

    bool whole() const { return announced && *announced == parts.size(); }
    std::vector<Span> spans() const;
};

// Not thread-safe.
class Batches {
  public:
    // Equal announcements are ignored; throws std::invalid_argument if they differ.
    void announce(std::int64_t batch, std::size_t parts, std::optional<double> lr);
    // Throws std::invalid_argument if the batch has all its parts already.
    bool has(std::int64_t batch, PartKey key) const;
    void add(std::int64_t batch, PartKey key, Part part);
    // Whether one more part makes it whole.
    bool lacks_one(std::int64_t batch) const;

    bool whole(std::int64_t batch) const;
    Batch take(std::int64_t batch);
    void give_back(std::int64_t batch, Batch taken) { open_[batch] = std::move(taken); }
    void forget_up_to(std::int64_t batch);

    // Buffers are used again, so that steady traffic allocates nothing large.
    Part spare_part();
    void recycle(Batch batch);

    std::size_t size() const { return open_.size(); }

  private:
    std::map<std::int64_t, Batch> open_;
    std::vector<Part> spare_;
};

}  // namespace heterps::store
