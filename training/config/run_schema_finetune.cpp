#include "training/config/run_schema.h"

namespace trireme {

void add_finetune_keys(Schema& s) {
  s.section(
      "finetune",
      "What `trireme finetune` learns from ([how](../guide/finetune.md)); the words are TRL's and "
      "LLaMA-Factory's. `checkpoint.load` says which weights it starts from.");
  s.choice("finetune.method", "sft", {"sft", "dpo"},
           "sft: likelihood of the responses; dpo: preference of the chosen over the rejected "
           "response (Rafailov et al. 2023)")
      .not_yet({"kto", "orpo", "ppo", "grpo"})
      .alias({"finetune.stage"});
  s.any("finetune.train_file", "null", "path or list",
        "JSON lines, or a .json with one array of records: conversations, prompts with "
        "completions, instructions, or text")
      .or_null()
      .alias({"train_file", "finetune.dataset"});
  s.any("finetune.valid_file", "null", "path or list", "the same, for validation")
      .or_null()
      .beside_trajectory()
      .alias({"validation_file", "finetune.validation_file", "finetune.eval_dataset"});
  s.number("finetune.val_size", "0",
           "without valid_file: examples held out for validation, a part below 1 or a number")
      .at_least(0)
      .at_most(1e9)
      .alias({"val_size"});
  s.boolean("finetune.packing", true,
            "several examples in a sequence, none of which sees another; false: one each")
      .alias({"packing"});
  s.choice("finetune.long_examples", "truncate", {"truncate", "drop"},
           "what happens to examples longer than sequence_length");
  s.boolean("finetune.assistant_only_loss", true,
            "loss on responses only (the assistant's messages, or the completions of prompts); "
            "false: on all of the text")
      .alias({"assistant_only_loss", "completion_only_loss", "finetune.completion_only_loss"});
  s.string("finetune.chat_template", "null",
           "file of a Jinja template, a tokenizer's directory that has one, or the name of one of "
           "data.tokenizer's templates (tool_use); null: those of data.tokenizer")
      .or_null()
      .alias({"chat_template", "chat_template_path"});
  s.boolean(
      "finetune.parse_special", false,
      "special tokens that a message, text or string prompt spells (<|im_end|>) are those "
      "tokens, as in HuggingFace's tokenizers; false: only what the template writes is markup");
  s.number("finetune.num_train_epochs", "null",
           "times that every example is seen: train_steps \"auto\" follows; examples beyond are "
           "not, though the last batch is then smaller; null: train_steps alone says")
      .or_null()
      .above(0)
      .at_most(1e6)
      .alias({"num_train_epochs", "num_epochs"});
  s.number("finetune.dpo.beta", "0.1", "how far the model may go from where it started: less, far")
      .above(0)
      .at_most(1e6)
      .alias({"finetune.beta", "finetune.pref_beta", "dpo_beta"});
  s.number("finetune.dpo.label_smoothing", "0",
           "sigmoid: fraction of pairs whose responses are assumed to be swapped")
      .at_least(0)
      .below(0.5)
      .alias({"finetune.label_smoothing", "finetune.dpo_label_smoothing"});
  s.choice("finetune.dpo.loss_type", "sigmoid", {"sigmoid", "ipo"},
           "of the difference of log-probabilities")
      .alias({"finetune.loss_type", "finetune.pref_loss"})
      .not_yet(
          {"hinge", "kto_pair", "orpo", "simpo", "robust", "bco_pair", "sppo_hard", "nca_pair"});
  s.integer("finetune.lora.rank", "null",
            "train adapters of this rank instead of the weights; null: train all weights")
      .or_null()
      .at_least(1)
      .at_most(65536)
      .alias({"lora_rank", "lora_r", "finetune.lora.r"});
  s.number("finetune.lora.alpha", "\"auto\"",
           "their output is multiplied by alpha / rank; auto: 2 x rank")
      .or_auto()
      .above(0)
      .at_most(1e6)
      .alias({"lora_alpha", "finetune.lora.lora_alpha"});
  s.number("finetune.lora.dropout", "0", "of the adapters' input")
      .at_least(0)
      .below(1)
      .alias({"lora_dropout", "finetune.lora.lora_dropout"});
  s.any("finetune.lora.target_modules", "\"all-linear\"",
        "word, list of them, or regular expression",
        "which layers have adapters: the ends of their names (q_proj, k_proj, v_proj, o_proj, "
        "gate_proj, up_proj, down_proj, self_attn.q_proj); all-linear: those of attention and of "
        "MLPs; attention: those of attention; an expression is one of whole names (.*[qv]_proj)")
      .alias({"lora_target_modules", "lora_target"});
  s.boolean("finetune.lora.use_rslora", false,
            "alpha / sqrt(rank) instead: rank-stabilised (Kalajdzievski 2023)")
      .alias({"use_rslora"});
  s.boolean("finetune.lora.use_dora", false,
            "the rows of W + s B A have lengths that are trained too (DoRA, Liu et al. 2024)")
      .alias({"use_dora"});
  s.string("finetune.lora.adapter", "null",
           "adapters to begin with, PEFT's directory: of the same rank, targets and kind; null: "
           "such as change nothing")
      .or_null()
      .alias({"adapter_name_or_path", "finetune.lora.adapter_name_or_path"});
  s.choice(
       "finetune.quantization", "none", {"none", "nf4"},
       "how the weights beside adapters are kept: nf4, those of linear layers but the head in 4 "
       "bits (Dettmers et al. 2023, QLoRA)")
      .not_yet({"fp4", "int8"})
      .alias({"bnb_4bit_quant_type", "quantization_type"});
  s.boolean("finetune.double_quantization", false,
            "nf4: the scales of blocks in 8 bits, so that a weight takes 4.13 bits and not 4.5")
      .alias({"double_quantization", "bnb_4bit_use_double_quant"});
}

}  // namespace trireme
