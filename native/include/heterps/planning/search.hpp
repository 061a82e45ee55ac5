// The cheapest plan, proven: best-first branch and bound over intervals of the period.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <queue>
#include <unordered_set>
#include <vector>

#include "heterps/planning/model.hpp"
#include "heterps/planning/path.hpp"
#include "heterps/planning/provision.hpp"

namespace heterps::planning {

struct SearchStatistics {
    std::int64_t intervals = 0, labels = 0, evaluations = 0, work = 0;
};

class Search {
  public:
    Search(const Model& model, std::vector<std::uint8_t> runs);

    // Makes a plan the one to beat, if it is feasible and better. True if it became so.
    bool offer(const std::int32_t* assignment);
    // Goes on for about `work` elementary steps, or until `stop` (if any) answers true; true when
    // nothing is left to do: the optimum is proven, or that there is no plan, unless an interval
    // was given up, which `lower_bound` then shows.
    bool run(std::int64_t work, std::function<bool()> stop = {});

    bool found() const { return best_.cost < std::numeric_limits<double>::infinity(); }
    double cost() const { return best_.cost; }
    double lower_bound() const;
    const std::vector<std::int32_t>& assignment() const { return best_assignment_; }
    const SearchStatistics& statistics() const { return statistics_; }

    // The shortest period any plan reaches within the limits; infinite where the limits admit none.
    // Up to the relative `precision`; a decision that takes more than `label_cap` labels counts as
    // "not reachable", so that the period is always one that a plan keeps.
    double shortest_period(std::vector<std::int32_t>& assignment, double precision,
                           std::int64_t label_cap);

    // A relaxed view of the problem: at a few periods around the one where the relaxed cost is
    // least, what the cheapest chain costs, and what it costs with a layer forced onto a type.
    struct Outlook {
        std::vector<double> period, cost;
        std::vector<double> forced;  // [period, layer, type]; infinite where impossible
    };
    Outlook outlook();

  private:
    struct Level {
        double period, cost;
        std::vector<double> multipliers;
    };
    Level relaxed_at(double period, std::vector<double> multipliers) const;
    std::vector<Level> relaxed_between(double low, double high, int count) const;
    void force_layers(const Level& level, std::vector<double>& forced) const;

    using Arcs = std::shared_ptr<const std::vector<std::int32_t>>;  // candidate stages, by id
    struct Interval {
        double low, high, bound;
        Arcs candidates;
        std::vector<double> multipliers;
        std::int64_t label_cap;
    };
    struct Later {
        bool operator()(const Interval& x, const Interval& y) const {
            if (x.bound != y.bound) return x.bound > y.bound;
            return x.high < y.high;
        }
    };
    struct Candidate {
        std::int32_t first, end, type;
    };

    void list_candidates();
    void start();
    bool free_plan();
    double cutoff() const;
    void process(Interval interval);
    void split(Interval interval, double bound, std::vector<std::int32_t> kept,
               std::vector<double> multipliers, double high);
    ArcGraph graph_at(double low, double high, const std::vector<std::int32_t>& candidates,
                      bool settled) const;
    std::vector<std::int32_t> kept(const ArcGraph& graph, const Relaxation& relaxation,
                                   double slack) const;
    void offer_chain(const ArcGraph& graph, const std::vector<std::size_t>& chain);
    bool within_limits(double period, std::vector<std::int32_t>& candidates,
                       std::vector<std::int32_t>& assignment);
    ArcGraph share_graph(double period, const std::vector<std::int32_t>& candidates) const;
    std::vector<std::int32_t> all_candidates() const;
    static std::vector<std::int32_t> assignment_of(const ArcGraph& graph,
                                                   const std::vector<std::size_t>& chain);

    const Model& model_;
    Provisioner provisioner_;
    std::vector<Candidate> candidates_;
    std::priority_queue<Interval, std::vector<Interval>, Later> open_;
    std::unordered_set<std::uint64_t> evaluated_;
    Provision best_;
    std::vector<std::int32_t> best_assignment_;
    std::vector<std::int64_t> units_;
    SearchStatistics statistics_;
    double low_ = 0, high_ = 0, unresolved_ = std::numeric_limits<double>::infinity();
    std::int64_t feasibility_labels_ = 100'000;
    std::function<bool()> stop_;
    bool started_ = false;
};

}  // namespace heterps::planning
