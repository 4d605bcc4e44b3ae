// Configuration values that select how context-parallel ranks share a sequence.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace trireme {

// Communication pattern: a ring of keys and values; an all-to-all of heads; or an all-to-all of
// heads between neighbours and a ring of keys and values between their groups.
enum class ContextCommType : uint8_t { kP2P, kA2A, kA2AP2P };
// "p2p", "a2a", "a2a+p2p"; InputError for another name.
ContextCommType parse_context_comm_type(const std::string& name);
const char* context_comm_type_name(ContextCommType type);

// Assignment of chunks to ranks (parallel/context/token_slices.h).
enum class ContextBalance : uint8_t { kZigzag, kContiguous };
// "zigzag", "contiguous"; InputError for another name.
ContextBalance parse_context_balance(const std::string& name);
const char* context_balance_name(ContextBalance balance);

// Names of all values, the default first.
std::vector<std::string> context_comm_types();
std::vector<std::string> context_balances();

// Number of ranks u that exchange heads, for `ranks` context ranks with `heads` query heads each
// (after tensor parallelism); 0 if there is none. One rank: 1. p2p: 1. a2a: all ranks if `ranks`
// divides the heads. a2a+p2p: the largest u with 1 < u < ranks that divides both `ranks` and the
// heads; if `ranks` is a prime that divides the heads, all ranks.
int ulysses_ranks(ContextCommType type, int ranks, int64_t heads);

}  // namespace trireme
