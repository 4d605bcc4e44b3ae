#include "engine/ops/attention/latent_heads.h"

#include "engine/ops/attention/latent_heads.kernels.h"
#include "engine/ops/backend/pick_kernel.h"

namespace trireme {
namespace {

cpu::LatentSizes check_operands(const char* op, const ConstTensor& k, const ConstTensor& v,
                                const ConstTensor& kv, const ConstTensor& k_rope) {
  TRIREME_CHECK(k.rank() == 3 && kv.rank() == 3 && k_rope.rank() == 2, op, ": k ", k.shape(),
                ", kv ", kv.shape(), " and k_rope ", k_rope.shape(),
                " must be (T, H, Dn + Dr), (T, H, Dn + Dv) and (T, Dr)");
  const cpu::LatentSizes s{k.size(0), k.size(1), k.size(2) - k_rope.size(1), k_rope.size(1),
                           kv.size(2) - k.size(2) + k_rope.size(1)};
  TRIREME_CHECK(s.nope >= 0 && s.value >= 0 && s.value <= k.size(2), op, ": keys of ", k.size(2),
                " elements, ", s.rope, " of them rotated, and ", s.nope, " + ", s.value,
                " elements of a key and its value; the value must fit a key");
  check_operand(op, "k", k, k.dtype(), k.shape());
  check_operand(op, "v", v, k.dtype(), k.shape());
  check_operand(op, "kv", kv, k.dtype(), {s.tokens, s.heads, s.nope + s.value});
  check_operand(op, "k_rope", k_rope, k.dtype(), {s.tokens, s.rope});
  return s;
}

}  // namespace

void latent_heads_forward(Ctx& ctx, const Tensor& k, const Tensor& v, const ConstTensor& kv,
                          const ConstTensor& k_rope) {
  const char* op = "latent_heads_forward";
  const cpu::LatentSizes sizes = check_operands(op, k, v, kv, k_rope);
  if (ctx.planning()) return;
  const TimeScope scope(ctx.profile, TimeCategory::kOther);
  dispatch_float(op, k.dtype(), [&]<class T>() {
    const cpu::LatentHeadsForward<T> a{sizes, k.as<T>(), v.as<T>(), kv.as<T>(), k_rope.as<T>()};
    if (ctx.gpu != nullptr) return cuda::latent_heads_forward<T>(*ctx.gpu, a);
    TRIREME_KERNEL(latent_heads_forward<T>)(a, ctx.threads);
  });
}

void latent_heads_backward(Ctx& ctx, const Tensor& d_kv, const Tensor& d_k_rope,
                           const ConstTensor& dk, const ConstTensor& dv) {
  const char* op = "latent_heads_backward";
  const cpu::LatentSizes sizes = check_operands(op, dk, dv, d_kv, d_k_rope);
  if (ctx.planning()) return;
  const TimeScope scope(ctx.profile, TimeCategory::kOther);
  dispatch_float(op, dk.dtype(), [&]<class T>() {
    const cpu::LatentHeadsBackward<T> a{sizes, d_kv.as<T>(), d_k_rope.as<T>(), dk.as<T>(),
                                        dv.as<T>()};
    if (ctx.gpu != nullptr) return cuda::latent_heads_backward<T>(*ctx.gpu, a);
    TRIREME_KERNEL(latent_heads_backward<T>)(a, ctx.threads);
  });
}

}  // namespace trireme
