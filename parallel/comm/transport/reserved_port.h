// TCP port of the loopback interface that a launcher reserves for the ranks it starts.
#pragma once

#include "parallel/comm/transport/tcp_socket.h"

namespace trireme {

// Listens from construction on, so that no other process of the machine can take the port before
// rank 0, which inherits the descriptor (TcpOptions::listener). Connections wait until rank 0
// accepts them. Error if no port is free.
class ReservedPort {
 public:
  ReservedPort();
  int number() const { return number_; }
  int descriptor() const { return socket_.fd(); }

 private:
  Socket socket_;
  int number_ = 0;
};

}  // namespace trireme
