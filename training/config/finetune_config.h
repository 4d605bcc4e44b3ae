// Section "finetune" of the run configuration: training examples and method.
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
  bool enabled = false;                               // finetune.train_file is set
  std::string method = "sft";                         // "sft" or "dpo"
  std::vector<std::string> train_files, valid_files;  // JSON lines
  // Training examples held out for validation: a fraction if below 1, else their number.
  double val_size = 0;
  bool packing = true;     // several examples per sequence
  bool drop_long = false;  // examples longer than a sequence: drop them; false: truncate the end
  bool assistant_only_loss = true;  // loss on the assistant's messages only; false: on all tokens
  bool parse_special = false;  // parse special tokens spelled in messages; false: they are text
  // Chat template: a file, a tokenizer directory, or the name of one of the model's or tokenizer's
  // templates; empty: their own.
  std::string chat_template;
  // Sources of the chat templates as saved in the run's checkpoint; empty: none saved. Not a
  // configuration key.
  ChatTemplateSources recorded_chat_templates;
  double num_train_epochs = 0;  // 0: train_steps is set instead
  LoraConfig lora;
  std::string initial_adapter;      // PEFT directory; empty: adapters that change nothing
  PackingConfig base_quantization;  // quantization of the frozen weights
  PreferenceConfig dpo;
};

// True if the method trains on preference pairs: each record has a chosen and a rejected response.
inline bool learns_from_pairs(const FinetuneConfig& config) { return config.method == "dpo"; }

// True if resuming a checkpoint needs the base model: a checkpoint of adapters has no other
// weights, and the reference model of preferences is the base model.
inline bool depends_on_base(const FinetuneConfig& config) {
  return config.lora.enabled() || learns_from_pairs(config);
}

}  // namespace trireme
