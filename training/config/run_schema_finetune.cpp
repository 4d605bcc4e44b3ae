#include "training/config/run_schema.h"

namespace trireme {

void add_finetune_keys(Schema& s) {
  s.section("finetune",
            "Examples and method of `trireme finetune` ([guide](../guide/finetune.md)). Keys have "
            "the names of TRL and LLaMA-Factory. `checkpoint.load` is the model to start from.");
  s.choice("finetune.method", "sft", {"sft", "dpo"},
           "objective; sft: likelihood of the responses; dpo: preference for the chosen over the "
           "rejected response (Rafailov et al. 2023)")
      .not_yet({"kto", "orpo", "ppo", "grpo"})
      .alias({"finetune.stage"});
  s.any("finetune.train_file", "null", "path or list",
        "training examples: JSON lines, or a .json with one array of records (conversations, "
        "prompts with completions, instructions, or text)")
      .or_null()
      .alias({"train_file", "finetune.dataset"});
  s.any("finetune.valid_file", "null", "path or list", "validation examples, in the same format")
      .or_null()
      .off_trajectory()
      .alias({"validation_file", "finetune.validation_file", "finetune.eval_dataset"});
  s.number("finetune.val_size", "0",
           "training examples held out for validation, if valid_file is not set: a fraction below "
           "1, or a number of examples")
      .at_least(0)
      .at_most(1e9)
      .alias({"val_size"});
  s.boolean("finetune.packing", true,
            "pack several examples into a sequence, without attention across examples; false: one "
            "example per sequence")
      .alias({"packing"});
  s.choice("finetune.long_examples", "truncate", {"truncate", "drop"},
           "examples longer than sequence_length: truncate them at the end, or drop them");
  s.boolean("finetune.assistant_only_loss", true,
            "loss on responses only (assistant messages, or completions); false: on the whole text")
      .alias({"assistant_only_loss", "completion_only_loss", "finetune.completion_only_loss"});
  s.string("finetune.chat_template", "null",
           "chat template: a Jinja file, a tokenizer directory that has one, or the name of one of "
           "data.tokenizer's templates (such as tool_use); null: the templates of data.tokenizer")
      .or_null()
      .alias({"chat_template", "chat_template_path"});
  s.boolean("finetune.parse_special", false,
            "parse special tokens (<|im_end|>) written in messages, texts or string prompts, as "
            "HuggingFace's tokenizers do; false: parse only those of the chat template");
  s.number(
       "finetune.num_train_epochs", "null",
       "epochs over the examples, for train_steps \"auto\". The last batch may be smaller, since "
       "no example is repeated to fill it; null: train_steps is set instead")
      .or_null()
      .above(0)
      .at_most(1e6)
      .alias({"num_train_epochs", "num_epochs"});
  s.number("finetune.dpo.beta", "0.1",
           "strength of the penalty for differing from the reference model; smaller values allow "
           "larger changes")
      .above(0)
      .at_most(1e6)
      .alias({"finetune.beta", "finetune.pref_beta", "dpo_beta"});
  s.number("finetune.dpo.label_smoothing", "0",
           "sigmoid: fraction of pairs whose responses are assumed to be swapped")
      .at_least(0)
      .below(0.5)
      .alias({"finetune.label_smoothing", "finetune.dpo_label_smoothing"});
  s.choice("finetune.dpo.loss_type", "sigmoid", {"sigmoid", "ipo"},
           "loss on the difference of log-probabilities of a pair (ipo: Azar et al. 2023)")
      .alias({"finetune.loss_type", "finetune.pref_loss"})
      .not_yet(
          {"hinge", "kto_pair", "orpo", "simpo", "robust", "bco_pair", "sppo_hard", "nca_pair"});
  s.integer("finetune.lora.rank", "null",
            "rank of LoRA adapters, which are trained instead of the weights; null: train all "
            "weights")
      .or_null()
      .at_least(1)
      .at_most(65536)
      .alias({"lora_rank", "lora_r", "finetune.lora.r"});
  s.number("finetune.lora.alpha", "\"auto\"",
           "alpha: the adapters' output is scaled by alpha / rank; auto: 2 x rank")
      .or_auto()
      .above(0)
      .at_most(1e6)
      .alias({"lora_alpha", "finetune.lora.lora_alpha"});
  s.number("finetune.lora.dropout", "0", "dropout probability of the adapters' input")
      .at_least(0)
      .below(1)
      .alias({"lora_dropout", "finetune.lora.lora_dropout"});
  s.any("finetune.lora.target_modules", "\"all-linear\"",
        "word, list of them, or regular expression",
        "layers that get adapters: last parts of their names (q_proj, k_proj, v_proj, o_proj, "
        "gate_proj, up_proj, down_proj, self_attn.q_proj); all-linear: all of attention and MLPs; "
        "attention: all of attention; or a regular expression for whole names (.*[qv]_proj)")
      .alias({"lora_target_modules", "lora_target"});
  s.boolean("finetune.lora.use_rslora", false,
            "scale the adapters' output by alpha / sqrt(rank): rank-stabilized LoRA (Kalajdzievski "
            "2023)")
      .alias({"use_rslora"});
  s.boolean("finetune.lora.use_dora", false,
            "also train the magnitudes of the rows of W + s B A (DoRA, Liu et al. 2024)")
      .alias({"use_dora"});
  s.string("finetune.lora.adapter", "null",
           "initial adapters: PEFT directory with the same rank, targets and kind; null: new "
           "adapters, which have no effect before the first step")
      .or_null()
      .alias({"adapter_name_or_path", "finetune.lora.adapter_name_or_path"});
  s.choice("finetune.quantization", "none", {"none", "nf4"},
           "storage of the frozen weights; nf4: 4 bits for all linear layers except the head "
           "(QLoRA, Dettmers et al. 2023)")
      .not_yet({"fp4", "int8"})
      .alias({"bnb_4bit_quant_type", "quantization_type"});
  s.boolean("finetune.double_quantization", false,
            "nf4: store block scales in 8 bits: 4.13 instead of 4.5 bits per weight")
      .alias({"double_quantization", "bnb_4bit_use_double_quant"});
}

}  // namespace trireme
