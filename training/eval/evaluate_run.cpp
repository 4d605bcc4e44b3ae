#include "training/eval/evaluate_run.h"

#include <chrono>
#include <nlohmann/json.hpp>
#include <numeric>

#include "engine/observe/log.h"
#include "parallel/agree.h"
#include "parallel/device.h"
#include "parallel/launch.h"
#include "training/checkpoint/train_checkpoint.h"
#include "training/data/examples/finetune_data.h"
#include "transformer/checkpoint/loaded_model.h"
#include "transformer/checkpoint/model_bundle.h"
#include "transformer/families/family.h"

namespace trireme {
namespace {

constexpr int64_t kThirdPartyLength = 2048;  // maximum default sequence length without a run

// Settings of the run that trained the model: its data, and the sizes of its batches.
struct TrainedBy {
  std::optional<RunConfig> run;  // absent: a third-party model
  DataConfig data;
  int64_t sequence_length = 0, micro_batch_size = 1;
  uint64_t seed = RunConfig().seed;
  bool fine_tuned() const { return run && run->finetune.enabled; }
};

TrainedBy trained_by(const LoadedModel& loaded) {
  TrainedBy out;
  const ModelConfig& model = loaded.config();
  if (!is_model_source(loaded.checkpoint())) {
    const CheckpointReader reader(loaded.checkpoint());
    if (!is_imported_state(reader.state())) out.run = checkpoint_run_config(reader);
  }
  if (!out.run) {
    out.data.eod_token_id = model.eos_token_id;
    out.sequence_length = std::min(longest_sequence(model), kThirdPartyLength);
    return out;
  }
  out.data = out.run->data;
  out.sequence_length = out.run->sequence_length;
  out.micro_batch_size = out.run->micro_batch_size;
  out.seed = out.run->seed;
  return out;
}

// Data of the run; with --validation-set only that set.
DataConfig data_of_run(const std::string& validation_set, const TrainedBy& trained) {
  DataConfig data = trained.data;
  if (validation_set.empty()) return data;
  std::string names;
  for (const ValidationSet& set : data.valid)
    if (!set.name.empty()) names += concat(names.empty() ? "" : ", ", set.name);
  std::erase_if(data.valid, [&](const ValidationSet& set) { return set.name != validation_set; });
  if (data.valid.empty())
    fail_input("--validation-set ", validation_set, ": the run ",
               names.empty() ? "has no named validation sets"
                             : concat("does not have this set; it has: ", names));
  return data;
}

DataConfig data_of(const EvaluateOptions& options, const TrainedBy& trained) {
  if (options.data.empty()) return data_of_run(options.validation_set, trained);
  DataConfig data;
  data.valid = {{"", {{1.0, options.data}}}};
  data.eod_token_id = trained.data.eod_token_id;
  data.reset_position_ids = trained.data.reset_position_ids;
  data.reset_attention_mask = trained.data.reset_attention_mask;
  data.eod_mask_loss = trained.data.eod_mask_loss;
  return data;
}

int64_t length_of(const EvaluateOptions& options, const TrainedBy& trained,
                  const ModelConfig& model) {
  const int64_t length =
      options.sequence_length > 0 ? options.sequence_length : trained.sequence_length;
  if (length > longest_sequence(model))
    fail_input("--sequence-length ", length, " is above the model's ", longest_sequence(model),
               " positions");
  return length;
}

// Maximum tokens of a document of a task. A model that was not trained from scratch here may use
// all its positions; memory is planned for the longest document.
int64_t limit_of_task(const EvaluateOptions& options, const LoadedModel& loaded, int64_t length) {
  const bool all = options.sequence_length == 0 && loaded.wants_special_tokens();
  return all ? std::max(length, longest_sequence(loaded.config())) : length;
}

bool begins_with_bos(const EvaluateOptions& options, const ModelConfig& model) {
  return options.add_bos || family_of(model.family).begins_with_bos;
}

// Validation data of a fine-tuning run.
std::vector<ValidationSource> open_examples(const EvaluateOptions& options,
                                            const LoadedModel& loaded, const RunConfig& trained,
                                            int64_t length, int threads) {
  if (learns_from_pairs(trained.finetune))
    fail_input(options.model, " was trained on preferences, whose loss eval does not compute; ",
               "give --data PREFIX or --task FILE");
  if (!options.validation_set.empty())
    fail_input("--validation-set ", options.validation_set,
               ": a fine-tuning run has one validation set, without a name");
  RunConfig config = trained;
  config.sequence_length = length;
  const auto data = open_finetune_data(config, threads);
  // The held-out examples can only be determined again with the same examples and sequence length.
  const CheckpointLineage& lineage = loaded.bundle().lineage;
  const bool known = length == trained.sequence_length && !lineage.examples.empty();
  if (trained.finetune.val_size > 0 && known && lineage.examples != data->train_set->fingerprint())
    fail_input(options.model, ": finetune.train_file has changed since training (trained on ",
               lineage.data,
               "), so the held-out examples cannot be determined; give --data PREFIX");
  if (data->validation == nullptr)
    fail_input(options.model, ": the run has no validation data (neither finetune.valid_file nor ",
               "finetune.val_size); give --data PREFIX or --task FILE");
  std::vector<ValidationSource> sources;
  sources.push_back({"", std::move(data->validation)});
  return sources;
}

std::vector<ValidationSource> open_sources(const EvaluateOptions& options, const TrainedBy& trained,
                                           const ModelConfig& model, int64_t length) {
  if (options.data.empty() && trained.data.train.empty())
    fail_input(options.model, " has no validation data of its own; give --data PREFIX");
  const DataConfig data = data_of(options, trained);
  std::vector<ValidationSource> sources = make_validation_sources(
      data, {.sequence_length = length, .vocab_size = model.vocab_size, .seed = trained.seed});
  if (!sources.empty()) return sources;
  if (!options.data.empty()) fail_input("--data ", options.data, " has fewer than two tokens");
  fail_input(options.model, ": the run has no validation data (", why_no_validation(data),
             "); give --data PREFIX");
}

// Opens a task. limit: maximum tokens of a context and a choice.
EvalTask open_task(const EvaluateOptions& options, const LoadedModel& loaded,
                   const Tokenizer& tokenizer, int64_t limit) {
  std::optional<ChatTemplate> chat;
  std::optional<ConversationWriter> writer;
  if (options.apply_chat_template) {
    chat.emplace(
        loaded.chat_templates(options.chat_template, loaded.tokenizer_spec(options.tokenizer)));
    writer.emplace(*chat, tokenizer);
  }
  return EvalTask(options.task, tokenizer,
                  {.sequence_length = limit,
                   .delimiter = options.delimiter.value_or(writer ? "" : " "),
                   .add_bos = begins_with_bos(options, loaded.config()),
                   .chat = writer ? &*writer : nullptr});
}

// Evaluates the documents of a task, which are packed into sequences as in fine-tuning.
void run_task(const EvalTask& task, const EvaluateOptions& options, Evaluator& evaluator,
              int64_t length, const ArenaPlan& plan, EvaluateReport& report) {
  const auto set = std::make_shared<const ExampleSet>(task.documents());
  std::vector<int64_t> all(static_cast<size_t>(set->items()));
  std::iota(all.begin(), all.end(), int64_t{0});
  ExampleSource source(set, all, {.sequence_length = length});
  const std::vector<double> log_likelihoods = evaluator.log_likelihoods(*set, source, plan);
  report.questions = task.questions();
  report.texts = task.texts();
  report.truncated = task.truncated();
  report.metrics = task.metrics(log_likelihoods);
  if (!options.samples.empty()) report.samples = task.samples(log_likelihoods);
}

}  // namespace

EvaluateReport evaluate_checkpoint(const EvaluateOptions& options, World& world) {
  const auto begin = std::chrono::steady_clock::now();
  RankDevice device;  // outlives the objects on it
  LoadedModel loaded(options.model, world.world(), options.dtype, options.adapter,
                     options.quantization);
  loaded.allow_non_finite();  // the loss shows them
  const ModelConfig& model = loaded.config();
  device = open_rank_device(world, options.device, loaded.bundle().device_backend);
  Ctx ctx(pin_rank(world, 0), "activations", device.get());
  int64_t length = 0, micro = 0;
  std::vector<ValidationSource> sources;
  std::unique_ptr<Tokenizer> tokenizer;
  std::optional<EvalTask> task;
  ParallelSizes sizes;
  agreed(world.world(), [&] {
    const TrainedBy trained = trained_by(loaded);
    length = length_of(options, trained, model);
    micro = options.micro_batch_size > 0 ? options.micro_batch_size : trained.micro_batch_size;
    if (options.task.empty()) {
      const bool own_examples = options.data.empty() && trained.fine_tuned();
      sources = own_examples ? open_examples(options, loaded, *trained.run, length, ctx.threads)
                             : open_sources(options, trained, model, length);
    } else {
      tokenizer = loaded.open_tokenizer(loaded.tokenizer_spec(options.tokenizer));
      const int64_t limit = limit_of_task(options, loaded, length);
      task.emplace(open_task(options, loaded, *tokenizer, limit));
      length = std::max(length, task->longest());
      if (world.rank() == 0)
        for (const std::string& warning : task->warnings()) log_warning(warning);
      if (task->truncated() > 0 && world.rank() == 0)
        log_warning(task->truncated(), " choices have truncated contexts: a sequence has at most ",
                    limit, " tokens");
    }
    sizes = resolve_layout(options.layout, model, world.size());
  });
  const Groups groups(world.world(), sizes, kv_head_copies(model, sizes.tp));
  agreed(world.world(), [&] { loaded.load(ctx, groups.layout, length); });
  Evaluator evaluator(loaded.model(), loaded.parameters(), groups, ctx, micro, length);
  const ArenaPlan plan = evaluator.plan();
  ctx.arena.reserve(plan.capacity);
  EvaluateReport report;
  report.checkpoint = loaded.checkpoint();
  if (task) run_task(*task, options, evaluator, length, plan, report);
  for (const auto& [name, source] : sources)
    report.sets.push_back(
        {name, source->describe(), evaluator.run(*source, options.max_samples, plan)});
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return report;
}

}  // namespace trireme
