// Control channel: a stream socket between two processes that carries messages outside of a step,
// such as the server's plans to its ranks and their results. A receiver waits in the kernel, so an
// idle one uses no CPU. MPI and NCCL, whose waiting ranks spin, are used only inside a step.
//
// A message is a header of fixed size and a payload:
//   uint32 magic, uint32 kind, uint64 number, uint64 payload bytes,
//   uint64 checksum (XXH3) of the rest of the header and the payload
// The kind determines the payload: fixed records (records.h), bytes, text, or nothing. No message
// names code or a type. Memory is allocated as bytes arrive, not for the size that a header claims.
//
// Each use of the channel has an enum of its kinds, from kFirstMessageKind on.
#pragma once

#include <atomic>
#include <chrono>
#include <concepts>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "parallel/comm/transport/tcp_socket.h"

namespace trireme {

inline constexpr uint32_t kFirstMessageKind = 16;  // smaller kinds are the handshake's

template <class Kind>
concept KindOfMessage =
    std::is_enum_v<Kind> && std::same_as<std::underlying_type_t<Kind>, uint32_t>;

struct Message {
  uint32_t kind = 0;
  uint64_t number = 0;
  std::vector<std::byte> payload;

  template <KindOfMessage Kind>
  bool is(Kind expected) const {
    return kind == static_cast<uint32_t>(expected);
  }
};

class ControlChannel {
 public:
  static constexpr std::chrono::milliseconds kForever{-1};  // receive() waits without limit
  // Default limit of accept_payloads(), in bytes.
  static constexpr int64_t kShort = 64 << 10;
  static constexpr std::chrono::milliseconds kMaxStall{2000};  // default of stall_after()

  // peer: name of the other end, for errors. Both ends must use this class.
  ControlChannel(Socket socket, std::string peer);
  const std::string& peer() const { return peer_; }
  void name_peer(std::string peer) { peer_ = std::move(peer); }
  // Sets the size limit of payloads received from now on, in bytes. It is kShort at first. A
  // message with a larger payload is invalid. Any thread.
  void accept_payloads(int64_t max_bytes) { max_bytes_ = max_bytes; }
  // Sets the time limit of send() for a peer that reads nothing; kForever: none. It is kMaxStall at
  // first. The system reports progress only once a third of its send buffer (up to 4 MB) is free,
  // so a slow link needs more. Not while another thread sends.
  void stall_after(std::chrono::milliseconds limit) { max_stall_ = limit; }
  // Detects by TCP keep-alive that a peer's machine or network is gone: send() and receive() throw
  // `limit` (at least two seconds) after its last packet, or after the first data that it does not
  // acknowledge. The latter includes a peer that reads nothing while data waits for it. No effect
  // on one machine, where the system notices at once.
  void keep_alive(std::chrono::seconds limit) const;

  // Sends a message. Any thread. Error(kLostRank) when the peer has closed the connection, is
  // unreachable (keep_alive()), or reads nothing for a time (stall_after()).
  template <KindOfMessage Kind>
  void send(Kind kind, uint64_t number, std::span<const std::byte> payload = {}) {
    send_message(static_cast<uint32_t>(kind), number, payload);
  }
  // Returns the next message; absent: none within `limit`. Only one thread may receive or poll.
  // Error(kLostRank) when the peer has closed the connection or is unreachable, BadMessage for an
  // invalid message.
  std::optional<Message> receive(std::chrono::milliseconds limit);
  // Same without waiting: returns a message only if it has arrived completely.
  std::optional<Message> poll();

  int fd() const { return socket_.fd(); }
  // Closes the connection: senders and receivers at both ends get Error(kLostRank). Any thread.
  void shut_down() const noexcept { socket_.shut_down(); }

 private:
  void send_message(uint32_t kind, uint64_t number, std::span<const std::byte> payload);
  struct Header {
    uint32_t magic = 0;
    uint32_t kind = 0;
    uint64_t number = 0;
    uint64_t bytes = 0;
    uint64_t checksum = 0;
  };
  // Bytes received that belong to no message yet.
  struct Arrived {
    std::vector<std::byte> buffer;
    size_t begin = 0, end = 0;
  };
  // Message whose header has arrived.
  struct Incoming {
    Header header;
    std::vector<std::byte> payload;  // grows as bytes arrive
    size_t filled = 0;
    std::span<std::byte> free_space();
  };

  static uint64_t checksum_of(Header header, std::span<const std::byte> payload);
  bool read_some();  // false: no bytes available
  std::optional<Message> parse();
  bool begin_message();  // false: its header has not arrived
  [[noreturn]] void fail_gone(int error_number) const;

  Socket socket_;
  std::string peer_;
  std::atomic<int64_t> max_bytes_ = kShort;
  std::chrono::milliseconds max_stall_ = kMaxStall;
  Arrived arrived_;
  std::optional<Incoming> incoming_;
  std::mutex sending_;
};

}  // namespace trireme
