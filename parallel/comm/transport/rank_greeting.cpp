#include "parallel/comm/transport/rank_greeting.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <initializer_list>
#include <string_view>

namespace trireme {
namespace {

RankProof proof_over(const std::string& secret, std::initializer_list<std::string_view> parts) {
  const std::string digest = secret_proof(secret, parts);
  RankProof out;
  std::ranges::copy(digest, out.begin());
  return out;
}

// All fields of a greeting except its proof.
std::string_view signed_part(const RankGreeting& greeting) {
  return {reinterpret_cast<const char*>(&greeting), offsetof(RankGreeting, proof)};
}

std::string_view words(const RankNonce& nonce) { return {nonce.data(), nonce.size()}; }

}  // namespace

RankProof greeting_proof(const std::string& secret, const RankChallenge& challenge,
                         const RankGreeting& greeting) {
  return proof_over(secret, {"connects", words(challenge.nonce), signed_part(greeting)});
}

RankProof verdict_proof(const std::string& secret, const RankChallenge& challenge,
                        const RankGreeting& greeting) {
  return proof_over(secret, {"accepts", words(challenge.nonce), signed_part(greeting)});
}

}  // namespace trireme
