// Messages of a rendezvous (rank_rendezvous.h) and the proofs in them.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "parallel/comm/transport/shared_secret.h"

namespace trireme {

inline constexpr uint32_t kRankMagic = 0x54524934;  // "TRI4"
using RankNonce = std::array<char, 32>;
using RankProof = std::array<char, kProofBytes>;

struct RankChallenge {
  uint32_t magic = kRankMagic;
  RankNonce nonce{};
};

struct RankGreeting {
  uint32_t magic = kRankMagic;
  int32_t rank = 0;
  int32_t size = 0;
  int32_t port = 0;      // where this rank listens
  int32_t line = 0;      // 0: messages, 1: life line
  uint32_t process = 0;  // random: distinguishes two processes that claim the same rank
  int32_t peer = 0;      // rank that it intends to reach
  RankNonce nonce{};
  RankProof proof{};
};

enum class RankRefusal : int32_t { kNone, kSecret, kSize, kRank, kTaken };

struct RankVerdict {
  uint32_t magic = kRankMagic;
  RankRefusal refusal = RankRefusal::kNone;
  RankProof proof{};
};

// greeting_proof(): by the connecting rank, over its greeting. verdict_proof(): by the listening
// rank.
RankProof greeting_proof(const std::string& secret, const RankChallenge& challenge,
                         const RankGreeting& greeting);
RankProof verdict_proof(const std::string& secret, const RankChallenge& challenge,
                        const RankGreeting& greeting);

}  // namespace trireme
