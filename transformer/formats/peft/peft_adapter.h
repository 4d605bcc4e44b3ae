// Adapters as PEFT's files hold them: adapter_config.json and adapter_model.safetensors, tensors
// named "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight".
//
// Query, key and value of GPT-2 are one layer there, c_attn, with one adapter. One of theirs is
// read as three with the same A, each with its rows of B and of the magnitudes. Three of ours, of
// rank r, are written as one of rank 3 r:
//
//   A = (A_q; A_k; A_v),   B = diag(B_q, B_k, B_v)
//
// by rank_pattern and alpha_pattern of c_attn, whose factor alpha / r stays as it was, and such a
// file is read as three again. What is not adapted is zero. (in, out) matrices, fan_in_fan_out,
// have adapters as others have.
//
// Where layers have ranks r_l and factors s_l of their own (rank_pattern, alpha_pattern), all are
// read as adapters of the highest rank and factor 1: A is followed by rows of zeros, and s_l B by
// columns of zeros.
#pragma once

#include <set>
#include <span>

#include "transformer/formats/model_source.h"
#include "transformer/formats/peft/peft_config.h"
#include "transformer/layers/lora.h"

namespace trireme {

inline constexpr const char* kPeftConfigFile = "adapter_config.json";
inline constexpr const char* kPeftWeightsFile = "adapter_model.safetensors";

struct PeftLayer;  // transformer/formats/peft/peft_layer.h

class PeftAdapter : public ModelSource {
 public:
  // InputError for what is wrong with the files, and for kinds of adapters that are not these.
  explicit PeftAdapter(const std::string& directory);
  const char* kind() const override { return "peft"; }
  const LoraConfig& lora() const { return lora_; }
  std::string tokenizer() const override { return ""; }
  // Of a parameter of an adapter, or of one of the base that the files hold in the place of its
  // own.
  ParameterPlace place(const ModelConfig& config, const std::string& parameter) const override;
  bool replaces(const ModelConfig& config, const std::string& parameter) const;
  // The model that the adapter makes of one of `base`. Of a tied table PEFT has two modules, the
  // embedding and the head, and changes one of them, or each in its own way: such a model is not
  // tied any more. It stays tied where the file changes both alike (ensure_weight_tying).
  ModelConfig merged_config(const ModelConfig& base) const;
  // Whether the tensor that replaces this one of a tied pair is in the place of both: loaded into
  // the table itself and not into a copy that is saved (modules_to_save).
  bool replaces_both(const ModelConfig& config, const std::string& parameter) const;
  void read(const ModelConfig& config, const ModelParameter& parameter, const TensorBox& box,
            int64_t begin, const Tensor& destination) const override;
  // More than adapters of linear layers inside of transformer blocks: parameters of the base in the
  // place of its own, adapters of its embedding, head or gates. A layer cannot compute with those
  // beside its weights; they are merged (transformer/formats/merged_model.h).
  bool needs_merging(const ModelConfig& config) const;
  // InputError that lists the adapters that a model of `config` needs and the files lack, those
  // left over, and those of another shape.
  void check_adapters(const ModelConfig& config) const;
  // InputError that lists all that keeps training of `lora` from beginning with these: another
  // rank, factor, kind or targets, and what check_adapters() says.
  void check_beginning(const ModelConfig& config, const LoraConfig& lora) const;

 protected:
  bool is_ignored(const ModelConfig&, const std::string&) const override { return false; }

 private:
  // "" or a line for each that is missing, of another shape, or left over.
  std::string problems(const ModelConfig& config, const std::vector<ModelParameter>& wanted) const;
  // Those that adapter_config.json is about, of the ranks there. InputError where there are none.
  std::vector<ModelParameter> own_parameters(const ModelConfig& config) const;
  void read_padded(const ModelConfig& config, const ModelParameter& parameter,
                   const PeftLayer& layer, const TensorBox& box, int64_t begin,
                   const Tensor& destination) const;
  // peft_beyond.cpp
  void add_beyond(const ModelConfig& base, std::vector<ModelParameter>& wanted) const;
  const SourceTensor* replacement(const std::string& tensor) const;
  std::string replacement_problems(const ModelConfig& base, std::set<std::string>& known) const;
  bool changes(const std::string& module) const;
  bool changes_alike(const std::string& table, const std::string& head) const;
  [[noreturn]] void refuse_dora_of_table(const ModelConfig& base) const;
  // B of every c_attn is the diagonal of three.
  bool has_diagonals() const;
  bool is_diagonal(const SourceTensor& b) const;
  PeftConfig peft_;
  LoraConfig lora_;
  bool diagonal_ = false;  // B of c_attn
  bool mixed_ = false;     // ranks and factors
};

bool is_peft_adapter(const std::string& path);  // a directory with adapter_config.json

// Writes both files to `directory`, which is made where it is missing. base: the name of the model,
// for PEFT. adapters: holds the tensors under our names. InputError for magnitudes of some of
// GPT-2's query, key and value: the others' are lengths of weights, which are not known here.
void write_peft_adapter(const LoraConfig& lora, const ModelConfig& config,
                        const ModelSource& adapters, const std::string& base,
                        const std::string& directory);

// "" or a warning: of some mixtures of experts PEFT drops adapters of MLPs that
// write_peft_adapter() writes.
std::string lost_in_peft(const ModelConfig& config, const LoraConfig& lora);

// all[row][column] = factor times the tile's; rows of `columns` and of `width` elements.
void place_scaled(std::span<const float> tile, int64_t columns, float factor, std::span<float> all,
                  int64_t width);

// The adapters' tensors of a whole model, in its order.
std::vector<ModelParameter> adapter_parameters(const ModelConfig& config, const LoraConfig& lora);

}  // namespace trireme
