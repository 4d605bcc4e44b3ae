// One connection of a server. For .cpp files only (it includes Asio).
#pragma once

#include <atomic>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/steady_timer.hpp>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "serving/http/server/refusal_log.h"
#include "serving/http/server/request_reader.h"
#include "serving/http/server/server.h"
#include "serving/http/server/transport.h"
#include "serving/http/server/work_queue.h"

namespace trireme {

// What all connections share.
struct ServerState {
  ServerState(HttpConfig its_config, Routes its_routes,
              std::function<void(const RequestSummary&)> its_listener)
      : config(std::move(its_config)),
        routes(std::move(its_routes)),
        on_request(std::move(its_listener)),
        all_bodies(std::make_shared<ByteBudget>(config.limits.all_bodies)),
        workers(config.workers, config.limits.work) {}

  const HttpConfig config;
  const Routes routes;
  const std::function<void(const RequestSummary&)> on_request;
  bool local_names_only = false;
  const std::shared_ptr<ByteBudget> all_bodies;
  std::atomic<int64_t> connections{0}, exchanges{0};
  std::atomic<bool> draining{false};
  RefusalLog refusals;
  WorkQueue workers;                          // stopped before the connections' contexts are gone
  std::mutex mutex;                           // of all below
  std::map<std::string, int64_t> of_address;  // connections
  std::map<const class Connection*, std::weak_ptr<Connection>> open;
};

// One of the connections that a server may have, counted while it is there.
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

// Runs in the one thread of its socket's context. All of its waiting is for `wake_`: reads, writes,
// timers and other threads set what they have to tell and wake it. Its life and what it reads of
// requests is in connection.cpp, how they are answered in connection_answers.cpp, and what both
// wait for in connection_waiting.cpp.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(std::shared_ptr<ServerState> state, std::unique_ptr<ConnectionPlace> place,
             std::unique_ptr<HttpTransport> transport);
  ~Connection();
  void start(bool tls);
  // From any thread: it is closed, unless a request has begun; where none has come yet, after
  // limits.unasked_time.
  void leave_when_idle();

 private:
  using Clock = std::chrono::steady_clock;
  template <class T>
  using Awaitable = boost::asio::awaitable<T>;
  struct Job;       // a request at the workers'
  struct Exchange;  // one that is answered
  struct Lent;      // an answer at the workers'

  static constexpr size_t kReadBytes = 8 << 10;

  Awaitable<void> run(bool tls);
  Awaitable<bool> serve();
  std::chrono::milliseconds time_for_head() const;
  Awaitable<bool> read_head(RequestReader& reader);
  Awaitable<bool> read_body(RequestReader& reader, Exchange& exchange);
  Awaitable<bool> discard_body(RequestReader& reader);
  bool has_small_body(const RequestReader& reader, const Exchange& exchange) const;
  void check_head(Exchange& exchange);
  void log_refused_key(const Exchange& exchange) const;
  bool asks_to_go_on(const Exchange& exchange) const;
  Awaitable<void> close();

  Awaitable<bool> answer(Exchange& exchange, RequestReader& reader);
  Awaitable<bool> work(Exchange& exchange, const std::shared_ptr<Job>& job);
  Awaitable<bool> reply(Exchange& exchange, const HttpReply& whole);
  Awaitable<bool> stream(Exchange& exchange, const std::shared_ptr<PendingReply>& pending);
  Awaitable<void> lend(std::string tenant, std::shared_ptr<Lent> lent, Clock::time_point end);
  std::string head_of(Exchange& exchange, int status, const std::string& type,
                      const Headers& headers, const std::string& framing) const;

  void notify();
  Awaitable<void> wait(Clock::time_point until = Clock::time_point::max());
  void arm(std::chrono::milliseconds limit);
  void arm_against_stall(Clock::time_point since, int unsent);
  void expire();
  void disarm();
  void start_read();
  void watch();
  bool has_left() const;
  Awaitable<void> wait_or_leave(Clock::time_point until = Clock::time_point::max());
  Awaitable<bool> fill();
  Awaitable<bool> write(const std::string& bytes);  // which outlives the wait
  Awaitable<bool> perform(void (HttpTransport::*what)(HttpTransport::Done));

  std::shared_ptr<ServerState> state_;
  std::unique_ptr<ConnectionPlace> place_;
  std::unique_ptr<HttpTransport> transport_;
  boost::asio::steady_timer wake_, deadline_;
  uint64_t alarm_ = 0;    // number of the deadline that counts
  bool expired_ = false;  // it has passed
  std::unique_ptr<char[]> space_;
  std::string in_;  // read, not taken
  uint64_t arrived_ = 0;
  bool reading_ = false, gone_ = false;  // gone: the peer sends nothing any more
  bool writing_ = false, write_failed_ = false;
  bool streaming_ = false;  // what is written is computed for a peer that is there
  size_t written_ = 0;
  bool first_ = true;                  // request
  bool idle_ = false, leave_ = false;  // between requests; when it is, it ends or ends soon
};

}  // namespace trireme
