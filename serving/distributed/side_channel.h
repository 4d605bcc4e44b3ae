// The way on which plans come to ranks that wait, and outcomes go back: a stream socket between two
// processes of one job, waited on by the kernel, so that an idle rank takes no processor. MPI and
// NCCL, whose waiting ranks spin, are used inside a step only.
//
// A message is a header of fixed size and a payload:
//   uint32 magic, uint32 kind, uint64 number, uint64 bytes of the payload, uint64 checksum of all this (XXH3)
// Its kind says what the payload is: fixed records (records.h), words, or nothing. There is nothing
// in it that could name code or a type, and memory is taken as bytes arrive, not as a header
// announces them.
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
  kChallenge = 1,  // the three of the meeting (side_meeting.h)
  kHello,
  kWelcome,
  kReady,    // from a rank: it has loaded
  kPlan,     // number: of the plan
  kOutcome,  // number: of the plan
  kBeat,     // from a rank: its process runs. number: of the last plan it has computed
  kEnd,      // to a rank: no plan comes any more
  kFailed,   // from a rank: why it ends, in words
  kTask,     // to a rank that starts, and what follows: rank_weights.h
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

class SideChannel {
 public:
  static constexpr std::chrono::milliseconds kForever{-1};
  static constexpr int64_t kShort = 64 << 10;

  // peer: in words, for errors. Both ends are of this class.
  SideChannel(Socket socket, std::string peer);
  const std::string& peer() const { return peer_; }
  void name_peer(std::string peer) { peer_ = std::move(peer); }
  // Longer payloads that arrive from now on are refused; kShort before.
  void accept_payloads(int64_t most_bytes) { most_bytes_ = most_bytes; }

  // Any thread. Error(kLostRank) when the peer has gone, or takes nothing for two seconds.
  void send(MessageKind kind, uint64_t number, std::span<const std::byte> payload = {});
  // One thread. The next message; none within `limit`. Error(kLostRank) when the peer has gone,
  // BadMessage for what is no message.
  std::optional<Message> receive(std::chrono::milliseconds limit);
  // The same without waiting: a message that has arrived in whole.
  std::optional<Message> poll();

  int fd() const { return socket_.fd(); }
  // Whoever sends or receives here, or at the other end, is told that the peer has gone. Any
  // thread.
  void shut_down() const noexcept { socket_.shut_down(); }

 private:
  bool read_some();  // false: nothing is there
  std::optional<Message> parse();
  [[noreturn]] void fail_gone() const;

  Socket socket_;
  std::string peer_;
  int64_t most_bytes_ = kShort;
  std::vector<std::byte> arrived_;
  std::mutex sending_;
};

}  // namespace trireme
