// One connection to a server, and one request after the other on it. For .cpp files only (it
// includes Asio).
//
// Every wait has a limit, and who waits too long gets a ClientError that names the server, what was
// waited for and the limit. A client belongs to one thread; its coroutines run in the executor it
// was made with, one at a time.
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

// The server cannot be reached, has broken off, or speaks no HTTP.
class ClientError : public Error {
 public:
  ClientError(const std::string& what, bool timed_out) : Error(what), timed_out_(timed_out) {}
  bool timed_out() const { return timed_out_; }

 private:
  bool timed_out_;
};

struct ResponseHead {
  int status = 0;
  std::vector<std::pair<std::string, std::string>> headers;  // names in lower case
  // The first value of that name; nullptr: there is none.
  const std::string* find(std::string_view lower_case_name) const;
};

// What a server's name stood for when it was last looked up, for all clients of that server: so
// that a name service which does not answer for a while breaks off nothing and holds nobody up.
struct KnownAddresses {
  std::chrono::milliseconds fresh{30'000};  // so long they are not looked up again
  std::vector<boost::asio::ip::tcp::endpoint> list = {};
  // When they were looked up, or could not be; absent: never, or nobody answered there.
  std::optional<std::chrono::steady_clock::time_point> looked = {};
};

class HttpClient {
 public:
  using Limit = std::chrono::milliseconds;
  template <class T>
  using Awaitable = boost::asio::awaitable<T>;

  virtual ~HttpClient() = default;
  virtual Awaitable<void> connect(Limit limit) = 0;
  // A whole request. What body shows outlives the wait.
  virtual Awaitable<void> send(std::string head, std::string_view body, Limit limit) = 0;
  // Of the answer to what was sent; "100 Continue" and its like are passed over. At most 64 KiB.
  virtual Awaitable<ResponseHead> read_head(Limit limit) = 0;
  // Appends what comes next of the body, as it comes (it may be nothing). False: the body was
  // complete before.
  virtual Awaitable<bool> read_body(std::string& out, Limit limit) = 0;
  // The answer was read to its end, the server keeps the connection, and has sent nothing more.
  virtual bool can_be_reused() const = 0;
  virtual bool is_connected() const = 0;  // connect() has succeeded
  // What waits fails at once, and what is asked for later.
  virtual void close() = 0;
  virtual bool is_closed() const = 0;  // by close()
};

// ca_file: PEM certificates to trust beside the system's; "" none. InputError when they cannot be
// read.
std::shared_ptr<boost::asio::ssl::context> make_client_tls(const std::string& ca_file);

// tls: of make_client_tls; needed where the server's address says https. known: of the executor's
// thread; may be absent.
std::unique_ptr<HttpClient> make_http_client(const boost::asio::any_io_executor& executor,
                                             const ServerAddress& server,
                                             const std::shared_ptr<boost::asio::ssl::context>& tls,
                                             std::shared_ptr<KnownAddresses> known = {});

// The rest of a body, at most so many bytes; ClientError beyond.
boost::asio::awaitable<std::string> read_whole_body(HttpClient& client, size_t most,
                                                    std::chrono::milliseconds limit);

}  // namespace trireme
