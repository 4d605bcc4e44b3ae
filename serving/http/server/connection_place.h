// Place of a connection among those that a server and one address may have. For .cpp files only (it
// includes Asio).
#pragma once

#include <boost/asio/ip/address.hpp>
#include <memory>
#include <string>

#include "serving/http/server/server_state.h"

namespace trireme {

// Counted while it exists.
class ConnectionPlace {
 public:
  // nullptr: there is none left.
  static std::unique_ptr<ConnectionPlace> take(std::shared_ptr<ServerState> state,
                                               const boost::asio::ip::address& peer);
  ~ConnectionPlace();
  ConnectionPlace(const ConnectionPlace&) = delete;
  ConnectionPlace& operator=(const ConnectionPlace&) = delete;

 private:
  ConnectionPlace(std::shared_ptr<ServerState> state, std::string group)
      : state_(std::move(state)), group_(std::move(group)) {}

  std::shared_ptr<ServerState> state_;
  std::string group_;  // the part of the address whose connections are counted together
};

}  // namespace trireme
