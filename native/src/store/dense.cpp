#include "heterps/store/dense.hpp"

#include <algorithm>
#include <shared_mutex>
#include <stdexcept>

namespace heterps::store {

Dense::Dense(const float* values, std::size_t rows, int dim, const std::string& rule,
             const RuleOptions& options, double lr)
    : rows_(rows),
      dim_(dim),
      rule_(rule, options),
      width_(rule_.state_width(dim)),
      values_(values, values + rows * static_cast<std::size_t>(dim)),
      state_(rows * static_cast<std::size_t>(width_)),
      lr_(lr) {
    if (dim < 1) throw std::invalid_argument("dim must be at least 1");
    for (std::size_t i = 0; i < rows_; ++i)
        rule_.start(state_.data() + i * static_cast<std::size_t>(width_), dim_);
}

void Dense::pull(float* out) const {
    const std::shared_lock<TableLock> lock(lock_);
    std::copy(values_.begin(), values_.end(), out);
}

void Dense::push(const float* gradients, std::optional<double> lr) {
    const std::unique_lock<TableLock> lock(lock_);
    const RuleStep step = rule_.at(lr.value_or(lr_), step_ + 1, dim_);
    const Rule::Apply apply = rule_.function(dim_);
    const auto dim = static_cast<std::size_t>(dim_), width = static_cast<std::size_t>(width_);
    for (std::size_t i = 0; i < rows_; ++i)
        apply(step, values_.data() + i * dim, state_.data() + i * width, gradients + i * dim);
    ++step_;
}

void Dense::read_state(float* state) const {
    const std::shared_lock<TableLock> lock(lock_);
    std::copy(state_.begin(), state_.end(), state);
}

void Dense::restore(const float* values, const float* state, std::uint64_t step) {
    const std::unique_lock<TableLock> lock(lock_);
    std::copy(values, values + values_.size(), values_.begin());
    std::copy(state, state + state_.size(), state_.begin());
    step_ = step;
}

double Dense::lr() const {
    const std::shared_lock<TableLock> lock(lock_);
    return lr_;
}

void Dense::set_lr(double lr) {
    const std::unique_lock<TableLock> lock(lock_);
    lr_ = lr;
}

std::uint64_t Dense::step() const {
    const std::shared_lock<TableLock> lock(lock_);
    return step_;
}

void Dense::set_step(std::uint64_t step) {
    const std::unique_lock<TableLock> lock(lock_);
    step_ = step;
}

}  // namespace heterps::store
