#include "training/config/read_finetune.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "engine/core/error.h"
#include "transformer/model/model.h"

namespace trireme {
namespace {

// Reads "file" or ["file", ...].
std::vector<std::string> read_files(const ConfigValues& values, const char* key,
                                    ConfigReport& report) {
  std::vector<std::string> files;
  if (!values.given(key)) return files;
  const Json& value = values.raw(key);
  const Json list = value.is_array() ? value : Json::array({value});
  for (const Json& file : list) {
    if (!file.is_string() || file.get<std::string>().empty()) {
      report.error(values.spelled(key),
                   concat("expected a path or a list of paths, got ", shown(value)));
      return {};
    }
    files.push_back(file.get<std::string>());
  }
  if (files.empty())
    report.error(values.spelled(key), "expected a path or a list of paths, got an empty list");
  return files;
}

// Reads target_modules. A string with characters that no module name has is a regular expression,
// which is matched against whole names.
void read_targets(const ConfigValues& values, const ModelConfig& model, LoraConfig& lora,
                  ConfigReport& report) {
  const char* const kTargets = "finetune.lora.target_modules";
  lora.targets = {"all-linear"};
  if (!values.given(kTargets)) return;
  const Json& value = values.raw(kTargets);
  const auto check = [&](const LoraConfig& targets, const std::string& text) {
    if (report.ok() && !has_targets(model, targets))
      report.error(
          values.spelled(kTargets),
          concat("\"", text, "\" matches no linear layer of the model's attention or MLPs"));
  };
  if (value.is_string() &&
      value.get<std::string>().find_first_of("^$*+?()[]{}|\\") != std::string::npos) {
    lora.targets.clear();
    lora.pattern = value.get<std::string>();
    return check(lora, lora.pattern);
  }
  lora.targets = read_files(values, kTargets, report);
  for (const std::string& target : lora.targets) check({.rank = 1, .targets = {target}}, target);
}

void read_lora(const ConfigValues& values, RunConfig& config, ConfigReport& report) {
  LoraConfig& lora = config.finetune.lora;
  if (!values.given("finetune.lora.rank")) {
    for (const Key& key : run_schema().keys())
      if (key.path.starts_with("finetune.lora.") && values.given(key.path))
        return report.error("finetune.lora.rank",
                            "is required if another key of finetune.lora is set");
    return;
  }
  lora.rank = values.integer("finetune.lora.rank");
  lora.alpha = values.is_auto("finetune.lora.alpha") ? 2.0 * static_cast<double>(lora.rank)
                                                     : values.number("finetune.lora.alpha");
  lora.dropout = values.number("finetune.lora.dropout");
  lora.rank_stabilized = values.flag("finetune.lora.use_rslora");
  lora.dora = values.flag("finetune.lora.use_dora");
  config.finetune.initial_adapter = values.word("finetune.lora.adapter");
  read_targets(values, config.model, lora, report);
  if (config.checkpoint.load.empty())
    report.error("checkpoint.load", "is required: the base model of the adapters");
  if (config.float8.enabled)
    report.error(values.spelled("fp8.enabled"),
                 "is not supported together with adapters (finetune.lora.rank)");
}

// Reads the quantization of the frozen weights. Needs config.finetune.lora.
void read_base(const ConfigValues& values, RunConfig& config, ConfigReport& report) {
  PackingConfig& packing = config.finetune.base_quantization;
  packing.nf4 = values.word("finetune.quantization") == "nf4";
  packing.double_quantization = values.flag("finetune.double_quantization");
  if (packing.double_quantization && !packing.nf4)
    report.error(values.spelled("finetune.double_quantization"),
                 "needs finetune.quantization \"nf4\"");
  if (packing.nf4 && !config.finetune.lora.enabled())
    report.error(values.spelled("finetune.quantization"),
                 "nf4 needs frozen weights: set finetune.lora.rank to train adapters, or "
                 "finetune.quantization to \"none\" to train all weights");
}

void read_dpo(const ConfigValues& values, RunConfig& config, ConfigReport& report) {
  PreferenceConfig& dpo = config.finetune.dpo;
  dpo.beta = values.number("finetune.dpo.beta");
  dpo.label_smoothing = values.number("finetune.dpo.label_smoothing");
  const bool ipo = values.word("finetune.dpo.loss_type") == "ipo";
  dpo.type = ipo ? PreferenceConfig::Type::kIpo : PreferenceConfig::Type::kSigmoid;
  if (!learns_from_pairs(config.finetune)) {
    for (const Key& key : run_schema().keys())
      if (key.path.starts_with("finetune.dpo.") && values.given(key.path))
        report.error(values.spelled(key.path), "needs finetune.method dpo");
    return;
  }
  if (ipo && dpo.label_smoothing > 0)
    report.error(values.spelled("finetune.dpo.label_smoothing"),
                 "needs finetune.dpo.loss_type sigmoid");
  if (config.parallel.cp > 1)
    report.error(values.spelled("parallel.context_parallel_size"),
                 "must be 1 with finetune.method dpo: its loss needs all tokens of a response");
  if (config.checkpoint.load.empty())
    report.error("checkpoint.load",
                 "is required: the model that training starts from, and the reference model");
}

// Makes checkpoint.load absolute, so that the run can be resumed from another current directory.
void keep_place_of_base(RunConfig& config) {
  std::string& load = config.checkpoint.load;
  std::error_code ignored;
  if (!load.empty() && std::filesystem::exists(load, ignored))
    load = std::filesystem::absolute(load).lexically_normal().string();
}

void check_data(const ConfigValues& values, const RunConfig& config, ConfigReport& report) {
  for (const char* key :
       {"data.data_path", "data.train_data_path", "data.valid_data_path", "data.test_data_path"})
    if (values.given(key))
      report.error(values.spelled(key),
                   "is for pretraining on token files; fine-tuning reads finetune.train_file");
  for (const char* key :
       {"data.reset_position_ids", "data.reset_attention_mask", "data.eod_mask_loss"})
    if (values.given(key) && values.flag(key))
      report.error(values.spelled(key),
                   "applies to token files only: examples never attend to each other");
  if (config.data.tokenizer.empty())
    report.error("data.tokenizer", "is required to tokenize the examples");
}

}  // namespace

void read_finetune(const ConfigValues& values, RunConfig& config, ConfigReport& report) {
  FinetuneConfig& finetune = config.finetune;
  finetune.enabled = values.given("finetune.train_file");
  if (!finetune.enabled) {
    for (const Key& key : run_schema().keys())
      if (key.path.starts_with("finetune.") && values.given(key.path))
        return report.error("finetune.train_file", "is required if another key of finetune is set");
    return;
  }
  finetune.method = values.word("finetune.method");
  finetune.train_files = read_files(values, "finetune.train_file", report);
  finetune.valid_files = read_files(values, "finetune.valid_file", report);
  finetune.val_size = values.number("finetune.val_size");
  finetune.packing = values.flag("finetune.packing");
  finetune.drop_long = values.word("finetune.long_examples") == "drop";
  finetune.assistant_only_loss = values.flag("finetune.assistant_only_loss");
  finetune.parse_special = values.flag("finetune.parse_special");
  finetune.chat_template = values.word("finetune.chat_template");
  if (values.given("finetune.num_train_epochs"))
    finetune.num_train_epochs = values.number("finetune.num_train_epochs");
  read_lora(values, config, report);
  read_base(values, config, report);
  read_dpo(values, config, report);
  if (finetune.val_size >= 1 && finetune.val_size != std::floor(finetune.val_size))
    report.error(values.spelled("finetune.val_size"),
                 "expected a fraction below 1 or a whole number of examples");
  if (finetune.val_size > 0 && !finetune.valid_files.empty())
    report.error(values.spelled("finetune.val_size"),
                 "holds out training examples, but finetune.valid_file is set too; keep one");
  check_data(values, config, report);
  keep_place_of_base(config);
}

int64_t finetune_steps(const RunConfig& config, int64_t sequences) {
  const double all = config.finetune.num_train_epochs * static_cast<double>(sequences);
  return std::max<int64_t>(1, ceil_div(std::llround(all), config.train_batch_size));
}

void read_train_steps(const ConfigValues& values, RunConfig& config, ConfigReport& report,
                      const CountSequences& sequences) {
  config.train_steps = values.is_auto("train_steps") ? 0 : values.integer("train_steps");
  if (!values.is_auto("train_steps") || !values.valid("train_steps")) return;
  if (!config.finetune.enabled)
    return report.error("train_steps", "is required: the number of optimizer steps");
  if (!values.given("finetune.num_train_epochs"))
    return report.error("train_steps", "is required, or finetune.num_train_epochs");
  // Reading the data would report earlier problems a second time.
  config.train_steps = 1;
  if (!report.ok()) return;
  if (!sequences)
    return report.error(
        "train_steps",
        "auto needs the training examples, which this command does not read: give a number");
  config.train_steps = finetune_steps(config, sequences(config));
}

Json finetune_json(const FinetuneConfig& finetune) {
  const auto files = [](const std::vector<std::string>& list) {
    return list.empty() ? Json() : Json(list);
  };
  Json json = {
      {"method", finetune.method},
      {"train_file", files(finetune.train_files)},
      {"valid_file", files(finetune.valid_files)},
      {"val_size", finetune.val_size},
      {"packing", finetune.packing},
      {"long_examples", finetune.drop_long ? "drop" : "truncate"},
      {"assistant_only_loss", finetune.assistant_only_loss},
      {"parse_special", finetune.parse_special},
      {"chat_template", finetune.chat_template.empty() ? Json() : Json(finetune.chat_template)},
      {"num_train_epochs",
       finetune.num_train_epochs > 0 ? Json(finetune.num_train_epochs) : Json()}};
  const PreferenceConfig& dpo = finetune.dpo;
  const bool ipo = dpo.type == PreferenceConfig::Type::kIpo;
  if (learns_from_pairs(finetune))
    json["dpo"] = {{"beta", dpo.beta},
                   {"label_smoothing", dpo.label_smoothing},
                   {"loss_type", ipo ? "ipo" : "sigmoid"}};
  if (finetune.base_quantization.nf4) {
    json["quantization"] = "nf4";
    json["double_quantization"] = finetune.base_quantization.double_quantization;
  }
  const LoraConfig& lora = finetune.lora;
  if (lora.enabled())
    json["lora"] = {
        {"rank", lora.rank},
        {"alpha", lora.alpha},
        {"dropout", lora.dropout},
        {"target_modules", lora.pattern.empty() ? Json(lora.targets) : Json(lora.pattern)},
        {"use_rslora", lora.rank_stabilized},
        {"use_dora", lora.dora},
        {"adapter", finetune.initial_adapter.empty() ? Json() : Json(finetune.initial_adapter)}};
  return json;
}

}  // namespace trireme
