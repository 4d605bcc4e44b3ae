#include "engine/ops/cuda/cudnn_attention.h"

#ifdef TRIREME_CUDNN
#include <limits>
#include <optional>

#include "engine/core/memory.h"
#include "engine/ops/cuda/attention_graph.h"
#endif

namespace trireme::cuda {

#ifdef TRIREME_CUDNN
namespace {

// The repeatable backward keeps the scores' gradients: a batch is cut so that they stay below this.
constexpr int64_t kMostWorkspace = int64_t{1} << 30;

using Addresses = std::map<int64_t, const void*>;

int64_t scores_bytes(const AttentionShape& s) {
  const int64_t length = round_up(s.length, 64);
  return s.heads * length * length * 2;
}

// The longest part of the batch, all parts being equal, whose workspace has room and whose statistics
// begin at 16 bytes, as graphs promise of every tensor. 0: there is none.
int64_t part_of_batch(const AttentionShape& s) {
  if (!s.backward || !s.repeatable) return s.batch;
  const int64_t most = std::max<int64_t>(1, kMostWorkspace / scores_bytes(s));
  int64_t part = std::min(most, s.batch);
  constexpr int64_t kFloats = 4;
  const auto serves = [&] {
    return s.batch % part == 0 && (part == s.batch || part * s.length % kFloats == 0);
  };
  while (part > 0 && !serves()) --part;
  return part;
}

}  // namespace

class Attention {
 public:
  explicit Attention(const Context& gpu) : device_(dnn::describe_device(gpu.device)) {
    dnn::check(dnn::functions().cudnnCreate(&handle_), "cudnnCreate");
    dnn::check(dnn::functions().cudnnSetStream(handle_, static_cast<cudaStream_t>(gpu.main.raw)),
               "cudnnSetStream");
  }
  ~Attention() {
    plans_.clear();
    (void)dnn::functions().cudnnDestroy(handle_);
  }
  Attention(const Attention&) = delete;
  Attention& operator=(const Attention&) = delete;

  // nullptr: no engine does this shape.
  const dnn::Plan* find(const AttentionShape& shape) {
    const auto known = plans_.find(shape);
    if (known != plans_.end()) return known->second ? &*known->second : nullptr;
    std::optional<dnn::Plan> plan;
    try {
      plan = (shape.backward ? attention_backward_graph(shape) : attention_forward_graph(shape))
                 .prepare(device_);
    } catch (const dnn::Unsupported&) {
      plans_.emplace(shape, std::nullopt);
      return nullptr;
    }
    const int64_t bytes = plan->workspace + sums_bytes(shape);
    if (bytes > workspace_.bytes()) {
      workspace_ = Buffer();  // what was there is given back first
      workspace_ = Buffer("cuDNN workspace", bytes, Memory::kDevice);
    }
    // Last: a plan that is known has its memory.
    return &*plans_.emplace(shape, std::move(plan)).first->second;
  }

  void run(Context& gpu, const dnn::Plan& plan, const AttentionShape& shape, Addresses addresses) {
    std::byte* workspace = workspace_.data();
    if (const int64_t sums = sums_bytes(shape); sums > 0) {
      addresses[kTensorDqSum] = workspace;
      workspace += sums;
    }
    dnn::run(handle_, plan, addresses, workspace);
    ++gpu.launches;
    if (gpu.synchronous) synchronize(gpu, gpu.main);
  }

 private:
  static int64_t sums_bytes(const AttentionShape& s) {
    if (!s.backward || s.repeatable) return 0;
    return round_up(s.batch * s.heads * s.length * s.width * 4, 256);
  }

  dnn::Descriptor device_;
  cudnnHandle_t handle_ = nullptr;
  std::map<AttentionShape, std::optional<dnn::Plan>> plans_;
  Buffer workspace_;
};

namespace {

template <class V>
bool aligned(const V& view) {
  constexpr int64_t kElements = 8;  // 16 bytes
  return reinterpret_cast<uintptr_t>(view.data) % 16 == 0 && view.row % kElements == 0 &&
         view.head % kElements == 0;
}

template <class V>
AttentionShape::Strides strides(const V& view) {
  return {view.row, view.head};
}

// The case as cuDNN sees it; none: not one for it.
template <class T>
std::optional<AttentionShape> shape_of(const Context& gpu, const cpu::Attention<T>& a) {
  const bool fits = gpu.attention != nullptr && !a.by_segments && a.drop_threshold == 0 &&
                    (a.window == 0 || a.window >= a.uniform_length) && a.uniform_length > 0 &&
                    a.tokens == a.keys && a.tokens == a.sequences * a.uniform_length &&
                    a.width % 8 == 0 && a.width <= 128;
  if (!fits || !aligned(a.q) || !aligned(a.k) || !aligned(a.v)) return std::nullopt;
  AttentionShape s{};
  s.batch = a.sequences;
  s.heads = a.heads;
  s.kv_heads = a.kv_heads;
  s.length = a.uniform_length;
  s.width = a.width;
  s.tokens = a.tokens;
  s.bfloat16 = std::is_same_v<T, bf16>;
  s.causal = a.causal;
  s.q = strides(a.q);
  s.k = strides(a.k);
  s.v = strides(a.v);
  return s;
}

// Scalars of the graphs, which are read from the host when the plan is run.
struct Scalars {
  float scale, minus_inf = -std::numeric_limits<float>::infinity(), one = 1.0f;
};

// The address of a view's first element of a sequence.
template <class V>
const void* at(const V& view, int64_t token) {
  return view.data + token * view.row;
}

template <class T>
bool run_forward(Context& gpu, const cpu::AttentionForward<T>& a) {
  std::optional<AttentionShape> s = shape_of(gpu, a);
  if (!s || !aligned(a.out)) return false;
  s->out = strides(a.out);
  const dnn::Plan* const plan = gpu.attention->find(*s);
  if (plan == nullptr) return false;
  const Scalars scalars{.scale = a.scale};
  Addresses addresses = {{kTensorQ, a.q.data}, {kTensorK, a.k.data},
                         {kTensorV, a.v.data}, {kTensorOut, a.out.data},
                         {kTensorLse, a.lse},  {kTensorScale, &scalars.scale}};
  if (s->causal) addresses[kTensorMinusInf] = &scalars.minus_inf;
  gpu.attention->run(gpu, *plan, *s, std::move(addresses));
  return true;
}

template <class T>
bool run_backward(Context& gpu, const cpu::AttentionBackward<T>& a) {
  std::optional<AttentionShape> s = shape_of(gpu, a);
  if (!s || !aligned(a.out) || !aligned(a.dout) || !aligned(a.dq) || !aligned(a.dk) ||
      !aligned(a.dv))
    return false;
  s->backward = true;
  s->repeatable = gpu.deterministic;
  s->out = strides(a.out);
  s->dout = strides(a.dout);
  s->dq = strides(a.dq);
  s->dk = strides(a.dk);
  s->dv = strides(a.dv);
  const int64_t part_size = part_of_batch(*s);
  if (part_size == 0) return false;
  const int64_t parts = s->batch / part_size;
  s->batch = part_size;
  const dnn::Plan* const plan = gpu.attention->find(*s);
  if (plan == nullptr) return false;
  const Scalars scalars{.scale = a.scale};
  for (int64_t part = 0; part < parts; ++part) {
    const int64_t token = part * s->batch * s->length;
    Addresses addresses = {{kTensorQ, at(a.q, token)},       {kTensorK, at(a.k, token)},
                           {kTensorV, at(a.v, token)},       {kTensorOut, at(a.out, token)},
                           {kTensorDout, at(a.dout, token)}, {kTensorDq, at(a.dq, token)},
                           {kTensorDk, at(a.dk, token)},     {kTensorDv, at(a.dv, token)},
                           {kTensorLse, a.lse + token},      {kTensorDelta, a.scratch + token},
                           {kTensorScale, &scalars.scale},   {kTensorOne, &scalars.one}};
    if (s->causal) addresses[kTensorMinusInf] = &scalars.minus_inf;
    gpu.attention->run(gpu, *plan, *s, std::move(addresses));
  }
  return true;
}

}  // namespace
#endif  // TRIREME_CUDNN

void open_attention(Context& gpu) {
#ifdef TRIREME_CUDNN
  try {
    gpu.no_attention = dnn::functions().missing;
    if (gpu.no_attention.empty()) gpu.attention = std::make_shared<Attention>(gpu);
  } catch (const Error& error) {  // another version, or one that does not go with the driver
    gpu.no_attention = error.what();
  }
#else
  gpu.no_attention = "built without cuDNN";
#endif
}

template <class T>
bool library_attention_forward([[maybe_unused]] Context& gpu,
                               [[maybe_unused]] const cpu::AttentionForward<T>& a) {
#ifdef TRIREME_CUDNN
  if constexpr (sizeof(T) == 2) return run_forward(gpu, a);
#endif
  return false;
}

template <class T>
bool library_attention_backward([[maybe_unused]] Context& gpu,
                                [[maybe_unused]] const cpu::AttentionBackward<T>& a) {
#ifdef TRIREME_CUDNN
  if constexpr (sizeof(T) == 2) return run_backward(gpu, a);
#endif
  return false;
}

#define TRIREME_INSTANTIATE(T)                                                           \
  template bool library_attention_forward<T>(Context&, const cpu::AttentionForward<T>&); \
  template bool library_attention_backward<T>(Context&, const cpu::AttentionBackward<T>&);
TRIREME_INSTANTIATE(double)
TRIREME_INSTANTIATE(float)
TRIREME_INSTANTIATE(bf16)
TRIREME_INSTANTIATE(f16)

}  // namespace trireme::cuda
