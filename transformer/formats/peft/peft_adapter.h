// Adapters in PEFT's files: adapter_config.json and adapter_model.safetensors, with tensors named
// "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight".
//
// In PEFT, query, key and value of GPT-2 are one layer, c_attn, with one adapter. Reading splits it
// into three adapters with the same A, each with its rows of B and of the magnitudes. Writing joins
// three adapters of rank r into one of rank 3 r:
//
//   A = (A_q; A_k; A_v),   B = diag(B_q, B_k, B_v)
//
// with rank_pattern and alpha_pattern of c_attn, so that the factor alpha / r is unchanged. Such a
// file is read as three adapters again. Parts without adapters are zero. Layers with (in, out)
// matrices, fan_in_fan_out, have the same adapters as other layers.
//
// Layers may have their own ranks r_l and factors s_l (rank_pattern, alpha_pattern). All are then
// read as adapters of the highest rank and factor 1: A is padded with rows of zeros, and s_l B with
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
  // InputError for invalid files and for unsupported kinds of adapters.
  explicit PeftAdapter(const std::string& directory);
  const char* kind() const override { return "peft"; }
  // Configuration that the adapters are read with. Its targets are target_modules or, if that is a
  // pattern, other keys restrict it or layers differ in rank or factor, the names of the adapted
  // layers.
  const LoraConfig& lora() const { return lora_; }
  std::string tokenizer() const override { return ""; }
  // Tensor and rows of the files that store an adapter's parameter, or that replace a parameter of
  // the base.
  ParameterMapping place(const ModelConfig& config, const std::string& parameter) const override;
  // Returns whether the files replace this parameter of the base.
  bool replaces(const ModelConfig& config, const std::string& parameter) const;
  // Returns the configuration of `base` with the adapter merged. PEFT has two modules for a tied
  // table, the embedding and the head. The model stays tied if the file changes both alike
  // (ensure_weight_tying). It is no longer tied if the file changes one of them, or each
  // differently.
  ModelConfig merged_config(const ModelConfig& base) const;
  // Returns whether the file's replacement of this parameter, one of a tied pair, replaces both.
  // PEFT then loads it into the shared table itself, and not into a copy (modules_to_save).
  bool replaces_both(const ModelConfig& config, const std::string& parameter) const;
  void read(const ModelConfig& config, const ModelParameter& parameter, const TensorBox& box,
            int64_t begin, const Tensor& destination) const override;
  // Returns whether the files hold more than adapters of linear layers inside transformer blocks:
  // replacements of base parameters, or adapters of the embedding, the head, routed experts or the
  // gates of shared experts. Layers cannot apply those next to their weights; they must be merged
  // (transformer/formats/merged_model.h).
  bool needs_merging(const ModelConfig& config) const;
  // InputError listing the tensors that a model of `config` needs and the files lack, unused ones,
  // and those of another shape, in at most 2000 characters. Also if no layer of the model is
  // adapted.
  void check_adapters(const ModelConfig& config) const;
  // InputError listing everything that prevents training of `lora` from starting with these
  // adapters: another rank, factor, kind or targets, and the problems of check_adapters().
  void check_beginning(const ModelConfig& config, const LoraConfig& lora) const;

 protected:
  bool is_ignored(const ModelConfig&, const std::string&) const override { return false; }

 private:
  // Returns "" or a line for each parameter that is missing, of another shape, or unused.
  std::string problems(const ModelConfig& config, const std::vector<ModelParameter>& wanted) const;
  // Returns the parameters that adapter_config.json selects, with the ranks of the file. InputError
  // if there are none.
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
  // Returns whether B of every c_attn is block-diagonal with three blocks.
  bool has_diagonals() const;
  bool is_diagonal(const SourceTensor& b) const;
  PeftConfig peft_;
  LoraConfig lora_;
  bool diagonal_ = false;  // B of c_attn
  bool mixed_ = false;     // layers differ in rank or factor
};

bool is_peft_adapter(const std::string& path);  // directory with adapter_config.json

// Writes both files to `directory`, which is created if missing. base: name of the model, for PEFT.
// adapters: source of the tensors under our names. InputError for magnitudes of only some of
// GPT-2's query, key and value: the others' would be norms of weights, which are not available
// here.
void write_peft_adapter(const LoraConfig& lora, const ModelConfig& config,
                        const ModelSource& adapters, const std::string& base,
                        const std::string& directory);

// Returns "" or a warning that PEFT drops or misapplies some adapters of write_peft_adapter():
// those of projections that the family fuses (gate and up; q, k and v), or of MLPs next to routed
// experts.
std::string lost_in_peft(const ModelConfig& config, const LoraConfig& lora);

// all[row][column] = factor * tile[row][column]; rows of `columns` (tile) and `width` (all)
// elements.
void place_scaled(std::span<const float> tile, int64_t columns, float factor, std::span<float> all,
                  int64_t width);

// Returns the parameters of the adapters of `lora` in a whole, unsharded model, in the order of the
// forward pass.
std::vector<ModelParameter> adapter_parameters(const ModelConfig& config, const LoraConfig& lora);

}  // namespace trireme
