// HTTP/1.1 client: one connection, which sends one request after the other. For .cpp files only
// (includes Asio).
//
// Every wait has a time limit; when it passes, ClientError names the server, the operation and the
// limit. A client belongs to one thread. Its coroutines run on its executor, one at a time.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/core/error.h"
#include "serving/client/server_address.h"

namespace boost::asio::ssl {
class context;
}

namespace trireme {

// Failure of a request: the server is unreachable, too slow, has closed the connection, or sends
// an invalid or too large response; or HttpClient::close() was called.
class ClientError : public Error {
 public:
  ClientError(const std::string& what, bool timed_out) : Error(what), timed_out_(timed_out) {}
  bool timed_out() const { return timed_out_; }  // a time limit has passed

 private:
  bool timed_out_;
};

struct ResponseHead {
  int status = 0;
  std::vector<std::pair<std::string, std::string>> headers;  // names in lower case
  // First value of that name; nullptr: absent.
  const std::string* find(std::string_view lower_case_name) const;
};

// Cached addresses of a server's host name, shared by all its clients. New connections use them
// without a DNS look-up while they are fresh, and afterwards if the look-up fails.
struct KnownAddresses {
  std::chrono::milliseconds fresh{30'000};  // period without another look-up
  std::vector<boost::asio::ip::tcp::endpoint> list = {};
  // Time of the last look-up, failed or not; nullopt: none yet, or none since a connection attempt
  // failed.
  std::optional<std::chrono::steady_clock::time_point> looked = {};
};

class HttpClient {
 public:
  using Limit = std::chrono::milliseconds;
  template <class T>
  using Awaitable = boost::asio::awaitable<T>;

  virtual ~HttpClient() = default;
  // Looks up the address, connects and performs the TLS handshake, each within `limit`.
  virtual Awaitable<void> connect(Limit limit) = 0;
  // Sends a whole request. head: request line and headers, with the empty line. `body` must outlive
  // the wait.
  virtual Awaitable<void> send(std::string head, std::string_view body, Limit limit) = 0;
  // Reads the head of the response, at most 64 KiB; skips "100 Continue" and other 1xx responses.
  virtual Awaitable<ResponseHead> read_head(Limit limit) = 0;
  // Appends the next part of the body as it arrives, possibly empty. False: the body was complete
  // before.
  virtual Awaitable<bool> read_body(std::string& out, Limit limit) = 0;
  // True if the response was read completely, the server keeps the connection open, and no more
  // bytes arrived.
  virtual bool can_be_reused() const = 0;
  virtual bool is_connected() const = 0;  // connect() has succeeded
  // A byte of the response to the last request has arrived, possibly of an interim (1xx) one.
  virtual bool has_response() const = 0;
  // Closes the connection. Pending and later calls fail at once.
  virtual void close() = 0;
  virtual bool is_closed() const = 0;  // by close()
};

// ca_file: PEM certificates to trust besides the system's; "": none. InputError if they cannot be
// read.
std::shared_ptr<boost::asio::ssl::context> make_client_tls(const std::string& ca_file);

// tls: from make_client_tls(), required for https addresses. known: used on the executor's thread;
// may be nullptr.
std::unique_ptr<HttpClient> make_http_client(const boost::asio::any_io_executor& executor,
                                             const ServerAddress& server,
                                             const std::shared_ptr<boost::asio::ssl::context>& tls,
                                             std::shared_ptr<KnownAddresses> known = {});

// Reads the rest of a body, each part within `limit`. ClientError above `most` bytes.
boost::asio::awaitable<std::string> read_whole_body(HttpClient& client, size_t most,
                                                    std::chrono::milliseconds limit);

}  // namespace trireme
