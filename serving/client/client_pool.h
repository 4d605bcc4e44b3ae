// Connections to one server that are kept between requests. For .cpp files only (it includes Asio).
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

  // Sends a request, as HttpClient::send() has it, on a connection that is kept where there is one,
  // and reads the answer's head. `client` is the connection in use, also while this waits: who
  // closes it has this fail. A kept connection that the server has closed meanwhile is replaced by
  // a new one; ClientError where that fails too.
  boost::asio::awaitable<ResponseHead> send(const std::string& head, std::string_view body,
                                            HttpClient::Limit connect_limit,
                                            HttpClient::Limit limit,
                                            std::shared_ptr<HttpClient>& client);
  // A client that is not connected yet, for whoever keeps none here.
  std::unique_ptr<HttpClient> make_client() const {
    return make_http_client(executor_, server_, tls_, known_);
  }
  // The answer has been read: the connection is kept if it can be.
  void give_back(std::shared_ptr<HttpClient> client);
  // Those that nobody has asked for lately are closed; who takes one does that too.
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
  std::vector<Idle> idle_;  // the longest idle first
};

}  // namespace trireme
