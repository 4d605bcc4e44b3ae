#include "training/config/optimizer_config.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "engine/config/parse.h"
#include "engine/core/error.h"
#include "optim/optimizers.h"
#include "training/config/table_text.h"

namespace trireme {
namespace {

constexpr const char* kOptimizerType = "optimizer.type";
constexpr const char* kLr = "optimizer.params.lr";
constexpr const char* kBetas = "optimizer.params.betas";
constexpr const char* kWeightDecay = "optimizer.params.weight_decay";
constexpr const char* kAdamWMode = "optimizer.params.adam_w_mode";
constexpr const char* kMasterWeights = "optimizer.master_weights";
constexpr const char* kBetaWords[] = {"adam_beta1", "adam_beta2"};

std::string param_path(const Hyperparameter& row) {
  return join_path("optimizer.params", row.key.path);
}

Json json_of(const Betas& betas) { return Json::array({betas.first, betas.second}); }

// Default rate of a fine-tuning run. The default for training from scratch would destroy a trained
// model.
double finetuning_learning_rate(const FinetuneConfig& config) {
  if (learns_from_pairs(config)) return config.lora.enabled() ? 1e-5 : 1e-6;
  return config.lora.enabled() ? 2e-4 : 2e-5;
}

// --- schema ---

// Hyper-parameter, and the names of the optimizers that have it.
struct SharedRow {
  Hyperparameter row;
  std::vector<std::string> optimizers;
};

std::string default_text(double value) {
  const bool whole = value == std::trunc(value) && std::abs(value) < 1e15;
  return whole ? Json(static_cast<int64_t>(value)).dump() : Json(value).dump();
}

// Collects the hyper-parameters of all optimizers. If an optimizer's default differs from the first
// one's, the help gives it.
class RowCollector final : public HyperparameterVisitor {
 public:
  std::vector<SharedRow> rows;

  void collect(const OptimizerRow& optimizer) {
    name_ = optimizer.name;
    optimizer.make()->visit(*this);
  }
  void number(double& value, const Hyperparameter& row) override {
    add(row, KeyKind::kFloat, default_text(value));
  }
  void flag(bool& value, const Hyperparameter& row) override {
    add(row, KeyKind::kBool, text(value));
  }
  void betas(Betas& value, const Hyperparameter& row) override {
    add(row, KeyKind::kAny, json_of(value).dump());
  }

 private:
  void add(const Hyperparameter& row, KeyKind kind, const std::string& preset) {
    const auto known =
        std::ranges::find_if(rows, [&](const auto& r) { return r.row.key.path == row.key.path; });
    if (known != rows.end()) {
      known->optimizers.push_back(name_);
      Key& key = known->row.key;
      if (key.default_json != preset) key.help += concat("; default for ", name_, ": ", preset);
      return;
    }
    rows.push_back({row, {name_}});
    rows.back().row.key.kind = kind;
    rows.back().row.key.default_json = preset;
  }
  std::string name_;
};

std::vector<SharedRow> rows_of_optimizers() {
  RowCollector collector;
  for (const OptimizerRow& optimizer : optimizers()) collector.collect(optimizer);
  return std::move(collector.rows);
}

const std::vector<SharedRow>& shared_rows() {
  static const std::vector<SharedRow> rows = rows_of_optimizers();
  return rows;
}

void add_type(Schema& s) {
  const std::vector<std::string> names = names_of(optimizers(), &OptimizerRow::name);
  std::string summary;
  for (const OptimizerRow& row : optimizers())
    if (*row.summary != 0) summary += concat(summary.empty() ? "" : "; ", row.summary);
  const auto unavailable = unavailable_optimizers();
  s.choice(kOptimizerType, names.front(), names, summary)
      .not_yet({unavailable.begin(), unavailable.end()});
}

void add_weight_decay(Schema& s) {
  s.number(kWeightDecay, default_text(OptimizerConfig().weight_decay),
           "weight decay; norms and biases are not decayed; default in fine-tuning: 0")
      .at_least(0)
      .auto_as_default()
      .alias({"weight_decay"});
}

// --- reading ---

void read_betas(const ConfigValues& values, Betas& out, ConfigReport& report) {
  const bool given = values.given(kBetas);
  const Json betas = given ? values.raw(kBetas) : json_of(out);
  // Below 1 in float32 too, in which the moving averages are computed.
  const auto fits = [](const Json& beta) {
    return beta.is_number() && beta >= 0.0 && static_cast<float>(beta.get<double>()) < 1.0f;
  };
  if (!betas.is_array() || betas.size() != 2 || !fits(betas[0]) || !fits(betas[1]))
    return report.error(values.spelled(kBetas),
                        "expected two numbers in [0, 1) in float32, got " + shown(betas));
  out = {betas[0].get<double>(), betas[1].get<double>()};
  for (const char* word : kBetaWords)
    if (values.given(word) && given)
      report.error(word, concat("sets a part of ", kBetas, ", which is set too; keep one"));
  if (values.given(kBetaWords[0])) out.first = values.number(kBetaWords[0]);
  if (values.given(kBetaWords[1])) out.second = values.number(kBetaWords[1]);
}

// Sets the values that the document contains.
class ValueReader final : public HyperparameterVisitor {
 public:
  ValueReader(const ConfigValues& values, ConfigReport& report)
      : values_(values), report_(report) {}

  void number(double& value, const Hyperparameter& row) override {
    if (const std::string path = param_path(row); values_.given(path)) value = values_.number(path);
  }
  void flag(bool& value, const Hyperparameter& row) override {
    if (const std::string path = param_path(row); values_.given(path)) value = values_.flag(path);
  }
  void betas(Betas& value, const Hyperparameter&) override { read_betas(values_, value, report_); }

 private:
  const ConfigValues& values_;
  ConfigReport& report_;
};

std::string refusal(const SharedRow& shared, const std::string& type) {
  if (!shared.row.needs.empty()) return concat("needs ", shared.row.needs);
  return concat("needs optimizer.type ", listed_names(shared.optimizers), ", got ", type,
                shared.row.advice);
}

// Refuses hyper-parameters of other optimizers.
void check_foreign(const ConfigValues& values, const std::string& optimizer, ConfigReport& report) {
  const std::string type = values.word(kOptimizerType);
  std::string refused_betas;
  for (const SharedRow& shared : shared_rows()) {
    if (std::ranges::count(shared.optimizers, optimizer) > 0) continue;
    const std::string path = param_path(shared.row);
    if (path == kBetas) {
      refused_betas = refusal(shared, type);
      Betas unused;
      if (values.given(kBetas)) read_betas(values, unused, report);
    }
    const bool neutral =
        shared.row.default_is_neutral &&
        values.raw(path) == parse_json(shared.row.key.default_json, shared.row.key.path);
    if (values.given(path) && !neutral) report.error(values.spelled(path), refusal(shared, type));
  }
  for (const char* word : kBetaWords)
    if (!refused_betas.empty() && values.given(word)) report.error(word, refused_betas);
}

// --- writing ---

class ValueWriter final : public HyperparameterVisitor {
 public:
  explicit ValueWriter(Json& params) : params_(params) {}

  void number(double& value, const Hyperparameter& row) override { params_[row.key.path] = value; }
  void flag(bool& value, const Hyperparameter& row) override { params_[row.key.path] = value; }
  void betas(Betas& value, const Hyperparameter& row) override {
    params_[row.key.path] = json_of(value);
  }

 private:
  Json& params_;
};

}  // namespace

void add_optimizer_keys(Schema& s) {
  add_type(s);
  s.number(kLr, default_text(OptimizerConfig().lr),
           "learning rate after warm-up; default in fine-tuning: 2e-5 (adapters: 2e-4), with dpo "
           "1e-6 (adapters: 1e-5)")
      .at_least(0)
      .auto_as_default()
      .alias({"lr", "learning_rate"});
  const auto add = [&](const SharedRow& shared) {
    Key key = shared.row.key;
    key.path = param_path(shared.row);
    s.row(std::move(key));
  };
  // The first optimizer's rows in the order of its resolved configuration, then the others'
  // additional rows.
  const auto of_first = [](const SharedRow& shared) {
    return shared.optimizers.front() == optimizers().front().name;
  };
  for (const SharedRow& shared : shared_rows())
    if (of_first(shared)) add(shared);
  add_weight_decay(s);
  for (const SharedRow& shared : shared_rows())
    if (!of_first(shared)) add(shared);
  s.boolean(kAdamWMode, false, "DeepSpeed's switch: with type Adam, true selects AdamW")
      .auto_as_default();
  s.choice("optimizer.state_dtype", "fp32", {"fp32", "bf16"}, "data type of the moments")
      .synonym("float32", "fp32")
      .synonym("bfloat16", "bf16")
      .not_yet({"fp16", "fp8"})
      .alias({"exp_avg_dtype"});
  s.boolean(kMasterWeights, true,
            "fp32 copy of bf16 or fp16 weights, which the optimizer updates; false (bf16 only): "
            "the weights are updated with stochastic rounding");
  s.number(kBetaWords[0], "", "first of optimizer.params.betas").at_least(0).below(1);
  s.number(kBetaWords[1], "", "second of optimizer.params.betas").at_least(0).below(1);
}

void read_optimizer(const ConfigValues& values, RunConfig& config, ConfigReport& report) {
  OptimizerConfig& optimizer = config.optimizer;
  const std::string type = values.word(kOptimizerType);
  const OptimizerRow* row = &optimizer_row(type);
  if (row->with_adam_w_mode != nullptr && values.flag(kAdamWMode))
    row = &optimizer_row(row->with_adam_w_mode);
  const std::shared_ptr<Optimizer> rule = row->make();
  const auto by_method = [&](const char* key, double of_finetuning) {
    const bool ours = config.finetune.enabled && !values.given(key);
    return ours ? of_finetuning : values.number(key);
  };
  optimizer.lr = by_method(kLr, finetuning_learning_rate(config.finetune));
  if (rule->normalizes() && optimizer.lr >= 1)
    report.note(values.spelled(kLr),
                concat(optimizer.lr, " is about the change of every weight in each step of ", type,
                       "; rates from 1e-5 to 1e-2 are usual"));
  optimizer.weight_decay = by_method(kWeightDecay, 0);
  if (optimizer.lr * optimizer.weight_decay > std::numeric_limits<float>::max())
    report.error(values.spelled(kWeightDecay),
                 concat(optimizer.weight_decay, " times optimizer.params.lr ", optimizer.lr,
                        " is infinity in float32"));
  if (values.word("optimizer.state_dtype") == "bf16") optimizer.state_dtype = DType::kBF16;
  optimizer.master_weights = values.flag(kMasterWeights);
  ValueReader reader(values, report);
  rule->visit(reader);
  check_foreign(values, row->name, report);
  for (const Optimizer::Finding& finding : rule->review(optimizer.lr, optimizer.weight_decay))
    if (finding.error)
      report.error(values.spelled(finding.key), finding.message);
    else
      report.note(values.spelled(finding.key), finding.message);
  optimizer.rule = rule;
  if (!optimizer.master_weights && config.dtype != DType::kBF16)
    report.error(values.spelled(kMasterWeights),
                 concat("false is not supported with ", config.dtype,
                        ", which has no stochastic rounding of updates; supported: bfloat16"));
}

Json optimizer_to_json(const OptimizerConfig& optimizer) {
  Json params = {{"lr", optimizer.lr}};
  ValueWriter writer(params);
  optimizer.rule->clone()->visit(writer);
  params["weight_decay"] = optimizer.weight_decay;
  return {{"type", optimizer.rule->name()},
          {"params", params},
          {"state_dtype", optimizer.state_dtype == DType::kBF16 ? "bf16" : "fp32"},
          {"master_weights", optimizer.master_weights}};
}

}  // namespace trireme
