#include "transformer/layers/query_key_norm.h"

#include "engine/ops/norm/divided_norm.h"
#include "engine/ops/norm/head_norm.h"
#include "engine/ops/rows/elementwise.h"
#include "transformer/families/family.h"
#include "transformer/pass/frozen_gradient.h"

namespace trireme {
namespace {

// Queries and keys of packed rows.
struct Columns {
  Columns(const ModelConfig& config, const GroupCoord& tp)
      : q(head_slice(config.num_heads, config.head_dim, tp)),
        k(head_slice(config.num_kv_heads, config.head_dim, tp)) {}
  template <class T>
  T queries(const T& qk) const {
    return qk.slice(1, 0, q.size());
  }
  template <class T>
  T keys(const T& qk) const {
    return qk.slice(1, q.size(), q.size() + k.size());
  }
  DimSlice q, k;
};

// Norm of each head, with one weight of width D for all heads, or none.
class HeadNorm final : public QueryKeyNorm {
 public:
  HeadNorm(const ModelConfig& config, const Layout& layout, ParameterList& list,
           const std::string& prefix, int block)
      : columns_(config, layout.tp),
        width_(config.head_dim),
        eps_(config.norm_eps),
        gamma_offset_(config.zero_centered_gamma || config.qk_norm_weightless ? 1 : 0) {
    if (config.qk_norm_weightless) return;
    const auto weight = [&](const char* name) {
      return list.add(
          {.name = concat(prefix, ".", name, ".weight"),
           .shape = Shape{width_},
           .init = config.zero_centered_gamma ? InitKind::kZeros : InitKind::kOnes,
           .block = block,
           // A rank's gradient covers its own heads, and its own queries of a shared key head.
           .partial = layout.tp.size > 1 ? PartialSum::kTensor : PartialSum::kNone,
           .copies = layout.tp.size,
           .copy = layout.tp.index});
    };
    q_weight_ = weight(parameter_names(config).q_norm);
    k_weight_ = weight(parameter_names(config).k_norm);
  }

  Saved forward(Pass& pass, const Tensor& out, const ConstTensor& qk) const override {
    return {normalize(pass, q_weight_, heads(columns_.queries(out)), heads(columns_.queries(qk))),
            normalize(pass, k_weight_, heads(columns_.keys(out)), heads(columns_.keys(qk)))};
  }
  void backward(Pass& pass, const Tensor& d, const ConstTensor& qk,
                const Saved& saved) const override {
    gradients(pass, q_weight_, heads(columns_.queries(d)), heads(columns_.queries(qk)),
              saved.q_rstd);
    gradients(pass, k_weight_, heads(columns_.keys(d)), heads(columns_.keys(qk)), saved.k_rstd);
  }

 private:
  template <class T>
  T heads(const T& packed) const {
    return packed.split_last(packed.size(1) / width_, width_);
  }
  Activation normalize(Pass& pass, ParamHandle weight, const Tensor& y,
                       const ConstTensor& x) const {
    Activation rstd =
        pass.ctx.allocate("attention.head_rstd", sum_dtype(x.dtype()), Shape{x.size(0), x.size(1)});
    Activation none;
    head_norm_forward(pass.ctx, y, rstd, x, weight_value(pass, weight, x.dtype(), none), eps_,
                      gamma_offset_);
    return rstd;
  }
  // w, or without weights zeros, to which gamma_offset_ adds 1.
  ConstTensor weight_value(Pass& pass, ParamHandle weight, DType dtype, Activation& none) const {
    if (weight >= 0) return pass.params.value(weight);
    none = pass.ctx.allocate("attention.no_weight", dtype, Shape{width_});
    fill_zero(pass.ctx, none);
    return *none;
  }
  void gradients(Pass& pass, ParamHandle weight, const Tensor& d, const ConstTensor& x,
                 const ConstTensor& rstd) const {
    Activation unused, none;
    GradientSlot dw;
    if (weight >= 0) {
      dw = gradient_or_scratch(pass, weight, unused);
    } else {
      unused = pass.ctx.allocate("attention.no_gradient", rstd.dtype(), Shape{width_});
      dw.grad = *unused;
    }
    head_norm_backward(pass.ctx, d, dw.grad, d, x, weight_value(pass, weight, x.dtype(), none),
                       rstd, dw.accumulate, gamma_offset_);
  }

  Columns columns_;
  int64_t width_;
  double eps_, gamma_offset_;
  ParamHandle q_weight_ = -1, k_weight_ = -1;
};

// Norm of all heads of a token together, with a weight for every element. Sums over a token's heads
// are added up over the tensor-parallel ranks.
class AllHeadsNorm final : public QueryKeyNorm {
 public:
  AllHeadsNorm(const ModelConfig& config, const Layout& layout, ParameterList& list,
               const std::string& prefix, int block)
      : columns_(config, layout.tp),
        q_width_(config.num_heads * config.head_dim),
        k_width_(config.num_kv_heads * config.head_dim),
        eps_(config.norm_eps) {
    const auto weight = [&](const char* name, int64_t width, const DimSlice& slice) {
      return list.add({.name = concat(prefix, ".", name, ".weight"),
                       .shape = Shape{width},
                       .box = box_of(slice),
                       .init = InitKind::kOnes,
                       .block = block,
                       .partial = slice.partial,
                       .copies = slice.copies,
                       .copy = slice.copy});
    };
    q_weight_ = weight(parameter_names(config).q_norm, q_width_, columns_.q);
    k_weight_ = weight(parameter_names(config).k_norm, k_width_, columns_.k);
  }

  Saved forward(Pass& pass, const Tensor& out, const ConstTensor& qk) const override {
    const Activation sums = allocate_sums(pass, qk);
    square_sums(pass.ctx, row(sums, 0), columns_.queries(qk));
    square_sums(pass.ctx, row(sums, 1), columns_.keys(qk));
    add_over_ranks(pass, sums);
    Saved saved;
    const auto normalize = [&](Activation& rstd, ParamHandle weight, const Tensor& y,
                               const ConstTensor& x, const ConstTensor& squares, int64_t width) {
      rstd = pass.ctx.allocate("attention.token_rstd", sums->dtype(), Shape{qk.size(0)});
      divided_norm_forward(pass.ctx, y, rstd, x, pass.params.value(weight), squares, width, eps_);
    };
    normalize(saved.q_rstd, q_weight_, columns_.queries(out), columns_.queries(qk), row(sums, 0),
              q_width_);
    normalize(saved.k_rstd, k_weight_, columns_.keys(out), columns_.keys(qk), row(sums, 1),
              k_width_);
    return saved;
  }

  void backward(Pass& pass, const Tensor& d, const ConstTensor& qk,
                const Saved& saved) const override {
    const Activation dots = allocate_sums(pass, qk);
    const auto weight_gradient = [&](ParamHandle weight, const Tensor& dot, const ConstTensor& dy,
                                     const ConstTensor& x, const ConstTensor& rstd) {
      Activation unused;
      const GradientSlot dw = gradient_or_scratch(pass, weight, unused);
      divided_norm_backward_weight(pass.ctx, dot, dw.grad, dy, x, pass.params.value(weight), rstd,
                                   dw.accumulate);
    };
    const Tensor dq = columns_.queries(d), dk = columns_.keys(d);
    weight_gradient(q_weight_, row(dots, 0), dq, columns_.queries(qk), saved.q_rstd);
    weight_gradient(k_weight_, row(dots, 1), dk, columns_.keys(qk), saved.k_rstd);
    add_over_ranks(pass, dots);
    divided_norm_backward_input(pass.ctx, dq, dq, columns_.queries(qk),
                                pass.params.value(q_weight_), saved.q_rstd, row(dots, 0), q_width_);
    divided_norm_backward_input(pass.ctx, dk, dk, columns_.keys(qk), pass.params.value(k_weight_),
                                saved.k_rstd, row(dots, 1), k_width_);
  }

 private:
  static Tensor row(const Activation& sums, int64_t part) {
    return sums->slice(0, part, part + 1).reshape({sums->size(1)});
  }
  static Activation allocate_sums(Pass& pass, const ConstTensor& qk) {
    return pass.ctx.allocate("attention.norm_sums", sum_dtype(qk.dtype()), Shape{2, qk.size(0)});
  }
  // Ranks with copies of a key head add the same squares each, and parts of one dot product, of
  // which each then subtracts its share.
  void add_over_ranks(Pass& pass, const Activation& sums) const {
    if (!pass.ctx.planning() && pass.groups != nullptr && pass.groups->layout.tp.size > 1) {
      const TimeScope scope(pass.ctx.profile, TimeCategory::kCommunication);
      pass.groups->tp->all_reduce(sums);
    }
    const std::pair<int64_t, int> parts[] = {{0, columns_.q.copies}, {1, columns_.k.copies}};
    for (const auto& [part, copies] : parts)
      if (copies > 1) scale(pass.ctx, row(sums, part), row(sums, part), 1.0 / copies);
  }

  Columns columns_;
  int64_t q_width_, k_width_;  // of all ranks together
  double eps_;
  ParamHandle q_weight_ = -1, k_weight_ = -1;
};

}  // namespace

std::unique_ptr<QueryKeyNorm> make_query_key_norm(const ModelConfig& config, const Layout& layout,
                                                  ParameterList& list, const std::string& prefix,
                                                  int block) {
  if (config.qk_norm_whole)
    return std::make_unique<AllHeadsNorm>(config, layout, list, prefix, block);
  return std::make_unique<HeadNorm>(config, layout, list, prefix, block);
}

}  // namespace trireme
