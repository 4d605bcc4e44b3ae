#include "serving/http/server/server.h"

#include <netinet/tcp.h>

#include <algorithm>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <thread>

#include "engine/core/file_limit.h"
#include "engine/core/thread_name.h"
#include "engine/observe/log.h"
#include "serving/http/server/connection.h"

namespace trireme {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

constexpr int kMaxUnsent = 64 << 10;

asio::ip::address address_of(const std::string& host) {
  error_code error;
  const bool brackets = host.size() > 2 && host.front() == '[' && host.back() == ']';
  const std::string name = brackets ? host.substr(1, host.size() - 2) : host;
  asio::ip::address address =
      asio::ip::make_address(name == "localhost" ? "127.0.0.1" : name, error);
  if (error)
    fail_input("host \"", host,
               "\" is not an address: give one of this machine, such as 127.0.0.1 or ", "0.0.0.0");
  return address;
}

std::unique_ptr<asio::ssl::context> tls_context(const TlsFiles& files) {
  auto tls = std::make_unique<asio::ssl::context>(asio::ssl::context::tls_server);
  tls->set_options(asio::ssl::context::default_workarounds | asio::ssl::context::no_tlsv1 |
                   asio::ssl::context::no_tlsv1_1);
  error_code error;
  tls->use_certificate_chain_file(files.certificate, error);
  if (error) fail_input("cannot read the certificate ", files.certificate, ": ", error.message());
  tls->use_private_key_file(files.key, asio::ssl::context::pem, error);
  if (error) fail_input("cannot read the private key ", files.key, ": ", error.message());
  return tls;
}

// Response to a connection above the limit, sent at once without reading its request.
std::string refusal_of_connection() {
  const std::string body = error_body(503, "too many connections", "too_many_connections");
  return concat("HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\n",
                "Retry-After: 1\r\nretry-after-ms: 1000\r\nContent-Length: ", body.size(),
                "\r\nConnection: close\r\n\r\n", body);
}

}  // namespace

class HttpServer::Impl {
 public:
  Impl(HttpConfig config, Routes routes, std::function<void(const RequestSummary&)> on_request);
  ~Impl() { stop(); }
  void stop();
  void close_idle();
  ServerState& state() { return *state_; }
  int port() const { return port_; }

 private:
  using Context = asio::io_context;
  void listen();
  static void run(Context& context, size_t number);
  asio::awaitable<void> accept_connections();
  void welcome(tcp::socket socket, const tcp::endpoint& peer);

  std::shared_ptr<ServerState> state_;
  std::unique_ptr<asio::ssl::context> tls_;
  std::vector<std::unique_ptr<Context>> contexts_;
  std::vector<asio::executor_work_guard<Context::executor_type>> guards_;
  std::unique_ptr<tcp::acceptor> acceptor_;
  std::vector<std::thread> threads_;
  int port_ = 0;
};

HttpServer::Impl::Impl(HttpConfig config, Routes routes,
                       std::function<void(const RequestSummary&)> on_request)
    : state_(std::make_shared<ServerState>(std::move(config), std::move(routes),
                                           std::move(on_request))) {
  const HttpConfig& given = state_->config;
  TRIREME_CHECK(given.threads > 0 && given.workers > 0,
                "expected at least one thread and one worker");
  if (given.tls) tls_ = tls_context(*given.tls);
  for (int i = 0; i < given.threads; ++i) {
    contexts_.push_back(std::make_unique<Context>(1));
    guards_.push_back(asio::make_work_guard(*contexts_.back()));
  }
  listen();
  raise_file_limit(given.limits.connections + 256);
  asio::co_spawn(*contexts_[0], accept_connections(), asio::detached);
  for (size_t i = 0; i < contexts_.size(); ++i)
    threads_.emplace_back([&context = *contexts_[i], i] { run(context, i); });
}

// An exception of an Asio handler, usually std::bad_alloc, ends only that handler.
void HttpServer::Impl::run(Context& context, size_t number) {
  name_thread("http", number);
  for (bool done = false; !done;) {
    try {
      context.run();
      done = true;
    } catch (const std::exception& error) {
      log_error("a handler of a connection failed: ", error.what());
    }
  }
}

void HttpServer::Impl::listen() {
  const HttpConfig& given = state_->config;
  const asio::ip::address address = address_of(given.host);
  if (given.keys.empty() && !given.insecure) {
    if (!address.is_loopback())
      fail_input(
          "other machines could reach ", given.host,
          " and there is no API key: give one (--api-key-file), or listen on 127.0.0.1, or allow ",
          "all clients (--insecure)");
    state_->local_names_only = true;
  }
  acceptor_ = std::make_unique<tcp::acceptor>(*contexts_[0]);
  try {
    const tcp::endpoint endpoint(address, static_cast<asio::ip::port_type>(given.port));
    acceptor_->open(endpoint.protocol());
    acceptor_->set_option(tcp::acceptor::reuse_address(true));
    acceptor_->bind(endpoint);
    acceptor_->listen(4096);
    port_ = acceptor_->local_endpoint().port();
  } catch (const boost::system::system_error& error) {
    fail_input("cannot listen on ", given.host, ", port ", given.port, ": ", error.code().message(),
               error.code() == asio::error::address_in_use
                   ? "; give another --port, or 0 for one that is free"
                   : "");
  }
}

asio::awaitable<void> HttpServer::Impl::accept_connections() {
  asio::steady_timer pause(*contexts_[0]);
  for (size_t next = 0;; next = (next + 1) % contexts_.size()) {
    tcp::socket socket(*contexts_[next]);
    tcp::endpoint peer;
    const auto [error] =
        co_await acceptor_->async_accept(socket, peer, asio::as_tuple(asio::use_awaitable));
    if (error == asio::error::operation_aborted) co_return;
    if (!error) {
      try {
        welcome(std::move(socket), peer);
      } catch (const std::exception& fault) {
        log_error("cannot accept a connection: ", fault.what());
      }
      continue;
    }
    // Usually too many open files: wait until some are closed.
    pause.expires_after(std::chrono::milliseconds(20));
    co_await pause.async_wait(asio::as_tuple(asio::use_awaitable));
  }
}

void HttpServer::Impl::welcome(tcp::socket socket, const tcp::endpoint& peer) {
  std::unique_ptr<ConnectionSlot> slot = ConnectionSlot::take(state_, peer.address());
  error_code ignored;
  if (slot == nullptr) {
    socket.non_blocking(true, ignored);
    if (tls_ == nullptr) socket.write_some(asio::buffer(refusal_of_connection()), ignored);
    socket.shutdown(tcp::socket::shutdown_send, ignored);
    return;
  }
  socket.set_option(tcp::no_delay(true), ignored);
  socket.non_blocking(true, ignored);
  // A slow reader must not have megabytes waiting in the kernel's buffer.
  const int unsent = kMaxUnsent;
  setsockopt(socket.native_handle(), IPPROTO_TCP, TCP_NOTSENT_LOWAT, &unsent, sizeof unsent);
  auto connection = std::make_shared<Connection>(state_, std::move(slot),
                                                 make_transport(std::move(socket), tls_.get()));
  connection->start(tls_ != nullptr);
}

void HttpServer::Impl::close_idle() {
  std::vector<std::shared_ptr<Connection>> open;
  {
    const std::lock_guard lock(state_->mutex);
    for (const auto& [key, connection] : state_->open)
      if (auto one = connection.lock()) open.push_back(std::move(one));
  }
  for (const auto& connection : open) connection->leave_when_idle();
}

void HttpServer::Impl::stop() {
  for (const auto& context : contexts_) context->stop();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
  state_->workers.stop();
  acceptor_.reset();
  guards_.clear();
  contexts_.clear();  // destroys all pending handlers too
}

HttpServer::HttpServer(HttpConfig config, Routes routes,
                       std::function<void(const RequestSummary&)> on_request)
    : impl_(std::make_unique<Impl>(std::move(config), std::move(routes), std::move(on_request))) {}

HttpServer::~HttpServer() = default;

int HttpServer::port() const { return impl_->port(); }

HttpCounts HttpServer::counts() const {
  const ServerState& state = impl_->state();
  return {state.connections, state.exchanges, state.workers.waiting()};
}

bool HttpServer::drain(std::chrono::milliseconds limit) {
  if (!impl_->state().draining.exchange(true)) impl_->close_idle();
  const auto end = std::chrono::steady_clock::now() + limit;
  while (impl_->state().exchanges > 0) {
    if (std::chrono::steady_clock::now() >= end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

void HttpServer::stop() { impl_->stop(); }

}  // namespace trireme
