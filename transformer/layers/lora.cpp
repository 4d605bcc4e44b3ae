#include "transformer/layers/lora.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "engine/ops/gemm/gemm.h"
#include "engine/ops/norm/dora_magnitude.h"
#include "engine/ops/rows/elementwise.h"
#include "engine/text/regex.h"
#include "transformer/pass/weight.h"

namespace trireme {

double LoraConfig::scale() const {
  const auto r = static_cast<double>(rank);
  return alpha / (rank_stabilized ? std::sqrt(r) : r);
}

namespace {

// Name of the fused GPT-2 layer in HuggingFace that contains this layer; other layers keep their
// name.
std::string fused_in_gpt2(const std::string& layer) {
  for (const char* part : {".attn.q_proj", ".attn.k_proj", ".attn.v_proj"})
    if (layer.ends_with(part)) return layer.substr(0, layer.rfind('.')) + ".c_attn";
  return layer;
}

bool is_of_attention(const std::string& layer) {
  return layer.find(".self_attn.") != std::string::npos ||
         layer.find(".attn.") != std::string::npos;
}

// Caches the last regular expression: it is matched against every layer of a model.
const Regex& of_whole_names(const std::string& pattern) {
  thread_local std::string source;
  thread_local std::optional<Regex> regex;
  if (!regex.has_value() || source != pattern) {
    regex.emplace(concat("^(?:", pattern, ")$"), "target_modules");
    source = pattern;
  }
  return *regex;
}

}  // namespace

bool LoraConfig::matches(const std::string& name) const {
  Regex::Match match;
  if (!pattern.empty()) return of_whole_names(pattern).find(name, 0, match);
  return std::ranges::any_of(targets, [&](const std::string& t) {
    return t == "all-linear" || t == name || name.ends_with(concat(".", t)) ||
           (t == "attention" && is_of_attention(name));
  });
}

bool LoraConfig::adapts(const std::string& layer) const {
  return matches(layer) || matches(fused_in_gpt2(layer));
}

TokenRange rows_of(const Pass& pass, const ConstTensor& x) {
  const int64_t n = x.size(0);
  const int64_t first = n == pass.tokens.count ? 0 : pass.token_split().index * n;
  return {first, first + n};
}

namespace {

// nullptr: no adapters are added.
const LoraPlan* plan_of(const ParameterList& list) {
  return static_cast<const LoraPlan*>(list.adapters());
}

}  // namespace

void LowRank::take(const ParameterList& list, const std::string& layer, int64_t first_input,
                   int64_t inputs) {
  const LoraConfig& config = plan_of(list)->config;
  scale_ = config.scale();
  dropout_ = config.dropout;
  magnitudes_ = config.dora;
  first_input_ = first_input;
  all_inputs_ = inputs;
  if (stream_ == 0) stream_ = substream(stream_id("lora_dropout"), stream_id(layer));
}

namespace {

// Marks a parameter as replicated over the tensor-parallel ranks, with gradients that are partial
// sums.
void replicate(ParameterSpec& spec, const GroupCoord& tp) {
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

// A magnitude, without weight decay. Initialized to one where no model is loaded.
ParameterSpec magnitude(const std::string& layer, int64_t out, int block) {
  return {.name = layer + kMagnitudeSuffix,
          .shape = Shape{out},
          .init = InitKind::kOnes,
          .block = block};
}

}  // namespace

void LowRank::add_column(ParameterList& list, const std::string& layer, ParamHandle weight,
                         const DimSlice& rows, int64_t first_output) {
  const LoraPlan* const plan = plan_of(list);
  if (plan == nullptr || !plan->config.adapts(layer)) return;
  const int64_t r = plan->config.rank;
  const ParameterSpec w = list.specs()[static_cast<size_t>(weight)];
  const int64_t out = w.shape[0], in = w.shape[1];
  take(list, layer, 0, in);
  ParameterSpec a = factor_a(layer, r, in, w.block);
  const GroupCoord& tp = plan->tp;
  replicate(a, tp);
  const bool every_rank_has_all = rows.copies == tp.size && rows.partial != PartialSum::kKvCopies;
  if (every_rank_has_all) a.partial = rows.partial;
  const auto divide = [&](ParameterSpec& spec) {
    spec.partial = rows.partial;
    spec.copies = rows.copies;
    spec.copy = rows.copy;
  };
  ParameterSpec b = factor(layer + ".lora_B.weight", Shape{out, r}, w.block);
  b.box = box_of(rows, whole_slice(r));
  divide(b);
  Part part{.begin = first_output, .end = first_output + rows.size()};
  part.a = list.add_adapter(std::move(a));
  part.b = list.add_adapter(std::move(b));
  if (magnitudes_) {
    ParameterSpec m = magnitude(layer, out, w.block);
    m.box = box_of(rows);
    divide(m);
    part.magnitude = list.add_adapter(std::move(m));
  }
  parts_.push_back(part);
}

void LowRank::add_row(ParameterList& list, const std::string& layer, ParamHandle weight,
                      const DimSlice& columns) {
  const LoraPlan* const plan = plan_of(list);
  if (plan == nullptr || !plan->config.adapts(layer)) return;
  const int64_t r = plan->config.rank;
  const ParameterSpec w = list.specs()[static_cast<size_t>(weight)];
  const int64_t out = w.shape[0], in = w.shape[1];
  take(list, layer, columns.begin, in);
  const GroupCoord& tp = plan->tp;
  divided_inputs_ = tp.size > 1;
  ParameterSpec a = factor_a(layer, r, in, w.block);
  a.box = box_of(whole_slice(r), columns);
  ParameterSpec b = factor(layer + ".lora_B.weight", Shape{out, r}, w.block);
  replicate(b, tp);
  Part part{.end = out};
  part.a = list.add_adapter(std::move(a));
  part.b = list.add_adapter(std::move(b));
  if (magnitudes_) {
    ParameterSpec m = magnitude(layer, out, w.block);
    replicate(m, tp);
    part.magnitude = list.add_adapter(std::move(m));
  }
  parts_.push_back(part);
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
  dropout(pass.ctx, y, x, {}, tokens.of(pass.tokens.global_index), dropout_, dropout_key(pass),
          {first_input_, all_inputs_});
  const ConstTensor view = *y;
  return {std::move(y), view};
}

Activation LowRank::inner(Pass& pass, const TokenRange& tokens, const Part& part,
                          const ConstTensor& x) const {
  const Tensor a = pass.params.value(part.a);
  Activation h = pass.ctx.allocate("lora.inner", x.dtype(), Shape{x.size(0), a.size(0)});
  product(pass, h, x, Transpose::kNo, a, Transpose::kYes, {.alpha = static_cast<float>(scale_)});
  if (pass.tokens.adapter_columns.present())
    keep_columns(pass.ctx, h, tokens.of(pass.tokens.adapter_columns));
  return h;
}

Activation LowRank::inner_gradient(Pass& pass, const Part& part, const ConstTensor& d) const {
  const Tensor b = pass.params.value(part.b);
  Activation dh = pass.ctx.allocate("lora.d_inner", d.dtype(), Shape{d.size(0), b.size(1)});
  product(pass, dh, d, Transpose::kNo, b, Transpose::kNo, {.alpha = static_cast<float>(scale_)});
  return dh;
}

Activation LowRank::row_squares(Pass& pass, const ConstTensor& weight) const {
  if (!magnitudes_) return {};
  Activation squares = pass.ctx.allocate("lora.row_squares", sum_dtype(pass.params.dtype()),
                                         Shape{parts_.back().end});
  for (const Part& part : parts_)
    adapted_row_squares(pass.ctx, squares->slice(0, part.begin, part.end), part.of(weight),
                        pass.params.value(part.a), pass.params.value(part.b), scale_);
  if (divided_inputs_ && pass.groups != nullptr && !pass.ctx.planning()) {
    const TimeScope scope(pass.ctx.profile, TimeCategory::kCommunication);
    pass.groups->tp->all_reduce(squares);
  }
  return squares;
}

void LowRank::scale(Pass& pass, const Part& part, const Activation& squares, const Tensor& y,
                    const ConstTensor& x, double shift, bool accumulate) const {
  scale_outputs(pass.ctx, y, x, pass.params.value(part.magnitude),
                squares->slice(0, part.begin, part.end), shift, accumulate);
}

// y += (g - 1) x' W^T + g h B^T. Without dropout, where y holds x W^T, in place: y = g (y + h B^T).
void LowRank::scaled_forward(Pass& pass, const Part& part, const Activation& squares,
                             const Tensor& y, const ConstTensor& dropped, const ConstTensor& h,
                             const ConstTensor& weight) const {
  const Tensor b = pass.params.value(part.b);
  if (!drops(pass)) {
    product(pass, y, h, Transpose::kNo, b, Transpose::kYes, {.accumulate = true});
    return scale(pass, part, squares, y, y);
  }
  const Activation u = pass.ctx.allocate("lora.outputs", y.dtype(), y.shape());
  linear_forward(pass.ctx, u, dropped, part.of(weight), {});
  scale(pass, part, squares, y, u, -1, true);
  product(pass, u, h, Transpose::kNo, b, Transpose::kYes, {});
  scale(pass, part, squares, y, u, 0, true);
}

void LowRank::forward(Pass& pass, const TokenRange& tokens, const Tensor& y, const ConstTensor& x,
                      const Activation& squares, const ConstTensor& weight) const {
  if (!present()) return;
  const AllTokens input = dropped(pass, tokens, x);
  for (const Part& part : parts_) {
    const Activation h = inner(pass, tokens, part, input);
    const Tensor out = y.slice(1, part.begin, part.end);
    if (magnitudes_)
      scaled_forward(pass, part, squares, out, input, h, weight);
    else
      product(pass, out, h, Transpose::kNo, pass.params.value(part.b), Transpose::kYes,
              {.accumulate = true});
  }
}

AllTokens LowRank::through_weight(Pass& pass, const ConstTensor& dy,
                                  const Activation& squares) const {
  if (!magnitudes_ || drops(pass)) return {Activation(), dy};
  Activation d = pass.ctx.allocate("lora.scaled_gradient", dy.dtype(), dy.shape());
  int64_t done = 0;  // outputs
  const auto copy_until = [&](int64_t end) {
    if (end > done)
      scale_outputs(pass.ctx, d->slice(1, done, end), dy.slice(1, done, end), {}, {}, 0, false);
  };
  for (const Part& part : parts_) {
    copy_until(part.begin);
    scale(pass, part, squares, d->slice(1, part.begin, part.end),
          dy.slice(1, part.begin, part.end));
    done = part.end;
  }
  copy_until(dy.size(1));
  const ConstTensor view = *d;
  return {std::move(d), view};
}

void LowRank::backward_input(Pass& pass, const TokenRange& tokens, const Tensor& dx,
                             const ConstTensor& dy, const Activation& squares,
                             const ConstTensor& weight) const {
  if (!present()) return;
  Activation sum;  // gradient of x', before the dropout's backward
  if (drops(pass)) sum = pass.ctx.allocate("lora.d_dropped", dx.dtype(), dx.shape());
  bool first = drops(pass);
  for (const Part& part : parts_) {
    ConstTensor d = dy.slice(1, part.begin, part.end);
    Activation scaled;
    if (magnitudes_ && drops(pass)) {  // W and B A need differently scaled gradients
      scaled = pass.ctx.allocate("lora.scaled_gradient", d.dtype(), d.shape());
      scale(pass, part, squares, scaled, d, -1);
      linear_backward_input(pass.ctx, sum, scaled, part.of(weight), !std::exchange(first, false));
      scale(pass, part, squares, scaled, d);
      d = *scaled;
    }
    const Activation dh = inner_gradient(pass, part, d);
    product(pass, drops(pass) ? *sum : dx, dh, Transpose::kNo, pass.params.value(part.a),
            Transpose::kNo, {.accumulate = !std::exchange(first, false)});
  }
  if (drops(pass))
    dropout(pass.ctx, dx, sum, dx, tokens.of(pass.tokens.global_index), dropout_, dropout_key(pass),
            {first_input_, all_inputs_});
}

// dm = sum over tokens of dy (V x') / ||V||.
void LowRank::magnitude_gradient(Pass& pass, const Part& part, const Activation& squares,
                                 const Tensor& scratch, const ConstTensor& dy,
                                 const ConstTensor& dropped, const ConstTensor& h,
                                 const ConstTensor& weight) const {
  linear_forward(pass.ctx, scratch, dropped, part.of(weight), {});
  product(pass, scratch, h, Transpose::kNo, pass.params.value(part.b), Transpose::kYes,
          {.accumulate = true});
  const GradientSlot dm = pass.params.gradient(part.magnitude);
  magnitude_backward(pass.ctx, dm.grad, dy, scratch, squares->slice(0, part.begin, part.end),
                     dm.accumulate);
}

void LowRank::backward_weight(Pass& pass, const ConstTensor& dy, const ConstTensor& x,
                              ParamHandle first, ParamHandle last) const {
  if (!present()) return;
  std::optional<Weight> weight;
  if (magnitudes_) weight.emplace(pass, first, last);
  const ConstTensor w = weight ? ConstTensor(*weight) : ConstTensor();
  const Activation squares = row_squares(pass, w);
  const TokenRange tokens = rows_of(pass, x);
  const AllTokens input = dropped(pass, tokens, x);
  for (const Part& part : parts_) {
    const ConstTensor of_part = dy.slice(1, part.begin, part.end);
    ConstTensor d = of_part;
    Activation scaled;
    if (magnitudes_) {
      scaled = pass.ctx.allocate("lora.scaled_gradient", d.dtype(), d.shape());
      scale(pass, part, squares, scaled, of_part);
      d = *scaled;
    }
    const Activation h = inner(pass, tokens, part, input);
    const GradientSlot db = pass.params.gradient(part.b);
    product(pass, db.grad, d, Transpose::kYes, h, Transpose::kNo, {.accumulate = db.accumulate});
    const GradientSlot da = pass.params.gradient(part.a);
    product(pass, da.grad, inner_gradient(pass, part, d), Transpose::kYes, input, Transpose::kNo,
            {.accumulate = da.accumulate});
    if (magnitudes_) magnitude_gradient(pass, part, squares, *scaled, of_part, input, h, w);
  }
}

}  // namespace trireme
