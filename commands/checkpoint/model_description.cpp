#include "commands/checkpoint/model_description.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "commands/table.h"
#include "commands/training/training_memory.h"
#include "engine/core/error.h"
#include "engine/observe/progress.h"
#include "engine/ops/attention/kv_codes.h"
#include "engine/ops/quantized/quantized_weight.h"
#include "parallel/parameter_store.h"
#include "serving/engine/step_stage.h"
#include "transformer/families/family.h"
#include "transformer/formats/gguf/gguf_architectures.h"
#include "transformer/model/model_features.h"
#include "transformer/model/model_layout.h"

namespace trireme {
namespace {

using Rows = std::vector<std::vector<std::string>>;

constexpr int64_t kTrainTokens = 4096;  // longest sequence of the planned training step
constexpr int kMaxTensorParallel = 128;

struct WeightFormat {
  const char* name;
  DType dtype;  // of the weights that are not quantized
  std::optional<BlockFormat> blocks;
};
constexpr WeightFormat kWeightFormats[] = {{"float32", DType::kF32, {}},
                                           {"bfloat16", DType::kBF16, {}},
                                           {"float16", DType::kF16, {}},
                                           {"q8_0", DType::kBF16, BlockFormat::kQ8_0},
                                           {"q4_0", DType::kBF16, BlockFormat::kQ4_0}};

constexpr KvType kKvTypes[] = {{DType::kF32},
                               {DType::kBF16},
                               {DType::kF16},
                               {DType::kU8, KvCodes::kInt8},
                               {DType::kU8, KvCodes::kE4M3},
                               {DType::kU8, KvCodes::kE5M2}};

Json weights_of(const Model& model) {
  Json out;
  for (const WeightFormat& format : kWeightFormats)
    out[format.name] = ParameterStore(model.parameters(), format.dtype, Sharding{},
                                      PackingConfig{.blocks = format.blocks})
                           .value_bytes();
  return out;
}

// Layers times tokens whose keys a token at the end of a sequence reads, at the end of a chunk.
int64_t tokens_read(const ModelConfig& config, int64_t length) {
  int64_t tokens = 0;
  for (int64_t l = 0; l < config.num_layers; ++l) {
    if (config.window(l) > 0)
      tokens += std::min(config.window(l), length);
    else
      tokens += config.chunked(l) ? std::min(config.attention_chunk, length) : length;
  }
  return tokens;
}

int64_t kv_length(const ModelConfig& config, int64_t max_model_len) {
  const int64_t longest = longest_sequence(config);
  if (max_model_len > longest)
    fail_input("--max-model-len ", max_model_len, ": the model has ", longest, " positions");
  return max_model_len > 0 ? max_model_len : longest;
}

Json kv_cache_of(const Model& model, int64_t length) {
  const ModelConfig& config = model.config();
  Json out = {{"max_model_len", length}};
  // While its tokens are generated: one in a step.
  const StepLimits limits{.tokens = 1,
                          .length = length,
                          .block_tokens = kv_block_tokens(config),
                          .windows = kv_windows(config, length)};
  for (const KvType& type : kKvTypes) {
    const int64_t token = kv_block_bytes(model, type, nullptr, 1, StepLimits().windows);
    const int64_t block = kv_block_bytes(model, type, nullptr, limits.block_tokens, limits.windows);
    int64_t sequence = 0;
    if (__builtin_mul_overflow(block, limits.blocks_of_sequence(), &sequence))
      fail_input("the KV cache of a sequence of ", length,
                 " tokens has more than 2^63 bytes; give a smaller --max-model-len");
    Json& row = out[text(type)] = {{"bytes_per_token", token}, {"bytes", sequence}};
    if (config.has_windows() || config.attention_chunk > 0)
      row["bytes_read_by_last_token"] = token / config.num_layers * tokens_read(config, length);
  }
  return out;
}

Json training_of(const ModelConfig& config) {
  const int64_t length = std::min(longest_sequence(config), kTrainTokens);
  Json out = {{"sequence_length", length}};
  for (const TrainingMemoryRow& row : training_memory(config, length)) {
    out[row.dtype] = {{"parameters", row.parameters},
                      {"gradients", row.gradients},
                      {"optimizer_state", row.optimizer}};
    if (row.activations < 0) continue;
    out[row.dtype]["activations"] = row.activations;
    out[row.dtype]["total"] = row.parameters + row.gradients + row.optimizer + row.activations;
  }
  return out.size() > 1 ? out : Json();  // a build without the trainer has no rows
}

Json layouts_of(const ModelConfig& config) {
  Json tensor = Json::array();
  for (int tp = 1; tp <= kMaxTensorParallel; ++tp)
    if (model_layout_problems(config, {.tp = tp}).empty()) tensor.push_back(tp);
  return {{"tensor_parallel", tensor},
          {"max_pipeline_parallel", config.num_layers},
          {"max_expert_parallel", std::max<int64_t>(1, config.moe.experts)}};
}

// Formats that trireme checkpoint convert writes.
Json conversions_of(const ModelConfig& config) {
  Json out = {"hf", "trireme"};
  if (gguf_architecture(config.family) != nullptr) out.emplace_back("gguf");
  return out;
}

std::string joined(const Json& list) {
  std::string out;
  for (const Json& item : list)
    out +=
        concat(out.empty() ? "" : ", ", item.is_string() ? item.get<std::string>() : item.dump());
  return out;
}

// A row for each line, the first with the label.
void add_lines(Rows& rows, const char* label, const Json& lines) {
  for (size_t i = 0; i < lines.size(); ++i)
    rows.push_back({i == 0 ? label : "", lines[i].get<std::string>()});
}

std::string counted(const Json& number) {
  return concat(number.dump(), " (", format_count(number.get<double>()), ")");
}

std::string bytes_text(const Json& bytes) { return format_bytes(bytes.get<int64_t>()); }

void print_facts(const Json& d) {
  Rows rows = {
      {"architecture",
       concat(d["architecture"].get<std::string>(), ", ", d["layers"].dump(), " layers of width ",
              d["hidden_size"].dump(), ", vocabulary of ", d["vocab_size"].dump())}};
  add_lines(rows, "features", d["features"]);
  rows.push_back({"longest sequence", d["longest_sequence"].dump() + " tokens"});
  rows.push_back({"parameters", counted(d["parameters"])});
  rows.push_back({"active per token", counted(d["active_parameters"])});
  if (d.contains("published_quantization"))
    rows.push_back({"published weights", d["published_quantization"].get<std::string>()});
  rows.push_back({"supported", joined(d["supported"])});
  rows.push_back({"converted to", joined(d["converted_to"])});
  const Json& layouts = d["layouts"];
  rows.push_back({"tensor parallel", joined(layouts["tensor_parallel"]) + " ranks"});
  rows.push_back(
      {"pipeline parallel", concat("up to ", layouts["max_pipeline_parallel"].dump(), " ranks")});
  if (layouts["max_expert_parallel"].get<int64_t>() > 1)
    rows.push_back(
        {"expert parallel", concat("up to ", layouts["max_expert_parallel"].dump(), " ranks")});
  add_lines(rows, "notes", d["notes"]);
  if (!d["ignored_keys"].empty())
    rows.push_back({"keys without effect", joined(d["ignored_keys"])});
  print_table(rows);
}

void print_weights(const Json& weights) {
  Rows rows = {{"weights", "bytes"}};
  for (const auto& [name, bytes] : weights.items()) rows.push_back({name, bytes_text(bytes)});
  print_table(rows);
}

void print_kv_cache(const Json& cache) {
  Rows rows = {
      {"KV cache", "per token", concat("sequence of ", cache["max_model_len"].dump(), " tokens")}};
  for (const auto& [name, row] : cache.items()) {
    if (!row.is_object()) continue;
    rows.push_back({name, bytes_text(row["bytes_per_token"]), bytes_text(row["bytes"])});
    if (!row.contains("bytes_read_by_last_token")) continue;
    rows.front().resize(4, "last token reads (windows)");
    rows.back().push_back(bytes_text(row["bytes_read_by_last_token"]));
  }
  print_table(rows);
}

void print_training(const Json& training) {
  Rows rows = {{"training on one rank, AdamW"}};
  constexpr std::pair<const char*, const char*> kParts[] = {
      {"parameters", "parameters"},
      {"gradients", "gradients"},
      {"optimizer_state", "optimizer state"},
      {"activations", "activations of one sequence of "},
      {"total", "total"}};
  for (const auto& [key, label] : kParts) {
    rows.push_back({std::string(key) == "activations"
                        ? concat(label, training["sequence_length"].dump(), " tokens")
                        : std::string(label)});
    for (const auto& [dtype, row] : training.items())
      if (row.is_object())
        rows.back().push_back(row.contains(key) ? bytes_text(row[key]) : "not planned");
  }
  for (const auto& [dtype, row] : training.items())
    if (row.is_object()) rows.front().push_back(dtype);
  print_table(rows);
}

}  // namespace

Json model_description(const ThirdPartyConfig& model, int64_t max_model_len) {
  const ModelConfig& config = model.config;
  const Family& family = family_of(config.family);
  const int64_t length = kv_length(config, max_model_len);
  const ParameterCounts counts = count_parameters(config);
  const Model whole(config, DType::kBF16);
  Json out = {{"file", model.file},
              {"model_type", family.model_type},
              {"title", family.title},
              {"architecture", family.architecture},
              {"layers", config.num_layers},
              {"hidden_size", config.hidden_size},
              {"vocab_size", config.vocab_size},
              {"features", model_features(config)},
              {"longest_sequence", longest_sequence(config)},
              {"parameters", counts.all},
              {"active_parameters", counts.active}};
  if (!model.quantization.empty()) out["published_quantization"] = model.quantization;
  out["supported"] = {"pretrain",
                      "finetune",
                      "eval",
                      "generate",
                      "logits",
                      "serve",
                      "serve --quantization q8_0",
                      "serve --quantization q4_0"};
  out["converted_to"] = conversions_of(config);
  out["layouts"] = layouts_of(config);
  out["notes"] = model.notes;
  out["ignored_keys"] = model.ignored;
  out["weights"] = weights_of(whole);
  out["kv_cache"] = kv_cache_of(whole, length);
  if (Json training = training_of(config); !training.is_null())
    out["training"] = std::move(training);
  return out;
}

void print_description(const Json& description) {
  print_facts(description);
  std::printf("\n");
  print_weights(description["weights"]);
  std::printf("\n");
  print_kv_cache(description["kv_cache"]);
  if (!description.contains("training")) return;
  std::printf("\n");
  print_training(description["training"]);
}

}  // namespace trireme
