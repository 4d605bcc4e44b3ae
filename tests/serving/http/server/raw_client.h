// HTTP client that sends arbitrary bytes.
#pragma once

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <thread>

namespace trireme::test {

inline constexpr int kPatienceMs = 60'000;

template <class Condition>
bool eventually(const Condition& condition) {
  for (int ms = 0; ms < kPatienceMs; ms += 2) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return condition();
}

struct Response {
  int status = 0;  // 0: no response
  std::string head;
  std::map<std::string, std::string> headers;  // as sent
  std::string body;                            // without chunk framing
  bool complete = false;
};

class RawClient {
 public:
  explicit RawClient(int port, int receive_buffer = 0)
      : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    if (receive_buffer > 0)
      setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof receive_buffer);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address), 0)
        << strerror(errno);
    const int yes = 1;
    setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
  }
  ~RawClient() { hang_up(); }
  RawClient(const RawClient&) = delete;
  RawClient& operator=(const RawClient&) = delete;

  // Returns false when the server has closed the connection.
  bool send(const std::string& bytes) {
    for (size_t at = 0; at < bytes.size();) {
      const ssize_t sent = ::send(fd_, bytes.data() + at, bytes.size() - at, MSG_NOSIGNAL);
      if (sent <= 0) return false;
      at += static_cast<size_t>(sent);
    }
    return true;
  }
  void hang_up() {
    if (fd_ >= 0) close(fd_);
    fd_ = -1;
  }
  void reset() {  // RST
    const linger now{.l_onoff = 1, .l_linger = 0};
    setsockopt(fd_, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    hang_up();
  }
  void shut_down_sending() { shutdown(fd_, SHUT_WR); }

  // Receives more bytes into the buffer. Returns false at the end of the stream or after a timeout.
  bool receive() {
    pollfd wanted{fd_, POLLIN, 0};
    if (poll(&wanted, 1, kPatienceMs) <= 0) return false;
    char bytes[16 << 10];
    const ssize_t got = recv(fd_, bytes, sizeof bytes, 0);
    if (got > 0) in_.append(bytes, static_cast<size_t>(got));
    return got > 0;
  }
  bool receive_until(const std::string& text) {
    while (in_.find(text) == std::string::npos)
      if (!receive()) return false;
    return true;
  }
  // Reads until the server closes the connection. Returns false after a timeout.
  bool is_closed() {
    while (receive()) {
    }
    return has_more();
  }
  // Returns whether the server, a process on this machine, has read everything sent.
  bool is_read() const {
    sockaddr_in own{}, peer{};
    socklen_t bytes = sizeof own;
    getsockname(fd_, reinterpret_cast<sockaddr*>(&own), &bytes);
    getpeername(fd_, reinterpret_cast<sockaddr*>(&peer), &bytes);
    const auto end = [](const sockaddr_in& address) {
      char text[16];
      snprintf(text, sizeof text, "%08X:%04X", address.sin_addr.s_addr, ntohs(address.sin_port));
      return std::string(text);
    };
    // Fields of a line: number, local address, remote address, state, bytes to send:bytes to read.
    std::ifstream lines("/proc/net/tcp");
    for (std::string line; std::getline(lines, line);) {
      std::istringstream words(line);
      std::string number, at, other, state, queues;
      words >> number >> at >> other >> state >> queues;
      if (at == end(peer) && other == end(own)) return queues.ends_with(":00000000");
    }
    return false;
  }
  // Returns whether bytes or the end of the stream have arrived.
  bool has_more() const {
    pollfd wanted{fd_, POLLIN, 0};
    return poll(&wanted, 1, 0) == 1;
  }
  const std::string& buffer() const { return in_; }
  int file() const { return fd_; }

  // Next response; head_only: a response to HEAD, without a body.
  Response response(bool head_only = false) {
    Response r;
    if (!receive_until("\r\n\r\n")) return r;
    const size_t end = in_.find("\r\n\r\n");
    r.head = in_.substr(0, end + 2);
    in_.erase(0, end + 4);
    r.status = std::stoi(r.head.substr(9, 3));
    for (size_t at = r.head.find("\r\n") + 2; at < r.head.size();) {
      const size_t line_end = r.head.find("\r\n", at), colon = r.head.find(": ", at);
      r.headers[r.head.substr(at, colon - at)] = r.head.substr(colon + 2, line_end - colon - 2);
      at = line_end + 2;
    }
    if (head_only || r.status == 100) {
      r.complete = true;
    } else if (r.headers.contains("Content-Length")) {
      const size_t length = std::stoul(r.headers["Content-Length"]);
      while (in_.size() < length)
        if (!receive()) return r;
      r.body = in_.substr(0, length);
      in_.erase(0, length);
      r.complete = true;
    } else if (r.headers.contains("Transfer-Encoding")) {
      r.complete = read_chunks(r.body);
    } else {
      while (receive()) {
      }
      r.body = std::move(in_);
      in_.clear();
      r.complete = true;
    }
    return r;
  }

 private:
  bool read_chunks(std::string& body) {
    for (;;) {
      if (!receive_until("\r\n")) return false;
      const size_t line = in_.find("\r\n");
      const size_t size = std::stoul(in_.substr(0, line), nullptr, 16);
      while (in_.size() < line + 2 + size + 2)
        if (!receive()) return false;
      body.append(in_, line + 2, size);
      EXPECT_EQ(in_.substr(line + 2 + size, 2), "\r\n");
      in_.erase(0, line + 2 + size + 2);
      if (size == 0) return true;
    }
  }
  int fd_;
  std::string in_;
};

inline std::string get(const std::string& path, const std::string& more = "") {
  return "GET " + path + " HTTP/1.1\r\nHost: localhost\r\n" + more + "\r\n";
}
inline std::string post(const std::string& path, const std::string& body,
                        const std::string& more = "") {
  return "POST " + path +
         " HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: " +
         std::to_string(body.size()) + "\r\n" + more + "\r\n" + body;
}
inline Response ask(int port, const std::string& request) {
  RawClient client(port);
  client.send(request);
  return client.response(request.starts_with("HEAD"));
}

}  // namespace trireme::test
