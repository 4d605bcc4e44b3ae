// Slot of a connection. The number of slots is limited per server and per client address
// (HttpLimits, limits.h). For .cpp files only (includes Asio).
#pragma once

#include <boost/asio/ip/address.hpp>
#include <memory>
#include <string>

#include "serving/http/server/server_state.h"

namespace trireme {

// Counts as one connection while it exists.
class ConnectionSlot {
 public:
  // nullptr: no slot is free.
  static std::unique_ptr<ConnectionSlot> take(std::shared_ptr<ServerState> state,
                                              const boost::asio::ip::address& peer);
  ~ConnectionSlot();
  ConnectionSlot(const ConnectionSlot&) = delete;
  ConnectionSlot& operator=(const ConnectionSlot&) = delete;

 private:
  ConnectionSlot(std::shared_ptr<ServerState> state, std::string group)
      : state_(std::move(state)), group_(std::move(group)) {}

  std::shared_ptr<ServerState> state_;
  std::string group_;  // IPv4 address or IPv6 /64 prefix, whose connections share a limit
};

}  // namespace trireme
