// Parallel layouts for commands that run a saved model. Any layout that fits the model works,
// whatever layout it was trained with.
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

// Problems of the sizes for this model: numbers of heads and experts that are not divisible. The
// keys are those of layout_problems().
std::vector<LayoutProblem> model_layout_problems(const ModelConfig& model,
                                                 const ParallelSizes& sizes);
// Ranks of a Ulysses group (ulysses_ranks()), or the problem where no number works.
struct UlyssesRanks {
  int ranks = 0;
  std::string problem;  // without the remedy: p2p, or another number of context-parallel ranks
};
UlyssesRanks resolve_ulysses(const ModelConfig& model, ContextCommType type, int cp, int tp);

// Completes the sizes by dp, the number of ranks divided by the others, and by cp_ulysses.
// InputError listing everything that does not fit, each under the command's option.
ParallelSizes resolve_layout(const LayoutOptions& options, const ModelConfig& model, int ranks);

// Sizes of `ranks` ranks that hold one copy of the model. InputError where they cannot, or where
// ranks would be left over: data- and context-parallel ranks have no share in a single sequence,
// and experts are divided among the tensor-parallel ranks.
ParallelSizes sizes_of_one_model(const LayoutOptions& layout, const ModelConfig& model, int ranks);

}  // namespace trireme
