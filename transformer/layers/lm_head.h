// Final norm, output projection and loss. For a loss, logits exist only for one chunk of tokens at
// a time, so that memory does not grow with tokens x vocabulary: forward product, softmax
// cross-entropy and both backward products run on each chunk. The vocabulary is split over the
// tensor-parallel ranks; the ranks exchange three numbers per token and rank instead of logits
// (engine/ops/loss/cross_entropy.h). A divisor s of the logits (Granite) divides the input of the
// projection instead, which has fewer columns: (y / s) w^T. A soft cap of the logits (Gemma 2) is
// applied to each chunk (engine/ops/rows/soft_cap.h).
#pragma once

#include "transformer/layers/norm.h"
#include "transformer/layers/preference.h"
#include "transformer/pass/tensor_parallel_mappings.h"

namespace trireme {

// Preference training: the loss is one of response pairs, and weights the gradient of each token's
// loss. The host computes the weights from the token losses of a micro-batch, so that the head runs
// its products twice.
struct PreferenceTask {
  const PreferenceConfig* config = nullptr;
  std::span<const PreferencePair> pairs;  // of the micro-batch
  PreferenceSums* sums = nullptr;         // +=; the same on all tensor-parallel ranks
};

struct Loss {
  Tensor sum;                 // (1) float64: += sum of the losses of the valid tokens
  ConstTensor scale;          // (1) float64: factor on a token's gradient (training)
  Tensor per_token;           // (T) float32 (float64), optional
  Tensor router_losses = {};  // (4) float64: += the losses of routers (transformer/pass/pass.h)
  // Preference training: loss_and_backward() computes the preference losses instead, and does not
  // write per_token. loss() ignores it.
  const PreferenceTask* preferences = nullptr;
  // (T) float32 (float64): factor on the gradient of each token; set by the head itself.
  ConstTensor token_weights = {};
};

// Returns the rows of a loss chunk, for a rank's `columns` of the vocabulary: chunks of `tokens` as
// equal in size as possible. On a CPU a chunk has at most 128 MiB of float32 logits, or one row. A
// GPU reads and writes the whole gradient of the output matrix for each chunk, so that its chunks
// are larger: as many rows as 1.25 GiB of float32 logits hold, but at least 2,048 and at most
// 4,096. They are whole tiles of the products, of 128 rows, unless there are fewer tokens.
int64_t loss_chunk_rows(int64_t tokens, int64_t columns, bool gpu);

class LmHead {
 public:
  // tied_table: handle of the token embedding if the head shares it on this rank, else -1. A tied
  // head whose embedding is on another pipeline stage holds a copy of the table.
  LmHead(const ModelConfig& config, const Layout& layout, ParameterList& list, int block,
         ParamHandle tied_table);

  // Parameter block of the output matrix: the embedding's if the head shares its table.
  int weight_block(const ParameterStore& params) const { return params.block_of(weight_); }
  // Loss without gradients. x (T / split, C) is the last block's output.
  void loss(Pass& pass, Activation x, const Loss& loss) const;
  // Loss and the gradient of x; writes the gradients of the head's parameters.
  Activation loss_and_backward(Pass& pass, Activation x, const Loss& loss) const;
  // Output of the final norm for the tokens `rows` (R) int32: out (R, C) of x's dtype. Inference.
  void hidden(Pass& pass, const ConstTensor& x, const Tensor& out, const ConstTensor& rows) const;
  // logits (R, V) float32 (float64 in a float64 model) of the tokens `rows` (R) int32, or without
  // rows of the last R tokens, on every tensor-parallel rank. Inference.
  void logits(Pass& pass, const ConstTensor& x, const Tensor& logits,
              const ConstTensor& rows = {}) const;

 private:
  Activation normalize(Pass& pass, const ConstTensor& x, Norm::Saved& saved) const;
  // Divides the projection's input, or its gradient, by the divisor of the logits.
  void divide(Pass& pass, const Tensor& y) const;
  Activation final_rows(Pass& pass, const ConstTensor& x, int64_t wanted,
                        const ConstTensor& rows) const;
  Activation allocate_logits(Pass& pass, int64_t rows) const;
  // Returns the gradient of y (T, C) if `backward`; with a split vocabulary it is a partial sum.
  Activation loss_chunks(Pass& pass, const ConstTensor& y, const Loss& loss, bool backward) const;
  // Gradient of y for either kind of loss.
  Activation token_gradients(Pass& pass, const ConstTensor& y, const Loss& loss) const;
  void weigh(Pass& pass, const Loss& loss, const ConstTensor& losses, const Tensor& weights) const;
  struct Chunk {
    Tensor logits, d_logits, per_token;
    ConstTensor targets;
  };
  void chunk_loss(Pass& pass, const Loss& loss, const Chunk& chunk) const;
  void gather_vocabulary(Pass& pass, const Tensor& logits, const ConstTensor& part) const;
  int64_t vocab_;   // V of the model
  DimSlice rows_;   // this rank's part of V
  double divisor_;  // of the logits
  double cap_;      // soft cap of the logits; 0: none
  Norm norm_;
  ParamHandle weight_;
};

}  // namespace trireme
