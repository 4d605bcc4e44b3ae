#include "parallel/pipeline/simulate.h"

#include <algorithm>
#include <limits>

#include "engine/core/error.h"

namespace trireme {
namespace {

// Runs every rank as far as possible; a rank that produces its neighbour's input wakes it.
class Simulation {
 public:
  Simulation(const Schedule& schedule, const StageTimes& times)
      : schedule_(schedule),
        times_(times),
        next_(static_cast<size_t>(schedule.stages)),
        clock_(static_cast<size_t>(schedule.stages)),
        outputs_(visits(), kNever),
        gradients_(visits(), kNever) {
    timeline_.ranks.resize(static_cast<size_t>(schedule.stages));
  }

  Timeline run(const std::string& what) {
    std::vector<int> ready;
    for (int r = schedule_.stages; r-- > 0;) ready.push_back(r);
    while (!ready.empty()) {
      const int rank = ready.back();
      ready.pop_back();
      bool moved = false;
      while (step(rank)) moved = true;
      // Its results are inputs of the neighbouring ranks.
      if (!moved || schedule_.stages == 1) continue;
      ready.push_back((rank + 1) % schedule_.stages);
      ready.push_back((rank + schedule_.stages - 1) % schedule_.stages);
    }
    for (int r = 0; r < schedule_.stages; ++r)
      if (next_[static_cast<size_t>(r)] < order(r).size()) fail_stuck(what);
    for (int r = 0; r < schedule_.stages; ++r) finish(r);
    return std::move(timeline_);
  }

 private:
  static constexpr double kNever = std::numeric_limits<double>::infinity();

  size_t visits() const {
    return static_cast<size_t>(schedule_.model_chunks()) *
           static_cast<size_t>(schedule_.micro_batches);
  }
  const std::vector<Instruction>& order(int rank) const {
    return schedule_.ranks[static_cast<size_t>(rank)];
  }
  // Time at which the result of a model chunk for a micro-batch is available.
  double& at(std::vector<double>& table, int model_chunk, int micro_batch) {
    return table[static_cast<size_t>(model_chunk) * static_cast<size_t>(schedule_.micro_batches) +
                 static_cast<size_t>(micro_batch)];
  }

  // Time at which the input of an instruction is available; kNever: not known yet.
  double arrival(int rank, const Instruction& in) {
    const int chunk = schedule_.model_chunk(rank, in.chunk);
    const double transfer = schedule_.stages > 1 ? times_.transfer : 0;
    if (in.kind == InstructionKind::kForward)
      return chunk == 0 ? 0 : at(outputs_, chunk - 1, in.micro_batch) + transfer;
    if (in.kind == InstructionKind::kBackwardWeight) return at(gradients_, chunk, in.micro_batch);
    if (chunk + 1 == schedule_.model_chunks()) return at(outputs_, chunk, in.micro_batch);
    // Also its own forward: an invalid list may have it later.
    return std::max(at(gradients_, chunk + 1, in.micro_batch) + transfer,
                    at(outputs_, chunk, in.micro_batch));
  }

  bool step(int rank) {
    const auto r = static_cast<size_t>(rank);
    if (next_[r] == order(rank).size()) return false;
    const Instruction& in = order(rank)[next_[r]];
    const double there = arrival(rank, in);
    if (there == kNever) return false;
    const double start = std::max(clock_[r], there);
    clock_[r] = start + times_.of(in.kind);
    timeline_.ranks[r].spans.push_back({start, clock_[r]});
    timeline_.ranks[r].busy += times_.of(in.kind);
    const int chunk = schedule_.model_chunk(rank, in.chunk);
    if (in.kind == InstructionKind::kForward)
      at(outputs_, chunk, in.micro_batch) = clock_[r];
    else if (in.kind != InstructionKind::kBackwardWeight)
      at(gradients_, chunk, in.micro_batch) = clock_[r];
    ++next_[r];
    return true;
  }

  void finish(int rank) {
    Timeline::Rank& out = timeline_.ranks[static_cast<size_t>(rank)];
    int in_flight = 0;
    for (const Instruction& in : order(rank)) {
      if (in.kind == InstructionKind::kForward)
        out.peak_in_flight = std::max(out.peak_in_flight, ++in_flight);
      if (!schedule_.trains()) --in_flight;  // nothing is stored for a backward
      if (in.kind == InstructionKind::kBackward || in.kind == InstructionKind::kBackwardWeight)
        --in_flight;
    }
    if (out.spans.empty()) return;
    out.idle_inside = out.spans.back().end - out.spans.front().start - out.busy;
    timeline_.makespan = std::max(timeline_.makespan, out.spans.back().end);
  }

  [[noreturn]] void fail_stuck(const std::string& what) const {
    std::string waits;
    int named = 0;
    for (int r = 0; r < schedule_.stages && named < 4; ++r) {
      const size_t at = next_[static_cast<size_t>(r)];
      if (at == order(r).size()) continue;
      waits +=
          concat(named++ == 0 ? "" : "; ", "rank ", r, " at instruction ", at, ", ", order(r)[at]);
    }
    fail_input(what, ": the ranks wait for each other forever (", waits, ")");
  }

  const Schedule& schedule_;
  const StageTimes& times_;
  std::vector<size_t> next_;
  std::vector<double> clock_;
  std::vector<double> outputs_, gradients_;  // by model chunk and micro-batch
  Timeline timeline_;
};

int zero_bubble_memory(ScheduleKind kind) { return kind == ScheduleKind::kZbH1 ? 1 : 2; }

}  // namespace

double StageTimes::of(InstructionKind kind) const {
  switch (kind) {
    case InstructionKind::kForward: return forward;
    case InstructionKind::kBackward: return backward_input + backward_weight;
    case InstructionKind::kBackwardInput: return backward_input;
    case InstructionKind::kBackwardWeight: return backward_weight;
  }
  TRIREME_UNREACHABLE("instruction kind ", static_cast<int>(kind));
}

double Timeline::idle_of_total() const {
  double busy = 0;
  for (const Rank& rank : ranks) busy += rank.busy;
  const double total = makespan * static_cast<double>(ranks.size());
  return total > 0 ? 1 - busy / total : 0;
}

double Timeline::idle_of_ideal() const {
  const double idle = idle_of_total();
  return idle < 1 ? idle / (1 - idle) : 0;
}

double Timeline::idle_inside_of_total() const {
  double worst = 0;
  for (const Rank& rank : ranks)
    if (rank.busy > 0) worst = std::max(worst, rank.idle_inside / (rank.idle_inside + rank.busy));
  return worst;
}

Timeline simulate(const Schedule& schedule, const StageTimes& times, const std::string& what) {
  const bool usable = times.forward >= 0 && times.backward_input >= 0 &&
                      times.backward_weight >= 0 && times.transfer >= 0;
  TRIREME_CHECK(usable, what, ": negative times");
  return Simulation(schedule, times).run(what);
}

IdleFormula idle_formula(const Schedule& schedule, const StageTimes& times, int rank) {
  const int p = schedule.stages, m = schedule.micro_batches;
  const double whole = times.forward + times.backward_input + times.backward_weight;
  switch (schedule.kind) {
    case ScheduleKind::kGPipe:
    case ScheduleKind::k1F1B:
    case ScheduleKind::kInterleaved: return {true, true, false, (p - 1) * whole};
    case ScheduleKind::kZbH1:
    case ScheduleKind::kZbH2: {
      const int k = zero_bubble_memory(schedule.kind);
      const double one = times.forward + times.backward_input - k * times.backward_weight;
      const bool exact = m >= 2 * p - 1 && times.backward_weight <= times.forward && one >= 0;
      return {true, exact, true, (p - 1 - rank) * one};
    }
    default: return {};
  }
}

int peak_in_flight_formula(const Schedule& schedule, int rank) {
  const int p = schedule.stages, v = schedule.chunks, m = schedule.micro_batches;
  switch (schedule.kind) {
    case ScheduleKind::kGPipe: return m;
    case ScheduleKind::kInterleaved:
      if (v > 1) return std::min(m * v, 2 * (p - 1 - rank) + (v - 1) * p + 1);
      [[fallthrough]];
    case ScheduleKind::k1F1B: return std::min(m, p - rank);
    case ScheduleKind::kZbH1:
    case ScheduleKind::kZbH2:
      return m >= 2 * p - 1 ? zero_bubble_memory(schedule.kind) * (p - 1) + 1 : -1;
    default: return -1;
  }
}

}  // namespace trireme
