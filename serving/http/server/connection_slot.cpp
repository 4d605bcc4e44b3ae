#include "serving/http/server/connection_slot.h"

#include <algorithm>

namespace trireme {
namespace {

namespace asio = boost::asio;

// Part of an address whose connections share a limit: an IPv4 address, or an IPv6 /64 prefix.
std::string address_group(const asio::ip::address& address) {
  if (address.is_v4()) return address.to_string();
  const asio::ip::address_v6 v6 = address.to_v6();
  if (v6.is_v4_mapped()) return asio::ip::make_address_v4(asio::ip::v4_mapped, v6).to_string();
  asio::ip::address_v6::bytes_type bytes = v6.to_bytes();
  std::fill(bytes.begin() + 8, bytes.end(), static_cast<unsigned char>(0));
  return asio::ip::address_v6(bytes).to_string();
}

}  // namespace

std::unique_ptr<ConnectionSlot> ConnectionSlot::take(std::shared_ptr<ServerState> state,
                                                     const asio::ip::address& peer) {
  ServerState& server = *state;
  const HttpLimits& limits = server.config.limits;
  std::string group = address_group(peer);
  const std::lock_guard lock(server.mutex);
  int64_t& from_there = server.of_address[group];
  if (server.connections >= limits.connections || from_there >= limits.connections_per_address) {
    if (from_there == 0) server.of_address.erase(group);
    return nullptr;
  }
  std::unique_ptr<ConnectionSlot> slot(new ConnectionSlot(std::move(state), std::move(group)));
  ++from_there;
  ++server.connections;
  return slot;
}

ConnectionSlot::~ConnectionSlot() {
  --state_->connections;
  const std::lock_guard lock(state_->mutex);
  const auto at = state_->of_address.find(group_);
  if (--at->second == 0) state_->of_address.erase(at);
}

}  // namespace trireme
