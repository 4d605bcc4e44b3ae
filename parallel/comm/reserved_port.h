// A TCP port that no other process is given while this object lives, and that one may listen on.
#pragma once

#include "parallel/comm/tcp_socket.h"

namespace trireme {

// Bound but not listening: whoever sets SO_REUSEADDR as well, as our listeners do, may bind it too, while the kernel gives
// it to nobody who asks for any port. Error where none is free.
class ReservedPort {
 public:
  ReservedPort();
  int number() const { return number_; }

 private:
  Socket socket_;
  int number_ = 0;
};

}  // namespace trireme
