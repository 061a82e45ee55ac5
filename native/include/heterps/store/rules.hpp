// Optimizer rules: one gradient per row, applied in place with the state beside the row.
//
// Float32 throughout, in the order that the formulas are written, without contraction to FMA, so
// that every build and every instruction set gives the same bits.
#pragma once

#include <cstdint>
#include <string>

namespace heterps::store {

enum class RuleKind { kSgd, kAdagrad, kRowwiseAdagrad, kAdam, kFtrl };

struct RuleOptions {
    double eps = 1e-10;
    double initial_accumulator = 0;
    double beta1 = 0.9, beta2 = 0.999;
    double beta = 1, l1 = 0, l2 = 0;
};

// A rule with its scalars rounded for one step.
struct RuleStep {
    float lr, eps;
    float rest1, rest2, size;  // Adam: 1 - beta1, 1 - beta2, corrected learning rate
    float beta, l1, l2;        // FTRL
    int dim;
};

class Rule {
  public:
    Rule(const std::string& name, RuleOptions options);  // throws std::invalid_argument

    int state_width(int dim) const;  // floats beside the row
    void start(float* state, int dim) const;
    // `step` counts from 1 and matters to Adam only.
    RuleStep at(double lr, std::uint64_t step, int dim) const;

    using Apply = void (*)(const RuleStep& step, float* row, float* state, const float* gradient);
    // The function for rows of `dim`, for the best instruction set that this machine has.
    // `portable` asks for the baseline one, which gives the same bits.
    Apply function(int dim, bool portable = false) const;

    RuleKind kind() const { return kind_; }

  private:
    RuleKind kind_;
    RuleOptions options_;
};

}  // namespace heterps::store
