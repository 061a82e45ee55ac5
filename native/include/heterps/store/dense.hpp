// A dense tensor with a rule applied to it, for asynchronous data parallelism.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "heterps/store/rules.hpp"
#include "heterps/store/table_lock.hpp"

namespace heterps::store {

// All methods may be called by several threads at once; a push is seen as a whole or not at all.
class Dense {
  public:
    // `values` is [rows, dim]; the row is what row-wise rules average over.
    Dense(const float* values, std::size_t rows, int dim, const std::string& rule,
          const RuleOptions& options, double lr);

    void pull(float* out) const;
    void push(const float* gradients, std::optional<double> lr);

    // `state` is [rows, state_width].
    void read_state(float* state) const;
    void restore(const float* values, const float* state, std::uint64_t step);

    double lr() const;
    void set_lr(double lr);
    std::uint64_t step() const;
    void set_step(std::uint64_t step);

    std::size_t rows() const { return rows_; }
    int dim() const { return dim_; }
    int state_width() const { return width_; }

  private:
    const std::size_t rows_;
    const int dim_;
    const Rule rule_;
    const int width_;
    mutable TableLock lock_;  // guards what follows
    std::vector<float> values_, state_;
    std::uint64_t step_ = 0;
    double lr_;
};

}  // namespace heterps::store
