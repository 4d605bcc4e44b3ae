#include "transformer/layers/lm_head.h"

#include <algorithm>

#include "engine/ops/gemm/gemm.h"
#include "engine/ops/loss/cross_entropy.h"
#include "engine/ops/moe/expert_rows.h"
#include "engine/ops/rows/copy_rows.h"
#include "engine/ops/rows/elementwise.h"
#include "engine/ops/rows/soft_cap.h"
#include "engine/ops/rows/transfer.h"
#include "transformer/families/family.h"
#include "transformer/layers/embedding.h"
#include "transformer/pass/weight.h"

namespace trireme {
namespace {

// Bytes of one chunk of logits on a CPU: large enough for full speed of the products (a chunk of
// 600 tokens for a vocabulary of 50,000), small compared to the rest of a training step.
constexpr int64_t kChunkBytes = int64_t{128} << 20;
// On a GPU: as many rows as this memory holds, within these bounds, and a multiple of the products'
// tiles.
constexpr int64_t kDeviceChunkBytes = int64_t{5} << 28;  // 1.25 GiB: 2,176 rows for 151,936 tokens
constexpr int64_t kMinDeviceRows = 2048, kMaxDeviceRows = 4096, kDeviceTileRows = 128;
constexpr int64_t kRowAlignment = 64;  // alignment of a row in elements: rows start on cache lines

ParamHandle add_head(const ModelConfig& config, const Layout& layout, ParameterList& list,
                     int block, ParamHandle tied_table) {
  if (tied_table >= 0) return tied_table;
  if (config.tie_word_embeddings) return list.add(embedding_table(config, layout, block, 2, 1));
  ParameterSpec spec = embedding_table(config, layout, block, 1, 0);
  spec.name = concat(parameter_names(config).head, ".weight");
  spec.head = true;
  return list.add(std::move(spec));
}

}  // namespace

int64_t loss_chunk_rows(int64_t tokens, int64_t columns, bool gpu) {
  const int64_t row_bytes = round_up(columns, kRowAlignment) * 4;
  const auto equal = [&](int64_t most) {
    return ceil_div(tokens, std::max<int64_t>(1, ceil_div(tokens, most)));
  };
  if (!gpu) return equal(std::max<int64_t>(1, kChunkBytes / row_bytes));
  const int64_t held = std::clamp(kDeviceChunkBytes / row_bytes, kMinDeviceRows, kMaxDeviceRows);
  const int64_t most = held / kDeviceTileRows * kDeviceTileRows;
  return std::min(tokens, round_up(equal(most), kDeviceTileRows));
}

LmHead::LmHead(const ModelConfig& config, const Layout& layout, ParameterList& list, int block,
               ParamHandle tied_table)
    : vocab_(config.vocab_size),
      rows_(even_slice(config.vocab_size, layout.tp)),
      divisor_(config.logits_divisor),
      cap_(config.logits_soft_cap),
      norm_(config, layout, list, parameter_names(config).final_norm, block),
      weight_(add_head(config, layout, list, block, tied_table)) {}

Activation LmHead::normalize(Pass& pass, const ConstTensor& x, Norm::Saved& saved) const {
  Activation y = pass.ctx.allocate("head.norm", x.dtype(), x.shape());
  norm_.forward(pass, y, {}, x, {}, saved);
  return y;
}

void LmHead::divide(Pass& pass, const Tensor& y) const {
  if (divisor_ != 1) scale(pass.ctx, y, y, 1 / divisor_, FactorRounding::kProduct);
}

Activation LmHead::allocate_logits(Pass& pass, int64_t rows) const {
  const DType dtype = pass.params.dtype() == DType::kF64 ? DType::kF64 : DType::kF32;
  return pass.ctx.allocate("head.logits", dtype,
                           Shape{rows, round_up(rows_.size(), kRowAlignment)});
}

Activation LmHead::loss_chunks(Pass& pass, const ConstTensor& y, const Loss& loss,
                               bool backward) const {
  Ctx& ctx = pass.ctx;
  const int64_t t = y.size(0);
  const int64_t chunk = loss_chunk_rows(t, rows_.size(), ctx.gpu != nullptr);
  const Weight weight(pass, weight_);
  Activation logits_block = allocate_logits(pass, chunk);
  // In float32 and float64 the gradient of the logits overwrites them, unless their soft cap needs
  // them after it.
  const bool in_place = logits_block->dtype() == y.dtype() && cap_ == 0;
  Activation d_block, dy;
  if (backward) {
    dy = ctx.allocate("head.d_norm", y.dtype(), y.shape());
    if (!in_place) d_block = ctx.allocate("head.d_logits", y.dtype(), logits_block->shape());
  }
  for (int64_t begin = 0; begin < t; begin += chunk) {
    const int64_t end = std::min(t, begin + chunk);
    const auto part = [&](const Tensor& block) {
      return block.slice(0, 0, end - begin).slice(1, 0, rows_.size());
    };
    Chunk now;
    now.logits = part(logits_block);
    now.targets = pass.tokens.targets.slice(0, begin, end);
    if (loss.per_token.present()) now.per_token = loss.per_token.slice(0, begin, end);
    if (backward) now.d_logits = in_place ? now.logits : part(d_block);
    const ConstTensor rows = y.slice(0, begin, end);
    weight.multiply(ctx, now.logits, rows, {});
    // Whole rows, because the op needs contiguous ones: no product or sum reads the columns after
    // the last.
    const Tensor whole = logits_block->slice(0, 0, end - begin);
    if (cap_ > 0) soft_cap_forward(ctx, whole, whole, cap_);
    chunk_loss(pass, loss, now);
    if (!backward) continue;
    if (cap_ > 0) soft_cap_backward(ctx, d_block->slice(0, 0, end - begin), whole, cap_);
    if (loss.token_weights.present()) {
      const Tensor rows_of_chunk = (in_place ? logits_block : d_block)->slice(0, 0, end - begin);
      scale_rows(ctx, rows_of_chunk, rows_of_chunk, loss.token_weights.slice(0, begin, end), false);
    }
    linear_backward_input(ctx, dy->slice(0, begin, end), now.d_logits, weight, false);
    if (!pass.params.trained(weight_)) continue;
    const GradientSlot dw = pass.params.gradient(weight_);
    linear_backward_weight(ctx, dw.grad, now.d_logits, rows, dw.accumulate);
  }
  return dy;
}

void LmHead::weigh(Pass& pass, const Loss& loss, const ConstTensor& losses,
                   const Tensor& weights) const {
  Ctx& ctx = pass.ctx;
  const Activation term = ctx.allocate("head.preference_loss", DType::kF64, Shape{1});
  if (ctx.planning()) return;
  const PreferenceTask& task = *loss.preferences;
  std::vector<double> tokens, factors(static_cast<size_t>(losses.numel()));
  PreferenceSums sums;
  dispatch_float("preferences", losses.dtype(), [&]<class T>() {
    const std::vector<T> there = to_host<T>(ctx, losses);
    tokens.reserve(there.size());
    for (const T loss_of_token : there)
      tokens.push_back(static_cast<double>(static_cast<compute_t<T>>(loss_of_token)));
    add_pairs(*task.config, task.pairs, tokens, factors, sums);
    std::vector<T> out;
    out.reserve(factors.size());
    for (const double factor : factors) out.push_back(T(static_cast<compute_t<T>>(factor)));
    transfer(ctx, weights, ConstTensor(out.data(), dtype_of<T>, weights.shape()));
  });
  transfer(ctx, term, ConstTensor(&sums.loss, DType::kF64, Shape{1}));
  add(ctx, loss.sum, loss.sum, term);
  PreferenceSums& all = *task.sums;
  all.loss += sums.loss;
  all.chosen_reward += sums.chosen_reward;
  all.rejected_reward += sums.rejected_reward;
  all.correct += sums.correct;
  all.pairs += sums.pairs;
}

Activation LmHead::token_gradients(Pass& pass, const ConstTensor& y, const Loss& loss) const {
  if (loss.preferences == nullptr) return loss_chunks(pass, y, loss, true);
  const Activation losses =
      pass.ctx.allocate("head.token_losses", sum_dtype(y.dtype()), Shape{y.size(0)});
  const Activation weights =
      pass.ctx.allocate("head.token_weights", sum_dtype(y.dtype()), Shape{y.size(0)});
  const Activation unused = pass.ctx.allocate("head.unused_sum", DType::kF64, Shape{1});
  fill_zero(pass.ctx, unused);
  Loss tokens = loss;
  tokens.sum = unused;
  tokens.per_token = losses;
  loss_chunks(pass, y, tokens, false);
  weigh(pass, loss, losses, weights);
  tokens.per_token = {};
  tokens.token_weights = weights;
  return loss_chunks(pass, y, tokens, true);
}

void LmHead::chunk_loss(Pass& pass, const Loss& loss, const Chunk& chunk) const {
  Ctx& ctx = pass.ctx;
  if (rows_.size() == vocab_) {
    softmax_cross_entropy(ctx, loss.sum, chunk.per_token, chunk.d_logits, chunk.logits,
                          chunk.targets, loss.scale, vocab_);
    return;
  }
  Communicator& tp = *pass.groups->tp;
  const VocabularyPart part{rows_.begin, vocab_};
  const int64_t n = chunk.logits.size(0);
  const Activation mine = ctx.allocate("head.statistics", DType::kF64, Shape{n, 3});
  const Activation all = ctx.allocate("head.all_statistics", DType::kF64, Shape{tp.size(), n, 3});
  softmax_statistics(ctx, mine, chunk.logits, chunk.targets, part);
  if (!ctx.planning()) {
    const TimeScope scope(ctx.profile, TimeCategory::kCommunication);
    tp.all_gather(all, mine);
  }
  merge_softmax_statistics(ctx, mine, all);
  partial_cross_entropy(ctx, loss.sum, chunk.per_token, chunk.d_logits, chunk.logits, chunk.targets,
                        loss.scale, mine, part);
}

void LmHead::loss(Pass& pass, Activation x, const Loss& loss) const {
  Norm::Saved saved;
  const Activation y = normalize(pass, x, saved);
  divide(pass, y);
  loss_chunks(pass, gather_tokens(pass, y), loss, false);
}

Activation LmHead::loss_and_backward(Pass& pass, Activation x, const Loss& loss) const {
  Norm::Saved saved;
  Activation y = normalize(pass, x, saved);
  divide(pass, y);
  if (needs_partial_sums(pass)) {
    Activation partial;
    {
      const AllTokens all = gather_tokens(pass, y);
      partial = token_gradients(pass, all, loss);
    }
    Activation dy = pass.ctx.allocate("head.d_share", y->dtype(), y->shape());
    reduce_over_tensor_ranks(pass, dy, partial);
    partial.reset();
    divide(pass, dy);
    norm_.backward(pass, y, dy, {}, x, saved);
    return y;
  }
  Activation dy = token_gradients(pass, y, loss);
  reduce_over_tensor_ranks(pass, dy, dy);
  divide(pass, dy);
  // The gradient of the norm's input overwrites the norm's output.
  norm_.backward(pass, y, dy, {}, x, saved);
  return y;
}

void LmHead::gather_vocabulary(Pass& pass, const Tensor& logits, const ConstTensor& part) const {
  Communicator& tp = *pass.groups->tp;
  // Parts differ by at most one column: all are sent with the width of the widest.
  const int64_t rows = logits.size(0), width = ceil_div(vocab_, tp.size());
  const Activation mine = pass.ctx.allocate("head.part", logits.dtype(), Shape{rows, width});
  const Activation all =
      pass.ctx.allocate("head.parts", logits.dtype(), Shape{tp.size(), rows, width});
  copy_rows(pass.ctx, mine->slice(1, 0, rows_.size()), part);
  if (!pass.ctx.planning()) tp.all_gather(all, mine);
  for (int p = 0; p < tp.size(); ++p) {
    const DimSlice columns = even_slice(vocab_, {tp.size(), p});
    const Tensor theirs = all->slice(0, p, p + 1).reshape({rows, width});
    copy_rows(pass.ctx, logits.slice(1, columns.begin, columns.end),
              theirs.slice(1, 0, columns.size()));
  }
}

Activation LmHead::final_rows(Pass& pass, const ConstTensor& x, int64_t wanted,
                              const ConstTensor& rows) const {
  Norm::Saved saved;
  const AllTokens all = gather_tokens(pass, x);
  const int64_t t = (*all).size(0);
  Activation chosen;
  if (rows.present()) {
    chosen = pass.ctx.allocate("head.rows", x.dtype(), Shape{wanted, x.size(1)});
    gather_rows(pass.ctx, chosen, all, rows, 1);
  }
  return normalize(pass, chosen.present() ? ConstTensor(*chosen) : (*all).slice(0, t - wanted, t),
                   saved);
}

void LmHead::hidden(Pass& pass, const ConstTensor& x, const Tensor& out,
                    const ConstTensor& rows) const {
  copy_rows(pass.ctx, out, final_rows(pass, x, out.size(0), rows));
}

void LmHead::logits(Pass& pass, const ConstTensor& x, const Tensor& logits,
                    const ConstTensor& rows) const {
  const int64_t wanted = logits.size(0);
  const Activation y = final_rows(pass, x, wanted, rows);
  divide(pass, y);
  const Weight weight(pass, weight_);
  if (rows_.size() == vocab_) {
    weight.multiply(pass.ctx, logits, y, {});
    if (cap_ > 0) soft_cap_forward(pass.ctx, logits, logits, cap_);
    return;
  }
  const Activation part =
      pass.ctx.allocate("head.logits", logits.dtype(), Shape{wanted, rows_.size()});
  weight.multiply(pass.ctx, part, y, {});
  if (cap_ > 0) soft_cap_forward(pass.ctx, part, part, cap_);
  gather_vocabulary(pass, logits, part);
}

}  // namespace trireme
