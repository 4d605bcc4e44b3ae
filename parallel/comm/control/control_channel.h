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

  // peer: name of the other end, for errors. Both ends must use this class.
  ControlChannel(Socket socket, std::string peer);
  const std::string& peer() const { return peer_; }
  void name_peer(std::string peer) { peer_ = std::move(peer); }
  // Sets the size limit of payloads received from now on, in bytes. It is kShort at first. A
  // message with a larger payload is invalid.
  void accept_payloads(int64_t max_bytes) { max_bytes_ = max_bytes; }

  // Sends a message. Any thread. Error(kLostRank) when the peer has closed the connection, or reads
  // nothing for two seconds.
  template <KindOfMessage Kind>
  void send(Kind kind, uint64_t number, std::span<const std::byte> payload = {}) {
    send_message(static_cast<uint32_t>(kind), number, payload);
  }
  // Returns the next message; absent: none within `limit`. Only one thread may receive or poll.
  // Error(kLostRank) when the peer has closed the connection, BadMessage for an invalid message.
  std::optional<Message> receive(std::chrono::milliseconds limit);
  // Same without waiting: returns a message only if it has arrived completely.
  std::optional<Message> poll();

  int fd() const { return socket_.fd(); }
  // Closes the connection: senders and receivers at both ends get Error(kLostRank). Any thread.
  void shut_down() const noexcept { socket_.shut_down(); }

 private:
  void send_message(uint32_t kind, uint64_t number, std::span<const std::byte> payload);
  bool read_some();  // false: no bytes available
  std::optional<Message> parse();
  [[noreturn]] void fail_gone() const;

  Socket socket_;
  std::string peer_;
  int64_t max_bytes_ = kShort;
  std::vector<std::byte> arrived_;
  std::mutex sending_;
};

}  // namespace trireme
