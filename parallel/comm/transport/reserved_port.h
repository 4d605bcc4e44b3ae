// TCP port of the loopback interface that a launcher holds for the ranks it starts.
#pragma once

#include "parallel/comm/transport/tcp_socket.h"

namespace trireme {

// It listens from the beginning, so that no other process of the machine can take the port before
// rank 0, which inherits the descriptor (TcpOptions::listener). Connections wait until it accepts
// them. Error where no port is free.
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
