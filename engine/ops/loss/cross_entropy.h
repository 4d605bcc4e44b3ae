// Softmax cross-entropy of one chunk of tokens, with its gradient, which may overwrite the logits.
//
//   logits      (N, V)  float32 or float64; rows may have any stride; columns >= valid_vocab are
//                       padding: excluded from the softmax, gradient 0
//   targets     (N)     int32; kIgnoredTarget marks a token without loss
//   loss_sum    (1)     float64, += sum of the losses of the chunk's tokens
//   token_loss  (N)     float32 (float64 for float64), optional: the loss of each token, 0 if
//                       ignored
//   d_logits    (N, V)  optional; rows may have any stride; the type of the logits (may alias
//                       them), or bfloat16 or float16 with float32 logits:
//                       (softmax - onehot(target)) * scale, 0 for ignored tokens
//   scale       (1)     float64 device scalar: loss scale / number of valid tokens of the global
//                       batch
// The loss of a token is logsumexp(logits) - logits[target]. On the CPU loss_sum grows token by
// token, in order, so it does not depend on how tokens are chunked; on a GPU the losses of a chunk
// are added first, in an order that depends on their number alone. A target outside [0,
// valid_vocab) that is not kIgnoredTarget throws Error naming its position, before anything is
// written; on a GPU, whose memory the host does not read, it makes the loss non-finite. On both
// devices a NaN or a logit of +infinity makes the loss non-finite; a logit of -infinity is a
// probability of 0.
#pragma once

#include "engine/ops/context.h"

namespace trireme {

inline constexpr int32_t kIgnoredTarget = -100;  // PyTorch's and HuggingFace's ignore_index

void softmax_cross_entropy(Ctx& ctx, const Tensor& loss_sum, const Tensor& token_loss,
                           const Tensor& d_logits, const ConstTensor& logits,
                           const ConstTensor& targets, const ConstTensor& scale,
                           int64_t valid_vocab);

// Vocabulary-parallel cross-entropy: each rank has the logits of part of the vocabulary, columns
// [first, first + V) of `total`. Ranks compute softmax_statistics() of their part, gather and merge
// them, and then compute the loss and its gradient.
//   statistics (N, 3) float64: for each token the largest logit, sum of exp(logit - largest), and
//              the target's logit (-infinity if another part has it, or if there is no target)
// Every rank computes the whole loss, and the gradient of its own logits. There is no padding: all
// V columns are valid.
struct VocabularyPart {
  int64_t first = 0;  // column of the vocabulary that is column 0 of the rank's logits
  int64_t total = 0;  // size of the vocabulary
};
void softmax_statistics(Ctx& ctx, const Tensor& statistics, const ConstTensor& logits,
                        const ConstTensor& targets, const VocabularyPart& part);
// Merges parts (P, N, 3) into merged (N, 3), in order of the parts; `merged` may alias the first
// part.
void merge_softmax_statistics(Ctx& ctx, const Tensor& merged, const ConstTensor& parts);
// Computes loss_sum, token_loss and d_logits as softmax_cross_entropy() does, from the merged
// statistics. On the CPU the targets must have been checked by softmax_statistics().
void partial_cross_entropy(Ctx& ctx, const Tensor& loss_sum, const Tensor& token_loss,
                           const Tensor& d_logits, const ConstTensor& logits,
                           const ConstTensor& targets, const ConstTensor& scale,
                           const ConstTensor& merged, const VocabularyPart& part);

}  // namespace trireme
