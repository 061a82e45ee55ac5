// Cheapest chains of stages over (position, type), with a limit on the units of each type.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

namespace heterps::planning {

// One possible stage: layers [first, end) on a type, its fewest units and a lower bound on its
// cost.
struct Arc {
    std::int32_t first, end, type, id;
    std::int64_t units;
    double cost;
};

// A chain problem: arcs sorted by `first`; two neighbouring arcs never share a type.
struct ArcGraph {
    int layers = 0, types = 0;
    std::vector<std::int64_t> limit;
    std::vector<Arc> arcs;
    std::vector<std::size_t> begin;  // begin[a] .. begin[a + 1]: the arcs that start at layer a

    void index();
};

// Backward distances under prices on units ("multipliers"): what is still to be paid from a
// position when the next stage must not be of a given type.
class Distances {
  public:
    void backward(const ArcGraph& graph, const std::vector<double>& multipliers);
    void forward(const ArcGraph& graph, const std::vector<double>& multipliers);
    double without(int position, int type) const {
        const Best& b = best_[static_cast<std::size_t>(position)];
        return b.type == type ? b.second : b.first;
    }
    // The cheapest whole chain after `forward`: arc indices in order.
    void trace(const ArcGraph& graph, std::vector<std::size_t>& arcs) const;
    double total(int position) const { return best_[static_cast<std::size_t>(position)].first; }

  private:
    struct Best {
        double first = std::numeric_limits<double>::infinity();
        double second = std::numeric_limits<double>::infinity();
        int type = -1;
        std::int64_t arc = -1, second_arc = -1;
        void offer(double value, int value_type, std::int64_t value_arc);
    };
    std::vector<Best> best_;
};

// The Lagrangian bound: max over multipliers of (cheapest chain - multipliers . limits).
struct Relaxation {
    double bound = -std::numeric_limits<double>::infinity();
    bool exact = false;  // the bound is the true optimum, at `chain`
    std::vector<double> multipliers;
    std::vector<std::size_t> chain;  // of the best multipliers
};

// Improves `relaxation` (whose multipliers are the start) until it passes `cutoff` or `iterations`
// are used. `seen(chain)` is told each chain that keeps the limits.
template <class Seen>
void relax(const ArcGraph& graph, double cutoff, int iterations, Relaxation& relaxation, Seen seen);

// Backward distances that count the units left of some types exactly, where `Distances` only prices
// them: a stronger bound on what is still to be paid.
class CountedDistances {
  public:
    // Units of a counted type are taken in steps of its `grain`, rounded in favour of the chain.
    struct Counted {
        int type;
        std::int64_t grain;
    };
    CountedDistances(const ArcGraph& graph, const std::vector<double>& multipliers,
                     std::vector<Counted> counted);

    // A lower bound on the cost of completing from `position`, given the units used so far per type
    // and the type of the stage before (-1: none).
    double remaining(int position, int type, const std::int64_t* used) const;

  private:
    struct Best {
        double first, second;
        std::int32_t type;
    };
    void settle(const Arc& arc, double own);

    const ArcGraph& graph_;
    std::vector<double> multipliers_;  // zero for counted types
    std::vector<Counted> counted_;
    std::vector<std::int64_t> capacity_;
    std::vector<std::size_t> stride_;
    std::size_t states_ = 1;
    std::vector<Best> best_;  // [position, state]
};

struct ChainResult {
    enum class End { kOptimal, kAboveCutoff, kCapped } end;
    double bound;                    // of every chain within the limits
    std::vector<std::size_t> chain;  // if optimal
    std::int64_t labels, work;       // expanded; elementary steps spent
};

// How far a label search may go: labels expanded, arcs times states of its tables, and a test that
// is asked now and then.
struct Effort {
    std::int64_t label_cap, table_budget;
    std::function<bool()> stop;
};

// Exact: best-first over labels (cost, units used per type) with dominance, guided by `relaxation`
// and by counted distances as far as the table budget allows.
ChainResult cheapest_chain(const ArcGraph& graph, const Relaxation& relaxation, double cutoff,
                           const Effort& effort);

// Any chain within the limits ("optimal"), or that there is none ("above cutoff"). The arcs' costs
// must be their shares of the limits; they and the relaxation only guide the search.
ChainResult any_chain(ArcGraph graph, const Relaxation& relaxation, const Effort& effort);

}  // namespace heterps::planning

#include "heterps/planning/relax.inl"
