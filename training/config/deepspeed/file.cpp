#include "training/config/deepspeed/file.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "engine/config/override.h"
#include "engine/core/error.h"
#include "optim/optimizers.h"
#include "training/config/deepspeed/keys.h"
#include "training/config/run_config.h"

namespace trireme {
namespace {

constexpr const char* kAt = "deepspeed";

// One merge of a DeepSpeed file into a run's document.
class DeepSpeedMerge {
 public:
  DeepSpeedMerge(Json& document, const Json& file, ConfigReport& report)
      : document_(document),
        report_(report),
        ours_(read_config(run_schema(), document, "", of_run_)),
        theirs_(read_config(deepspeed_schema(), file, kAt, report)) {}

  void run() {
    settle_optimizer();
    settle_scheduler();
    settle_precision();
    settle_batch();
    settle_rate();
    settle_weights();
    settle_experts();
    for (const Key& key : deepspeed_schema().keys()) {
      if (key.status != KeyStatus::kImplemented || !says(key.path)) continue;
      if (passed_over_.contains(key.path)) continue;
      put(key.path, run_schema().find_any(key.path)->path, theirs_.raw(key.path));
    }
  }

 private:
  // True if the file sets this key.
  bool says(const std::string& path) const {
    return theirs_.given(path) && theirs_.valid(path) && !theirs_.is_auto(path);
  }
  bool run_says(const std::string& path) const { return ours_.given(path) && !ours_.is_auto(path); }

  void put(const std::string& from, const std::string& to, const Json& value) {
    if (run_says(to)) {
      if (!(ours_.raw(to) == value))
        report_.note(ours_.spelled(to), concat(shown(ours_.raw(to)), " of the run overrides ",
                                               shown(value), " of ", kAt, ".", from));
      return;
    }
    apply_override(run_schema(), {to, value.dump()}, document_, report_);
  }

  void pass_over_section(const std::string& section) {
    for (const Key& key : deepspeed_schema().keys())
      if (key.path.starts_with(section + ".")) passed_over_.insert(key.path);
  }

  // If the run sets another type than the file's section, the whole section is ignored.
  bool other_type(const std::string& section, const std::string& type) {
    const std::string path = section + ".type";
    if (!run_says(path) || ours_.word(path) == type) return false;
    report_.note(ours_.spelled(path), concat(ours_.word(path), " of the run overrides ", kAt, ".",
                                             section, ", which is for ", type, " and is ignored"));
    pass_over_section(section);
    return true;
  }

  // Ignores a key of the file if the run sets the same under another name.
  void give_way(const std::string& ours, const std::string& theirs) {
    if (!run_says(ours) || !says(theirs) || passed_over_.contains(theirs)) return;
    report_.note(ours_.spelled(ours), concat(shown(ours_.raw(ours)), " of the run overrides ",
                                             shown(theirs_.raw(theirs)), " of ", kAt, ".", theirs));
    passed_over_.insert(theirs);
  }

  // If the run sets only one of the two betas, the other one is taken from the file.
  void settle_betas() {
    const std::string pair = "optimizer.params.betas";
    const std::array<std::string, 2> betas = {"adam_beta1", "adam_beta2"};
    if (!says(pair) || passed_over_.contains(pair) || run_says(pair)) return;
    if (!run_says(betas[0]) && !run_says(betas[1])) return;
    for (size_t i = 0; i < betas.size(); ++i) {
      const Json& value = theirs_.raw(pair)[i];
      if (run_says(betas[i]))
        report_.note(ours_.spelled(betas[i]),
                     concat(shown(ours_.raw(betas[i])), " of the run overrides ", shown(value),
                            " of ", kAt, ".", pair));
      else
        put(pair, betas[i], value);
    }
    passed_over_.insert(pair);
  }

  // DeepSpeed's Adam is AdamW unless adam_w_mode is false.
  void settle_optimizer() {
    const std::string path = "optimizer.type", mode = "optimizer.params.adam_w_mode";
    passed_over_.insert(mode);
    if (says(path)) {
      std::string type = theirs_.word(path);
      const char* const decoupled = optimizer_row(type).with_adam_w_mode;
      if (decoupled != nullptr && (!says(mode) || theirs_.flag(mode))) type = decoupled;
      passed_over_.insert(path);
      if (!other_type("optimizer", type)) put(path, path, type);
    }
    settle_betas();
  }

  void settle_scheduler() {
    const std::string path = "scheduler.type", steps = "scheduler.params.warmup_num_steps";
    if (says(path) && other_type("scheduler", theirs_.word(path))) return;
    give_way("scheduler.params.warmup_ratio", steps);
    // A missing value means 1000 in DeepSpeed; "auto" means the run's value or its default.
    const std::string ours = run_schema().find_any(steps)->path;
    if (theirs_.is_auto(steps) && !run_says(ours)) put(steps, ours, "auto");
  }

  void settle_precision() {
    const auto exclude = [&](const char* ours, const char* theirs) {
      if (ours_.flag(ours) && theirs_.flag(theirs)) give_way(ours, theirs);
    };
    exclude("bf16.enabled", "fp16.enabled");
    for (const char* bf16 : {"bf16.enabled", "bfloat16.enabled"}) exclude("fp16.enabled", bf16);
  }

  // Two of the three sizes determine the third.
  void settle_batch() {
    const std::vector<std::string> sizes = {"train_batch_size", "train_micro_batch_size_per_gpu",
                                            "gradient_accumulation_steps"};
    if (std::ranges::count_if(sizes, [&](const auto& path) { return run_says(path); }) < 2) return;
    for (const std::string& path : sizes) {
      if (run_says(path) || !says(path)) continue;
      report_.note(
          concat(kAt, ".", path),
          concat(shown(theirs_.raw(path)), " is ignored: the run's two batch sizes determine it"));
      passed_over_.insert(path);
    }
  }

  // WarmupLR and WarmupDecayLR set the peak rate, which overrides the optimizer's lr.
  void settle_rate() {
    const std::string peak = "scheduler.params.warmup_max_lr", lr = "optimizer.params.lr";
    if (says("scheduler.type") && !passed_over_.contains("scheduler.type") &&
        theirs_.word("scheduler.type") == "WarmupDecayLR" && !theirs_.given(peak)) {
      report_.note(concat(kAt, ".scheduler"),
                   "WarmupDecayLR without warmup_max_lr has the peak rate 0.001, as in DeepSpeed; "
                   "the optimizer's lr is ignored");
      passed_over_.insert(lr);
      return put(peak, lr, Json(0.001));
    }
    if (!says(peak) || passed_over_.contains(peak)) return;
    passed_over_.insert(peak);
    if (says(lr) && !passed_over_.contains(lr) && !(theirs_.raw(lr) == theirs_.raw(peak)))
      report_.note(concat(kAt, ".", lr),
                   concat(shown(theirs_.raw(lr)), " is ignored: the rate after warm-up is ",
                          shown(theirs_.raw(peak)), " of ", kAt, ".", peak));
    passed_over_.insert(lr);
    put(peak, lr, theirs_.raw(peak));
  }

  // Both name the code of gathered weights.
  void settle_weights() {
    give_way("compression.parameters.method", "zero_optimization.zero_quantized_weights");
  }

  void settle_experts() {
    const std::string on = "expert_parallel.enabled", tp = "tensor_parallel.autotp_size";
    if (!theirs_.flag(on)) pass_over_section("expert_parallel");
    if (says(tp) && theirs_.integer(tp) == 0) passed_over_.insert(tp);
  }

  Json& document_;
  ConfigReport& report_;
  ConfigReport of_run_;  // reported when the merged document is read
  const ConfigValues ours_, theirs_;
  std::set<std::string> passed_over_;
};

}  // namespace

bool is_deepspeed_file(const Json& document) {
  if (!document.is_object() || document.empty()) return false;
  const Schema& schema = deepspeed_schema();
  for (const auto& [name, value] : document.items())
    if (schema.find_any(name) == nullptr && !schema.is_section(name)) return false;
  return true;
}

void merge_deepspeed(Json& document, ConfigReport& report) {
  if (!document.is_object()) return;
  Json file;
  const Key* const row = run_schema().find(kAt);
  std::vector<std::string> names = row->aliases;
  names.insert(names.begin(), row->path);
  for (const std::string& name : names) {
    const auto found = document.find(name);
    if (found == document.end()) continue;
    if (!found->is_null() && !file.is_null())
      report.error(name, concat("is an alias of ", kAt, ", which is set too; keep one"));
    if (!found->is_null()) file = std::move(*found);
    document.erase(name);
  }
  if (file.is_null()) return;
  if (!file.is_object())
    return report.error(kAt, concat("expected the path of a DeepSpeed configuration, or the object "
                                    "itself, got ",
                                    shown(file)));
  DeepSpeedMerge(document, file, report).run();
}

}  // namespace trireme
