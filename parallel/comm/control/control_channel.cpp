#include "parallel/comm/control/control_channel.h"

#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "engine/io/checksum.h"
#include "parallel/comm/control/records.h"

namespace trireme {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr uint32_t kMagic = 0x54524953;  // "TRIS"
constexpr milliseconds kMaxStall{2000};
constexpr size_t kReadBytes = 64 << 10;

struct Header {
  uint32_t magic = kMagic;
  uint32_t kind = 0;
  uint64_t number = 0;
  uint64_t bytes = 0;
  uint64_t checksum = 0;
};
static_assert(sizeof(Header) == 32);

uint64_t checksum_of(Header header, std::span<const std::byte> payload) {
  header.checksum = 0;
  ChecksumStream sum;
  sum.update(std::as_bytes(std::span(&header, 1)));
  sum.update(payload);
  return sum.value();
}

// Waits until fd is ready; false: not within `limit`. Negative limit: none.
bool wait_for(int fd, short what, milliseconds limit) {
  pollfd ready{fd, what, 0};
  return ::poll(&ready, 1, static_cast<int>(limit.count())) > 0;
}

}  // namespace

ControlChannel::ControlChannel(Socket socket, std::string peer)
    : socket_(std::move(socket)), peer_(std::move(peer)) {
  socket_.set_non_blocking();
}

void ControlChannel::fail_gone() const {
  throw Error(concat(peer_, " closed the connection"), ExitCode::kLostRank);
}

void ControlChannel::send_message(uint32_t kind, uint64_t number,
                                  std::span<const std::byte> payload) {
  Header header{.kind = kind, .number = number, .bytes = payload.size()};
  header.checksum = checksum_of(header, payload);
  std::vector<std::byte> bytes(sizeof header + payload.size());
  std::memcpy(bytes.data(), &header, sizeof header);
  if (!payload.empty()) std::memcpy(bytes.data() + sizeof header, payload.data(), payload.size());
  const std::lock_guard lock(sending_);
  for (std::span<const std::byte> left = bytes; !left.empty();) {
    const ssize_t sent = ::send(fd(), left.data(), left.size(), MSG_NOSIGNAL);
    if (sent > 0) {
      left = left.subspan(static_cast<size_t>(sent));
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      if (!wait_for(fd(), POLLOUT, kMaxStall))
        throw Error(concat(peer_, " has stopped reading"), ExitCode::kLostRank);
    } else if (errno != EINTR) {
      fail_gone();
    }
  }
}

bool ControlChannel::read_some() {
  const size_t before = arrived_.size();
  arrived_.resize(before + kReadBytes);
  const ssize_t got = recv(fd(), arrived_.data() + before, kReadBytes, MSG_DONTWAIT);
  const bool nothing = got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR);
  arrived_.resize(before + static_cast<size_t>(std::max<ssize_t>(got, 0)));
  if (got == 0 || (got < 0 && !nothing)) fail_gone();
  return !nothing;
}

std::optional<Message> ControlChannel::parse() {
  Header header;
  if (arrived_.size() < sizeof header) return {};
  std::memcpy(&header, arrived_.data(), sizeof header);
  if (header.magic != kMagic)
    throw BadMessage(concat(peer_, " sent a message with a wrong magic number"));
  if (header.bytes > static_cast<uint64_t>(max_bytes_))
    throw BadMessage(concat(peer_, " sent a message of ", header.bytes, " bytes, at most ",
                            max_bytes_, " are allowed"));
  const auto bytes = static_cast<size_t>(header.bytes);
  if (arrived_.size() - sizeof header < bytes) return {};
  const auto payload = std::span(arrived_).subspan(sizeof header, bytes);
  if (checksum_of(header, payload) != header.checksum)
    throw BadMessage(concat(peer_, " sent a message with a wrong checksum"));
  Message message{header.kind, header.number, {payload.begin(), payload.end()}};
  arrived_.erase(arrived_.begin(),
                 arrived_.begin() + static_cast<ptrdiff_t>(sizeof header + bytes));
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
