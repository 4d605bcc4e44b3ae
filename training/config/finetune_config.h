// Section "finetune" of a run's configuration: training examples and method.
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
  double val_size = 0;  // held-out share of the training examples if below 1, else their number
  bool packing = true;
  bool drop_long = false;  // drop examples longer than a sequence; else truncate them at the end
  bool assistant_only_loss = true;
  bool parse_special = false;  // special tokens spelled in messages are parsed; else they are text
  // File, tokenizer directory, or name of one of its templates; empty: the tokenizer's own.
  std::string chat_template;
  // Template sources used by the run of a checkpoint, wherever they are now. Not a key; empty:
  // unknown.
  ChatTemplateSources kept_chat_templates;
  double num_train_epochs = 0;  // 0: train_steps applies
  LoraConfig lora;
  std::string initial_adapter;  // initial adapters in PEFT's format; empty: no effect
  PackingConfig base;           // quantization of the weights under the adapters
  PreferenceConfig dpo;
};

// True if the method trains on preferences: each record has a chosen and a rejected response.
inline bool learns_from_pairs(const FinetuneConfig& config) { return config.method == "dpo"; }

// True if checkpoints need the base weights: those of adapters contain only the adapters, and
// preferences are measured against the initial weights.
inline bool depends_on_base(const FinetuneConfig& config) {
  return config.lora.enabled() || learns_from_pairs(config);
}

}  // namespace trireme
