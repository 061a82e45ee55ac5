// One push or commit: group the ids, find their rows, apply the rule once per id.
#pragma once

#include <array>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "heterps/store/capture.hpp"
#include "heterps/store/grouping.hpp"
#include "heterps/store/rows.hpp"

namespace heterps::store {

// How many rows were last seen at each step; kept only where rows can expire.
class SeenCounts {
  public:
    void add(std::uint32_t step, std::int64_t count = 1) { counts_[step] += count; }
    void merge(SeenCounts& other);  // and empties the other
    std::uint64_t since(std::uint32_t step) const;

  private:
    std::unordered_map<std::uint32_t, std::int64_t> counts_;
};

// What a step may do, fixed while it runs.
struct UpdateLimits {
    std::uint32_t step = 0;
    std::uint32_t oldest = 0;  // rows last seen before this have expired
    std::uint32_t admission = 0;
    bool count_seen = false;
};

// Needs the whole table for itself, from `prepare` to the end of `apply`.
class Update {
  public:
    explicit Update(Rows& rows) : rows_(rows) {}

    // Groups and looks up; changes nothing. `cold` receives the distinct ids whose rows may be on
    // disk: their slots have to be settled before `apply`.
    void prepare(const std::vector<Span>& spans, ThreadPool& pool, std::vector<Distinct*>& cold);
    void apply(const UpdateLimits& limits, const RuleStep& step, ThreadPool& pool,
               const VisitCold& visit_cold, HotCapture* capture, SeenCounts& seen);

    std::size_t distinct() const { return grouping_.distinct(); }

  private:
    struct Fresh {
        std::size_t index;
        std::uint32_t frequency;
    };
    struct Scratch {
        GradientSums sums;
        std::vector<Fresh> fresh;
        std::vector<std::uint64_t> allocated;
        std::vector<Distinct*> cold;
        SeenCounts seen;
    };
    struct Context {
        const UpdateLimits& limits;
        const RuleStep& step;
        Rule::Apply apply;
        HotCapture* capture;
    };

    template <class Work>
    void for_segments(ThreadPool& pool, Work&& work);
    void look_up(std::size_t segment, Scratch& scratch);
    void make_room(ThreadPool& pool, const VisitCold& visit_cold);
    void apply_segment(std::size_t segment, const Context& context, Scratch& scratch);
    void drop_expired(DistinctRange range, const Context& context, Scratch& scratch);
    void admit(std::size_t segment, DistinctRange range, const Context& context, Scratch& scratch);
    void create(DistinctRange range, const Context& context, Scratch& scratch);
    void apply_rule(DistinctRange range, const Context& context, Scratch& scratch);

    Rows& rows_;
    Grouping grouping_;
    std::vector<Scratch> scratch_;
};

}  // namespace heterps::store
