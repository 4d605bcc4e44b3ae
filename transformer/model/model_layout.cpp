#include "transformer/model/model_layout.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "engine/config/reader.h"
#include "engine/core/error.h"
#include "parallel/config_keys.h"
#include "transformer/model/stages.h"
#include "transformer/pass/sharding.h"

namespace trireme {
namespace {

// Command option for a layout key.
std::string option_of(const std::string& key) {
  if (key == key::kTensor) return "--tensor-parallel";
  if (key == key::kExpert) return "--expert-parallel";
  if (key == key::kExpertTensor) return "--expert-tensor-parallel";
  if (key == key::kContext) return "--context-parallel";
  return "--pipeline-parallel";
}

// The sizes above 1 as options, "--tensor-parallel 2 x --pipeline-parallel 3 = 6": not every
// command has all options.
std::string product_text(const ParallelSizes& sizes, int64_t product) {
  std::string text;
  int factors = 0;
  const auto add = [&](const char* key, int size) {
    if (size == 1) return;
    text += concat(factors++ > 0 ? " x " : "", option_of(key), " ", size);
  };
  add(key::kTensor, sizes.tp);
  add(key::kPipeline, sizes.pp);
  add(key::kContext, sizes.cp);
  return factors > 1 ? concat(text, " = ", product) : text;
}

}  // namespace

std::vector<LayoutProblem> model_layout_problems(const ModelConfig& model,
                                                 const ParallelSizes& sizes) {
  std::vector<LayoutProblem> problems;
  const auto experts = [&](const char* key, int size, int64_t most, const char* what) {
    if (size == 1 || size <= most) return;
    problems.push_back({key, model.moe.experts == 0
                                 ? concat(size, ": the model has no experts to divide; use 1")
                                 : concat(size, " is more than the model's ", most, what)});
  };
  experts(key::kExpert, sizes.ep, model.moe.experts, " experts");
  experts(key::kExpertTensor, sizes.etp, model.moe.intermediate_size, " columns of an expert");
  if (model.num_heads == 0 || model.num_kv_heads == 0) return problems;  // reported elsewhere
  if (std::string problem = head_problem(model, sizes.tp); !problem.empty())
    problems.push_back({key::kTensor, std::move(problem)});
  return problems;
}

UlyssesRanks resolve_ulysses(const ModelConfig& model, ContextCommType type, int cp, int tp) {
  const int64_t heads = model.num_heads / tp;
  const int ranks = ulysses_ranks(type, cp, heads);
  if (ranks > 0) return {ranks, ""};
  return {0, concat("\"", context_comm_type_name(type), "\" cannot distribute the ", heads,
                    " query heads of a tensor-parallel rank to ", cp, " context-parallel ranks")};
}

ParallelSizes resolve_layout(const LayoutOptions& options, const ModelConfig& model, int ranks) {
  ParallelSizes sizes = options.sizes;
  const int64_t copy = int64_t{sizes.tp} * sizes.pp * sizes.cp;  // ranks of one replica
  if (ranks % copy != 0)
    fail_input(product_text(sizes, copy), " does not divide the ", ranks,
               ranks == 1 ? " rank" : " ranks", "; give --ranks ", copy);
  sizes.dp = static_cast<int>(ranks / copy);
  ConfigReport report;
  std::vector<LayoutProblem> problems = model_layout_problems(model, sizes);
  if (problems.empty()) {
    const UlyssesRanks ulysses = resolve_ulysses(model, options.cp_comm_type, sizes.cp, sizes.tp);
    if (ulysses.ranks == 0)
      report.error("--cp-comm-type",
                   concat(ulysses.problem, ": use p2p, or another --context-parallel"));
    sizes.cp_ulysses = std::max(1, ulysses.ranks);
  }
  for (LayoutProblem& problem : layout_problems(sizes, ranks))
    problems.push_back(std::move(problem));
  if (sizes.pp > model.num_layers)
    problems.push_back({key::kPipeline, stage_problem(model.num_layers, sizes.pp, {})});
  for (const LayoutProblem& problem : problems) report.error(option_of(problem.key), problem.text);
  report.throw_if_errors("layout");
  return sizes;
}

ParallelSizes sizes_of_one_model(const LayoutOptions& layout, const ModelConfig& model, int ranks) {
  const ParallelSizes& asked = layout.sizes;
  const int64_t experts = int64_t{asked.ep} * asked.etp;
  if (model_layout_problems(model, asked).empty() && asked.tp % experts != 0)
    fail_input("--expert-parallel ", asked.ep, " x --expert-tensor-parallel ", asked.etp,
               " does not divide --tensor-parallel ", asked.tp,
               ": experts are divided among the tensor-parallel ranks: give --tensor-parallel ",
               std::lcm(experts, asked.tp));
  ParallelSizes sizes = resolve_layout(layout, model, ranks);
  if (sizes.dp > 1)
    fail_input(
        ranks, " ranks, but --tensor-parallel ", sizes.tp, " x --pipeline-parallel ", sizes.pp,
        " use ", ranks / sizes.dp,
        ": generation uses ranks that hold one copy of the model; start that many, or divide "
        "it further (trireme serve --data-parallel-size N holds N copies)");
  return sizes;
}

}  // namespace trireme
