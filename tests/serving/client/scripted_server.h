// HTTP server that sends scripted bytes, and closes connections where the script does.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "engine/core/error.h"
#include "serving/client/server_address.h"

namespace trireme::test {

struct ScriptedResponse {
  std::string bytes;
  bool closes = false;                  // the connection, after all bytes
  std::vector<std::string> later = {};  // bytes sent after these, each after a pause
};

// Responses to the next requests, whichever of the servers that share it they reach.
class ResponseScript {
 public:
  explicit ResponseScript(std::vector<ScriptedResponse> responses)
      : responses_(responses.begin(), responses.end()) {}
  ScriptedResponse next() {
    const std::lock_guard lock(mutex_);
    ++requests_;
    if (responses_.empty()) return {"", true};
    ScriptedResponse out = std::move(responses_.front());
    responses_.pop_front();
    return out;
  }
  int requests() {
    const std::lock_guard lock(mutex_);
    return requests_;
  }

 private:
  std::mutex mutex_;
  std::deque<ScriptedResponse> responses_;
  int requests_ = 0;
};

// Responds to health checks by 200, and to other requests by the script.
class ScriptedServer {
 public:
  explicit ScriptedServer(std::shared_ptr<ResponseScript> script)
      : script_(std::move(script)), listener_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof address);
    listen(listener_, 8);
    socklen_t size = sizeof address;
    getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size);
    address_ =
        parse_server_address(concat("http://127.0.0.1:", ntohs(address.sin_port)), "--server");
    accepting_ = std::thread([this] { accept_connections(); });
  }
  ~ScriptedServer() {
    shutdown(listener_, SHUT_RDWR);
    accepting_.join();
    for (const int peer : peers_) shutdown(peer, SHUT_RDWR);
    for (std::thread& one : connections_) one.join();
    for (const int peer : peers_) close(peer);
    close(listener_);
  }
  ScriptedServer(const ScriptedServer&) = delete;
  ScriptedServer& operator=(const ScriptedServer&) = delete;
  const ServerAddress& address() const { return address_; }

 private:
  void accept_connections() {
    for (int peer = 0; (peer = accept(listener_, nullptr, nullptr)) >= 0;) {
      peers_.push_back(peer);
      connections_.emplace_back([this, peer] { respond(peer); });
    }
  }
  void respond(int peer) {
    for (std::string head; read_request(peer, head);) {
      ScriptedResponse response{"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"};
      if (!head.starts_with("GET /health")) response = script_->next();
      send(peer, response.bytes.data(), response.bytes.size(), MSG_NOSIGNAL);
      for (const std::string& bytes : response.later) {
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
        send(peer, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      }
      if (response.closes) break;
    }
    shutdown(peer, SHUT_RDWR);
  }
  static bool read_request(int peer, std::string& head) {
    char byte = 0;
    for (head.clear(); !head.ends_with("\r\n\r\n"); head += byte)
      if (read(peer, &byte, 1) != 1) return false;
    const std::string name = "content-length: ";
    const auto at = std::ranges::search(head, name, [](char a, char b) { return (a | 0x20) == b; });
    if (at.empty()) return true;
    // The body is read, too: closing with unread bytes would reset the connection.
    for (size_t left = std::stoul(std::string(at.end(), head.end())); left > 0; --left)
      if (read(peer, &byte, 1) != 1) return false;
    return true;
  }

  std::shared_ptr<ResponseScript> script_;
  int listener_;
  ServerAddress address_;
  std::vector<int> peers_;  // closed last, so that no number of theirs is used again
  std::vector<std::thread> connections_;
  std::thread accepting_;
};

}  // namespace trireme::test
