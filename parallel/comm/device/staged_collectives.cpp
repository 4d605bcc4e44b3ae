// GPU tensors through pinned host memory: copied to the host, sent by the host's collectives,
// copied back. Results and counted traffic are those of the host, bit for bit.
//
// The rank's worker runs each operation in the order of all others (CommWorker). It waits until the
// main stream reaches the point where the operation was started, and for the copies. Work::wait()
// waits for the worker and makes the main stream wait for the last copy.
#include "parallel/comm/collectives/collectives.h"
#include "parallel/comm/device/device_collectives.h"
#include "parallel/comm/device/device_work.h"
#include "parallel/comm/device/pinned_pool.h"

namespace trireme {
namespace {

using Form = CollectiveCall::Form;

// Recorded by the worker, waited for by the context's thread.
class CopiedBack final : public DevicePart {
 public:
  explicit CopiedBack(cuda::Context& gpu) : gpu_(gpu), event_(cuda::make_event(gpu)) {}
  void wait() override { cuda::wait_for(gpu_, event_); }
  bool done() override { return cuda::done(event_); }
  const cuda::Event& event() const { return event_; }

 private:
  cuda::Context& gpu_;
  cuda::Event event_;
};

// Message that has arrived in pinned memory and must still be copied to the device.
class Arrival final : public DevicePart {
 public:
  Arrival(cuda::Context& gpu, const Tensor& to, std::shared_ptr<PinnedPool::PinnedBlock> block)
      : gpu_(gpu), to_(to), block_(std::move(block)) {}
  void wait() override {
    if (!block_) return;
    cuda::copy_async(gpu_, gpu_.main, to_.raw(), block_->memory.data(), to_.bytes());
    if (block_->copied.raw() == nullptr) block_->copied = cuda::make_event(gpu_);
    cuda::record(block_->copied, gpu_.main);
    block_.reset();
  }
  bool done() override { return true; }  // wait() enqueues the copy: nothing is in flight before

 private:
  cuda::Context& gpu_;
  Tensor to_;
  std::shared_ptr<PinnedPool::PinnedBlock> block_;
};

class StagedCollectives final : public DeviceCollectives {
 public:
  StagedCollectives(cuda::Context& gpu, RankState& rank_state)
      : gpu_(gpu), rank_state_(rank_state), pool_(std::make_shared<PinnedPool>()) {}
  ~StagedCollectives() override {
    rank_state_.worker.run([] {});
  }

  cuda::Context& gpu() override { return gpu_; }
  std::string name() const override { return "staged"; }

  Work start(const Group& group, const CollectiveCall& call) override {
    auto copied_back = std::make_shared<CopiedBack>(gpu_);
    auto reached = std::make_shared<cuda::Event>(cuda::make_event(gpu_));
    cuda::record(*reached, gpu_.main);
    return rank_state_.worker.start(
        [this, state = group.get(), call, reached, copied_back] {
          cuda::use_device(gpu_);
          cuda::wait(gpu_.comm, *reached);
          pass(*state, call);
          cuda::record(copied_back->event(), gpu_.comm);
        },
        copied_back);
  }

  Work post(const Group& group, const CollectiveCall& call) override {
    const bool sends = call.form == Form::kSend;
    const ConstTensor& data = sends ? call.in : call.out;
    const std::shared_ptr<PinnedPool::PinnedBlock> block = pool_->take(data.bytes());
    if (!sends)
      return post_message(group, CommKind::kRecv, block->memory.data(), data.bytes(), call.from,
                          call.tag, block, std::make_shared<Arrival>(gpu_, call.out, block));
    // Messages leave in the order in which they are posted, so the host waits here.
    cuda::copy_async(gpu_, gpu_.main, block->memory.data(), data.raw(), data.bytes());
    cuda::synchronize(gpu_, gpu_.main);
    return post_message(group, CommKind::kSend, block->memory.data(), data.bytes(), call.to,
                        call.tag, block);
  }

  void open(const Group&) override {}
  void open_paths(const Group&, std::span<const MessagePath>) override {}
  void forget(const GroupState&) noexcept override {}
  void give_up() noexcept override {}

 private:
  std::byte* host(Buffer& buffer, int64_t bytes) const {
    if (buffer.bytes() < bytes) {
      buffer = Buffer();  // frees the old one first
      buffer = Buffer("pinned collectives", bytes, Memory::kPinned);
    }
    return buffer.data();
  }

  void copy(void* to, const void* from, int64_t bytes) {
    cuda::copy_async(gpu_, gpu_.comm, to, from, bytes);
  }

  // Runs one operation, in the worker.
  void pass(GroupState& group, const CollectiveCall& call) {
    CollectiveCall on_host = call;
    // Waits for the last operation's copies from the memory that this one is about to fill.
    cuda::synchronize(gpu_, gpu_.comm);
    std::byte* const out = host(out_, call.out.bytes());
    if (call.out.present()) on_host.out = Tensor(out, call.out.dtype(), call.out.shape());
    if (call.in.present()) {
      // In an all-gather the operand is in its own piece of the result, as on the host.
      const bool own_place = call.form == Form::kAllGather;
      std::byte* const in =
          own_place ? out + group.rank * call.in.bytes() : host(in_, call.in.bytes());
      on_host.in = ConstTensor(in, call.in.dtype(), call.in.shape());
      copy(in, call.in.raw(), call.in.bytes());
    } else if (call.form != Form::kRecv &&
               (call.form != Form::kBroadcast || call.from == group.rank)) {
      copy(out, call.out.raw(), call.out.bytes());
    }
    cuda::synchronize(gpu_, gpu_.comm);
    run_on_host(group, on_host);
    if (call.form == Form::kReduceScatterPieces) return copy_own_piece(group, call.out, out);
    if (call.out.present()) copy(call.out.raw(), out, call.out.bytes());
  }

  void copy_own_piece(const GroupState& group, const Tensor& to, const std::byte* from) {
    const Piece piece = piece_of(to.numel(), group.size(), group.rank);
    const int64_t width = dtype_size(to.dtype()), begin = piece.begin * width;
    copy(static_cast<std::byte*>(to.raw()) + begin, from + begin, piece.size() * width);
  }

  cuda::Context& gpu_;
  RankState& rank_state_;
  Buffer in_, out_;  // of the operation in progress
  std::shared_ptr<PinnedPool> pool_;
};

}  // namespace

std::unique_ptr<DeviceCollectives> make_staged_collectives(cuda::Context& gpu,
                                                           RankState& rank_state) {
  return std::make_unique<StagedCollectives>(gpu, rank_state);
}

}  // namespace trireme
