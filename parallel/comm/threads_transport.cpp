#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>

#include "parallel/comm/transport.h"

namespace trireme {

// One mailbox per rank. A send copies the message into the receiver's mailbox and is complete.
class ThreadHub {
 public:
  struct Message {
    int from;
    int tag;
    std::vector<std::byte> bytes;
  };
  struct Mailbox {
    std::mutex mutex;
    std::condition_variable arrived;
    std::deque<Message> messages;
  };
  explicit ThreadHub(int size) : mailboxes(static_cast<size_t>(size)) {}
  std::vector<Mailbox> mailboxes;
};

namespace {

class ThreadTransport final : public Transport {
 public:
  ThreadTransport(std::shared_ptr<ThreadHub> hub, int rank) : hub_(std::move(hub)), rank_(rank) {}
  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(hub_->mailboxes.size()); }
  const char* name() const override { return "threads"; }

  void exchange(std::span<const SendPart> sends, std::span<const RecvPart> recvs, const OpInfo& op,
                Liveness& liveness) override {
    for (const SendPart& part : sends) post(part);
    for (const RecvPart& part : recvs) take(part, op, liveness);
  }

  void tell_lost() noexcept override {
    for (ThreadHub::Mailbox& box : hub_->mailboxes) box.arrived.notify_all();
  }

 private:
  void post(const SendPart& part) {
    const auto* begin = static_cast<const std::byte*>(part.data);
    ThreadHub::Mailbox& box = hub_->mailboxes[static_cast<size_t>(part.to)];
    ThreadHub::Message message{rank_, part.tag, {begin, begin + part.bytes}};
    {
      const std::lock_guard lock(box.mutex);
      box.messages.push_back(std::move(message));
    }
    box.arrived.notify_all();
  }

  void take(const RecvPart& part, const OpInfo& op, Liveness& liveness) {
    ThreadHub::Mailbox& box = hub_->mailboxes[static_cast<size_t>(rank_)];
    Patience patience(liveness, op);
    std::unique_lock lock(box.mutex);
    for (;;) {
      for (auto it = box.messages.begin(); it != box.messages.end(); ++it) {
        if (it->from != part.from || it->tag != part.tag) continue;
        const auto got = static_cast<int64_t>(it->bytes.size());
        if (got != part.bytes) fail_message_size(op, part.from, got, part.bytes);
        if (got > 0) std::memcpy(part.data, it->bytes.data(), it->bytes.size());
        box.messages.erase(it);
        return;
      }
      box.arrived.wait_for(lock, std::chrono::milliseconds(25));
      patience.check(part.from);
    }
  }

  std::shared_ptr<ThreadHub> hub_;
  int rank_;
};

class SingleTransport final : public Transport {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  const char* name() const override { return "single"; }
  void exchange(std::span<const SendPart> sends, std::span<const RecvPart> recvs, const OpInfo& op,
                Liveness&) override {
    TRIREME_CHECK(sends.empty() && recvs.empty(), op, " has no peer");
  }
};

}  // namespace

std::shared_ptr<ThreadHub> make_thread_hub(int size) {
  TRIREME_CHECK(size >= 1, "thread hub of ", size, " ranks");
  return std::make_shared<ThreadHub>(size);
}

std::unique_ptr<Transport> make_thread_transport(std::shared_ptr<ThreadHub> hub, int rank) {
  return std::make_unique<ThreadTransport>(std::move(hub), rank);
}

std::unique_ptr<Transport> make_single_transport() { return std::make_unique<SingleTransport>(); }

void fail_message_size(const OpInfo& op, int from, int64_t got, int64_t wanted) {
  throw Error(concat(op, " got a message of ", got, " bytes from world rank ", from, " where ",
                     wanted, " were expected: the ranks call different operations"));
}

}  // namespace trireme
