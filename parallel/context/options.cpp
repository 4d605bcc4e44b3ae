#include "parallel/context/options.h"

#include "engine/core/error.h"
#include "parallel/config_keys.h"

namespace trireme {
namespace {

constexpr ContextCommType kCommTypes[] = {ContextCommType::kP2P, ContextCommType::kA2A,
                                          ContextCommType::kA2AP2P};
constexpr ContextBalance kBalances[] = {ContextBalance::kZigzag, ContextBalance::kContiguous};

}  // namespace

const char* context_comm_type_name(ContextCommType type) {
  switch (type) {
    case ContextCommType::kP2P: return "p2p";
    case ContextCommType::kA2A: return "a2a";
    case ContextCommType::kA2AP2P: return "a2a+p2p";
  }
  TRIREME_UNREACHABLE("context communication type ", static_cast<int>(type));
}

ContextCommType parse_context_comm_type(const std::string& name) {
  for (const ContextCommType type : kCommTypes)
    if (name == context_comm_type_name(type)) return type;
  fail_input(key::kContextType, " \"", name, "\" is not supported; supported: p2p, a2a, a2a+p2p");
}

const char* context_balance_name(ContextBalance balance) {
  return balance == ContextBalance::kZigzag ? "zigzag" : "contiguous";
}

ContextBalance parse_context_balance(const std::string& name) {
  for (const ContextBalance balance : kBalances)
    if (name == context_balance_name(balance)) return balance;
  fail_input(key::kContextBalance, " \"", name,
             "\" is not supported; supported: zigzag, contiguous");
}

std::vector<std::string> context_comm_types() {
  std::vector<std::string> names;
  for (const ContextCommType type : kCommTypes) names.emplace_back(context_comm_type_name(type));
  return names;
}

std::vector<std::string> context_balances() {
  std::vector<std::string> names;
  for (const ContextBalance b : kBalances) names.emplace_back(context_balance_name(b));
  return names;
}

int ulysses_ranks(ContextCommType type, int ranks, int64_t heads) {
  if (type == ContextCommType::kP2P || ranks == 1) return 1;
  bool prime = true;
  for (int u = ranks / 2; u > 1; --u) {
    if (ranks % u != 0) continue;
    prime = false;
    if (type == ContextCommType::kA2AP2P && heads % u == 0) return u;
  }
  const bool all = type == ContextCommType::kA2A || prime;
  return all && heads % ranks == 0 ? ranks : 0;
}

}  // namespace trireme
