// Stream socket between two processes of a job, which carries plans to waiting ranks and outcomes
// back. The kernel does the waiting, so an idle rank uses no CPU. MPI and NCCL, whose waiting ranks
// spin, are used inside a step only.
//
// A message is a header of fixed size and a payload:
//   uint32 magic, uint32 kind, uint64 number, uint64 payload bytes,
//   uint64 checksum (XXH3) of the rest of the header and the payload
// The kind determines the payload: fixed records (records.h), text, or nothing. No message names
// code or a type. Memory is allocated as bytes arrive, not for the size that a header claims.
#pragma once

#include <chrono>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "parallel/comm/transport/tcp_socket.h"

namespace trireme {

enum class MessageKind : uint32_t {
  kChallenge = 1,  // the three of the handshake (control_rendezvous.h)
  kHello,
  kWelcome,
  kReady,   // from a rank: it has loaded
  kPlan,    // number: of the plan
  kOutput,  // number: of the plan
  kBeat,    // from a rank: its process runs. number: of the last plan computed
  kEnd,     // to a rank: no more plans
  kFailed,  // from a rank: why it ends, as text
  kTask,    // to a rank that starts; this and the rest: rank_weights.h
  kStage,
  kStaged,
  kUse,
  kUsed,
  kDrop,
};

struct Message {
  MessageKind kind = MessageKind::kBeat;
  uint64_t number = 0;
  std::vector<std::byte> payload;
};

class ControlChannel {
 public:
  static constexpr std::chrono::milliseconds kForever{-1};
  // Default limit of accept_payloads(), in bytes.
  static constexpr int64_t kShort = 64 << 10;

  // peer: name of the other end, for errors. Both ends must use this class.
  ControlChannel(Socket socket, std::string peer);
  const std::string& peer() const { return peer_; }
  void name_peer(std::string peer) { peer_ = std::move(peer); }
  // Sets the size limit of payloads received from now on; before: kShort.
  void accept_payloads(int64_t max_bytes) { max_bytes_ = max_bytes; }

  // Any thread. Error(kLostRank) when the peer has closed, or reads nothing for two seconds.
  void send(MessageKind kind, uint64_t number, std::span<const std::byte> payload = {});
  // One thread. Returns the next message; absent: none within `limit`. Error(kLostRank) when the
  // peer has closed, BadMessage for an invalid message.
  std::optional<Message> receive(std::chrono::milliseconds limit);
  // Same without waiting: a message that has arrived completely.
  std::optional<Message> poll();

  int fd() const { return socket_.fd(); }
  // Closes the connection: senders and receivers at both ends get Error(kLostRank). Any thread.
  void shut_down() const noexcept { socket_.shut_down(); }

 private:
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
