// Configuration values that select how context-parallel ranks share a sequence.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace trireme {

// Communication pattern: a ring of keys and values; an all-to-all of heads; or an all-to-all of
// heads between neighbours and a ring of keys and values between their groups.
enum class ContextCommType : uint8_t { kP2P, kA2A, kA2AP2P };
ContextCommType parse_context_comm_type(const std::string& name);  // "p2p", "a2a", "a2a+p2p"
const char* context_comm_type_name(ContextCommType type);

// Assignment of chunks to ranks (parallel/context/token_slices.h).
enum class ContextBalance : uint8_t { kZigzag, kContiguous };
ContextBalance parse_context_balance(const std::string& name);  // "zigzag", "contiguous"
const char* context_balance_name(ContextBalance balance);

// All values, the default first.
std::vector<std::string> context_comm_types();
std::vector<std::string> context_balances();

// Number of ranks u that exchange heads, for `ranks` context ranks with `heads` query heads each
// (after tensor parallelism). p2p: 1. a2a: all ranks. a2a+p2p: the largest divisor of `ranks` that
// is smaller than `ranks` and divides the heads; if `ranks` is a prime that divides the heads, all
// ranks. 0 if there is none.
int ulysses_ranks(ContextCommType type, int ranks, int64_t heads);

}  // namespace trireme
