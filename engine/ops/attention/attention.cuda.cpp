// Selection of the attention kernel: the only place that decides.
#include "engine/ops/attention/attention.kernels.h"
#include "engine/ops/attention/cudnn_attention.cuda.h"

namespace trireme::cuda {

template <class T>
void attention_forward(Context& gpu, const cpu::AttentionForward<T>& a) {
  if (library_attention_forward(gpu, a)) return count_attention(gpu, AttentionPath::kCudnn);
  if (a.by_segments && a.clear) clear_attention(gpu, a);
  if constexpr (sizeof(T) == 2)
    if (mma_attention_forward(gpu, a)) return count_attention(gpu, AttentionPath::kTensorCores);
  blocked_attention_forward(gpu, a);
  count_attention(gpu, AttentionPath::kPlain);
}

template <class T>
void attention_backward(Context& gpu, const cpu::AttentionBackward<T>& a) {
  if (library_attention_backward(gpu, a)) return count_attention(gpu, AttentionPath::kCudnn);
  if (a.by_segments && a.clear) clear_attention(gpu, a);
  attention_delta(gpu, a);
  if constexpr (sizeof(T) == 2)
    if (mma_attention_backward(gpu, a)) return count_attention(gpu, AttentionPath::kTensorCores);
  blocked_attention_backward(gpu, a);
  count_attention(gpu, AttentionPath::kPlain);
}

template <class T>
void plan_attention(Context& gpu, const cpu::AttentionForward<T>& a) {
  plan_library_attention(gpu, a);
}
template <class T>
void plan_attention(Context& gpu, const cpu::AttentionBackward<T>& a) {
  plan_library_attention(gpu, a);
}

#define TRIREME_INSTANTIATE(T)                                                     \
  template void attention_forward<T>(Context&, const cpu::AttentionForward<T>&);   \
  template void attention_backward<T>(Context&, const cpu::AttentionBackward<T>&); \
  template void plan_attention<T>(Context&, const cpu::AttentionForward<T>&);      \
  template void plan_attention<T>(Context&, const cpu::AttentionBackward<T>&);
TRIREME_INSTANTIATE(double)
TRIREME_INSTANTIATE(float)
TRIREME_INSTANTIATE(bf16)
TRIREME_INSTANTIATE(f16)

}  // namespace trireme::cuda
