// Adapters as PEFT's files hold them: adapter_config.json and adapter_model.safetensors, tensors named
// "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight".
#pragma once

#include "transformer/lora.h"
#include "transformer/model_source.h"

namespace trireme {

class PeftAdapter : public ModelSource {
 public:
  // InputError for what is wrong with the files, and for kinds of adapters that are not these.
  explicit PeftAdapter(const std::string& directory);
  const char* kind() const override { return "peft"; }
  const LoraConfig& lora() const { return lora_; }
  std::string tokenizer() const override { return ""; }
  ParameterPlace place(const ModelConfig& config, const std::string& parameter) const override;
  // InputError that lists the adapters that a model of `config` needs and the files lack, those left over,
  // and those of another shape.
  void check_adapters(const ModelConfig& config) const;
  // InputError that lists all that keeps training of `lora` from beginning with these: another rank, factor, kind or
  // targets, and what check_adapters() says.
  void check_beginning(const ModelConfig& config, const LoraConfig& lora) const;

 protected:
  bool is_ignored(const ModelConfig&, const std::string&) const override { return false; }

 private:
  // "" or a line for each that is missing, of another shape, or left over.
  std::string problems(const ModelConfig& config, const LoraConfig& lora) const;
  LoraConfig lora_;
};

bool is_peft_adapter(const std::string& path);  // a directory with adapter_config.json

// Writes both files to `directory`, which is made where it is missing. base: the name of the model, for PEFT.
// adapters: holds the tensors under our names. InputError where PEFT has no such layer: a GPT-2's query, key
// and value are one there.
void write_peft_adapter(const LoraConfig& lora, const ModelConfig& config,
                        const ModelSource& adapters, const std::string& base,
                        const std::string& directory);

// The adapters' tensors of a whole model, in its order.
std::vector<ModelParameter> adapter_parameters(const ModelConfig& config, const LoraConfig& lora);

}  // namespace trireme
