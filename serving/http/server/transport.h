// Byte transport of a connection: plain TCP or TLS. For .cpp files only (includes Asio).
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
  // Called at the end, with the number of bytes read or written (0 for the other functions).
  using Done = std::function<void(boost::system::error_code, size_t)>;
  virtual ~HttpTransport() = default;
  // Each function may have one pending call, and returns at once. read() and write() may transfer
  // fewer bytes than given; the buffer must exist until `done`.
  virtual void read(boost::asio::mutable_buffer space, Done done) = 0;
  virtual void write(boost::asio::const_buffer bytes, Done done) = 0;
  virtual void handshake(Done done) = 0;      // TLS handshake; nothing for plain TCP
  virtual void shutdown_send(Done done) = 0;  // ends the sending direction
  virtual boost::asio::ip::tcp::socket& socket() = 0;
};

// tls: nullptr: plain TCP.
std::unique_ptr<HttpTransport> make_transport(boost::asio::ip::tcp::socket socket,
                                              boost::asio::ssl::context* tls);

// Number of bytes written to a socket that the peer has not acknowledged; 0 if it is unknown.
int unacknowledged_bytes(int socket);
// True if the peer has closed the connection, or only its sending half, whether or not its earlier
// bytes are read.
bool has_hung_up(int socket);

}  // namespace trireme
