// Several adapters of PEFT's for one model, side by side as one: of ranks r_1, ..., r_n and factors
// s_1, ..., s_n
//
//   A = (A_1; ...; A_n),   B = (s_1 B_1, ..., s_n B_n),   rank r_1 + ... + r_n, factor 1
//
// so that y += (x A^T restricted to the columns of adapter i) B^T is what adapter i alone adds
// (Tokens::
// adapter_columns), and one product serves tokens of all of them. What an adapter does not adapt is
// zero.
//
// With room for a number of adapters, which come and go while the model is served, each has the
// same number of columns, those behind its own are zero, and every linear layer has the factors.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "transformer/formats/peft/peft_adapter.h"

namespace trireme {

// Columns [begin, end) of the inner ones, of one adapter.
using AdapterColumns = std::pair<int32_t, int32_t>;

// Adapters that there is room for, and their highest rank. 0: for those alone that there are.
struct AdapterRoom {
  int64_t slots = 0, rank = 0;
};

class StackedAdapters : public ModelSource {
 public:
  // At least one; with room one for each slot, nullptr where it is empty. InputError for one that
  // is not for a model of `config`, for a rank above the room's, and for magnitudes (DoRA): they
  // scale all of a layer's output, which no columns can.
  StackedAdapters(std::vector<std::unique_ptr<const PeftAdapter>> adapters,
                  const ModelConfig& config, const AdapterRoom& room = {});
  const char* kind() const override { return "peft"; }
  const LoraConfig& lora() const { return lora_; }
  AdapterColumns columns(size_t adapter) const;  // of the inner ones
  std::string tokenizer() const override { return ""; }
  // Of the first adapter that there is; what read() reads lies in several places.
  ParameterPlace place(const ModelConfig& config, const std::string& parameter) const override;
  void read(const ModelConfig& config, const ModelParameter& parameter, const TensorBox& box,
            int64_t begin, const Tensor& destination) const override;

 protected:
  bool is_ignored(const ModelConfig&, const std::string&) const override { return false; }

 private:
  void check(const PeftAdapter& adapter) const;
  std::vector<std::unique_ptr<const PeftAdapter>> adapters_;
  std::vector<int64_t> first_;  // inner column of each, and the end of all
  LoraConfig lora_;
};

}  // namespace trireme
