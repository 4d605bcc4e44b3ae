// Sockets with errors that say what failed, and the meeting of ranks over them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "parallel/comm/transport.h"

namespace trireme {

class Socket {
 public:
  Socket() = default;
  explicit Socket(int fd) : fd_(fd) {}
  ~Socket();
  Socket(Socket&& other) noexcept;
  Socket& operator=(Socket&& other) noexcept;
  int fd() const { return fd_; }
  bool open() const { return fd_ >= 0; }
  void set_non_blocking() const;
  void shut_down() const noexcept;  // wakes the other side

 private:
  int fd_ = -1;
};

// Two connections to every other rank (index = rank, closed for the own one), ready for use:
// non-blocking, without delay. Connections that do not speak our protocol are dropped.
struct RankSockets {
  std::vector<Socket> messages;
  std::vector<Socket> life_lines;
};
RankSockets meet_ranks(const TcpOptions& options);

}  // namespace trireme
