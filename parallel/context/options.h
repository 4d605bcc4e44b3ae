// The words of a configuration that say how context-parallel ranks share a sequence.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace trireme {

// What travels: keys and values around a ring; heads, all-to-all; or heads between neighbours and
// keys between their groups.
enum class ContextCommType : uint8_t { kP2P, kA2A, kA2AP2P };
ContextCommType parse_context_comm_type(const std::string& name);  // "p2p", "a2a", "a2a+p2p"
const char* context_comm_type_name(ContextCommType type);

// Which chunks a rank holds (parallel/context/token_slices.h).
enum class ContextBalance : uint8_t { kZigzag, kContiguous };
ContextBalance parse_context_balance(const std::string& name);  // "zigzag", "contiguous"
const char* context_balance_name(ContextBalance balance);

// All words, the default first.
std::vector<std::string> context_comm_types();
std::vector<std::string> context_balances();

// Ranks that exchange heads, u, for `ranks` context ranks with `heads` query heads each (after
// tensor parallelism): 1 for p2p, all for a2a; for a2a+p2p the largest divisor of `ranks` below it
// that divides the heads, or all ranks where they are a prime number that does. 0 where there is
// none.
int ulysses_ranks(ContextCommType type, int ranks, int64_t heads);

}  // namespace trireme
