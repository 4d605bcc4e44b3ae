#include "serving/http/server/transport.h"

#include <linux/sockios.h>
#include <poll.h>
#include <sys/ioctl.h>

#include <boost/asio/post.hpp>
#include <boost/asio/ssl.hpp>

namespace trireme {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

class PlainTransport final : public HttpTransport {
 public:
  explicit PlainTransport(tcp::socket socket) : socket_(std::move(socket)) {}
  void read(asio::mutable_buffer space, Done done) override {
    socket_.async_read_some(space, std::move(done));
  }
  void write(asio::const_buffer bytes, Done done) override {
    socket_.async_write_some(bytes, std::move(done));
  }
  void handshake(Done done) override {
    asio::post(socket_.get_executor(), [done = std::move(done)] { done({}, 0); });
  }
  void shutdown_send(Done done) override {
    error_code ignored;
    socket_.shutdown(tcp::socket::shutdown_send, ignored);
    asio::post(socket_.get_executor(), [done = std::move(done)] { done({}, 0); });
  }
  tcp::socket& socket() override { return socket_; }

 private:
  tcp::socket socket_;
};

class TlsTransport final : public HttpTransport {
 public:
  TlsTransport(tcp::socket socket, asio::ssl::context& tls) : stream_(std::move(socket), tls) {}
  void read(asio::mutable_buffer space, Done done) override {
    stream_.async_read_some(space, std::move(done));
  }
  void write(asio::const_buffer bytes, Done done) override {
    stream_.async_write_some(bytes, std::move(done));
  }
  void handshake(Done done) override {
    stream_.async_handshake(asio::ssl::stream_base::server,
                            [done = std::move(done)](error_code error) { done(error, 0); });
  }
  void shutdown_send(Done done) override {
    stream_.async_shutdown([done = std::move(done)](error_code error) { done(error, 0); });
  }
  tcp::socket& socket() override { return stream_.next_layer(); }

 private:
  asio::ssl::stream<tcp::socket> stream_;
};

}  // namespace

std::unique_ptr<HttpTransport> make_transport(tcp::socket socket, asio::ssl::context* tls) {
  if (tls == nullptr) return std::make_unique<PlainTransport>(std::move(socket));
  return std::make_unique<TlsTransport>(std::move(socket), *tls);
}

int unacknowledged_bytes(int socket) {
  int bytes = 0;
  return ioctl(socket, SIOCOUTQ, &bytes) == 0 ? bytes : 0;
}

bool has_hung_up(int socket) {
  pollfd asked{socket, POLLRDHUP, 0};
  return poll(&asked, 1, 0) == 1;
}

}  // namespace trireme
