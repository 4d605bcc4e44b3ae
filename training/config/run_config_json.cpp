// Writing: RunConfig -> resolved document, its hash, and the texts generated from the schema.
#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "engine/config/override.h"
#include "engine/config/reference.h"
#include "engine/core/error.h"
#include "training/config/compression.h"
#include "training/config/data_path.h"
#include "training/config/optimizer_config.h"
#include "training/config/outer.h"
#include "training/config/read_finetune.h"
#include "training/config/run_config.h"
#include "transformer/families/config_json.h"
#include "transformer/families/family.h"

namespace trireme {
namespace {

const char* word(DecayStyle style) {
  switch (style) {
    case DecayStyle::kConstant: return "constant";
    case DecayStyle::kLinear: return "linear";
    case DecayStyle::kCosine: return "cosine";
    case DecayStyle::kInverseSqrt: return "inverse_sqrt";
    case DecayStyle::kWsd: return "WSD";
  }
  TRIREME_UNREACHABLE("decay style");
}

const char* word(WsdDecay decay) {
  switch (decay) {
    case WsdDecay::kLinear: return "linear";
    case WsdDecay::kCosine: return "cosine";
    case WsdDecay::kExponential: return "exponential";
    case WsdDecay::kMinusSqrt: return "minus_sqrt";
  }
  TRIREME_UNREACHABLE("WSD decay");
}

const char* word(Recompute recompute) {
  switch (recompute) {
    case Recompute::kNone: return "none";
    case Recompute::kSelective: return "selective";
    case Recompute::kFull: return "full";
  }
  TRIREME_UNREACHABLE("recompute");
}

// Replaces paths by file names in strings and lists of strings, since files may be moved.
void keep_file_names(Json& value) {
  if (value.is_string())
    value = std::filesystem::path(value.get<std::string>()).filename().string();
  if (value.is_array())
    for (Json& item : value) keep_file_names(item);
}

Json word_or_null(const std::string& value) { return value.empty() ? Json() : Json(value); }

const char* word(Float8Recipe recipe) {
  switch (recipe) {
    case Float8Recipe::kDelayed: return "delayed";
    case Float8Recipe::kTensorwise: return "tensorwise";
    case Float8Recipe::kBlockwise: return "blockwise";
  }
  TRIREME_UNREACHABLE("fp8 recipe");
}

// A history of one step is the newest value, so amax_compute_algo has no effect.
Json float8_json(const Float8Config& float8) {
  if (!float8.enabled) return {{"enabled", false}};
  return {{"enabled", true},
          {"format", float8.hybrid ? "hybrid" : "e4m3"},
          {"recipe", word(float8.recipe)},
          {"amax_history_len", float8.history},
          {"amax_compute_algo", "max"},
          {"margin", float8.margin}};
}

// DeepSpeed's class for a decay style.
const char* deepspeed_word(DecayStyle style) {
  if (style == DecayStyle::kConstant) return "WarmupLR";
  return style == DecayStyle::kLinear ? "WarmupDecayLR" : "WarmupCosineLR";
}

Json scheduler_json(const SchedulerConfig& scheduler) {
  Json params = {{"warmup_steps", scheduler.warmup_steps},
                 {"warmup_type", scheduler.log_warmup ? "log" : "linear"},
                 {"decay_steps", scheduler.decay_steps},
                 {"min_lr", scheduler.min_lr}};
  if (scheduler.style == DecayStyle::kWsd) params["decay_style"] = word(scheduler.wsd_decay);
  return {{"type", scheduler.deepspeed ? deepspeed_word(scheduler.style) : word(scheduler.style)},
          {"params", params}};
}

Json data_json(const RunConfig& config) {
  const DataConfig& data = config.data;
  Json json;
  if (config.finetune.enabled) {
    json["tokenizer"] = data.tokenizer;
    return json;
  }
  if (data.split.empty()) {
    json["train_data_path"] = data_path_to_json(data.train);
    json["valid_data_path"] = validation_sets_to_json(data.valid);
    json["test_data_path"] = data_path_to_json(data.test);
  } else {
    json["data_path"] = data_path_to_json(data.train);
    json["split"] = data.split;
  }
  json["tokenizer"] = word_or_null(data.tokenizer);
  json["reset_position_ids"] = data.reset_position_ids;
  json["reset_attention_mask"] = data.reset_attention_mask;
  json["eod_mask_loss"] = data.eod_mask_loss;
  json["eod_token_id"] = data.eod_token_id < 0 ? Json() : Json(data.eod_token_id);
  return json;
}

Json overlap_json(Overlap overlap) {
  return overlap == Overlap::kAuto ? Json("auto") : Json(overlap == Overlap::kOn);
}

Json parallel_json(const RunConfig& config) {
  const ParallelSizes& sizes = config.parallel;
  return {{"tensor_model_parallel_size", sizes.tp},
          {"sequence_parallel", sizes.sequence_parallel},
          {"tp_comm_overlap", overlap_json(sizes.tp_comm_overlap)},
          {"pipeline_model_parallel_size", sizes.pp},
          {"virtual_pipeline_stages", config.pipeline.virtual_stages},
          {"pipeline_schedule", config.pipeline.schedule},
          {"pipeline_layout",
           config.pipeline.layers.empty() ? Json("auto") : Json(config.pipeline.layers)},
          {"context_parallel_size", sizes.cp},
          {"cp_comm_type", context_comm_type_name(config.cp_comm_type)},
          {"cp_balance", context_balance_name(sizes.cp_balance)},
          {"expert_model_parallel_size", sizes.ep},
          {"expert_tensor_parallel_size", sizes.etp},
          {"moe_shared_expert_overlap", overlap_json(sizes.moe_shared_overlap)},
          {"data_parallel_size", sizes.dp},
          {"order", sizes.order}};
}

Json zero_json(const ZeroConfig& zero) {
  const OffloadConfig& offload = zero.offload_optimizer;
  const char* device = offload.device == OffloadDevice::kCpu    ? "cpu"
                       : offload.device == OffloadDevice::kFile ? "nvme"
                                                                : "none";
  return {{"stage", zero.stage},
          {"stage3_prefetch", zero.prefetch},
          {"zero_hpz_partition_size", zero.copy_ranks},
          {"offload_optimizer",
           {{"device", device},
            {"nvme_path", word_or_null(offload.path)},
            {"buffer_count", offload.buffer_count},
            {"buffer_size", offload.buffer_elements}}}};
}

void add_places(const RunConfig& config, Json& json) {
  json["checkpoint"] = {{"save", word_or_null(config.checkpoint.save)},
                        {"load", word_or_null(config.checkpoint.load)},
                        {"save_interval", config.checkpoint.save_interval},
                        {"keep_last", config.checkpoint.keep_last}};
  json["logging"] = {{"log_interval", config.logging.log_interval},
                     {"tensorboard", {{"enabled", config.logging.tensorboard}}}};
  json["evaluation"] = {{"eval_interval", config.eval_interval}, {"eval_iters", config.eval_steps}};
  json["comm"] = {{"backend", config.comm.backend},
                  {"algorithm", config.comm.algorithm},
                  {"device_backend", config.comm.device_backend},
                  {"ranks_per_node", config.comm.ranks_per_node},
                  {"bucket_size", config.comm.bucket_bytes / 4},
                  {"overlap", config.comm.overlap},
                  {"timeout", config.comm.timeout_s}};
  json["cpu"] = {{"threads_per_rank", config.threads_per_rank}, {"isa", config.isa}};
  json["cuda"] = {{"autotune", config.cuda_autotune},
                  {"gemm_algorithms", word_or_null(config.cuda_gemm_algorithms)},
                  {"cudnn_attention", config.cuda_cudnn_attention},
                  {"synchronous", config.cuda_synchronous},
                  {"graphs", config.cuda_graphs ? "auto" : "off"}};
}

}  // namespace

Json run_config_to_json(const RunConfig& config) {
  const LossScaleConfig& scale = config.loss_scale;
  Json json = {
      {"model", model_config_to_json(config.model)},
      {"output_dir", config.output_dir},
      {"train_batch_size", config.train_batch_size},
      {"train_micro_batch_size_per_gpu", config.micro_batch_size},
      {"gradient_accumulation_steps", config.gradient_accumulation_steps},
      {"sequence_length", config.sequence_length},
      {"train_steps", config.train_steps},
      {"seed", config.seed},
      {"device", config.device},
      {"deterministic", config.deterministic},
      {"gradient_clipping", config.gradient_clipping},
      {"max_consecutive_skips", config.max_consecutive_skips},
      {"bf16", {{"enabled", config.dtype == DType::kBF16}}},
      {"fp16",
       {{"enabled", config.dtype == DType::kF16},
        {"loss_scale", scale.static_scale},
        {"initial_scale_power", scale.initial_scale_power},
        {"loss_scale_window", scale.window},
        {"hysteresis", scale.hysteresis},
        {"min_loss_scale", scale.min_scale}}},
      {"fp8", float8_json(config.float8)},
      {"optimizer", optimizer_to_json(config.optimizer)},
      {"scheduler", scheduler_json(config.scheduler)},
      {"parallel", parallel_json(config)},
      {"zero_optimization", zero_json(config.zero)},
      {"compression", compression_to_json(config)},
      {"outer", outer_to_json(config.outer)},
      {"activation_checkpointing", {{"granularity", word(config.recompute)}}},
      {"data", data_json(config)},
  };
  if (config.finetune.enabled) json["finetune"] = finetune_json(config.finetune);
  add_places(config, json);
  return json;
}

std::string trajectory_hash(const RunConfig& config) {
  Json json = run_config_to_json(config);
  for (const Key& key : run_schema().keys())
    if (key.status == KeyStatus::kImplemented && !key.is_trajectory) erase_path(json, key.path);
  // Earlier versions do not have these sections.
  if (!config.float8.enabled) json.erase("fp8");
  if (!config.compression.enabled && !config.weight_compression.enabled) json.erase("compression");
  if (!config.outer.enabled()) json.erase("outer");
  for (const char* key : {"data_path", "train_data_path"})
    if (json["data"].contains(key)) keep_file_names(json["data"][key]);
  if (json.contains("finetune"))
    for (const char* key : {"train_file", "chat_template"}) keep_file_names(json["finetune"][key]);
  // FNV-1a, 64 bits: the same on all machines and with all library versions.
  uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : json.dump()) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  std::string digits(16, '0');
  for (size_t i = 16; i-- > 0; hash >>= 4) digits[i] = "0123456789abcdef"[hash & 15u];
  return digits;
}

bool same_trajectory(const RunConfig& a, const RunConfig& b) {
  RunConfig other = b;
  if (!a.outer.enabled() || !b.outer.enabled())
    other.outer = a.outer;
  else if (has_default_momentum(a.outer) && has_default_momentum(b.outer))
    other.outer.momentum = a.outer.momentum;
  return trajectory_hash(a) == trajectory_hash(other);
}

Json run_config_json_schema() {
  Json schema = json_schema(run_schema());
  Json& model = schema["properties"]["model"];
  model["anyOf"] = Json::array({{{"type", "string"}}});
  for (const Family* family : families()) {
    Json part = json_schema(model_schema(family->id));
    part.erase("$schema");
    model["anyOf"].push_back(std::move(part));
  }
  return schema;
}

std::string config_reference() {
  std::string models;
  for (const Family* family : families()) models += markdown_tables(model_schema(family->id));
  return concat(
      "# Configuration reference\n\n",
      "Made from the schema by `trireme config reference`; `trireme config schema` prints it as a "
      "JSON Schema, `trireme config resolve --config FILE` prints the resolved configuration of a "
      "file.\n\n",
      "A run is one JSON file. `--set a.b=value` changes one key, and so does its flag `--a-b "
      "value`. An unknown key, a wrong type, a value out of range and a key given under two names "
      "are errors, all reported at once. `\"auto\"` is accepted only where it is listed. "
      "The paths of `\"model\"` and `\"deepspeed\"` are "
      "relative to the file; data, output and checkpoints are relative to the "
      "current directory. Names of DeepSpeed, Megatron-LM and others are accepted as the aliases "
      "list them; `\"deepspeed\"` names an unchanged DeepSpeed file: [its "
      "keys](deepspeed-keys.md).\n\nThe `resolved_config.json` of a run is a configuration too. It "
      "fixes `parallel.data_parallel_size` and all three batch sizes, so it fits one number of "
      "ranks; for another number add `--set parallel.data_parallel_size=auto --set "
      "gradient_accumulation_steps=auto`.\n\n",
      markdown_reference(run_schema()),
      "The keys of a model, by its `model_type`. All other keys: [keys of third-party "
      "models](model-keys.md).\n\n",
      models);
}

// Number of sites that are not ranks of the job that wrote the document.
static int64_t sites_of_other_jobs(const Json& json) {
  const Json outer = json.value("outer", Json::object());
  const bool remote = outer.is_object() && outer.contains("site") && outer["site"].is_number();
  if (!remote || !outer.contains("sites") || !outer["sites"].is_number_integer()) return 1;
  return std::clamp<int64_t>(outer["sites"].get<int64_t>(), 1, 1 << 12);
}

RunConfig resolved_run_config(const Json& json) {
  const auto number = [&](const char* key) {
    return json.is_object() && json.contains(key) && json[key].is_number_integer()
               ? json[key].get<int64_t>()
               : int64_t{0};
  };
  const int64_t micro = number("train_micro_batch_size_per_gpu");
  const int64_t passes = number("gradient_accumulation_steps");
  constexpr int64_t kMax =
      1 << 24;  // upper bound in the schema; products of larger integers could overflow
  const bool sizes = micro > 0 && micro <= kMax && passes > 0 && passes <= kMax;
  const int64_t share = sizes ? micro * passes : 0;
  const int64_t batch = number("train_batch_size");
  if (share <= 0 || batch <= 0 || batch % share != 0 || batch / share > 1 << 20)
    fail_input("it is not a resolved configuration: train_batch_size ", batch,
               " over micro-batch size x accumulation steps, ", share,
               ", is not a valid number of ranks");
  const auto degree = [&](const char* key) {
    const Json* parallel = json.contains("parallel") ? &json["parallel"] : nullptr;
    const bool given = parallel != nullptr && parallel->is_object() && parallel->contains(key) &&
                       (*parallel)[key].is_number_integer();
    return given ? std::clamp<int64_t>((*parallel)[key].get<int64_t>(), 1, 1 << 12) : int64_t{1};
  };
  const int64_t ranks = batch / share * degree("tensor_model_parallel_size") *
                        degree("pipeline_model_parallel_size") * degree("context_parallel_size");
  if (ranks > 1 << 24) fail_input("it is not a resolved configuration: it needs ", ranks, " ranks");
  return read_run_config(json,
                         static_cast<int>(std::max<int64_t>(1, ranks / sites_of_other_jobs(json))));
}

}  // namespace trireme
