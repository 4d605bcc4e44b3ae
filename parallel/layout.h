// Parallel layout: arrangement of the ranks of a run, and the coordinates of one rank.
//
// For everything dense the world is a pp x dp x cp x tp array of ranks. Inside a pipeline stage the
// same dp x cp x tp ranks also form an edp x ep x etp array for the experts of a mixture-of-experts
// layer:
//   dense    rank of the stage = (dp * CP + cp) * TP + tp            (with the default order)
//   experts  rank of the stage = (edp * EP + ep) * ETP + etp         (with every order)
// so that expert parallelism may span data and context ranks. Upper case: the size of a dimension.
// edp is expert data parallelism, EDP = DP * CP * TP / (EP * ETP). `order` lists the dense
// dimensions from the one whose neighbours are adjacent ranks to the one whose neighbours are
// farthest apart; tp is first by default because tensor-parallel ranks communicate most.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "parallel/context/options.h"

namespace trireme {

// Overlap of communication with computation.
enum class Overlap : uint8_t { kAuto, kOn, kOff };  // kAuto: on GPUs
inline bool overlaps(Overlap wanted, bool on_gpu) {
  return wanted == Overlap::kOn || (wanted == Overlap::kAuto && on_gpu);
}

struct ParallelSizes {
  int tp = 1;   // tensor parallel: matrices split by rows or columns
  int cp = 1;   // context parallel: sequences split by tokens
  int dp = 1;   // data parallel: batch split by sequences
  int pp = 1;   // pipeline parallel: model split by layers
  int ep = 1;   // expert parallel: experts divided among ranks
  int etp = 1;  // expert tensor parallel: each expert's matrices split
  std::string order = "tp-cp-dp-pp";
  bool sequence_parallel = false;            // norms, dropout and residual split by tokens over tp
  Overlap tp_comm_overlap = Overlap::kAuto;  // transformer/pass/tensor_parallel_mappings.h
  Overlap moe_shared_overlap = Overlap::kAuto;  // transformer/layers/moe.h
  ContextBalance cp_balance = ContextBalance::kZigzag;
  int cp_ulysses = 1;  // adjacent context ranks that exchange heads (ulysses_ranks())
  bool operator==(const ParallelSizes&) const = default;
};

// Ranks of the world: tp * cp * dp * pp.
int world_size(const ParallelSizes& sizes);
// Reason why sizes are invalid: the offending configuration key and a one-line message.
struct LayoutProblem {
  std::string key;  // "parallel.tensor_model_parallel_size", ...
  std::string text;
};
// All reasons why sizes are invalid for a world of `ranks`; empty if they are valid.
std::vector<LayoutProblem> layout_problems(const ParallelSizes& sizes, int ranks);

// Set of a rank's parameters whose gradients are reduced over the same ranks.
enum class Region : uint8_t {
  kDense,         // over dp x cp
  kExpert,        // over edp: the ranks that hold the same experts
  kFrozen,        // like kDense, never trained: base weights under adapters
  kFrozenExpert,  // like kExpert, never trained
};
inline constexpr int kRegions = 4;
inline constexpr Region kTrainedRegions[] = {Region::kDense, Region::kExpert};
constexpr bool is_trained(Region region) {
  return region == Region::kDense || region == Region::kExpert;
}
constexpr bool is_dense(Region region) {
  return region == Region::kDense || region == Region::kFrozen;
}
constexpr Region frozen(Region region) {
  return is_dense(region) ? Region::kFrozen : Region::kFrozenExpert;
}

// Number of ranks along a dimension, and this rank's index in it.
struct GroupCoord {
  int size = 1;
  int index = 0;
  bool operator==(const GroupCoord&) const = default;
};

struct Layout {
  GroupCoord tp, cp, dp, pp;
  GroupCoord ep, etp, edp;
  GroupCoord data;  // dp x cp, cp fastest: the ranks that hold the same dense parameters
  bool sequence_parallel = false;  // false if tp is one rank
  Overlap tp_comm_overlap = Overlap::kAuto;
  Overlap moe_shared_overlap = Overlap::kAuto;
  ContextBalance cp_balance = ContextBalance::kZigzag;
  int cp_ulysses = 1;
  // Ranks that hold the same parameters of a region, and this rank's index among them.
  const GroupCoord& of(Region region) const { return is_dense(region) ? data : edp; }
  // Ranks that split the tokens of the residual stream: tp with sequence parallelism, else one
  // rank.
  GroupCoord token_split() const { return sequence_parallel ? tp : GroupCoord{}; }
};

// Coordinates of `rank`. The sizes must have no problems.
Layout layout_of(const ParallelSizes& sizes, int rank);
// "pp=2 x dp=1 x cp=1 x tp=4", followed by " (sequence parallel)" if that is on, and by " (experts
// edp=2 x ep=2 x etp=1)" if ep or etp is above 1.
std::string describe(const ParallelSizes& sizes);

}  // namespace trireme
