// Several PEFT adapters for one model, stacked into one. With ranks r_1, ..., r_n and factors s_1,
// ..., s_n:
//
//   A = (A_1; ...; A_n),   B = (s_1 B_1, ..., s_n B_n),   rank r_1 + ... + r_n, factor 1
//
// (x A^T restricted to the columns of adapter i) B^T is the contribution of adapter i alone
// (Tokens::adapter_columns), so that one product serves the tokens of all adapters. Layers that an
// adapter does not adapt have zeros in its columns.
//
// Slots hold adapters that are loaded and unloaded while the model is served. All slots have the
// same number of columns; those beyond the adapter's rank are zero. With slots every linear layer
// has factors.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "transformer/formats/peft/peft_adapter.h"

namespace trireme {

// Columns [begin, end) of the inner dimension that belong to one adapter.
using AdapterColumns = std::pair<int32_t, int32_t>;

// Number of adapter slots and their rank. 0: no slots, only the adapters given at construction.
struct AdapterSlots {
  int64_t count = 0, rank = 0;
};

class StackedAdapters : public ModelSource {
 public:
  // adapters: at least one; with slots one entry per slot, nullptr if it is empty. InputError for
  // an adapter that is not for a model of `config`, that must be merged (needs_merging()), whose
  // rank is above the slots', or that has magnitudes (DoRA): they scale the whole output of a
  // layer, which columns cannot express. InputError also for a total rank above 65536.
  StackedAdapters(std::vector<std::unique_ptr<const PeftAdapter>> adapters,
                  const ModelConfig& config, const AdapterSlots& adapter_slots = {});
  const char* kind() const override { return "peft"; }
  const LoraConfig& lora() const { return lora_; }
  // Columns of an adapter, or of all ranks of a slot, given by its index.
  AdapterColumns columns(size_t adapter) const;
  std::string tokenizer() const override { return ""; }
  // Tensor and rows in the first adapter present; read() gathers a parameter from all adapters.
  ParameterMapping place(const ModelConfig& config, const std::string& parameter) const override;
  void read(const ModelConfig& config, const ModelParameter& parameter, const TensorBox& box,
            int64_t begin, const Tensor& destination) const override;

 protected:
  bool is_ignored(const ModelConfig&, const std::string&) const override { return false; }

 private:
  void check(const PeftAdapter& adapter) const;
  std::vector<std::unique_ptr<const PeftAdapter>> adapters_;
  std::vector<int64_t> first_;  // first inner column of each adapter, then the total
  LoraConfig lora_;
};

}  // namespace trireme
