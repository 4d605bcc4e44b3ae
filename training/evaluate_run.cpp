#include "training/evaluate_run.h"

#include <chrono>
#include <nlohmann/json.hpp>

#include "engine/observe/log.h"
#include "parallel/agree.h"
#include "parallel/launch.h"
#include "training/loaded_model.h"
#include "training/run_directory.h"
#include "training/train_checkpoint.h"

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

int64_t length_of(const EvaluateOptions& options, const RunConfig& trained) {
  const int64_t length =
      options.sequence_length > 0 ? options.sequence_length : trained.sequence_length;
  if (length > trained.model.max_positions)
    fail_input("--sequence-length ", length, " is above the model's ", trained.model.max_positions,
               " positions");
  return length;
}

std::unique_ptr<BatchSource> open_source(const EvaluateOptions& options, const RunConfig& trained,
                                         int64_t length) {
  const DataConfig data = data_of(options, trained);
  std::unique_ptr<BatchSource> source = make_validation_source(
      data,
      {.sequence_length = length, .vocab_size = trained.model.vocab_size, .seed = trained.seed});
  if (!source && !options.data.empty()) fail_input("--data ", options.data, " holds no two tokens");
  if (!source)
    fail_input(options.model, ": the run has no validation data (", why_no_validation(data),
               "); give --data PREFIX");
  return source;
}

}  // namespace

EvaluateReport evaluate_checkpoint(const EvaluateOptions& options, World& world) {
  const auto begin = std::chrono::steady_clock::now();
  Ctx ctx(pin_rank(world, 0), "activations");
  LoadedModel loaded(from_rank_0(world.world(), [&] {
    const NewestCheckpoint newest = find_checkpoint(checkpoint_place(options.model));
    for (const std::string& why : newest.skipped) log_warning(why);
    return newest.directory;
  }));
  const RunConfig& trained = loaded.run_config();
  int64_t length = 0, micro = 0;
  std::unique_ptr<BatchSource> source;
  ParallelSizes sizes;
  agreed(world.world(), [&] {
    length = length_of(options, trained);
    micro = options.micro_batch_size > 0 ? options.micro_batch_size : trained.micro_batch_size;
    source = open_source(options, trained, length);
    sizes = sizes_of(options, trained.model, world.size());
  });
  const Groups groups(world.world(), sizes, kv_head_copies(trained.model, sizes.tp));
  agreed(world.world(), [&] { loaded.load(groups.layout); });
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
