// Final norm, output projection and loss. The logits exist only for a chunk of tokens at a time, so
// that memory does not grow with tokens x vocabulary: forward product, softmax cross-entropy and
// both backward products run on the chunk while it is there. The vocabulary is split over the
// tensor-parallel ranks, and no rank ever sees another's logits: three numbers a token and rank are
// exchanged (engine/ops/cross_entropy.h).
#pragma once

#include "transformer/layers/norm.h"
#include "transformer/layers/preference.h"
#include "transformer/pass/tensor_exchange.h"

namespace trireme {

// Training on preferences: the loss of the tokens is not added up but weighed, pair by pair. The
// host looks at the losses of a micro-batch's tokens for that.
struct PreferenceTask {
  const PreferenceConfig* config = nullptr;
  std::span<const PreferencePair> pairs;  // of the micro-batch
  PreferenceSums* sums = nullptr;         // of all tensor-parallel ranks alike
};

struct Loss {
  Tensor sum;                 // (1) float64: += sum of the losses of the valid tokens
  ConstTensor scale;          // (1) float64: what a token's gradient is multiplied with (training)
  Tensor per_token;           // (T) float32 (float64), optional
  Tensor router_losses = {};  // (4) float64: += the losses of routers (transformer/pass/pass.h)
  const PreferenceTask* preferences =
      nullptr;                     // the gradient is theirs; sum is that of their losses
  ConstTensor token_weights = {};  // (T) float32 (float64): factors on the gradient of each token
};

// Tokens whose logits exist at a time, for a rank's `columns` of the vocabulary: chunks of `tokens`
// that are as equal as may be. A CPU keeps a chunk near its caches. A GPU reads and writes the
// whole gradient of the output matrix for each chunk, so there the chunks are larger, in whole
// tiles of the products.
int64_t loss_chunk_rows(int64_t tokens, int64_t columns, bool gpu);

class LmHead {
 public:
  // tied_table: the token embedding's handle when the head shares it on this rank, else -1. A tied
  // head whose embedding lies on another stage holds a copy of the table.
  LmHead(const ModelConfig& config, const Layout& layout, ParameterList& list, int block,
         ParamHandle tied_table);

  // The parameter block of the output matrix: the embedding's, where both are one.
  int weight_block(const ParameterStore& params) const { return params.block_of(weight_); }
  // Loss without gradients. x (T / split, C) is the last block's output.
  void loss(Pass& pass, Activation x, const Loss& loss) const;
  // Loss and the gradient of x; writes the gradients of the head's parameters.
  Activation loss_and_backward(Pass& pass, Activation x, const Loss& loss) const;
  // What the output projection takes of the tokens `rows` (R) int32: out (R, C) of x's dtype.
  // Inference.
  void hidden(Pass& pass, const ConstTensor& x, const Tensor& out, const ConstTensor& rows) const;
  // logits (R, V) float32 of the tokens `rows` (R) int32, or of the last ones, [T - R, T), on every
  // rank. Inference.
  void logits(Pass& pass, const ConstTensor& x, const Tensor& logits,
              const ConstTensor& rows = {}) const;

 private:
  Activation normalise(Pass& pass, const ConstTensor& x, Norm::Saved& saved) const;
  Activation final_rows(Pass& pass, const ConstTensor& x, int64_t wanted,
                        const ConstTensor& rows) const;
  Activation allocate_logits(Pass& pass, int64_t rows) const;
  // The gradient of y (T, C) where `backward`: on a split vocabulary a partial sum.
  Activation loss_chunks(Pass& pass, const ConstTensor& y, const Loss& loss, bool backward) const;
  // The same for either kind of loss, backward.
  Activation token_gradients(Pass& pass, const ConstTensor& y, const Loss& loss) const;
  void weigh(Pass& pass, const Loss& loss, const ConstTensor& losses, const Tensor& weights) const;
  struct Chunk {
    Tensor logits, d_logits, per_token;
    ConstTensor targets;
  };
  void chunk_loss(Pass& pass, const Loss& loss, const Chunk& chunk) const;
  void gather_vocabulary(Pass& pass, const Tensor& logits, const ConstTensor& part) const;
  int64_t vocab_;  // V of the model
  DimSlice rows_;  // this rank's part of it
  Norm norm_;
  ParamHandle weight_;
};

}  // namespace trireme
