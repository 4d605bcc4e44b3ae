// The section "finetune" of a run's configuration: what is learned from which examples.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/text/chat_template_sources.h"
#include "parallel/parameter_store.h"
#include "transformer/layers/lora.h"
#include "transformer/layers/preference.h"

namespace trireme {

struct FinetuneConfig {
  bool enabled = false;  // the configuration has the section
  std::string method = "sft";
  std::vector<std::string> train_files, valid_files;  // JSON lines
  double val_size = 0;  // of the training files' examples: a part below 1, or a number of them
  bool packing = true;
  bool drop_long = false;  // examples longer than a sequence; else they lose their ends
  bool assistant_only_loss = true;
  bool parse_special = false;  // special tokens that messages spell are those tokens, else text
  // File, directory of a tokenizer, or name of one of its templates; empty: the tokenizer's own.
  std::string chat_template;
  // Sources that the run of a checkpoint took, wherever they are now. No key; empty: not known.
  ChatTemplateSources kept_chat_templates;
  double num_train_epochs = 0;  // 0: train_steps says
  LoraConfig lora;
  std::string initial_adapter;  // directory of PEFT's that `lora` begins as; empty: as nothing
  PackingConfig base;           // the weights beside adapters
  PreferenceConfig dpo;
};

// The method's records have two answers each.
inline bool learns_from_pairs(const FinetuneConfig& config) { return config.method == "dpo"; }

// Checkpoints of adapters hold nothing else, and preferences are measured against the weights of
// the beginning.
inline bool depends_on_base(const FinetuneConfig& config) {
  return config.lora.enabled() || learns_from_pairs(config);
}

}  // namespace trireme
