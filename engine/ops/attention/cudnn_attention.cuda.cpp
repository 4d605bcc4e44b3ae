#include "engine/ops/attention/cudnn_attention.cuda.h"

#ifdef TRIREME_CUDNN
#include <algorithm>
#include <bit>
#include <limits>
#include <optional>
#include <set>

#include "engine/core/memory.h"
#include "engine/device/cuda/launch_times.h"
#include "engine/ops/attention/attention_graph.cuda.h"
#include "engine/ops/attention/sequence_table.cuda.h"
#endif

namespace trireme::cuda {

#ifdef TRIREME_CUDNN
namespace {

// The repeatable backward stores the scores' gradients: a batch is split so that they stay below
// kGoodWorkspace if possible, and cuDNN is not used above kMaxWorkspace.
constexpr int64_t kGoodWorkspace = int64_t{1} << 30, kMaxWorkspace = int64_t{8} << 30;
// Ragged sequences use memory as if all had the maximum length, and each part of a batch is a call:
// beyond these limits our own kernels, which have neither cost, are better.
constexpr int64_t kMaxParts = 4, kMaxPadding = 4;

using Addresses = std::map<int64_t, const void*>;
constexpr int64_t kAlign = 256;  // alignment of objects in the workspace

int64_t scores_bytes(const AttentionShape& s) {
  const int64_t length = round_up(s.length, 64);
  return s.heads * length * length * 2;
}

// Bytes of the tensor kTensorDqSum.
int64_t sums_bytes(const AttentionShape& s) {
  if (!s.backward || s.repeatable) return 0;
  return round_up(s.batch * s.heads * s.length * s.width * 4, kAlign);
}

// Bytes of lse or delta as (batch, heads, length), the layout of a graph without offsets; ours is
// (heads, tokens).
int64_t statistic_bytes(const AttentionShape& s) {
  return s.ragged ? 0 : round_up(s.batch * s.heads * s.length * 4, kAlign);
}

// Bytes of the workspace before the plan's part.
int64_t own_bytes(const AttentionShape& s) {
  return sums_bytes(s) + (s.backward ? 2 : 1) * statistic_bytes(s);
}

// Largest part of the batch, split into equal parts, that fits into the workspace. 0: none.
int64_t part_of_batch(const AttentionShape& s) {
  if (!s.backward) return s.batch;
  if (s.ragged && s.batch * s.length > kMaxPadding * s.tokens) return 0;
  if (!s.repeatable) return sums_bytes(s) <= kMaxWorkspace ? s.batch : 0;
  if (scores_bytes(s) > kMaxWorkspace) return 0;
  const int64_t most = std::max<int64_t>(1, kGoodWorkspace / scores_bytes(s));
  int64_t part = std::min(most, s.batch);
  while (s.batch % part != 0) --part;
  return s.ragged && s.batch > kMaxParts * part ? 0 : part;
}

}  // namespace

class Attention final : public LibraryHandle {
 public:
  explicit Attention(const Context& gpu) : device_(dnn::describe_device(gpu.device)) {
    dnn::check(dnn::functions().cudnnCreate(&handle_), "cudnnCreate");
    dnn::check(dnn::functions().cudnnSetStream(handle_, static_cast<cudaStream_t>(gpu.main.raw)),
               "cudnnSetStream");
  }
  ~Attention() override {
    plans_.clear();
    (void)dnn::functions().cudnnDestroy(handle_);
  }

  // nullptr: no engine supports this shape.
  const dnn::Plan* find(Context& gpu, const AttentionShape& shape) {
    const auto known = plans_.find(shape);
    if (known != plans_.end()) return pointer_to(known->second);
    std::optional<dnn::Plan> plan = prepare(gpu, shape);
    // Never empty: a graph that needs no workspace still requires an address.
    if (plan.has_value())
      grow(gpu, workspace_, std::max(kAlign, own_bytes(shape) + plan->workspace));
    // Last: a known plan must have its memory.
    return pointer_to(plans_.emplace(shape, std::move(plan)).first->second);
  }

  // Memory of lse and delta for a shape that find() has prepared.
  float* lse(const AttentionShape& shape) {
    return reinterpret_cast<float*>(workspace_.data() + sums_bytes(shape));
  }
  float* delta(const AttentionShape& shape) {
    return reinterpret_cast<float*>(workspace_.data() + sums_bytes(shape) + statistic_bytes(shape));
  }

  // Room for the table of `room` sequences.
  std::byte* table(Context& gpu, int64_t room) {
    grow(gpu, table_, round_up(room * 4, kAlign) + SequenceTable::kMaxStrides * (room + 1) * 8);
    return table_.data();
  }

  // Adds one note per shape that our own kernels compute it.
  void refuse(Context& gpu, const AttentionShape& shape, const char* why) {
    if (!refused_.insert(shape).second) return;
    gpu.notes.push_back(concat("attention ", shape.backward ? "backward" : "forward", " of ",
                               shape.batch, " sequences of ", shape.length, ", ", shape.heads,
                               " on ", shape.kv_heads, " heads of ", shape.width,
                               ": computed by own kernels, cuDNN has no plan: ", why));
  }

  void run(Context& gpu, const dnn::Plan& plan, const AttentionShape& shape, Addresses addresses) {
    if (const int64_t sums = sums_bytes(shape); sums > 0) {
      addresses[kTensorDqSum] = workspace_.data();
      fill_bytes(gpu, gpu.main, workspace_.data(), 0, sums);
    }
    {
      const TimedCall timed(gpu, static_cast<cudaStream_t>(gpu.main.raw), "cudnn attention ",
                            shape.backward ? "backward" : "forward");
      dnn::run(handle_, plan, addresses, workspace_.data() + own_bytes(shape));
    }
    ++gpu.launches;
    if (gpu.synchronous) synchronize(gpu, gpu.main);
  }

 private:
  // nullopt: no engine, or the library's version differs.
  std::optional<dnn::Plan> prepare(Context& gpu, const AttentionShape& shape) {
    try {
      return (shape.backward ? attention_backward_graph(shape) : attention_forward_graph(shape))
          .prepare(device_);
    } catch (const Error& error) {
      refuse(gpu, shape, error.what());
      return std::nullopt;
    }
  }
  static const dnn::Plan* pointer_to(const std::optional<dnn::Plan>& plan) {
    return plan.has_value() ? &*plan : nullptr;
  }
  static void grow(Context& gpu, Buffer& buffer, int64_t bytes) {
    if (bytes <= buffer.bytes()) return;
    buffer = Buffer();  // frees the old memory first
    buffer = Buffer("cuDNN workspace", bytes, Memory::kDevice);
    ++gpu.library_moves;
  }

  dnn::Descriptor device_;
  cudnnHandle_t handle_ = nullptr;
  std::map<AttentionShape, std::optional<dnn::Plan>> plans_;
  std::set<AttentionShape> refused_;
  Buffer workspace_, table_;
};

namespace {

Attention& attention_of(const Context& gpu) { return static_cast<Attention&>(*gpu.attention); }

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

// Unequal lengths: shapes are rounded up so that few plans serve all batches. This adds sequences
// without rows, which libraries from 9.6 on support.
constexpr size_t kKnowsEmptySequences = 90600;
constexpr int64_t kShortest = 128;
// Preparing a plan takes up to a second. For prompts, whose shapes vary, it is worthwhile if
// attention is a notable part of the work.
constexpr int64_t kShortestPrompt = 1024;

// Shape of the case for cuDNN; none: not supported by it.
template <class T>
std::optional<AttentionShape> shape_of(const Context& gpu, const cpu::Attention<T>& a) {
  const int64_t max_seqlen = a.uniform_length > 0 ? a.uniform_length : a.max_seqlen;
  const bool lengths =
      a.uniform_length > 0
          ? a.tokens == a.sequences * a.uniform_length
          : a.max_seqlen > 0 && dnn::functions().cudnnGetVersion() >= kKnowsEmptySequences;
  const bool fits = gpu.attention != nullptr && !a.by_segments && a.drop_threshold == 0 &&
                    a.cap == 0 && (a.window == 0 || a.window >= max_seqlen) && lengths &&
                    a.sequences > 0 && a.tokens == a.keys && a.width % 8 == 0 && a.width <= 128 &&
                    (a.keep_lse || max_seqlen >= kShortestPrompt);
  if (!fits || !aligned(a.q) || !aligned(a.k) || !aligned(a.v)) return std::nullopt;
  AttentionShape s{};
  s.ragged = a.uniform_length == 0;
  s.batch = a.sequences;
  s.length = max_seqlen;
  if (s.ragged) {
    s.batch = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(s.batch)));
    s.length =
        std::max(kShortest, static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(max_seqlen))));
  }
  s.heads = a.heads;
  s.kv_heads = a.kv_heads;
  s.width = a.width;
  s.tokens = s.ragged && a.keep_lse ? a.tokens : 0;
  s.bfloat16 = std::is_same_v<T, bf16>;
  s.causal = a.causal;
  s.q = strides(a.q);
  s.k = strides(a.k);
  s.v = strides(a.v);
  return s;
}

// Table of the sequences of a ragged shape, and the addresses of its entries for a part of the
// batch.
class Ragged {
 public:
  template <class T>
  Ragged(Context& gpu, const AttentionShape& s, const cpu::Attention<T>& a) : room_(s.batch) {
    if (!s.ragged) return;
    std::byte* const memory = attention_of(gpu).table(gpu, room_);
    table_ = {.lengths = reinterpret_cast<int32_t*>(memory),
              .offsets = reinterpret_cast<int64_t*>(memory + round_up(room_ * 4, kAlign)),
              .cu = a.cu_q,
              .sequences = a.sequences,
              .room = room_,
              .strides = {},
              .count = 0};
    add({kTensorQ}, s.q);
    add({kTensorK}, s.k);
    add({kTensorV}, s.v);
    add({kTensorOut}, s.out);
    add({kTensorLse}, {.token = s.tokens > 0 ? 1 : s.heads});
    // A graph requires exactly its own tensors.
    if (s.backward) {
      add({kTensorDelta}, {.token = s.tokens > 0 ? 1 : s.heads});
      add({kTensorDout}, s.dout);
      add({kTensorDq}, s.dq);
      add({kTensorDk}, s.dk);
      add({kTensorDv}, s.dv);
    }
    write_sequence_table(gpu, table_);
  }
  // Entries from sequence `first` on.
  void give(Addresses& addresses, int64_t first) const {
    if (table_.count == 0) return;
    addresses[kTensorQueries] = addresses[kTensorKeys] = table_.lengths + first;
    for (const auto& [tensor, at] : rows_)
      addresses[kTensorOffsets + tensor] = table_.offsets + at * (room_ + 1) + first;
  }

 private:
  void add(std::initializer_list<int64_t> tensors, const AttentionShape::Strides& strides) {
    int64_t* const known = table_.strides;
    const auto at = std::find(known, known + table_.count, strides.token) - known;
    if (at == table_.count) {
      TRIREME_CHECK(at < SequenceTable::kMaxStrides, "too many layouts of one attention");
      known[table_.count++] = strides.token;
    }
    for (const int64_t tensor : tensors) rows_[tensor] = at;
  }

  int64_t room_;
  SequenceTable table_{};
  std::map<int64_t, int64_t> rows_;
};

// Clears rows after the last sequence, which no graph writes.
template <class T>
void clear_padding(Context& gpu, const cpu::Attention<T>& a, const cpu::HeadView<T>& view,
                   int64_t heads, float* lse) {
  clear_rows(gpu, RowsWithoutSequence<T>{.data = view.data,
                                         .row = view.row,
                                         .head = view.head,
                                         .rows = a.tokens,
                                         .heads = heads,
                                         .width = a.width,
                                         .first = a.cu_q + a.sequences,
                                         .lse = lse});
}

// Scalars of the graphs, read from the host when the plan runs.
struct Scalars {
  float scale, minus_inf = -std::numeric_limits<float>::infinity(), one = 1.0f;
};

// Address of a view's element at the start of a sequence.
template <class V>
const void* at(const V& view, int64_t token) {
  return view.data + token * view.row;
}

// Plan of a case, and its shape; no plan if cuDNN does not support the case.
struct Planned {
  AttentionShape shape = {};  // of a part of the batch
  const dnn::Plan* plan = nullptr;
  int64_t batch = 0;  // of the whole batch
};

template <class T>
Planned find_forward(Context& gpu, const cpu::AttentionForward<T>& a) {
  std::optional<AttentionShape> s = shape_of(gpu, a);
  if (!s || !aligned(a.out)) return {};
  s->out = strides(a.out);
  return {*s, attention_of(gpu).find(gpu, *s), s->batch};
}

// Sequences of one length: copies `packed`, written by a graph, to (heads, tokens), where lse
// points to the first of them.
StatisticRows unpacked(const AttentionShape& s, float* lse, int64_t tokens, const float* packed) {
  return {.to = lse,
          .from = packed,
          .batch = s.batch,
          .heads = s.heads,
          .length = s.length,
          .to_batch = s.length,
          .to_head = tokens,
          .from_batch = s.heads * s.length,
          .from_head = s.length};
}
// The reverse.
StatisticRows packed(const AttentionShape& s, float* packed, const float* lse, int64_t tokens) {
  return {.to = packed,
          .from = lse,
          .batch = s.batch,
          .heads = s.heads,
          .length = s.length,
          .to_batch = s.heads * s.length,
          .to_head = s.length,
          .from_batch = s.length,
          .from_head = tokens};
}

template <class T>
bool run_forward(Context& gpu, const cpu::AttentionForward<T>& a) {
  const Planned found = find_forward(gpu, a);
  const AttentionShape& s = found.shape;
  const dnn::Plan* const plan = found.plan;
  if (plan == nullptr) return false;
  Attention& attention = attention_of(gpu);
  const Scalars scalars{.scale = a.scale};
  float* const lse = s.ragged ? a.lse : attention.lse(s);
  Addresses addresses = {{kTensorQ, a.q.data}, {kTensorK, a.k.data},
                         {kTensorV, a.v.data}, {kTensorOut, a.out.data},
                         {kTensorLse, lse},    {kTensorScale, &scalars.scale}};
  if (s.causal || s.ragged) addresses[kTensorMinusInf] = &scalars.minus_inf;
  Ragged(gpu, s, a).give(addresses, 0);
  attention.run(gpu, *plan, s, std::move(addresses));
  if (s.ragged) clear_padding(gpu, a, a.out, a.heads, s.tokens > 0 ? a.lse : nullptr);
  if (!s.ragged && a.keep_lse) copy_statistic_rows(gpu, unpacked(s, a.lse, a.tokens, lse));
  return true;
}

// The shape is that of a part of the batch.
template <class T>
Planned find_backward(Context& gpu, const cpu::AttentionBackward<T>& a) {
  std::optional<AttentionShape> s = shape_of(gpu, a);
  if (!s || !aligned(a.out) || !aligned(a.dout) || !aligned(a.dq) || !aligned(a.dk) ||
      !aligned(a.dv))
    return {};
  s->backward = true;
  s->repeatable = gpu.deterministic;
  s->out = strides(a.out);
  s->dout = strides(a.dout);
  s->dq = strides(a.dq);
  s->dk = strides(a.dk);
  s->dv = strides(a.dv);
  const int64_t batch = s->batch, part = part_of_batch(*s);
  if (part == 0) {
    attention_of(gpu).refuse(gpu, *s, "its workspace is too large");
    return {};
  }
  s->batch = part;
  return {*s, attention_of(gpu).find(gpu, *s), batch};
}

template <class T>
bool run_backward(Context& gpu, const cpu::AttentionBackward<T>& a) {
  const auto [s, plan, batch] = find_backward(gpu, a);
  if (plan == nullptr) return false;
  AttentionShape whole = s;
  whole.batch = batch;
  const int64_t parts = batch / s.batch;
  Attention& attention = attention_of(gpu);
  const Ragged ragged(gpu, whole, a);
  const Scalars scalars{.scale = a.scale};
  float* const delta = s.ragged ? a.scratch : attention.delta(s);
  for (int64_t part = 0; part < parts && part * s.batch < a.sequences; ++part) {
    const int64_t token = s.ragged ? 0 : part * s.batch * s.length;
    Addresses addresses = {{kTensorQ, at(a.q, token)},
                           {kTensorK, at(a.k, token)},
                           {kTensorV, at(a.v, token)},
                           {kTensorOut, at(a.out, token)},
                           {kTensorDout, at(a.dout, token)},
                           {kTensorDq, at(a.dq, token)},
                           {kTensorDk, at(a.dk, token)},
                           {kTensorDv, at(a.dv, token)},
                           {kTensorLse, s.ragged ? a.lse : attention.lse(s)},
                           {kTensorDelta, delta},
                           {kTensorScale, &scalars.scale},
                           {kTensorOne, &scalars.one}};
    if (s.causal || s.ragged) addresses[kTensorMinusInf] = &scalars.minus_inf;
    ragged.give(addresses, part * s.batch);
    if (!s.ragged) copy_statistic_rows(gpu, packed(s, attention.lse(s), a.lse + token, a.tokens));
    attention.run(gpu, *plan, s, std::move(addresses));
  }
  if (s.ragged) {
    clear_padding(gpu, a, a.dq, a.heads, nullptr);
    clear_padding(gpu, a, a.dk, a.kv_heads, nullptr);
    clear_padding(gpu, a, a.dv, a.kv_heads, nullptr);
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
  } catch (const Error& error) {  // another version, or one that does not match the driver
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

template <class T>
void plan_library_attention([[maybe_unused]] Context& gpu,
                            [[maybe_unused]] const cpu::AttentionForward<T>& a) {
#ifdef TRIREME_CUDNN
  if constexpr (sizeof(T) == 2) (void)find_forward(gpu, a);
#endif
}

template <class T>
void plan_library_attention([[maybe_unused]] Context& gpu,
                            [[maybe_unused]] const cpu::AttentionBackward<T>& a) {
#ifdef TRIREME_CUDNN
  if constexpr (sizeof(T) == 2) (void)find_backward(gpu, a);
#endif
}

#define TRIREME_INSTANTIATE(T)                                                             \
  template bool library_attention_forward<T>(Context&, const cpu::AttentionForward<T>&);   \
  template bool library_attention_backward<T>(Context&, const cpu::AttentionBackward<T>&); \
  template void plan_library_attention<T>(Context&, const cpu::AttentionForward<T>&);      \
  template void plan_library_attention<T>(Context&, const cpu::AttentionBackward<T>&);
TRIREME_INSTANTIATE(double)
TRIREME_INSTANTIATE(float)
TRIREME_INSTANTIATE(bf16)
TRIREME_INSTANTIATE(f16)

}  // namespace trireme::cuda
