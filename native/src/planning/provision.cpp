#include "heterps/planning/provision.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace heterps::planning {

namespace {
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kTie = 1e-12;   // relative: a bound this close to the best cannot improve on it
constexpr double kGrade = 1e-2;  // to grade plans that miss the floor, no more is needed
}  // namespace

Provision Provisioner::split_into_stages(const std::int32_t* assignment) {
    const int n = model_.layers();
    stages_.clear();
    used_.assign(static_cast<std::size_t>(model_.types()), 0);
    int misplaced = 0, too_large = 0;
    for (int l = 0; l < n; ++l)
        misplaced += !runs_[static_cast<std::size_t>(l) * model_.types() + assignment[l]];
    if (misplaced) return {Status::kLayer, 0, kInfinity, static_cast<double>(misplaced)};
    for (int a = 0, b; a < n; a = b) {
        const int t = assignment[a];
        for (b = a + 1; b < n && assignment[b] == t;) ++b;
        if (b > model_.reach(a, t)) {
            ++too_large;
        } else {
            stages_.push_back({&model_.stage(a, b, t), t});
        }
        ++used_[t];
    }
    if (too_large) return {Status::kMemory, 0, kInfinity, static_cast<double>(too_large)};
    double excess = 0;
    for (int t = 0; t < model_.types(); ++t)
        excess += static_cast<double>(std::max<std::int64_t>(0, used_[t] - model_.limit(t)));
    if (excess > 0) return {Status::kLimit, 0, kInfinity, excess};
    return {Status::kFeasible, 0, 0, 0};
}

bool Provisioner::units_at(double period) {
    std::fill(used_.begin(), used_.end(), 0);
    period_ = 0;
    rate_ = model_.overhead();
    for (std::size_t i = 0; i < stages_.size(); ++i) {
        const auto [time, type] = stages_[i];
        const std::int64_t k = model_.min_units(*time, type, period);
        if (k == 0 || (used_[type] += k) > model_.limit(type)) return false;
        units_[i] = k;
        stage_period_[i] = time->period(static_cast<double>(k));
        period_ = std::max(period_, stage_period_[i]);
        rate_ += model_.price(type) * static_cast<double>(k);
    }
    return true;
}

double Provisioner::lower_bound(double low) const {
    // k * period(k) grows with k, so each stage is cheapest at its fewest units.
    double bound = model_.overhead() * low;
    for (std::size_t i = 0; i < stages_.size(); ++i)
        bound += model_.price(stages_[i].type) * static_cast<double>(units_[i]) *
                 std::max(low, stage_period_[i]);
    return bound;
}

double Provisioner::serial_period() const {
    double period = 0;
    for (const auto& stage : stages_)
        period =
            std::max(period, stage.time->period(static_cast<double>(model_.limit(stage.type))));
    return period;
}

double Provisioner::slowest_period() const {
    double period = 0;
    for (const auto& stage : stages_) period = std::max(period, stage.time->period(1));
    return period;
}

double Provisioner::shortest_within_limits(double precision) {
    double low = serial_period(), high = slowest_period();
    if (units_at(low)) return period_;
    if (!units_at(high)) return kInfinity;
    high = period_;
    while (high > low * (1 + precision)) {
        const double middle = low > 0 ? std::sqrt(low * high) : high / 2;
        if (middle <= low || middle >= high) break;
        if (units_at(middle)) {
            high = period_;
        } else {
            low = middle;
        }
    }
    units_at(high);
    return period_;
}

double Provisioner::fastest(const std::int32_t* assignment, std::vector<std::int64_t>& units) {
    if (split_into_stages(assignment).status != Status::kFeasible) return kInfinity;
    units_.assign(stages_.size(), 0);
    stage_period_.assign(stages_.size(), 0);
    const double period = shortest_within_limits(4 * kSlack);
    units = units_;
    return period;
}

Provision Provisioner::cheapest(const std::int32_t* assignment, std::vector<std::int64_t>& units,
                                double worth) {
    Provision best = split_into_stages(assignment);
    units.assign(stages_.size(), 0);
    if (best.status != Status::kFeasible) return best;
    units_.assign(stages_.size(), 0);
    stage_period_.assign(stages_.size(), 0);
    double floor = serial_period() * (1 - 2 * kSlack);  // the ceiling may be that, to a rounding
    const double ceiling = std::min(model_.max_period(), slowest_period());
    if (!units_at(ceiling)) {
        const double reached = shortest_within_limits(kGrade);
        return {Status::kThroughput, 0, reached, std::log(reached / model_.max_period())};
    }
    best.cost = kInfinity;
    open_.assign(1, {floor, ceiling});
    while (!open_.empty()) {
        const auto [low_open, high] = open_.back();
        open_.pop_back();
        const double low = std::max(low_open, floor);
        if (high < low) continue;
        if (!units_at(high)) {
            floor = std::max(floor, high);
            continue;
        }
        const double cost = period_ * rate_;
        if (cost < best.cost) {
            best.cost = cost;
            best.period = period_;
            units = units_;
        }
        if (lower_bound(low) >= std::min(worth, best.cost) * (1 - kTie)) continue;
        // From `high` down to the period reached, nothing changes: go on below it.
        const double next = period_ * (1 - 2 * kSlack);
        if (next < low) continue;
        const double middle = low > 0 ? std::sqrt(low * next) : next / 2;
        open_.push_back({low, middle});
        open_.push_back({middle, next});
    }
    return best;
}

}  // namespace heterps::planning
