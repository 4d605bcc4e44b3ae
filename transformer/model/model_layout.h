// Layouts for commands that run a saved model: any that fits the model, whatever it was trained
// under.
#pragma once

#include <string>
#include <vector>

#include "parallel/layout.h"
#include "transformer/config/model_config.h"

namespace trireme {

struct LayoutOptions {
  ParallelSizes sizes;  // dp and cp_exchange are not given but found
  ContextCommType cp_comm_type = ContextCommType::kP2P;
};

// What of the sizes does not fit the model: heads and experts that cannot be divided so. The keys
// are those of layout_problems().
std::vector<LayoutProblem> model_layout_problems(const ModelConfig& model,
                                                 const ParallelSizes& sizes);
// Ranks that exchange heads (ulysses_ranks()), or a problem where there is no such number.
struct ExchangeRanks {
  int ranks = 0;
  std::string problem;  // without the way out: p2p, or another number of context-parallel ranks
};
ExchangeRanks head_exchange(const ModelConfig& model, ContextCommType type, int cp, int tp);

// The sizes with dp, the number of ranks over the others, and cp_exchange. InputError with
// everything that does not fit, each under the command's option.
ParallelSizes resolve_layout(const LayoutOptions& options, const ModelConfig& model, int ranks);

// The sizes of `ranks` ranks that hold a model once. InputError where they cannot, or where some
// would be left over: ranks that divide samples or sequences have no part in one sequence, and
// experts are divided among the tensor-parallel ranks.
ParallelSizes sizes_of_one_model(const LayoutOptions& layout, const ModelConfig& model, int ranks);

}  // namespace trireme
