// Shared secret of a job: random bytes, and proofs that a peer knows the secret without sending it.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>

namespace trireme {

// Random bytes from the operating system's generator. Error if it fails.
std::string random_bytes(size_t count);
std::string hex_digits(std::string_view bytes);
// A new secret: 256 random bits as 64 hex digits.
std::string make_secret();

inline constexpr size_t kProofBytes = 32;
// HMAC-SHA256 over the parts, each preceded by its length, so that no two lists of parts have the
// same proof. Returns kProofBytes raw bytes. The secret may be empty: the proof then shows only
// that the peer speaks the protocol.
std::string secret_proof(const std::string& secret, std::initializer_list<std::string_view> parts);
// Comparison whose duration does not depend on which bytes differ.
bool equal_in_constant_time(std::string_view a, std::string_view b);

}  // namespace trireme
