#include "transformer/formats/peft/peft_keys.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "engine/config/json.h"
#include "engine/core/error.h"

namespace trireme {
namespace {

using enum PeftKeyUse;

constexpr const char* kMergeThere =
    "merge it with PEFT (merge_and_unload(), save_pretrained()) and use the merged model";

std::vector<PeftKey> all_keys() {
  return {
      {"peft_type", kRead, {}, "`LORA`; other kinds of adapters are refused"},
      {"r", kRead, {}, "rank, 1 to 65536"},
      {"lora_alpha", kRead, {}, "`s = lora_alpha / r`"},
      {"use_rslora", kRead, {}, "`s = lora_alpha / sqrt(r)`"},
      {"use_dora", kRead, {}, "magnitudes"},
      {"target_modules",
       kRead,
       {},
       "names or their ends after a dot, a regular expression of whole names, or `all-linear`; "
       "with the embedding, the head or a shared expert's gate among them the adapter is merged, "
       "as below"},
      {"exclude_modules", kRead, {}, "layers without adapters, in the same forms"},
      {"layers_to_transform",
       kRead,
       {},
       "layer indices; only for targets that are ends of names, as in PEFT"},
      {"layers_pattern", kRead, {}, "the name of the list of layers, with the key above"},
      {"rank_pattern",
       kRead,
       {},
       "ranks by regular expressions of the ends of names; the first match counts"},
      {"alpha_pattern", kRead, {}, "the same for `lora_alpha`"},
      {"modules_to_save",
       kRead,
       {},
       "ends of names of modules whose tensors in the file replace the base's"},
      {"bias",
       kRead,
       {},
       "`none`, or `all` or `lora_only`: biases of the base that the file replaces too"},

      {"ensure_weight_tying",
       kRead,
       {},
       "for a model whose head is its embedding: both are changed equally, as below"},

      {"base_model_name_or_path", kNoEffect, {"*"}, "the given model is used"},
      {"revision", kNoEffect, {}, "the given model is used"},
      {"auto_mapping", kNoEffect, {"*"}, "class of the model in Python"},
      {"peft_version", kNoEffect, {"*"}, "version that wrote the file"},
      {"inference_mode", kNoEffect, {"*"}, "only for training"},
      {"lora_dropout", kNoEffect, {"0", "0.0"}, "only for training"},
      {"fan_in_fan_out", kNoEffect, {"*"}, "follows from the kind of the layer, as in PEFT"},
      {"runtime_config", kNoEffect, {}, "where PEFT runs"},
      {"megatron_config", kNoEffect, {}, "for Megatron's layers, which these models do not have"},
      {"megatron_core", kNoEffect, {"\"megatron.core\""}, "for Megatron's layers"},
      {"qalora_group_size", kNoEffect, {"16"}, "part of `use_qalora`"},
      {"eva_config", kNoEffect, {}, "initialization for training"},
      {"corda_config", kNoEffect, {}, "part of `init_lora_weights` `corda`"},
      {"lora_ga_config", kNoEffect, {}, "part of `init_lora_weights` `lora_ga`"},
      {"loftq_config", kNoEffect, {}, "part of `init_lora_weights` `loftq`"},
      {"velora_config", kNoEffect, {}, "another backward pass; forward is LoRA's"},

      {"task_type", kNeutralOnly, {"\"CAUSAL_LM\""}, "computes another output than next tokens"},
      {"init_lora_weights",
       kNeutralOnly,
       {"true", "\"gaussian\"", "\"eva\"", "\"orthogonal\"", "\"mica\""},
       "changes the base's weights when it loads the adapter (pissa, olora, corda, lora_ga: less "
       "the initial s B A; loftq: quantized), so that these tensors are no difference to the base; "
       "write the adapter as plain LoRA: save_pretrained(DIR, "
       "path_initial_model_for_weight_conversion=INITIAL_ADAPTER), or"},
      {"layer_replication", kNeutralOnly, {}, "computes layers of the base several times"},
      {"target_parameters", kNeutralOnly, {}, "adapts parameters (routed experts)"},
      {"trainable_token_indices", kNeutralOnly, {}, "replaces rows of the embedding"},
      {"lora_bias", kNeutralOnly, {}, "adds a bias of the adapter"},
      {"use_qalora", kNeutralOnly, {}, "pools the input of A"},
      {"alora_invocation_tokens", kNeutralOnly, {}, "adapts only tokens after these"},
      {"arrow_config", kNeutralOnly, {}, "routes tokens among several adapters"},
      {"use_bdlora", kNeutralOnly, {}, "has block-diagonal factors"},
      {"kasa_config", kNeutralOnly, {}, "truncates the base's weights and has a diagonal in B A"},
      {"monteclora_config", kNeutralOnly, {}, "samples around the factors"}};
}

// PEFT merges an adapter of one module of a tied table into both modules.
constexpr const char* kOwnHeadFirst =
    " (where the head is the embedding, first give the base a head of its own: "
    "model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.detach().clone()); "
    "model.config.tie_word_embeddings = False)";

// Returns whether the names in target_modules include the embedding or the head.
bool targets_table(const Json& config) {
  if (!config.contains("target_modules")) return false;
  const std::string targets = config["target_modules"].dump();
  return std::ranges::any_of(std::vector<const char*>{"embed_tokens", "lm_head", "wte"},
                             [&](const char* name) { return targets.find(name) != targets.npos; });
}

bool is_neutral(const Json& value, const std::vector<const char*>& others) {
  if (value.is_null() || value == false || value == "") return true;
  if (value.is_structured() && value.empty()) return true;
  if (!others.empty() && others.front() == std::string_view("*")) return true;
  return std::ranges::find(others, value.dump()) != others.end();
}

std::string rows(PeftKeyUse use) {
  std::string out;
  for (const PeftKey& key : peft_keys()) {
    if (key.use != use) continue;
    out += concat("| `", key.name, "` | ");
    std::string accepted;
    for (const char* value : key.neutral)
      accepted += concat(accepted.empty() ? "`" : ", `", value, "`");
    if (use == kNeutralOnly) out += concat(accepted, " | ");
    out += concat(key.meaning, " |\n");
  }
  return out;
}

}  // namespace

const std::vector<PeftKey>& peft_keys() {
  static const std::vector<PeftKey> keys = all_keys();
  return keys;
}

std::string check_peft_keys(const std::string& file, const Json& config) {
  std::string without_effect;
  for (const auto& [name, value] : config.items()) {
    const auto known = std::ranges::find(peft_keys(), name, &PeftKey::name);
    const bool is_known = known != peft_keys().end();
    if (is_known && known->use == kNoEffect && !is_neutral(value, known->neutral))
      without_effect += concat(without_effect.empty() ? "" : ", ", name);
    if ((is_known && known->use != kNeutralOnly) ||
        is_neutral(value, is_known ? known->neutral : std::vector<const char*>()))
      continue;
    const std::string given = concat(file, ": ", name, " ", value.dump().substr(0, 200));
    if (is_known)
      fail_input(given, " is not supported: with it PEFT ", known->meaning,
                 known->name == std::string("init_lora_weights") ? " " : "; ", kMergeThere,
                 targets_table(config) ? kOwnHeadFirst : "");
    fail_input(given, " is an unknown key, which may change what the adapter computes; ",
               kMergeThere, targets_table(config) ? kOwnHeadFirst : "",
               ", or remove the key if it does not affect the computation");
  }
  return without_effect.empty()
             ? ""
             : concat(file, ": keys without effect on what the adapter computes: ", without_effect);
}

std::string adapter_reference() {
  return concat(
      "# Keys of PEFT's adapters\n\nEvery field of PEFT's `LoraConfig` (0.21) in "
      "`adapter_config.json`, and how it is handled. Made from\nthe reader's own table by `trireme "
      "config adapter-keys`. Use of adapters: [fine-tuning](../guide/finetune.md#adapters).\n\n## "
      "Read\n\n| key | |\n|---|---|\n",
      rows(kRead),
      "\nAn adapter that changes more than linear layers (`modules_to_save`, `bias`, or adapters "
      "of the embedding,\nthe head or a shared expert's gate) is merged into the weights: by "
      "`checkpoint merge-lora`, and by\n`--adapter` as they are read. It is refused beside others "
      "(`--lora-modules`, `/v1/load_lora_adapter`),\nwhere every token has its own adapter and all "
      "have one base, and as the start of training. In a\nmodel whose head is its embedding PEFT "
      "changes one of the two, or each in its own way: the merged model has a\nhead of its own "
      "(`tie_word_embeddings` false). With `ensure_weight_tying` PEFT changes both alike and "
      "the\nmodel stays tied. PEFT's own `merge_and_unload()` adds adapters of either to "
      "both.\n\n## Without effect on what a trained adapter computes\n\n| key | |\n|---|---|\n",
      rows(kNoEffect),
      "\n## Refused unless neutral\n\nNull, false, empty values and the values listed are "
      "accepted; others make a different model of the same\ntensors and are refused, and so are "
      "keys that are in no table. Way out: ",
      kMergeThere, ".\n\n| key | also accepted | otherwise PEFT |\n|---|---|---|\n",
      rows(kNeutralOnly));
}

}  // namespace trireme
