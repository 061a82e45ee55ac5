#include "heterps/store/batches.hpp"

#include <stdexcept>
#include <string>

namespace heterps::store {

namespace {

constexpr std::size_t kSpareParts = 64;

}  // namespace

void Part::copy(const Span& from, int dim) {
    ids.assign(from.ids, from.ids + from.count);
    gradients.assign(from.gradients, from.gradients + from.count * static_cast<std::size_t>(dim));
    borrowed.reset();
}

std::vector<Span> Batch::spans() const {
    std::vector<Span> result;
    result.reserve(parts.size());
    for (const auto& [key, part] : parts) result.push_back(part.span());
    return result;
}

void Batches::announce(std::int64_t batch, std::size_t parts, std::optional<double> lr) {
    const auto found = open_.find(batch);
    const std::string name = "batch " + std::to_string(batch);
    if (found != open_.end()) {
        const Batch& known = found->second;
        if (known.announced && *known.announced != parts)
            throw std::invalid_argument(name + " was announced with " +
                                        std::to_string(*known.announced) + " parts, not " +
                                        std::to_string(parts));
        if (known.announced) return;
        if (known.parts.size() > parts)
            throw std::invalid_argument(name + " already has " +
                                        std::to_string(known.parts.size()) + " parts, more than " +
                                        std::to_string(parts));
    }
    Batch& opened = open_[batch];
    opened.announced = parts;
    opened.lr = lr;
}

bool Batches::has(std::int64_t batch, PartKey key) const {
    const auto found = open_.find(batch);
    if (found == open_.end()) return false;
    if (found->second.parts.count(key) != 0) return true;
    if (found->second.whole())
        throw std::invalid_argument("batch " + std::to_string(batch) + " already has its " +
                                    std::to_string(found->second.parts.size()) + " parts");
    return false;
}

void Batches::add(std::int64_t batch, PartKey key, Part part) {
    open_[batch].parts.emplace(key, std::move(part));
}

bool Batches::lacks_one(std::int64_t batch) const {
    const auto found = open_.find(batch);
    if (found == open_.end()) return false;
    const Batch& known = found->second;
    return known.announced && *known.announced == known.parts.size() + 1;
}

bool Batches::whole(std::int64_t batch) const {
    const auto found = open_.find(batch);
    return found != open_.end() && found->second.whole();
}

Batch Batches::take(std::int64_t batch) {
    auto node = open_.extract(batch);
    return std::move(node.mapped());
}

void Batches::forget_up_to(std::int64_t batch) {
    open_.erase(open_.begin(), open_.upper_bound(batch));
}

Part Batches::spare_part() {
    if (spare_.empty()) return {};
    Part part = std::move(spare_.back());
    spare_.pop_back();
    return part;
}

void Batches::recycle(Batch batch) {
    for (auto& [key, part] : batch.parts)
        if (spare_.size() < kSpareParts && !part.borrowed) spare_.push_back(std::move(part));
}

}  // namespace heterps::store
