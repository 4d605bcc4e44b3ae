#include "training/evaluate_run.h"

#include <chrono>
#include <nlohmann/json.hpp>

#include "parallel/launch.h"
#include "training/loaded_model.h"

namespace trireme {
namespace {

DataConfig data_of(const EvaluateOptions& options, const RunConfig& trained) {
  if (options.data.empty()) return trained.data;
  DataConfig data;
  data.valid = {{1.0, options.data}};
  data.eod_token_id = trained.data.eod_token_id;
  data.reset_position_ids = trained.data.reset_position_ids;
  data.reset_attention_mask = trained.data.reset_attention_mask;
  data.eod_mask_loss = trained.data.eod_mask_loss;
  return data;
}

ParallelSizes sizes_of(const EvaluateOptions& options, const ModelConfig& model, int ranks) {
  ParallelSizes sizes;
  sizes.tp = options.tensor_parallel;
  sizes.pp = options.pipeline_parallel;
  const int64_t copy = int64_t{sizes.tp} * sizes.pp;  // ranks that hold the model once
  if (ranks % copy != 0)
    fail_input("--tensor-parallel ", sizes.tp, " x --pipeline-parallel ", sizes.pp,
               " does not divide the ", ranks, " ranks; give --ranks ", copy);
  sizes.dp = static_cast<int>(ranks / copy);
  if (const std::string problem = head_problem(model, sizes.tp); !problem.empty())
    fail_input("--tensor-parallel: ", problem);
  if (sizes.pp > model.num_layers)
    fail_input("--pipeline-parallel: ", stage_problem(model.num_layers, sizes.pp, {}));
  return sizes;
}

}  // namespace

EvaluateReport evaluate_checkpoint(const EvaluateOptions& options, World& world) {
  const auto begin = std::chrono::steady_clock::now();
  Ctx ctx(pin_rank(world, 0), "activations");
  LoadedModel loaded(options.model);
  const RunConfig& trained = loaded.run_config();
  const int64_t length =
      options.sequence_length > 0 ? options.sequence_length : trained.sequence_length;
  if (length > trained.model.max_positions)
    fail_input("--sequence-length ", length, " is above the model's ", trained.model.max_positions,
               " positions");
  const int64_t micro =
      options.micro_batch_size > 0 ? options.micro_batch_size : trained.micro_batch_size;
  const DataConfig data = data_of(options, trained);
  const auto source = make_validation_source(
      data,
      {.sequence_length = length, .vocab_size = trained.model.vocab_size, .seed = trained.seed});
  if (!source && !options.data.empty()) fail_input("--data ", options.data, " holds no two tokens");
  if (!source)
    fail_input(options.model, ": the run has no validation data (", why_no_validation(data),
               "); give --data PREFIX");
  const ParallelSizes sizes = sizes_of(options, trained.model, world.size());
  const Groups groups(world.world(), sizes, kv_head_copies(trained.model, sizes.tp));
  loaded.load(groups.layout);
  Evaluator evaluator(loaded.model(), loaded.parameters(), groups, ctx, micro, length);
  const ArenaPlan plan = evaluator.plan();
  ctx.arena.reserve(plan.capacity);
  EvaluateReport report;
  report.checkpoint = loaded.checkpoint();
  report.data = source->describe();
  report.result = evaluator.run(*source, options.max_samples, plan);
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return report;
}

}  // namespace trireme
