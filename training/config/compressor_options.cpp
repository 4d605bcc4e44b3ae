#include "training/config/compressor_options.h"

#include <nlohmann/json.hpp>

#include "parallel/config_keys.h"
#include "parallel/outer/compressors/power_sgd.h"
#include "training/config/table_text.h"

namespace trireme {
namespace {

constexpr const char* kNone = "none";
constexpr double kMaxMinBytes = 1e15;
constexpr double kMaxBlock = 1 << 20;  // of any method

std::string path_of(const std::string& section, const std::string& option) {
  return section + "." + option;
}

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

std::vector<std::string> method_names() { return names_of(compressors(), &CompressorRow::method); }

// Methods that work where ranks divide a matrix.
std::vector<std::string> dividing_methods() {
  std::vector<std::string> names;
  for (const CompressorRow& row : compressors())
    if (default_compressor(row)->can_divide()) names.emplace_back(row.method);
  return names;
}

// Refuses options of other methods.
void check_options(const ConfigValues& values, const std::string& section, const CompressorRow& row,
                   ConfigReport& report) {
  for (const char* option : {"bits", "ratio", "rank", "block"}) {
    const std::string path = path_of(section, option);
    if (values.given(path) && !uses(row, option))
      report.error(values.spelled(path),
                   concat("is no option of ", row.method, ", whose options are: ", row.options));
  }
}

CompressionOptions read_options(const ConfigValues& values, const std::string& section,
                                const CompressorRow& row) {
  CompressionOptions options;
  const auto path = [&](const char* option) { return path_of(section, option); };
  options.method = row.method;
  if (uses(row, "bits")) options.bits = static_cast<int>(values.integer(path("bits")));
  if (uses(row, "ratio")) options.ratio = values.number(path("ratio"));
  if (uses(row, "rank")) options.rank = static_cast<int>(values.integer(path("rank")));
  if (uses(row, "block") && !values.is_auto(path("block")))
    options.block = values.integer(path("block"));
  return options;
}

}  // namespace

void add_compressor_keys(Schema& s, const std::string& section, const std::string& what) {
  const CompressionConfig defaults;
  const CompressionOptions& options = defaults.options;
  const auto path = [&](const char* option) { return path_of(section, option); };
  std::vector<std::string> methods = method_names();
  methods.insert(methods.begin(), kNone);
  s.choice(path("method"), kNone, methods,
           concat(what, "; ", summaries_of(compressors(), &CompressorRow::method)));
  s.integer(path("bits"), std::to_string(options.bits), "quantize: bits per element, 8, 4 or 1")
      .at_least(1)
      .at_most(8);
  s.number(path("ratio"), concat(options.ratio), "top_k, random_k: share of elements sent")
      .above(0)
      .at_most(1);
  s.integer(path("rank"), std::to_string(options.rank), "powersgd: rank of the factors")
      .at_least(1)
      .at_most(kMaxPowerSgdRank);
  s.integer(path("block"), "\"auto\"",
            "elements of a row that are encoded together; quantize: a multiple of 8; top_k, "
            "random_k: at most 16384; auto: 256 (1024 for 1 bit) and 4096")
      .or_auto()
      .at_least(1)
      .at_most(kMaxBlock);
  s.boolean(path("error_feedback"), defaults.error_feedback,
            "what one exchange leaves out is added to the next one; takes the memory of the "
            "exchanged tensors again, and in checkpoints that of each replica or site");
  s.integer(path("min_bytes"), std::to_string(defaults.min_bytes),
            "smaller tensors are sent exactly, such as norm weights")
      .at_least(0)
      .at_most(kMaxMinBytes);
}

const CompressorRow* read_compressor(const ConfigValues& values, const std::string& section,
                                     CompressionConfig& config, ConfigReport& report) {
  const std::string method = path_of(section, "method");
  const CompressorRow* const row = row_of(values.word(method));
  if (row == nullptr) {
    for (const char* option : {"bits", "ratio", "rank", "block", "error_feedback", "min_bytes"})
      if (const std::string path = path_of(section, option); values.given(path))
        report.error(values.spelled(path),
                     concat("needs ", method, ": ", listed_names(method_names())));
    return nullptr;
  }
  config.enabled = true;
  config.error_feedback = values.flag(path_of(section, "error_feedback"));
  config.min_bytes = values.integer(path_of(section, "min_bytes"));
  check_options(values, section, *row, report);
  config.options = read_options(values, section, *row);
  for (const std::string& problem : compression_problems(config.options)) {
    const std::string option = problem.substr(0, problem.find(' '));
    report.error(values.spelled(path_of(section, option)), problem.substr(option.size() + 1));
  }
  return row;
}

void check_compressor_layout(const ConfigValues& values, const std::string& section,
                             const RunConfig& config, const CompressionConfig& compression,
                             ConfigReport& report) {
  const CompressorRow& row = *row_of(compression.options.method);
  const std::unique_ptr<Compressor> compressor = default_compressor(row);
  const auto refuse = [&](const std::string& reason) {
    report.error(values.spelled(path_of(section, "method")), reason);
  };
  const ParallelSizes& sizes = config.parallel;
  if (!compressor->can_divide() && (sizes.tp > 1 || sizes.etp > 1))
    refuse(concat(row.method, " encodes whole matrices, which ",
                  sizes.tp > 1 ? key::kTensor : key::kExpertTensor,
                  " above 1 divides: set it to 1, or use ", listed_names(dividing_methods())));
  if (compressor->decodes_by_products() && values.flag("cuda.autotune"))
    refuse(concat(row.method, " needs the same products on all ranks: set cuda.autotune to false"));
}

Json compressor_to_json(const CompressionConfig& config) {
  if (!config.enabled) return {{"method", kNone}};
  const CompressionOptions& options = config.options;
  const CompressorRow& row = *row_of(options.method);
  Json json = {{"method", options.method}};
  if (uses(row, "bits")) json["bits"] = options.bits;
  if (uses(row, "ratio")) json["ratio"] = options.ratio;
  if (uses(row, "rank")) json["rank"] = options.rank;
  if (uses(row, "block")) json["block"] = options.block == 0 ? Json("auto") : Json(options.block);
  json["error_feedback"] = config.error_feedback;
  json["min_bytes"] = config.min_bytes;
  return json;
}

std::string describe_compressor(const CompressionConfig& config) {
  const Json json = compressor_to_json(config);
  std::string options;
  for (const char* option : {"bits", "ratio", "rank", "block"})
    if (json.contains(option) && json[option].is_number())  // block: only if it is not auto
      options += concat(options.empty() ? "" : ", ", option, " ", json[option].dump());
  return concat(config.options.method, " (", options, ")");
}

}  // namespace trireme
