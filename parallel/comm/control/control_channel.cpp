#include "parallel/comm/control/control_channel.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <limits>

#include "engine/io/checksum.h"
#include "parallel/comm/control/records.h"

namespace trireme {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr uint32_t kMagic = 0x54524953;  // "TRIS"
constexpr size_t kReadBytes = 64 << 10;

bool would_block(int error_number) {
  return error_number == EAGAIN || error_number == EWOULDBLOCK || error_number == EINTR;
}

// Waits until fd is ready; false: not within `limit`. Negative limit: none.
bool wait_for(int fd, short what, milliseconds limit) {
  pollfd ready{fd, what, 0};
  const auto begin = Clock::now();
  for (milliseconds left = limit;;) {
    const auto count = std::min<int64_t>(left.count(), std::numeric_limits<int>::max());
    const int found = ::poll(&ready, 1, static_cast<int>(count));
    if (found >= 0 || errno != EINTR) return found > 0;
    if (limit < milliseconds(0)) continue;
    const auto waited = std::chrono::floor<milliseconds>(Clock::now() - begin);
    left = std::max(limit - waited, milliseconds(0));
  }
}

void set_tcp(int fd, int option, int value) {
  if (setsockopt(fd, IPPROTO_TCP, option, &value, sizeof value) != 0)
    throw Error(concat("cannot set TCP option ", option, ": ", std::strerror(errno)));
}

}  // namespace

ControlChannel::ControlChannel(Socket socket, std::string peer)
    : socket_(std::move(socket)), peer_(std::move(peer)) {
  socket_.set_non_blocking();
}

void ControlChannel::keep_alive(std::chrono::seconds limit) const {
  TRIREME_CHECK(limit.count() >= 2, "keep_alive() needs at least 2 s, got ", limit.count());
  sockaddr_storage own{};
  socklen_t length = sizeof own;
  getsockname(fd(), reinterpret_cast<sockaddr*>(&own), &length);
  if (own.ss_family == AF_UNIX) return;
  // Probes follow the idle time: (1 + probes) * period <= limit.
  const int seconds = narrow<int>(limit.count());
  const int period = std::max(1, seconds / 4), probes = seconds / period - 1;
  const int yes = 1;
  setsockopt(fd(), SOL_SOCKET, SO_KEEPALIVE, &yes, sizeof yes);
  set_tcp(fd(), TCP_KEEPIDLE, period);
  set_tcp(fd(), TCP_KEEPINTVL, period);
  set_tcp(fd(), TCP_KEEPCNT, probes);
  // No probes are sent while data is unacknowledged. Retransmissions end only after minutes.
  set_tcp(fd(), TCP_USER_TIMEOUT, narrow<int>(milliseconds(limit).count()));
}

void ControlChannel::fail_gone(int error_number) const {
  const bool closed = error_number == 0 || error_number == EPIPE || error_number == ECONNRESET;
  throw Error(closed ? concat(peer_, " closed the connection")
                     : concat(peer_, " is unreachable: ", std::strerror(error_number)),
              ExitCode::kLostRank);
}

uint64_t ControlChannel::checksum_of(Header header, std::span<const std::byte> payload) {
  static_assert(sizeof(Header) == 32);
  header.checksum = 0;
  ChecksumStream sum;
  sum.update(std::as_bytes(std::span(&header, 1)));
  sum.update(payload);
  return sum.value();
}

void ControlChannel::send_message(uint32_t kind, uint64_t number,
                                  std::span<const std::byte> payload) {
  Header header{.magic = kMagic, .kind = kind, .number = number, .bytes = payload.size()};
  header.checksum = checksum_of(header, payload);
  std::array<iovec, 2> parts{
      {{&header, sizeof header}, {const_cast<std::byte*>(payload.data()), payload.size()}}};
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = parts.size();
  const std::lock_guard lock(sending_);
  for (size_t left = sizeof header + payload.size(); left > 0;) {
    const ssize_t sent = sendmsg(fd(), &message, MSG_NOSIGNAL);
    if (sent < 0) {
      if (!would_block(errno)) fail_gone(errno);
      if (errno != EINTR && !wait_for(fd(), POLLOUT, max_stall_))
        throw Error(concat(peer_, " has stopped reading"), ExitCode::kLostRank);
      continue;
    }
    auto done = static_cast<size_t>(sent);
    left -= done;
    for (iovec& part : parts) {
      const size_t taken = std::min(done, part.iov_len);
      part.iov_base = static_cast<std::byte*>(part.iov_base) + taken;
      part.iov_len -= taken;
      done -= taken;
    }
  }
}

// Doubles the payload when it is full, up to its size, so that each byte is moved once on average.
std::span<std::byte> ControlChannel::Incoming::free_space() {
  if (filled == payload.size()) {
    const auto whole = static_cast<size_t>(header.bytes);
    payload.resize(std::min(whole, std::max(2 * filled, kReadBytes)));
  }
  return std::span(payload).subspan(filled);
}

// A payload is received into its message, anything else into the buffer, which holds many short
// messages.
bool ControlChannel::read_some() {
  std::span<std::byte> space;
  if (incoming_) {
    space = incoming_->free_space();
  } else {
    arrived_.buffer.resize(kReadBytes);
    std::memmove(arrived_.buffer.data(), arrived_.buffer.data() + arrived_.begin,
                 arrived_.end - arrived_.begin);
    arrived_.end -= std::exchange(arrived_.begin, 0);
    space = std::span(arrived_.buffer).subspan(arrived_.end);
  }
  const ssize_t got = recv(fd(), space.data(), space.size(), MSG_DONTWAIT);
  if (got < 0 && would_block(errno)) return false;
  if (got <= 0) fail_gone(got < 0 ? errno : 0);
  (incoming_ ? incoming_->filled : arrived_.end) += static_cast<size_t>(got);
  return true;
}

bool ControlChannel::begin_message() {
  Header header;
  if (arrived_.end - arrived_.begin < sizeof header) return false;
  std::memcpy(&header, arrived_.buffer.data() + arrived_.begin, sizeof header);
  if (header.magic != kMagic)
    throw BadMessage(concat(peer_, " sent a message with a wrong magic number"));
  if (const int64_t max_bytes = max_bytes_; header.bytes > static_cast<uint64_t>(max_bytes))
    throw BadMessage(concat(peer_, " sent a message of ", header.bytes, " bytes, at most ",
                            max_bytes, " are allowed"));
  arrived_.begin += sizeof header;
  incoming_.emplace(Incoming{.header = header, .payload = {}});
  return true;
}

std::optional<Message> ControlChannel::parse() {
  if (!incoming_ && !begin_message()) return {};
  const auto whole = static_cast<size_t>(incoming_->header.bytes);
  while (incoming_->filled < whole && arrived_.begin < arrived_.end) {
    const std::span<std::byte> space = incoming_->free_space();
    const size_t bytes = std::min(space.size(), arrived_.end - arrived_.begin);
    std::memcpy(space.data(), arrived_.buffer.data() + arrived_.begin, bytes);
    arrived_.begin += bytes;
    incoming_->filled += bytes;
  }
  if (incoming_->filled < whole) return {};
  const Header& header = incoming_->header;
  if (checksum_of(header, incoming_->payload) != header.checksum)
    throw BadMessage(concat(peer_, " sent a message with a wrong checksum"));
  Message message{header.kind, header.number, std::move(incoming_->payload)};
  incoming_.reset();
  return message;
}

std::optional<Message> ControlChannel::poll() {
  for (;;) {
    if (std::optional<Message> message = parse()) return message;
    if (!read_some()) return {};
  }
}

std::optional<Message> ControlChannel::receive(milliseconds limit) {
  const auto end = Clock::now() + limit;
  for (;;) {
    if (std::optional<Message> message = poll()) return message;
    milliseconds left = kForever;
    if (limit >= milliseconds(0)) {
      left = std::chrono::ceil<milliseconds>(end - Clock::now());
      if (left <= milliseconds(0)) return {};
    }
    wait_for(fd(), POLLIN, left);
  }
}

}  // namespace trireme
