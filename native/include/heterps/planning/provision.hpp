// The cheapest units for a given assignment, exactly.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "heterps/planning/model.hpp"

namespace heterps::planning {

enum class Status : int { kFeasible = 0, kLayer = 1, kMemory = 2, kLimit = 3, kThroughput = 4 };

// `cost` is period * (overhead + sum of price * units): dollars per hour times seconds per batch.
// Where the status is not feasible, `violation` says by how much: layers misplaced, stages too
// large, units over the limit, or log(period reached / period allowed); `period` is then about the
// shortest one the limits allow (`fastest` says exactly), or infinite.
struct Provision {
    Status status = Status::kLayer;
    double cost = 0, period = 0, violation = 0;
};

class Provisioner {
  public:
    // `runs[layer, type]`: whether the layer has figures for the type.
    Provisioner(const Model& model, std::vector<std::uint8_t> runs)
        : model_(model), runs_(std::move(runs)) {}

    // `units` receives one entry per stage. Where no provision costs less than `worth`, the one
    // that is returned may not be the cheapest.
    Provision cheapest(const std::int32_t* assignment, std::vector<std::int64_t>& units,
                       double worth = std::numeric_limits<double>::infinity());
    // The shortest period within the limits, whatever it costs; infinite where there is none.
    double fastest(const std::int32_t* assignment, std::vector<std::int64_t>& units);

    const Model& model() const { return model_; }

  private:
    struct Stage {
        const StageTime* time;
        int type;
    };
    struct Interval {
        double low, high;
    };

    Provision split_into_stages(const std::int32_t* assignment);
    bool units_at(double period);  // fills units_, period_ and rate_; false over the limits
    bool keep_levels(double period) const;
    double lower_bound(double low) const;  // over [low, the period units_ were made for]
    double serial_period() const;
    double slowest_period() const;
    double shortest_within_limits(double precision);

    const Model& model_;
    std::vector<std::uint8_t> runs_;
    std::vector<Stage> stages_;
    std::vector<std::int64_t> units_, used_;
    std::vector<double> stage_period_;
    std::vector<Interval> open_;
    double period_ = 0, rate_ = 0;
};

}  // namespace heterps::planning
