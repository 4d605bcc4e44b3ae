// Control channel that sends and receives in threads of its own, so that its owner can train
// meanwhile, and so that a hub with many of them waits for none.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "parallel/comm/control/control_rendezvous.h"

namespace trireme {

using Bytes = std::vector<std::byte>;

// Message that a channel has received, or the reason why it receives nothing more.
struct Arrival {
  int channel = 0;                 // as its owner numbers it
  std::optional<Message> message;  // absent: the channel is lost
  std::string loss;
  std::unique_ptr<ControlListener::ConnectedRank> connected;  // a new peer, of a listener
};

// Arrivals of several channels in the order in which they came. Any thread.
class Inbox {
 public:
  // max_waiting: of the arrivals of one channel; its receiver waits for room (wait_for_room()), so
  // that a peer cannot fill the memory. Without a limit a peer never has to wait.
  explicit Inbox(int max_waiting = std::numeric_limits<int>::max()) : max_waiting_(max_waiting) {}
  void push(Arrival arrival);
  // Absent: nothing has arrived until `end`.
  std::optional<Arrival> wait_until(std::chrono::steady_clock::time_point end);
  // Waits until the channel has room, or `ends` is set and wake() called.
  void wait_for_room(int channel, const std::atomic<bool>& ends);
  void wake();

 private:
  int max_waiting_;
  std::mutex mutex_;
  std::condition_variable arrived_, taken_;
  std::deque<Arrival> arrivals_;
  std::map<int, int> waiting_;  // by channel
};

class AsyncChannel {
 public:
  // inbox: gets what arrives, under the number `channel`, and last of all the loss of the channel;
  // must outlive this object. Error if the system has no thread left.
  AsyncChannel(std::unique_ptr<ControlChannel> channel, Inbox& inbox, int number);
  ~AsyncChannel();  // closes the connection; messages that have not been sent are lost
  AsyncChannel(const AsyncChannel&) = delete;
  AsyncChannel& operator=(const AsyncChannel&) = delete;

  // Queues a message; several channels may share a payload. A loss is in the inbox.
  template <KindOfMessage Kind>
  void send(Kind kind, uint64_t number, std::shared_ptr<const Bytes> payload = nullptr) {
    queue({static_cast<uint32_t>(kind), number, std::move(payload)});
  }
  // Waits until all messages have been sent, at most for `limit`.
  void flush(std::chrono::milliseconds limit);
  size_t unsent();  // messages
  void accept_payloads(int64_t max_bytes) { channel_->accept_payloads(max_bytes); }
  const std::string& peer() const { return channel_->peer(); }

 private:
  enum class Kind : uint32_t {};
  struct Outgoing {
    uint32_t kind = 0;
    uint64_t number = 0;
    std::shared_ptr<const Bytes> payload;
  };
  void queue(Outgoing message);
  void end();
  void send_all();
  void receive_all();
  void lose(const std::string& why);

  std::unique_ptr<ControlChannel> channel_;
  Inbox& inbox_;
  int number_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Outgoing> queue_;  // the first is being sent
  std::atomic<bool> ends_ = false;
  bool lost_ = false;
  std::string loss_;
  std::thread sender_, receiver_;
};

}  // namespace trireme
