// One connection of a server. For .cpp files only (it includes Asio).
#pragma once

#include <atomic>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "serving/http/request_reader.h"
#include "serving/http/server.h"
#include "serving/http/transport.h"

namespace trireme {

// What all connections share.
struct ServerState {
  ServerState(HttpConfig its_config, Routes its_routes,
              std::function<void(const RequestSummary&)> its_listener)
      : config(std::move(its_config)),
        routes(std::move(its_routes)),
        on_request(std::move(its_listener)),
        all_bodies(config.limits.all_bodies),
        workers(std::make_unique<boost::asio::thread_pool>(static_cast<size_t>(config.workers))) {}

  const HttpConfig config;
  const Routes routes;
  const std::function<void(const RequestSummary&)> on_request;
  bool local_names_only = false;
  std::atomic<int64_t> all_bodies;  // bytes that may still be held
  std::atomic<int64_t> connections{0}, exchanges{0};
  std::atomic<bool> draining{false};
  std::unique_ptr<boost::asio::thread_pool> workers;  // gone before the connections' contexts are
  std::mutex mutex;
  std::map<std::string, int64_t> of_address;  // connections
};

// The part of an address whose connections are counted together.
std::string address_group(const boost::asio::ip::address& address);

// Runs in the one thread of its socket's context. All of its waiting is for `wake_`: reads, writes, timers and
// other threads set what they have to tell and wake it.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(std::shared_ptr<ServerState> state, std::unique_ptr<HttpTransport> transport,
             std::string address);
  ~Connection();
  void start(bool tls);

 private:
  using Clock = std::chrono::steady_clock;
  template <class T>
  using Awaitable = boost::asio::awaitable<T>;
  struct Job;       // a request at the workers'
  struct Exchange;  // one that is answered

  Awaitable<void> run(bool tls);
  Awaitable<bool> serve();
  Awaitable<bool> read_head(RequestReader& reader);
  Awaitable<bool> read_body(RequestReader& reader, Exchange& exchange);
  Awaitable<bool> discard_body(RequestReader& reader);
  bool has_small_body(const RequestReader& reader, const Exchange& exchange) const;
  void check_head(Exchange& exchange);
  bool asks_to_go_on(const Exchange& exchange) const;
  Awaitable<bool> answer(Exchange& exchange, std::string body);
  Awaitable<bool> reply(Exchange& exchange, const HttpReply& whole);
  Awaitable<bool> stream(Exchange& exchange, PendingReply& pending);
  std::string head_of(Exchange& exchange, int status, const std::string& type,
                      const Headers& headers, const std::string& framing) const;
  Awaitable<void> close();

  void notify();
  Awaitable<void> wait(Clock::time_point until = Clock::time_point::max());
  void arm(std::chrono::milliseconds limit);
  void disarm();
  void start_read();
  void watch();
  Awaitable<bool> fill();
  Awaitable<bool> write(const std::string& bytes);  // which outlives the wait
  Awaitable<bool> perform(void (HttpTransport::*what)(HttpTransport::Done));

  std::shared_ptr<ServerState> state_;
  std::unique_ptr<HttpTransport> transport_;
  std::string address_;
  boost::asio::steady_timer wake_, deadline_;
  uint64_t alarm_ = 0;    // number of the deadline that counts
  bool expired_ = false;  // it has passed
  std::unique_ptr<char[]> space_;
  std::string in_;  // read, not taken
  uint64_t arrived_ = 0;
  bool reading_ = false, gone_ = false;  // gone: the peer sends nothing any more
  bool writing_ = false, write_failed_ = false;
  size_t written_ = 0;
  bool first_ = true;  // request
};

}  // namespace trireme
