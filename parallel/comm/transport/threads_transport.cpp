#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>

#include "parallel/comm/transport/posted_messages.h"

namespace trireme {

// One mailbox per rank. A send copies the message to a posted receive or into the mailbox, and is
// complete.
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
    std::deque<PostedPointer> posted;  // receives of the mailbox's rank
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
  bool ranks_are_processes() const override { return false; }

  void exchange(std::span<const SendPart> sends, std::span<const RecvPart> recvs, const OpInfo& op,
                Liveness& liveness) override {
    for (const SendPart& part : sends) put(part);
    for (const RecvPart& part : recvs) take(part, op, liveness);
  }

  void post(PostedPointer message) override {
    if (!message->sends) return post_receive(std::move(message));
    put({message->peer, message->tag, message->data, message->bytes});
    message->done(nullptr);
  }

  // Senders complete the receives; this only checks for losses.
  std::chrono::microseconds progress(Liveness& liveness) override {
    ThreadHub::Mailbox& box = hub_->mailboxes[static_cast<size_t>(rank_)];
    std::deque<PostedPointer> failed;
    std::exception_ptr loss;
    {
      const std::lock_guard lock(box.mutex);
      if (box.posted.empty()) return {};
      if (!watch_.due()) return kNap;
      for (const PostedPointer& message : box.posted)
        if (!loss) loss = watch_.look(liveness, *message);
      if (!loss) return kNap;
      failed.swap(box.posted);
    }
    for (const PostedPointer& message : failed) message->done(loss);
    return {};
  }

  void broadcast_loss() noexcept override {
    for (ThreadHub::Mailbox& box : hub_->mailboxes) box.arrived.notify_all();
  }

 private:
  static constexpr auto kNap = std::chrono::microseconds(25'000);

  static void copy_to(const PostedMessage& receive, const void* from, int64_t bytes) {
    if (bytes != receive.bytes) fail_message_size(receive.op, receive.peer, bytes, receive.bytes);
    if (bytes > 0) std::memcpy(receive.data, from, static_cast<size_t>(bytes));
  }

  // Copies under the lock, so that the receiver does not free its memory meanwhile.
  template <class Copy>
  static std::exception_ptr try_copy(Copy&& copy) {
    try {
      copy();
    } catch (...) {
      return std::current_exception();
    }
    return nullptr;
  }

  void put(const SendPart& part) {
    ThreadHub::Mailbox& box = hub_->mailboxes[static_cast<size_t>(part.to)];
    PostedPointer receive;
    std::exception_ptr error;
    {
      const std::lock_guard lock(box.mutex);
      const auto at = std::ranges::find_if(box.posted, [&](const PostedPointer& p) {
        return p->peer == rank_ && p->tag == part.tag;
      });
      if (at == box.posted.end()) {
        const auto* begin = static_cast<const std::byte*>(part.data);
        box.messages.push_back({rank_, part.tag, {begin, begin + part.bytes}});
      } else {
        receive = *at;
        box.posted.erase(at);
        error = try_copy([&] { copy_to(*receive, part.data, part.bytes); });
      }
    }
    if (receive)
      receive->done(error);
    else
      box.arrived.notify_all();
  }

  void post_receive(PostedPointer message) {
    ThreadHub::Mailbox& box = hub_->mailboxes[static_cast<size_t>(rank_)];
    std::exception_ptr error;
    {
      const std::lock_guard lock(box.mutex);
      const auto at = std::ranges::find_if(box.messages, [&](const ThreadHub::Message& m) {
        return m.from == message->peer && m.tag == message->tag;
      });
      if (at == box.messages.end()) {
        box.posted.push_back(std::move(message));
        return;
      }
      error = try_copy(
          [&] { copy_to(*message, at->bytes.data(), static_cast<int64_t>(at->bytes.size())); });
      box.messages.erase(at);
    }
    message->done(error);
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
  PostedWatch watch_;
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
  void post(PostedPointer message) override { TRIREME_UNREACHABLE(message->op, " has no peer"); }
  std::chrono::microseconds progress(Liveness&) override { return {}; }
};

}  // namespace

std::shared_ptr<ThreadHub> make_thread_hub(int size) {
  TRIREME_CHECK(size >= 1, "a thread hub of ", size, " ranks, expected at least 1");
  return std::make_shared<ThreadHub>(size);
}

std::unique_ptr<Transport> make_thread_transport(std::shared_ptr<ThreadHub> hub, int rank) {
  return std::make_unique<ThreadTransport>(std::move(hub), rank);
}

std::unique_ptr<Transport> make_single_transport() { return std::make_unique<SingleTransport>(); }

void fail_message_size(const OpInfo& op, int from, int64_t got, int64_t wanted) {
  throw Error(concat(op, " got a message of ", got, " bytes from world rank ", from, ", expected ",
                     wanted, " bytes: the ranks call different operations"));
}

}  // namespace trireme
