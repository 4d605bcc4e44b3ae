#include "training/config/compression.h"

#include <nlohmann/json.hpp>

#include "parallel/config_keys.h"
#include "parallel/outer/compressors/compressors.h"
#include "parallel/outer/compressors/power_sgd.h"

namespace trireme {
namespace {

constexpr const char* kMethod = "compression.gradients.method";
constexpr const char* kNone = "none";
constexpr double kMaxWarmupSteps = 1e12, kMaxMinBytes = 1e15;
constexpr double kMaxBlock = 1 << 20;  // of any method

std::string path_of(const std::string& option) { return "compression.gradients." + option; }

// Whether a compressor's list of options, "bits, block", has the option.
bool uses(const CompressorRow& row, const std::string& option) {
  return concat(", ", row.options, ",").find(concat(" ", option, ",")) != std::string::npos;
}

const CompressorRow* row_of(const std::string& method) {
  for (const CompressorRow& row : compressors())
    if (method == row.method) return &row;
  return nullptr;
}

std::unique_ptr<Compressor> default_compressor(const CompressorRow& row) {
  return row.make({.method = row.method});
}

std::vector<std::string> method_names() {
  std::vector<std::string> names;
  for (const CompressorRow& row : compressors()) names.emplace_back(row.method);
  return names;
}

// Methods that work where ranks divide a matrix.
std::vector<std::string> dividing_methods() {
  std::vector<std::string> names;
  for (const CompressorRow& row : compressors())
    if (default_compressor(row)->can_divide()) names.emplace_back(row.method);
  return names;
}

// Refuses options of other methods.
void check_options(const ConfigValues& values, const CompressorRow& row, ConfigReport& report) {
  for (const char* option : {"bits", "ratio", "rank", "block"})
    if (values.given(path_of(option)) && !uses(row, option))
      report.error(values.spelled(path_of(option)),
                   concat("is no option of ", row.method, ", whose options are: ", row.options));
}

// Refuses what compressed gradients do not work with.
void check_run(const ConfigValues& values, const CompressorRow& row, const RunConfig& config,
               ConfigReport& report) {
  const std::unique_ptr<Compressor> compressor = default_compressor(row);
  const auto refuse = [&](const std::string& reason) {
    report.error(values.spelled(kMethod), reason);
  };
  if (config.zero.stage > 1)
    refuse(concat("needs zero_optimization.stage 0 or 1, got ", config.zero.stage));
  if (config.dtype == DType::kF16)
    refuse(
        "is not supported with fp16.enabled, whose gradients change their scale; supported: "
        "bf16.enabled, or fp32");
  const ParallelSizes& sizes = config.parallel;
  if (!compressor->can_divide() && (sizes.tp > 1 || sizes.etp > 1))
    refuse(concat(row.method, " encodes whole matrices, which ",
                  sizes.tp > 1 ? key::kTensor : key::kExpertTensor,
                  " above 1 divides: set it to 1, or use ", listed_names(dividing_methods())));
  if (compressor->decodes_by_products() && values.flag("cuda.autotune"))
    refuse(concat(row.method, " needs the same products on all ranks: set cuda.autotune to false"));
  const bool by_node = config.compression.scope == CompressionScope::kNodes;
  if (sizes.dp == 1 && !(by_node && sizes.cp > 1))
    report.note(values.spelled(kMethod), concat("has no effect with ", key::kData, " 1"));
}

// "quantize: 8, 4 or 1 bits per element and a scale per block; top_k: ..."
std::string summaries() {
  std::string all;
  for (const CompressorRow& row : compressors())
    all += concat(all.empty() ? "" : "; ", row.method, ": ", row.summary);
  return all;
}

}  // namespace

void add_compression_keys(Schema& s) {
  const GradientCompressionConfig defaults;
  const auto& options = defaults.options;
  s.section("compression",
            "Compression of what replicas of the model (data-parallel ranks) exchange, for slow "
            "links ([design](../design/outer.md)). Unlike a layout, it changes the numbers, and "
            "they then depend on the number of replicas.");
  std::vector<std::string> methods = method_names();
  methods.insert(methods.begin(), kNone);
  s.choice(kMethod, kNone, methods,
           concat("code of gradients in their sum over the ranks; ", summaries()));
  s.integer(path_of("bits"), std::to_string(options.bits), "quantize: bits per element, 8, 4 or 1")
      .at_least(1)
      .at_most(8);
  s.number(path_of("ratio"), concat(options.ratio), "top_k, random_k: share of elements sent")
      .above(0)
      .at_most(1);
  s.integer(path_of("rank"), std::to_string(options.rank), "powersgd: rank of the factors")
      .at_least(1)
      .at_most(kMaxPowerSgdRank);
  s.integer(path_of("block"), "\"auto\"",
            "elements of a row that are encoded together; quantize: a multiple of 8; top_k, "
            "random_k: at most 16384; auto: 256 (1024 for 1 bit) and 4096")
      .or_auto()
      .at_least(1)
      .at_most(kMaxBlock);
  s.choice(path_of("scope"), "all", {"all", "inter_node"},
           "ranks between which sums are compressed; all: replicas of the model; inter_node: nodes "
           "(comm.ranks_per_node), exact inside of each");
  s.boolean(path_of("error_feedback"), defaults.error_feedback,
            "what a step leaves out is added to the next step; takes the memory of the gradients "
            "again, and in checkpoints that of each replica");
  s.integer(path_of("warmup_steps"), std::to_string(defaults.warmup_steps),
            "first steps of the run with exact sums")
      .at_least(0)
      .at_most(kMaxWarmupSteps);
  s.integer(path_of("min_bytes"), std::to_string(defaults.min_bytes),
            "smaller tensors are sent exactly, such as norm weights")
      .at_least(0)
      .at_most(kMaxMinBytes);
}

void read_compression(const ConfigValues& values, RunConfig& config, ConfigReport& report) {
  GradientCompressionConfig& gradients = config.compression;
  const CompressorRow* const row = row_of(values.word(kMethod));
  if (row == nullptr) {
    for (const char* option :
         {"bits", "ratio", "rank", "block", "error_feedback", "warmup_steps", "min_bytes", "scope"})
      if (values.given(path_of(option)))
        report.error(values.spelled(path_of(option)),
                     concat("needs ", kMethod, ": ", listed_names(method_names())));
    return;
  }
  gradients.enabled = true;
  if (values.word(path_of("scope")) == "inter_node") gradients.scope = CompressionScope::kNodes;
  gradients.error_feedback = values.flag(path_of("error_feedback"));
  gradients.warmup_steps = values.integer(path_of("warmup_steps"));
  gradients.min_bytes = values.integer(path_of("min_bytes"));
  CompressionOptions& options = gradients.options;
  options.method = row->method;
  check_options(values, *row, report);
  if (uses(*row, "bits")) options.bits = static_cast<int>(values.integer(path_of("bits")));
  if (uses(*row, "ratio")) options.ratio = values.number(path_of("ratio"));
  if (uses(*row, "rank")) options.rank = static_cast<int>(values.integer(path_of("rank")));
  if (uses(*row, "block") && !values.is_auto(path_of("block")))
    options.block = values.integer(path_of("block"));
  for (const std::string& problem : compression_problems(options)) {
    const std::string option = problem.substr(0, problem.find(' '));
    report.error(values.spelled(path_of(option)), problem.substr(option.size() + 1));
  }
  check_run(values, *row, config, report);
}

Json compression_to_json(const GradientCompressionConfig& gradients) {
  if (!gradients.enabled) return {{"gradients", {{"method", kNone}}}};
  const CompressionOptions& options = gradients.options;
  const CompressorRow& row = *row_of(options.method);
  Json json = {{"method", options.method}};
  if (uses(row, "bits")) json["bits"] = options.bits;
  if (uses(row, "ratio")) json["ratio"] = options.ratio;
  if (uses(row, "rank")) json["rank"] = options.rank;
  if (uses(row, "block")) json["block"] = options.block == 0 ? Json("auto") : Json(options.block);
  json["scope"] = gradients.scope == CompressionScope::kNodes ? "inter_node" : "all";
  json["error_feedback"] = gradients.error_feedback;
  json["warmup_steps"] = gradients.warmup_steps;
  json["min_bytes"] = gradients.min_bytes;
  return {{"gradients", json}};
}

}  // namespace trireme
