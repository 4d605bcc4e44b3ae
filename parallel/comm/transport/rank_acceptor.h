// Listening side of a rendezvous (rank_rendezvous.h): serves all connections at once until all
// ranks have joined.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "parallel/comm/transport/rank_greeting.h"
#include "parallel/comm/transport/tcp_address.h"
#include "parallel/comm/transport/tcp_socket.h"
#include "parallel/comm/transport/transport.h"

namespace trireme {

// Connections by line (RankGreeting::line) and rank.
constexpr int kRankLines = 2;
using RankLines = std::array<std::vector<Socket>, kRankLines>;

class RankAcceptor {
 public:
  using Clock = std::chrono::steady_clock;
  // Limit on connections that have not sent a greeting yet. Each has kIntroduction to send it, or
  // kMinIntroduction while further connections wait.
  static constexpr size_t kMaxPending = 128;
  static constexpr std::chrono::milliseconds kIntroduction{5000}, kMinIntroduction{200};
  using Joined = std::function<void(const RankGreeting&, const TcpAddress& from)>;

  // Accepts ranks >= first other than options.rank. All arguments outlive this object.
  RankAcceptor(const Socket& listener, const TcpOptions& options, int first, RankLines& lines);
  // Returns when every rank has joined with both lines; calls `joined` for each. A warning lists
  // the missing ranks at notice_before(end); Error(kLostRank) at `end`, whatever else connects.
  void accept_all(Clock::time_point end, const Joined& joined);
  // Time of a waiting rank's warning: in ten seconds, or after a quarter of the remaining time if
  // that is sooner.
  static Clock::time_point notice_before(Clock::time_point end);

 private:
  struct PendingConnection {
    Socket socket;
    TcpAddress from;
    RankChallenge challenge;
    Clock::time_point since;
    std::array<char, sizeof(RankGreeting)> bytes{};
    size_t got = 0;
  };
  enum class ReadResult { kIncomplete, kGreeting, kEnd };

  std::string missing_ranks() const;
  std::vector<bool> wait() const;
  void read_greetings(const std::vector<bool>& ready, const Joined& joined);
  static ReadResult read_greeting(PendingConnection& pending);
  void admit_or_refuse(PendingConnection& pending, const Joined& joined);
  std::optional<RankRefusal> refusal_of(const PendingConnection& pending,
                                        const RankGreeting& hello) const;
  void drop_silent();
  void accept_one();
  void turn_away(const PendingConnection& pending, const char* why);

  const Socket& listener_;
  const TcpOptions& options_;
  int first_, missing_ = 0;
  RankLines& lines_;
  std::vector<std::optional<uint32_t>> processes_;  // by rank
  std::vector<PendingConnection> pending_;          // oldest first
  Clock::time_point accepts_again_{};               // no connection is accepted before
  int turned_away_ = 0;
};

}  // namespace trireme
