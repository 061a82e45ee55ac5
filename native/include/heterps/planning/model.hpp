// The planning problem as plain arrays, and what one stage of it costs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace heterps::planning {

// Stage times are compared with this relative slack (docs/planning.md).
constexpr double kSlack = 1e-9;

// Seconds per batch of a stage on k units: max(compute_serial + compute_parallel / k, likewise
// for communication).
struct StageTime {
    double compute_serial = 0, compute_parallel = 0;
    double comm_serial = 0, comm_parallel = 0;

    double compute(double k) const { return compute_serial + compute_parallel / k; }
    double comm(double k) const { return comm_serial + comm_parallel / k; }
    double period(double k) const {
        const double c = compute(k), d = comm(k);
        return c > d ? c : d;
    }
};

// Per (layer, type) figures, row-major [layers x types], already scaled to one batch. `transfer` is
// what a stage of that type pays for sending or receiving the layer's input.
struct LayerTimes {
    std::vector<double> compute, alpha, comm, beta, sync, transfer, transfer_beta;
};

class Model {
  public:
    // `reach[layer, type]` is the end (exclusive) of the longest stage that may start at the layer
    // on the type; it equals `layer` where the layer cannot run there.
    Model(int layers, int types, const LayerTimes& times, std::vector<int> reach,
          std::vector<double> price, std::vector<std::int64_t> limit, double overhead,
          double max_period);

    int layers() const { return layers_; }
    int types() const { return types_; }
    double price(int type) const { return price_[type]; }
    std::int64_t limit(int type) const { return limit_[type]; }
    double overhead() const { return overhead_; }
    double max_period() const { return max_period_; }
    int reach(int layer, int type) const { return reach_[layer * types_ + type]; }

    const StageTime& stage(int first, int end, int type) const {
        return stages_[stage_index(first, end, type)];
    }

    // The fewest units with which the stage keeps the period, or 0 where more than `limit(type)`
    // would be needed.
    std::int64_t min_units(const StageTime& stage, int type, double period) const;

  private:
    std::size_t stage_index(int first, int end, int type) const {
        const std::size_t row = row_[first] + static_cast<std::size_t>(end - first - 1);
        return row * types_ + type;
    }
    void build_stages(const LayerTimes& times);

    int layers_, types_;
    std::vector<int> reach_;
    std::vector<double> price_;
    std::vector<std::int64_t> limit_;
    double overhead_, max_period_;
    std::vector<std::size_t> row_;
    std::vector<StageTime> stages_;
};

}  // namespace heterps::planning
