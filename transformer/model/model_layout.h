// Parallel layouts for commands that run a saved model. Any layout that fits the model works,
// regardless of the layout it was trained with.
#pragma once

#include <string>
#include <vector>

#include "parallel/layout.h"
#include "transformer/config/model_config.h"

namespace trireme {

struct LayoutOptions {
  ParallelSizes sizes;  // dp and cp_ulysses are computed, not given
  ContextCommType cp_comm_type = ContextCommType::kP2P;
};

// Returns the problems of the sizes for this model: heads that tp cannot divide (head_problem() in
// transformer/pass/sharding.h), ep above the number of experts, etp above an expert's width. The
// keys are those of layout_problems() (parallel/layout.h).
std::vector<LayoutProblem> model_layout_problems(const ModelConfig& model,
                                                 const ParallelSizes& sizes);
// Ranks of a Ulysses group (ulysses_ranks() in parallel/context/options.h), or 0 and the problem if
// no number works.
struct UlyssesRanks {
  int ranks = 0;
  std::string problem;  // without the remedy: p2p, or another number of context-parallel ranks
};
UlyssesRanks resolve_ulysses(const ModelConfig& model, ContextCommType type, int cp, int tp);

// Completes the sizes with dp, the number of ranks divided by tp pp cp, and cp_ulysses. InputError
// if the ranks are not divisible, or else one that lists each problem with its command option.
ParallelSizes resolve_layout(const LayoutOptions& options, const ModelConfig& model, int ranks);

// Returns the sizes for generation with `ranks` ranks that together hold one copy of the model
// (dp = 1). InputError if the model does not fit them, if ranks are left over, or if ep etp does
// not divide tp: without data parallelism, experts are divided among the tensor-parallel ranks.
ParallelSizes sizes_of_one_model(const LayoutOptions& layout, const ModelConfig& model, int ranks);

}  // namespace trireme
