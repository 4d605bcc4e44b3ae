#include "training/config/run_config.h"

// Reading: document -> checked RunConfig, with one function per group of related keys.

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "engine/config/override.h"
#include "engine/config/parse.h"
#include "engine/config/reference.h"
#include "engine/core/cpu.h"
#include "engine/core/error.h"
#include "engine/io/hub_cache.h"
#include "engine/text/tokenizer.h"
#include "training/config/batch_rule.h"
#include "training/config/compression.h"
#include "training/config/data_path.h"
#include "training/config/deepspeed/file.h"
#include "training/config/optimizer_config.h"
#include "training/config/outer.h"
#include "training/config/read_finetune.h"
#include "training/config/read_optimization.h"
#include "training/config/read_parallel.h"
#include "transformer/checkpoint/open_model.h"
#include "transformer/families/config_json.h"
#include "transformer/families/family.h"
#include "transformer/formats/gguf/gguf_model.h"
#include "transformer/formats/load_config.h"

namespace trireme {
namespace {

void read_precision(const ConfigValues& values, RunConfig& config, ConfigReport& report) {
  if (values.flag("bf16.enabled") && values.flag("fp16.enabled"))
    report.error("bf16.enabled", "is true together with fp16.enabled; choose one");
  if (values.flag("bf16.enabled")) config.dtype = DType::kBF16;
  if (values.flag("fp16.enabled")) config.dtype = DType::kF16;
  config.loss_scale.static_scale = values.number("fp16.loss_scale");
  config.loss_scale.initial_scale_power = values.integer("fp16.initial_scale_power");
  config.loss_scale.window = values.integer("fp16.loss_scale_window");
  config.loss_scale.hysteresis = values.integer("fp16.hysteresis");
  config.loss_scale.min_scale = values.number("fp16.min_loss_scale");
}

// Reads the path of a model or tokenizer; a model of the hub's cache is replaced by its path.
std::string model_word(const ConfigValues& values, const char* key, ConfigReport& report) {
  std::string word = values.word(key);
  if (word.empty() || word == "byte") return word;
  try {
    return local_model(word);
  } catch (const InputError& e) {
    report.error(values.spelled(key), e.what());
    return word;
  }
}

// Reads the end-of-document id. If masks are used, which depend on it, the id becomes part of the
// configuration: if the tokenizer has changed when the run is resumed, the run is refused instead
// of continuing with another id.
void read_eod(const ConfigValues& values, RunConfig& config, ConfigReport& report) {
  DataConfig& data = config.data;
  const bool given = values.given("data.eod_token_id");
  if (given) data.eod_token_id = values.integer("data.eod_token_id");
  const bool masks = data.reset_position_ids || data.reset_attention_mask || data.eod_mask_loss;
  if (masks && !given && !data.tokenizer.empty()) {
    try {
      data.eod_token_id = load_tokenizer(data.tokenizer)->eod_id();
    } catch (const InputError& e) {
      return report.error(values.spelled("data.tokenizer"), e.what());
    }
  }
  if (masks && data.eod_token_id < 0) data.eod_token_id = config.model.eos_token_id;
  if (data.eod_token_id >= config.model.vocab_size && config.model.vocab_size > 0)
    report.error(values.spelled("data.eod_token_id"),
                 concat("expected an id below the model's vocab_size ", config.model.vocab_size,
                        ", got ", data.eod_token_id, given ? "" : " from data.tokenizer"));
  for (const char* key :
       {"data.reset_position_ids", "data.reset_attention_mask", "data.eod_mask_loss"})
    if (values.flag(key) && data.eod_token_id < 0)
      report.error(values.spelled(key),
                   "needs the end-of-document id: give data.eod_token_id or data.tokenizer");
}

void read_data(const ConfigValues& values, RunConfig& config, ConfigReport& report) {
  DataConfig& data = config.data;
  const auto read = [&](const char* key) {
    return read_data_path(values.raw(key), values.spelled(key), report);
  };
  const bool split = values.given("data.data_path"), whole = values.given("data.train_data_path");
  data.tokenizer = model_word(values, "data.tokenizer", report);
  read_finetune(values, config, report);
  if (config.finetune.enabled) {
    data.split.clear();
    return;
  }
  if (!split && !whole)
    report.error("data.data_path",
                 "is required (or data.train_data_path): prefix of the token file "
                 "that `trireme data prepare` writes");
  if (split && whole)
    report.error(values.spelled("data.train_data_path"),
                 concat("is set together with ", values.spelled("data.data_path"), "; keep one"));
  for (const char* key : {"data.valid_data_path", "data.test_data_path"})
    if (values.given(key) && !whole)
      report.error(values.spelled(key),
                   "requires data.train_data_path; data.data_path is divided by data.split");
  if (whole && values.given("data.split"))
    report.error(values.spelled("data.split"),
                 "divides data.data_path and has no effect on data.train_data_path: leave one of "
                 "the two out");
  data.train = read(whole ? "data.train_data_path" : "data.data_path");
  data.valid = read_validation_sets(values.raw("data.valid_data_path"),
                                    values.spelled("data.valid_data_path"), report);
  data.test = read("data.test_data_path");
  data.split = whole ? "" : values.word("data.split");
  std::array<double, 3> parts{};
  if (const std::string problem = whole ? "" : read_split(data.split, parts); !problem.empty())
    report.error(values.spelled("data.split"), concat(problem, ", got ", shown(Json(data.split))));
  data.reset_position_ids = values.flag("data.reset_position_ids");
  data.reset_attention_mask = values.flag("data.reset_attention_mask");
  data.eod_mask_loss = values.flag("data.eod_mask_loss");
  read_eod(values, config, report);
}

Recompute recompute_of(const std::string& word) {
  return word == "full"        ? Recompute::kFull
         : word == "selective" ? Recompute::kSelective
                               : Recompute::kNone;
}

void read_places(const ConfigValues& values, RunConfig& config, ConfigReport& report) {
  config.output_dir = values.word("output_dir");
  config.checkpoint.save = values.word("checkpoint.save");
  if (config.checkpoint.save.empty())
    config.checkpoint.save = (std::filesystem::path(config.output_dir) / "checkpoints").string();
  config.checkpoint.load = model_word(values, "checkpoint.load", report);
  config.checkpoint.save_interval = values.integer("checkpoint.save_interval");
  config.checkpoint.keep_last = values.integer("checkpoint.keep_last");
  config.logging.log_interval = values.integer("logging.log_interval");
  config.logging.tensorboard = values.flag("logging.tensorboard.enabled");
  config.eval_interval = values.integer("evaluation.eval_interval");
  config.eval_steps = values.integer("evaluation.eval_iters");
}

void read_machine(const ConfigValues& values, RunConfig& config, ConfigReport& report) {
  config.device = values.word("device");
  config.recompute = recompute_of(values.word("activation_checkpointing.granularity"));
  config.comm.backend = values.word("comm.backend");
  config.comm.algorithm = values.word("comm.algorithm");
  config.comm.device_backend = values.word("comm.device_backend");
  config.comm.ranks_per_node = values.integer("comm.ranks_per_node");
  config.comm.bucket_bytes = 4 * values.integer("comm.bucket_size");
  config.comm.overlap = values.flag("comm.overlap");
  config.comm.timeout_s = values.number("comm.timeout");
  config.threads_per_rank = static_cast<int>(values.integer("cpu.threads_per_rank"));
  if (config.threads_per_rank > available_cores())
    report.note(values.spelled("cpu.threads_per_rank"),
                concat(config.threads_per_rank, " threads share the ", available_cores(),
                       " cores of this process, which is slower than one thread per core"));
  config.isa = values.word("cpu.isa");
  config.deterministic = values.flag("deterministic");
  config.cuda_autotune = values.flag("cuda.autotune");
  config.cuda_gemm_algorithms = values.word("cuda.gemm_algorithms");
  config.cuda_cudnn_attention = values.flag("cuda.cudnn_attention");
  config.cuda_synchronous = values.flag("cuda.synchronous");
  config.cuda_graphs = values.word("cuda.graphs") == "auto";
  const bool keeps = !config.cuda_gemm_algorithms.empty();
  if (config.cuda_autotune && config.deterministic && !keeps)
    report.error(values.spelled("cuda.autotune"),
                 "true is not deterministic: set cuda.gemm_algorithms to a folder that stores the "
                 "choices, or set deterministic or cuda.autotune to false");
  if (keeps && !config.cuda_autotune)
    report.error(values.spelled("cuda.gemm_algorithms"),
                 "stores the choices of cuda.autotune, which is false: set it to true");
}

void read_length(const ConfigValues& values, RunConfig& config, ConfigReport& report) {
  const int64_t longest = longest_sequence(config.model);
  config.sequence_length = values.is_auto("sequence_length") ? config.model.max_positions
                                                             : values.integer("sequence_length");
  if (longest > 0 && config.sequence_length > longest)
    report.error(values.spelled("sequence_length"),
                 concat(config.sequence_length, " is more than the model's ",
                        family_of(config.model.family).positions_key, " ", longest));
}

RunConfig read_checked(Json json, int world_size, ConfigReport& report,
                       const CountSequences& sequences = {}) {
  TRIREME_CHECK(world_size >= 1, "world size ", world_size, ", expected at least 1");
  merge_deepspeed(json, report);
  const ConfigValues values = read_config(run_schema(), json, "", report);
  RunConfig config;
  if (values.given("model")) config.model = read_model_config(values.raw("model"), "model", report);
  config.seed = static_cast<uint64_t>(values.integer("seed"));
  config.max_consecutive_skips = values.integer("max_consecutive_skips");
  config.gradient_clipping = values.number("gradient_clipping");
  const int ranks_of_site = read_sites(values, world_size, config, report);
  read_parallel(values, ranks_of_site, config, report);
  read_zero(values, config, report);
  read_batch(values, config, report);
  check_layout(values, config, report);
  read_length(values, config, report);
  read_precision(values, config, report);
  read_float8(values, config, report);
  read_places(values, config, report);
  read_data(values, config, report);
  read_train_steps(values, config, report, sequences);
  read_optimizer(values, config, report);
  read_compression(values, config, report);
  read_outer(values, config, report);
  read_scheduler(values, config, report);
  read_machine(values, config, report);
  config.notes = report.notes();
  return config;
}

// Replaces a path under "model" by the object in that file. The keys of a third-party model are
// translated to ours; ignored settings are added to `notes`. folder: base of a relative path.
// Returns the file, or "" if the model is not a path.
std::string inline_model(Json& document, const std::filesystem::path& folder,
                         std::vector<std::string>& notes) {
  if (!document.is_object() || !document.contains("model")) return "";
  Json& model = document["model"];
  const bool wrapped = model.is_object() && model.size() == 1 && model.contains("config");
  const Json path = wrapped ? model["config"] : model;
  if (!path.is_string()) return "";
  const auto word = path.get<std::string>();
  std::string given = (folder / word).string();
  std::error_code ignored;
  if (!std::filesystem::exists(given, ignored))
    if (const std::string cached = local_model(word); cached != word) given = cached;
  if (is_gguf(given)) {
    model = model_config_to_json(load_model_config(given, notes));
    return given;
  }
  std::string file = model_config_file(given);
  const bool of_others = std::filesystem::path(file).filename() == "config.json";
  model = of_others ? model_config_to_json(load_model_config(file, notes)) : parse_json_file(file);
  return file;
}

// Value of a key under any of its names; nullptr: not set.
const Json* given_value(const Json& document, const std::string& path) {
  const Key* const key = run_schema().find(path);
  std::vector<std::string> names = key != nullptr ? key->aliases : std::vector<std::string>();
  names.insert(names.begin(), path);
  for (std::string& name : names) {
    std::ranges::replace(name, '.', '/');
    const Json::json_pointer place("/" + name);
    if (document.contains(place)) return &document[place];
  }
  return nullptr;
}

// Folder in which the run saves its checkpoints.
std::string saves_of(const Json& document) {
  const Json *const saves = given_value(document, "checkpoint.save"), *const folder = given_value(
                                                                          document, "output_dir");
  if (saves != nullptr && saves->is_string()) return saves->get<std::string>();
  const bool named = folder != nullptr && folder->is_string();
  return named ? (std::filesystem::path(folder->get<std::string>()) / "checkpoints").string() : "";
}

// Adds the model and tokenizer to a fine-tuning run that does not set them: those of the run's own
// checkpoints, or of checkpoint.load.
void take_from_weights(Json& document) {
  if (!document.is_object() || !document.contains("finetune")) return;
  const Json* const load = given_value(document, "checkpoint.load");
  if (load == nullptr || !load->is_string()) return;
  const bool has_model = document.contains("model");
  const bool has_tokenizer = given_value(document, "data.tokenizer") != nullptr;
  if (has_model && has_tokenizer) return;
  const std::unique_ptr<ModelSource> source =
      open_described_model(saves_of(document), local_model(load->get<std::string>()));
  if (!has_model) document["model"] = model_config_to_json(source->config());
  const bool can_have_tokenizer = !document.contains("data") || document["data"].is_object();
  if (!has_tokenizer && can_have_tokenizer && !source->tokenizer().empty())
    document["data"]["tokenizer"] = source->tokenizer();
}

// Replaces the path of a DeepSpeed configuration by the object in that file. Returns the file, or
// "".
std::string inline_deepspeed(Json& document, const std::filesystem::path& folder) {
  const Json* const given = given_value(document, "deepspeed");
  if (given == nullptr || !given->is_string()) return "";
  std::string file = (folder / given->get<std::string>()).string();
  const Json object = parse_json_file(file);
  for (const char* name : {"deepspeed", "deepspeed_config"}) document.erase(name);
  document["deepspeed"] = object;
  return file;
}

// Title of an error message: the configuration file and the files that it includes.
std::string title_of(const std::string& path, const std::string& model_file,
                     const std::string& deepspeed_file) {
  std::string parts;
  if (!model_file.empty()) parts = concat("model: ", model_file);
  if (deepspeed_file == path)
    parts +=
        concat(parts.empty() ? "" : ", ",
               "a DeepSpeed configuration: give a run's keys by flags, or set \"deepspeed\" of "
               "a run's configuration to this file");
  else if (!deepspeed_file.empty())
    parts += concat(parts.empty() ? "" : ", ", "deepspeed: ", deepspeed_file);
  return parts.empty() ? path : concat(path, " (", parts, ")");
}

// True for overrides of "model" and "deepspeed", whose values may be paths. Such a path is relative
// to the current directory, and is read before overrides of keys inside the file (model.n_layer=2).
bool names_a_file(const std::string& path) {
  const Key* const key = run_schema().find_any(path);
  return key != nullptr && (key->path == "model" || key->path == "deepspeed");
}

}  // namespace

RunConfig load_run_config(const std::string& path, const std::vector<std::string>& overrides,
                          int world_size, const CountSequences& sequences) {
  Json document = parse_json_file(path);
  ConfigReport report;
  std::string deepspeed_file;
  if (is_deepspeed_file(document)) {
    Json file = std::move(document);
    document = Json::object();
    document["deepspeed"] = std::move(file);
    deepspeed_file = path;
  }
  std::filesystem::path model_folder = std::filesystem::path(path).parent_path(),
                        deepspeed_folder = model_folder;
  std::vector<Override> changes;
  for (const std::string& assignment : overrides) {
    Override change = parse_override(assignment);
    if (names_a_file(change.path)) {
      apply_override(run_schema(), change, document, report);
      (change.path == "model" ? model_folder : deepspeed_folder).clear();
    } else {
      changes.push_back(std::move(change));
    }
  }
  std::vector<std::string> notes;
  if (!deepspeed_file.empty())
    notes.push_back(
        concat(path, ": read as a DeepSpeed configuration (docs/reference/deepspeed-keys.md)"));
  const std::string model_file = inline_model(document, model_folder, notes);
  if (const std::string file = inline_deepspeed(document, deepspeed_folder); !file.empty())
    deepspeed_file = file;
  for (const Override& change : changes) apply_override(run_schema(), change, document, report);
  take_from_weights(document);
  RunConfig config = read_checked(std::move(document), world_size, report, sequences);
  report.throw_if_errors(title_of(path, model_file, deepspeed_file));
  config.notes.insert(config.notes.begin(), notes.begin(), notes.end());
  return config;
}

RunConfig read_run_config(const Json& json, int world_size) {
  Json document = json;
  ConfigReport report;
  std::vector<std::string> notes;
  const std::string model_file = inline_model(document, {}, notes);
  RunConfig config = read_checked(std::move(document), world_size, report);
  report.throw_if_errors(title_of("configuration", model_file, ""));
  config.notes.insert(config.notes.begin(), notes.begin(), notes.end());
  return config;
}

}  // namespace trireme
