#include "parallel/context/ring_attention.h"

#include <array>

#include "engine/ops/attention/attention_sinks.h"
#include "engine/ops/rows/copy_rows.h"
#include "engine/ops/rows/elementwise.h"

namespace trireme {
namespace {

// One transfer around the ring. Its tensors must outlive it, also when an exception is thrown.
class Transfer {
 public:
  Transfer(Ctx& ctx, Communicator& ring) : ctx_(ctx), ring_(ring) {}
  Transfer(const Transfer&) = delete;
  Transfer& operator=(const Transfer&) = delete;
  ~Transfer() {
    try {
      work_.wait();
    } catch (const std::exception&) {
      // An error is already in flight, with the same cause: the peers are lost.
    }
  }
  void start(const ConstTensor& out, const Tensor& in, int tag) {
    if (ctx_.planning()) return;
    const int size = ring_.size(), next = (ring_.rank() + 1) % size;
    work_ = ring_.send_recv_async(out, next, in, (ring_.rank() + size - 1) % size, tag);
  }
  void wait() {
    const TimeScope scope(ctx_.profile, TimeCategory::kCommunication);
    work_.wait();
    work_ = Work();
  }

 private:
  Ctx& ctx_;
  Communicator& ring_;
  Work work_;
};

constexpr int kKeysTag = 0, kGradientsTag = 1;

// Keys and values of one rank, or their gradients, as one message: (2 T, Hkv, D), the keys first.
struct KeyValues {
  Activation memory;
  Tensor k() const { return memory->slice(0, 0, memory->size(0) / 2); }
  Tensor v() const { return memory->slice(0, memory->size(0) / 2, memory->size(0)); }
};

KeyValues allocate_key_values(Ctx& ctx, const char* name, const ConstTensor& k, DType dtype) {
  return {ctx.allocate(name, dtype, Shape{2 * k.size(0), k.size(1), k.size(2)})};
}

// Blocks of keys and values in the order of arrival, starting with the own block.
class TravellingKeys {
 public:
  TravellingKeys(Ctx& ctx, Communicator& ring, const ConstTensor& k, const ConstTensor& v)
      : steps_(ring.size()), k_(k), v_(v), transfer_(ctx, ring) {
    if (steps_ == 1) return;
    for (KeyValues& block : blocks_) block = allocate_key_values(ctx, "ring.kv", k, k.dtype());
    copy_rows(ctx, heads_as_columns(blocks_[0].k()), heads_as_columns(k));
    copy_rows(ctx, heads_as_columns(blocks_[0].v()), heads_as_columns(v));
  }
  // Between begin(t) and end(t) the block of step t may be read, while the next one arrives.
  void begin(int t) {
    if (t + 1 < steps_) transfer_.start(block(t).memory, block(t + 1).memory, kKeysTag);
  }
  void end(int t) {
    if (t + 1 < steps_) transfer_.wait();
  }
  ConstTensor k(int t) const { return t == 0 ? k_ : block(t).k(); }
  ConstTensor v(int t) const { return t == 0 ? v_ : block(t).v(); }

 private:
  const KeyValues& block(int t) const { return blocks_[static_cast<size_t>(t % 2)]; }
  int steps_;
  ConstTensor k_, v_;
  std::array<KeyValues, 2> blocks_;
  Transfer transfer_;  // last: waits before the blocks are freed
};

// Sums of gradients that follow the blocks of keys around the ring. Three buffers: one is computed,
// one receives the sum of the previous ranks for the same keys, one is sent.
class TravellingGradients {
 public:
  TravellingGradients(Ctx& ctx, Communicator& ring, const ConstTensor& k)
      : ctx_(ctx), transfer_(ctx, ring) {
    for (KeyValues& block : blocks_)
      block = allocate_key_values(ctx, "ring.dkv", k, sum_dtype(k.dtype()));
  }
  // Buffer for the gradients of the keys of step t.
  const KeyValues& open(int t) {
    if (t > 0) fill_zero(ctx_, block(t).memory);
    return block(t);
  }
  // Completes step t: adds the received sum for these keys, and sends the total on.
  void close(int t) {
    if (t > 0) {
      transfer_.wait();
      add(ctx_, block(t).memory, block(t).memory, block(t + 1).memory);
    }
    transfer_.start(block(t).memory, block(t + 2).memory, kGradientsTag);
  }
  // Gradients of this rank's own keys, after the last close().
  const KeyValues& home(int steps) {
    transfer_.wait();
    return block(steps + 1);
  }

 private:
  // Step t computes in block t, while block t - 1 is sent and block t + 1 is received.
  const KeyValues& block(int t) const { return blocks_[static_cast<size_t>(t % 3)]; }
  Ctx& ctx_;
  std::array<KeyValues, 3> blocks_;
  Transfer transfer_;
};

// Accumulator of a result that must be rounded; the result itself if no rounding is needed.
struct Sums {
  Activation memory;
  Tensor view;
  Sums(Ctx& ctx, const char* name, const Tensor& result) : view(result) {
    const DType dtype = sum_dtype(result.dtype());
    if (dtype == result.dtype()) return;
    memory = ctx.allocate(name, dtype, result.shape());
    view = memory;
  }
  void round_to(Ctx& ctx, const Tensor& result) const {
    if (memory.present())
      round_rows(ctx, heads_as_columns(result), heads_as_columns(ConstTensor(view)));
  }
};

void check_ring(const char* op, const Communicator& ring, const ContextPlan& plan,
                const ConstTensor& q, const AttentionArgs& args) {
  TRIREME_CHECK(ring.size() == plan.ring(), op, ": a plan for ", plan.ring(),
                " ranks on a ring of ", ring.size());
  TRIREME_CHECK(q.size(0) == plan.group_tokens(), op, ": ", q.size(0), " tokens, the plan has ",
                plan.group_tokens());
  TRIREME_CHECK(args.causal, op, ": only causal attention is supported");
}

// Arguments for segments: sinks are applied to the results of all of them together.
AttentionArgs without_sinks(AttentionArgs args) {
  args.sinks = {};
  return args;
}

}  // namespace

void ring_attention_forward(Ctx& ctx, Communicator& ring, const Tensor& out, const Tensor& lse,
                            const ConstTensor& q, const ConstTensor& k, const ConstTensor& v,
                            const ContextPlan& plan, const AttentionArgs& args) {
  check_ring("ring_attention_forward", ring, plan, q, args);
  const AttentionArgs of_keys = without_sinks(args);
  const Sums sums(ctx, "ring.out", out);
  TravellingKeys keys(ctx, ring, k, v);
  for (int t = 0; t < ring.size(); ++t) {
    keys.begin(t);
    for (int part = 0; part < plan.parts(args.window); ++part)
      attention_segments_forward(ctx, sums.view, lse, q, keys.k(t), keys.v(t),
                                 plan.step(t, args.window, part), of_keys);
    keys.end(t);
  }
  sums.round_to(ctx, out);
  if (args.sinks.present()) attention_sinks_forward(ctx, out, lse, args.sinks);
}

void ring_attention_backward(Ctx& ctx, Communicator& ring, const Tensor& dq, const Tensor& dk,
                             const Tensor& dv, const ConstTensor& dout, const ConstTensor& out,
                             const ConstTensor& lse, const ConstTensor& q, const ConstTensor& k,
                             const ConstTensor& v, const ContextPlan& plan,
                             const AttentionArgs& args) {
  check_ring("ring_attention_backward", ring, plan, q, args);
  const AttentionArgs of_keys = without_sinks(args);
  if (args.sinks.present())
    attention_sinks_backward(ctx, args.d_sinks, dout, out, lse, args.sinks, args.accumulate_sinks);
  const Sums dq_sums(ctx, "ring.dq", dq);
  if (ring.size() == 1) {
    const Sums dk_sums(ctx, "ring.dk", dk), dv_sums(ctx, "ring.dv", dv);
    for (int part = 0; part < plan.parts(args.window); ++part)
      attention_segments_backward(ctx, dq_sums.view, dk_sums.view, dv_sums.view, dout, out, lse, q,
                                  k, v, plan.step(0, args.window, part), of_keys);
    dk_sums.round_to(ctx, dk);
    dv_sums.round_to(ctx, dv);
    return dq_sums.round_to(ctx, dq);
  }
  TravellingKeys keys(ctx, ring, k, v);
  TravellingGradients gradients(ctx, ring, k);
  for (int t = 0; t < ring.size(); ++t) {
    keys.begin(t);
    const KeyValues& d = gradients.open(t);
    for (int part = 0; part < plan.parts(args.window); ++part)
      attention_segments_backward(ctx, dq_sums.view, d.k(), d.v(), dout, out, lse, q, keys.k(t),
                                  keys.v(t), plan.step(t, args.window, part), of_keys);
    gradients.close(t);
    keys.end(t);
  }
  dq_sums.round_to(ctx, dq);
  const KeyValues& home = gradients.home(ring.size());
  round_rows(ctx, heads_as_columns(dk), heads_as_columns(ConstTensor(home.k())));
  round_rows(ctx, heads_as_columns(dv), heads_as_columns(ConstTensor(home.v())));
}

}  // namespace trireme
