#include "parallel/outer/remote/async_channel.h"

#include <system_error>
#include <utility>

#include "engine/core/error.h"

namespace trireme {

void Inbox::push(Arrival arrival) {
  {
    const std::lock_guard lock(mutex_);
    ++waiting_[arrival.channel];
    arrivals_.push_back(std::move(arrival));
  }
  arrived_.notify_one();
}

std::optional<Arrival> Inbox::wait_until(std::chrono::steady_clock::time_point end) {
  std::optional<Arrival> first;
  {
    std::unique_lock lock(mutex_);
    if (!arrived_.wait_until(lock, end, [&] { return !arrivals_.empty(); })) return {};
    first = std::move(arrivals_.front());
    arrivals_.pop_front();
    const auto waiting = waiting_.find(first->channel);
    if (--waiting->second == 0) waiting_.erase(waiting);
  }
  taken_.notify_all();
  return first;
}

void Inbox::wait_for_room(int channel, const std::atomic<bool>& ends) {
  std::unique_lock lock(mutex_);
  taken_.wait(lock, [&] {
    const auto waiting = waiting_.find(channel);
    return ends || waiting == waiting_.end() || waiting->second < max_waiting_;
  });
}

void Inbox::wake() {
  { const std::lock_guard lock(mutex_); }  // nobody is between its check and its wait
  taken_.notify_all();
}

AsyncChannel::AsyncChannel(std::unique_ptr<ControlChannel> channel, Inbox& inbox, int number)
    : channel_(std::move(channel)), inbox_(inbox), number_(number) {
  try {
    sender_ = std::thread([this] { send_all(); });
    receiver_ = std::thread([this] { receive_all(); });
  } catch (const std::system_error& e) {
    end();
    throw Error(concat("no thread for the messages of ", channel_->peer(), ": ", e.what()));
  }
}

AsyncChannel::~AsyncChannel() { end(); }

void AsyncChannel::end() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  inbox_.wake();
  channel_->shut_down();
  if (sender_.joinable()) sender_.join();
  if (receiver_.joinable()) receiver_.join();
}

void AsyncChannel::queue(Outgoing message) {
  {
    const std::lock_guard lock(mutex_);
    if (lost_) return;
    queue_.push_back(std::move(message));
  }
  changed_.notify_all();
}

void AsyncChannel::flush(std::chrono::milliseconds limit) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, limit, [&] { return queue_.empty() || lost_; });
}

size_t AsyncChannel::unsent() {
  const std::lock_guard lock(mutex_);
  return queue_.size();
}

// Ends both threads. The receiver first passes on what has arrived: a peer that has sent its last
// message and closed the connection is not lost before this message.
void AsyncChannel::lose(const std::string& why) {
  {
    const std::lock_guard lock(mutex_);
    if (!std::exchange(lost_, true)) loss_ = why;
    queue_.clear();
  }
  changed_.notify_all();
  channel_->shut_down();
}

void AsyncChannel::send_all() {
  for (;;) {
    Outgoing next;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return ends_ || lost_ || !queue_.empty(); });
      if (ends_ || lost_) return;
      next = queue_.front();
    }
    try {
      const auto payload = next.payload ? std::span(*next.payload) : std::span<const std::byte>();
      channel_->send(static_cast<Kind>(next.kind), next.number, payload);
    } catch (const std::exception& e) {
      return lose(e.what());
    }
    {
      const std::lock_guard lock(mutex_);
      if (!queue_.empty()) queue_.pop_front();
    }
    changed_.notify_all();
  }
}

void AsyncChannel::receive_all() {
  try {
    for (;;) {
      inbox_.wait_for_room(number_, ends_);
      std::optional<Message> message = channel_->receive(ControlChannel::kForever);
      inbox_.push({.channel = number_, .message = std::move(message), .loss = {}, .connected = {}});
    }
  } catch (const std::exception& e) {  // also std::bad_alloc: the peer chooses the sizes
    lose(e.what());
  }
  if (!ends_) inbox_.push({.channel = number_, .message = {}, .loss = loss_, .connected = {}});
}

}  // namespace trireme
