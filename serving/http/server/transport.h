// Bytes of a connection, in the clear or over TLS. For .cpp files only (it includes Asio).
#pragma once

#include <boost/asio/buffer.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <functional>
#include <memory>

namespace boost::asio::ssl {
class context;
}

namespace trireme {

class HttpTransport {
 public:
  using Done = std::function<void(boost::system::error_code, size_t)>;
  virtual ~HttpTransport() = default;
  // One of each kind at a time.
  virtual void read(boost::asio::mutable_buffer space, Done done) = 0;
  virtual void write(boost::asio::const_buffer bytes, Done done) = 0;
  virtual void greet(Done done) = 0;       // TLS's handshake
  virtual void take_leave(Done done) = 0;  // nothing more is written
  virtual boost::asio::ip::tcp::socket& socket() = 0;
};

// tls: nullptr: in the clear.
std::unique_ptr<HttpTransport> make_transport(boost::asio::ip::tcp::socket socket,
                                              boost::asio::ssl::context* tls);

// Bytes that were written to a socket and that the peer has not got.
int unsent_bytes(int socket);
// The peer has closed, if only its half, whatever it sent before.
bool has_hung_up(int socket);

}  // namespace trireme
