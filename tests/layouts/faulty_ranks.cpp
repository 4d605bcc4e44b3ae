#include "tests/layouts/faulty_ranks.h"

#include <cstring>
#include <exception>
#include <thread>

#include "parallel/comm/rank_state.h"
#include "parallel/comm/transport/posted_messages.h"

namespace trireme::test {
namespace {

class FaultyTransport final : public Transport {
 public:
  FaultyTransport(std::unique_ptr<Transport> link, const Fault& fault, std::atomic<int>& count)
      : link_(std::move(link)), fault_(fault), count_(count) {}

  int rank() const override { return link_->rank(); }
  int size() const override { return link_->size(); }
  const char* name() const override { return link_->name(); }
  bool ranks_are_processes() const override { return link_->ranks_are_processes(); }

  void exchange(std::span<const SendPart> sends, std::span<const RecvPart> recvs, const OpInfo& op,
                Liveness& liveness) override {
    if (fault_.kind == CommKind::kRecv || op.kind != fault_.kind || !concerns(op))
      return link_->exchange(sends, recvs, op, liveness);
    // The messages of a collective share their own tag; each other message is one operation.
    const int tag = sends.empty() ? recvs.front().tag : sends.front().tag;
    const bool collective = op.kind != CommKind::kSend;
    if (!collective || tag != tag_) {
      ++operations_;
      steps_ = 0;
      tag_ = tag;
    }
    if (fault_.number != Fault::kEvery && operations_ != fault_.number)
      return link_->exchange(sends, recvs, op, liveness);
    const bool first = steps_++ == 0;
    if (first) ++count_;
    switch (fault_.fate) {
      case Fate::kLost: return lose(recvs, op);
      case Fate::kOwn: return repeat_own(sends, recvs);
      case Fate::kScaled:
        if (steps_ == op.size) scale(sends);
        break;
      case Fate::kObserved:
        if (first) fault_.observe(rank());
        break;
    }
    link_->exchange(sends, recvs, op, liveness);
  }

  void post(std::shared_ptr<PostedMessage> message) override {
    const bool mine = fault_.kind == CommKind::kRecv && !message->sends && concerns(message->op) &&
                      message->op.rank == fault_.receiver;
    if (mine && posted_++ == fault_.number) {
      message->done = [data = message->data, bytes = message->bytes, done = message->done,
                       &count = count_](std::exception_ptr error) {
        std::memset(data, 0, static_cast<size_t>(bytes));
        ++count;
        done(std::move(error));
      };
    }
    link_->post(std::move(message));
  }
  std::chrono::microseconds progress(Liveness& liveness) override {
    return link_->progress(liveness);
  }
  void broadcast_loss() noexcept override { link_->broadcast_loss(); }
  void finish() override { link_->finish(); }

 private:
  bool concerns(const OpInfo& op) const {
    return op.group->starts_with(fault_.group) && (fault_.bytes == 0 || op.bytes == fault_.bytes);
  }

  // A reducing ring receives into separate memory and adds: nothing is added. All other operations
  // receive in place: the previous content stays.
  void lose(std::span<const RecvPart> recvs, const OpInfo& op) const {
    const bool adds = op.kind == CommKind::kReduceScatter ||
                      (op.kind == CommKind::kAllReduce && steps_ < op.size);
    if (!adds) return;
    for (const RecvPart& part : recvs) std::memset(part.data, 0, static_cast<size_t>(part.bytes));
  }

  // Two ranks only: their pieces have the same size.
  static void repeat_own(std::span<const SendPart> sends, std::span<const RecvPart> recvs) {
    std::memcpy(recvs.front().data, sends.front().data, static_cast<size_t>(recvs.front().bytes));
  }

  // Scales this rank's reduced piece in place, before the others receive it.
  void scale(std::span<const SendPart> sends) const {
    for (const SendPart& part : sends) {
      auto* const sums = static_cast<double*>(const_cast<void*>(part.data));
      for (int64_t i = 0; i < part.bytes / int64_t{sizeof(double)}; ++i) sums[i] *= fault_.factor;
    }
  }

  std::unique_ptr<Transport> link_;
  Fault fault_;
  std::atomic<int>& count_;
  int64_t operations_ = -1, steps_ = 0;  // of the thread inside the transport
  int tag_ = -1;
  std::atomic<int64_t> posted_ = 0;
};

// Like run_threads(), with another transport. A rank that throws notifies the others through its
// World.
void run_faulty(const Fault& fault, std::atomic<int>& count, int ranks,
                const std::function<void(Communicator&)>& body, const CommOptions& options) {
  const std::shared_ptr<ThreadHub> hub = make_thread_hub(ranks);
  std::vector<std::exception_ptr> errors(static_cast<size_t>(ranks));
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r)
    threads.emplace_back([&, r] {
      try {
        auto link = std::make_unique<FaultyTransport>(make_thread_transport(hub, r), fault, count);
        World world(connect_rank(std::move(link), options, std::string()));
        body(world.world());
      } catch (...) {
        errors[static_cast<size_t>(r)] = std::current_exception();
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& error : errors)
    if (error) std::rethrow_exception(error);
}

}  // namespace

LayoutRunOptions with_fault(const Fault& fault, std::atomic<int>& count) {
  LayoutRunOptions options;
  options.comm.algorithm = CommAlgorithm::kRing;
  options.start = [fault, &count](int ranks, const std::function<void(Communicator&)>& body,
                                  const CommOptions& comm) {
    run_faulty(fault, count, ranks, body, comm);
  };
  return options;
}

}  // namespace trireme::test
