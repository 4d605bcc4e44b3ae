// Pool of idle connections to one server. For .cpp files only (includes Asio).
#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include "serving/client/http_client.h"

namespace trireme {

// Belongs to the thread of its executor.
class ClientPool {
 public:
  ClientPool(boost::asio::any_io_executor executor, ServerAddress server,
             std::shared_ptr<boost::asio::ssl::context> tls)
      : executor_(std::move(executor)), server_(std::move(server)), tls_(std::move(tls)) {}
  const ServerAddress& server() const { return server_; }

  // Sends a request, as HttpClient::send() does, on an idle connection if there is one, and reads
  // the response's head. Sets `client` to the connection in use before it waits, so that closing it
  // makes this call fail. If an idle connection fails before a byte of the response, other than by
  // `limit` or close(), the server is assumed to have closed it before it got the request, which is
  // sent again on a new connection, POST included. ClientError if that fails, too. connect_limit
  // and limit apply to each operation.
  boost::asio::awaitable<ResponseHead> send(const std::string& head, std::string_view body,
                                            HttpClient::Limit connect_limit,
                                            HttpClient::Limit limit,
                                            std::shared_ptr<HttpClient>& client);
  // Makes an unconnected client that is not part of the pool.
  std::unique_ptr<HttpClient> make_client() const {
    return make_http_client(executor_, server_, tls_, known_);
  }
  // Returns a connection to the pool once its response has been read. It is kept if it can be
  // reused.
  void give_back(std::shared_ptr<HttpClient> client);
  // Closes connections that have been idle for 4 s or more; send() does that too.
  void close_old();

 private:
  struct Idle {
    std::shared_ptr<HttpClient> client;
    std::chrono::steady_clock::time_point since;
  };
  std::shared_ptr<HttpClient> take_idle();

  boost::asio::any_io_executor executor_;
  ServerAddress server_;
  std::shared_ptr<boost::asio::ssl::context> tls_;
  std::shared_ptr<KnownAddresses> known_ = std::make_shared<KnownAddresses>();
  std::vector<Idle> idle_;  // longest idle first
};

}  // namespace trireme
