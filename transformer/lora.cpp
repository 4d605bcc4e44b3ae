#include "transformer/lora.h"

#include <algorithm>
#include <cmath>

#include "engine/ops/elementwise.h"
#include "engine/ops/gemm.h"

namespace trireme {

double LoraConfig::scale() const {
  const auto r = static_cast<double>(rank);
  return alpha / (rank_stabilised ? std::sqrt(r) : r);
}

bool LoraConfig::adapts(const std::string& layer) const {
  const std::string last = layer.substr(layer.rfind('.') + 1);
  return std::ranges::any_of(targets,
                             [&](const std::string& t) { return t == "all-linear" || t == last; });
}

TokenRange rows_of(const Pass& pass, const ConstTensor& x) {
  const int64_t n = x.size(0);
  const int64_t first = n == pass.tokens.count ? 0 : pass.token_split().index * n;
  return {first, first + n};
}

void LowRank::take(const ParameterList& list, const std::string& layer, int64_t first_input,
                   int64_t inputs) {
  const LoraConfig& config = list.adapters()->config;
  scale_ = config.scale();
  dropout_ = config.dropout;
  first_input_ = first_input;
  all_inputs_ = inputs;
  if (stream_ == 0) stream_ = substream(stream_id("lora_dropout"), stream_id(layer));
}

namespace {

// What every tensor-parallel rank has whole, and whose gradient each computes a part of.
void replicate(ParameterSpec& spec, const Place& tp) {
  spec.copies = tp.size;
  spec.copy = tp.index;
  if (tp.size > 1) spec.partial = PartialSum::kTensor;
}

ParameterSpec factor(const std::string& name, const Shape& shape, int block) {
  return {.name = name, .shape = shape, .decay = true, .block = block};
}

void product(Pass& pass, const Tensor& c, const ConstTensor& a, Transpose ta, const ConstTensor& b,
             Transpose tb, const GemmArgs& args) {
  const TimeScope scope(pass.ctx.profile, TimeCategory::kGemm);
  gemm(pass.ctx, c, a, ta, b, tb, args);
}

ParameterSpec factor_a(const std::string& layer, int64_t rank, int64_t in, int block) {
  ParameterSpec a = factor(layer + ".lora_A.weight", Shape{rank, in}, block);
  a.init = InitKind::kNormal;
  a.init_std = 1.0 / std::sqrt(3.0 * static_cast<double>(in));
  return a;
}

}  // namespace

void LowRank::add_column(ParameterList& list, const std::string& layer, int64_t out, int64_t in,
                         const DimSlice& rows, int64_t first_output, int block) {
  if (list.adapters() == nullptr || !list.adapters()->config.adapts(layer)) return;
  const int64_t r = list.adapters()->config.rank;
  take(list, layer, 0, in);
  ParameterSpec a = factor_a(layer, r, in, block);
  const Place& tp = list.adapters()->tp;
  replicate(a, tp);
  const bool every_rank_has_all = rows.copies == tp.size && rows.partial != PartialSum::kKvCopies;
  if (every_rank_has_all) a.partial = rows.partial;
  ParameterSpec b = factor(layer + ".lora_B.weight", Shape{out, r}, block);
  b.box = box_of(rows, whole_slice(r));
  b.partial = rows.partial;
  b.copies = rows.copies;
  b.copy = rows.copy;
  const ParamHandle first = list.add_adapter(std::move(a));
  parts_.push_back(
      {first, list.add_adapter(std::move(b)), first_output, first_output + rows.size()});
}

void LowRank::add_row(ParameterList& list, const std::string& layer, int64_t out, int64_t in,
                      const DimSlice& columns, int block) {
  if (list.adapters() == nullptr || !list.adapters()->config.adapts(layer)) return;
  const int64_t r = list.adapters()->config.rank;
  take(list, layer, columns.begin, in);
  ParameterSpec a = factor_a(layer, r, in, block);
  a.box = box_of(whole_slice(r), columns);
  ParameterSpec b = factor(layer + ".lora_B.weight", Shape{out, r}, block);
  replicate(b, list.adapters()->tp);
  const ParamHandle first = list.add_adapter(std::move(a));
  parts_.push_back({first, list.add_adapter(std::move(b)), 0, out});
}

bool LowRank::drops(const Pass& pass) const {
  return dropout_ > 0 && pass.ctx.mode == Mode::kTrain;
}

RandomKey LowRank::dropout_key(const Pass& pass) const {
  return {pass.ctx.seed, substream(stream_, static_cast<uint64_t>(pass.ctx.step))};
}

AllTokens LowRank::dropped(Pass& pass, const TokenRange& tokens, const ConstTensor& x) const {
  if (!drops(pass)) return {Activation(), x};
  Activation y = pass.ctx.allocate("lora.dropped", x.dtype(), x.shape());
  dropout(pass.ctx, y, x, {}, tokens.of(pass.tokens.rows), dropout_, dropout_key(pass),
          {first_input_, all_inputs_});
  const ConstTensor view = *y;
  return {std::move(y), view};
}

Activation LowRank::inner(Pass& pass, const Part& part, const ConstTensor& x) const {
  const Tensor a = pass.params.value(part.a);
  Activation h = pass.ctx.allocate("lora.inner", x.dtype(), Shape{x.size(0), a.size(0)});
  product(pass, h, x, Transpose::kNo, a, Transpose::kYes, {.alpha = static_cast<float>(scale_)});
  return h;
}

Activation LowRank::inner_gradient(Pass& pass, const Part& part, const ConstTensor& dy) const {
  const Tensor b = pass.params.value(part.b);
  Activation dh = pass.ctx.allocate("lora.d_inner", dy.dtype(), Shape{dy.size(0), b.size(1)});
  product(pass, dh, dy.slice(1, part.begin, part.end), Transpose::kNo, b, Transpose::kNo,
          {.alpha = static_cast<float>(scale_)});
  return dh;
}

void LowRank::forward(Pass& pass, const TokenRange& tokens, const Tensor& y,
                      const ConstTensor& x) const {
  if (!present()) return;
  const AllTokens input = dropped(pass, tokens, x);
  for (const Part& part : parts_) {
    const Activation h = inner(pass, part, input);
    product(pass, y.slice(1, part.begin, part.end), h, Transpose::kNo, pass.params.value(part.b),
            Transpose::kYes, {.accumulate = true});
  }
}

void LowRank::backward_input(Pass& pass, const TokenRange& tokens, const Tensor& dx,
                             const ConstTensor& dy) const {
  if (!present()) return;
  Activation sum;  // through the dropout
  if (drops(pass)) sum = pass.ctx.allocate("lora.d_dropped", dx.dtype(), dx.shape());
  bool first = drops(pass);
  for (const Part& part : parts_) {
    const Activation dh = inner_gradient(pass, part, dy);
    product(pass, drops(pass) ? *sum : dx, dh, Transpose::kNo, pass.params.value(part.a),
            Transpose::kNo, {.accumulate = !std::exchange(first, false)});
  }
  if (drops(pass))
    dropout(pass.ctx, dx, sum, dx, tokens.of(pass.tokens.rows), dropout_, dropout_key(pass),
            {first_input_, all_inputs_});
}

void LowRank::backward_weight(Pass& pass, const ConstTensor& dy, const ConstTensor& x) const {
  if (!present()) return;
  const AllTokens input = dropped(pass, rows_of(pass, x), x);
  for (const Part& part : parts_) {
    const GradientSlot db = pass.params.gradient(part.b);
    product(pass, db.grad, dy.slice(1, part.begin, part.end), Transpose::kYes,
            inner(pass, part, input), Transpose::kNo, {.accumulate = db.accumulate});
    const GradientSlot da = pass.params.gradient(part.a);
    product(pass, da.grad, inner_gradient(pass, part, dy), Transpose::kYes, input, Transpose::kNo,
            {.accumulate = da.accumulate});
  }
}

}  // namespace trireme
