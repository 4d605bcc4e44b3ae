#include "serving/client/http_client.h"

#include <algorithm>
#include <array>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/connect.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/buffer_body.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <optional>

namespace trireme {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using asio::ip::tcp;
using boost::system::error_code;
using TlsStream = asio::ssl::stream<beast::tcp_stream>;
using Clock = std::chrono::steady_clock;

constexpr uint32_t kMaxHeadBytes = 64 << 10;
constexpr size_t kReadBytes = 16 << 10;

// Errors are returned as values, so that nothing is thrown inside Asio.
constexpr auto kTuple = asio::as_tuple(asio::use_awaitable);

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c; });
  return text;
}

template <class Stream>
class StreamClient final : public HttpClient {
 public:
  StreamClient(Stream stream, ServerAddress server, std::shared_ptr<asio::ssl::context> tls,
               std::shared_ptr<KnownAddresses> known)
      : tls_(std::move(tls)),
        stream_(std::move(stream)),
        server_(std::move(server)),
        known_(std::move(known)) {}

  Awaitable<void> connect(Limit limit) override;
  Awaitable<void> send(std::string head, std::string_view body, Limit limit) override;
  Awaitable<ResponseHead> read_head(Limit limit) override;
  Awaitable<bool> read_body(std::string& out, Limit limit) override;
  bool can_be_reused() const override {
    return !closed_ && parser_ && parser_->is_done() && parser_->keep_alive() &&
           buffer_.size() == 0;
  }
  bool is_connected() const override { return connected_; }
  bool has_response() const override { return has_response_; }
  bool is_closed() const override { return closed_; }
  void close() override {
    closed_ = true;
    resolver_.cancel();
    beast::get_lowest_layer(stream_).close();
  }

 private:
  using Parser = http::response_parser<http::buffer_body>;
  Awaitable<std::vector<tcp::endpoint>> resolve(Limit limit);
  void check(error_code error, const char* doing, Limit limit) const;

  std::shared_ptr<asio::ssl::context> tls_;  // must outlive the stream
  Stream stream_;
  ServerAddress server_;
  std::shared_ptr<KnownAddresses> known_;
  tcp::resolver resolver_{stream_.get_executor()};
  beast::flat_buffer buffer_{kMaxHeadBytes + kReadBytes};
  std::optional<Parser> parser_;
  bool connected_ = false, closed_ = false, has_response_ = false;
  std::array<char, kReadBytes> space_{};
};

template <class Stream>
void StreamClient<Stream>::check(error_code error, const char* doing, Limit limit) const {
  if (!error && !closed_) return;
  if (closed_) throw ClientError(concat(server_.url(), ": ", doing, " was aborted"), false);
  const bool late = error == beast::error::timeout;
  throw ClientError(late ? concat(server_.url(), ": ", doing, " took longer than ",
                                  static_cast<double>(limit.count()) / 1e3, " s")
                         : concat(server_.url(), ": ", doing, ": ", error.message()),
                    late);
}

template <class Stream>
asio::awaitable<std::vector<tcp::endpoint>> StreamClient<Stream>::resolve(Limit limit) {
  error_code no_address;
  const asio::ip::address address = asio::ip::make_address(server_.host, no_address);
  std::vector<tcp::endpoint> out;
  if (!no_address) {
    out.emplace_back(address, static_cast<asio::ip::port_type>(std::stoi(server_.port)));
    co_return out;
  }
  const bool knows = known_ != nullptr && !known_->list.empty();
  const auto looked = knows ? known_->looked : std::nullopt;
  if (looked && Clock::now() - *looked < known_->fresh) co_return known_->list;
  enum class State { kAsking, kLate, kResponded };
  const auto state = std::make_shared<State>(State::kAsking);
  asio::steady_timer deadline(stream_.get_executor(), limit);
  deadline.async_wait([state, this](error_code error) {
    if (error || *state != State::kAsking) return;
    *state = State::kLate;
    resolver_.cancel();
  });
  auto [error, found] = co_await resolver_.async_resolve(server_.host, server_.port, kTuple);
  const bool late = *state == State::kLate;
  *state = State::kResponded;
  if (known_ != nullptr) known_->looked = Clock::now();
  if ((late || error) && knows && !closed_) co_return known_->list;
  check(late ? error_code(beast::error::timeout) : error, "resolving its host name", limit);
  for (const auto& entry : found) out.push_back(entry.endpoint());
  if (known_ != nullptr) known_->list = out;
  co_return out;
}

template <class Stream>
asio::awaitable<void> StreamClient<Stream>::connect(Limit limit) {
  const std::vector<tcp::endpoint> addresses = co_await resolve(limit);
  beast::tcp_stream& tcp_layer = beast::get_lowest_layer(stream_);
  tcp_layer.expires_after(limit);
  const auto [error, where] = co_await tcp_layer.async_connect(addresses, kTuple);
  if (error && known_ != nullptr) known_->looked.reset();  // its address may have changed
  check(error, "connecting", limit);
  error_code ignored;
  tcp_layer.socket().set_option(tcp::no_delay(true), ignored);
  if constexpr (std::is_same_v<Stream, TlsStream>) {
    // Server name for SNI; addresses have none (RFC 6066).
    asio::ip::make_address(server_.host, ignored);
    if (ignored) SSL_set_tlsext_host_name(stream_.native_handle(), server_.host.c_str());
    stream_.set_verify_callback(asio::ssl::host_name_verification(server_.host));
    tcp_layer.expires_after(limit);
    const auto [refused] = co_await stream_.async_handshake(asio::ssl::stream_base::client, kTuple);
    check(refused, "TLS handshake", limit);
  }
  connected_ = true;
}

template <class Stream>
asio::awaitable<void> StreamClient<Stream>::send(std::string head, std::string_view body,
                                                 Limit limit) {
  parser_.reset();
  has_response_ = false;
  beast::get_lowest_layer(stream_).expires_after(limit);
  const std::array<asio::const_buffer, 2> both = {asio::buffer(head), asio::buffer(body)};
  const auto [error, bytes] = co_await asio::async_write(stream_, both, kTuple);
  check(error, "sending a request", limit);
}

template <class Stream>
asio::awaitable<ResponseHead> StreamClient<Stream>::read_head(Limit limit) {
  ResponseHead head;
  beast::get_lowest_layer(stream_).expires_after(limit);
  do {
    parser_.emplace();
    parser_->header_limit(kMaxHeadBytes);
    parser_->body_limit(boost::none);
    const auto [error, bytes] =
        co_await http::async_read_header(stream_, buffer_, *parser_, kTuple);
    has_response_ = has_response_ || parser_->got_some();
    check(error, "waiting for a response", limit);
    head.status = static_cast<int>(parser_->get().result_int());
  } while (head.status >= 100 && head.status < 200 && head.status != 101);
  for (const auto& field : parser_->get())
    head.headers.emplace_back(lower(std::string(field.name_string())), std::string(field.value()));
  const std::string* coding = head.find("transfer-encoding");
  if (head.status == 101 || (coding != nullptr && lower(*coding) != "chunked"))
    throw ClientError(concat(server_.url(), ": the response has an unsupported framing"), false);
  co_return head;
}

template <class Stream>
asio::awaitable<bool> StreamClient<Stream>::read_body(std::string& out, Limit limit) {
  TRIREME_CHECK(parser_.has_value(), "read_body() was called before read_head()");
  if (parser_->is_done()) co_return false;
  auto& body = parser_->get().body();
  body.data = space_.data();
  body.size = space_.size();
  beast::get_lowest_layer(stream_).expires_after(limit);
  const auto [error, bytes] = co_await http::async_read_some(stream_, buffer_, *parser_, kTuple);
  if (error != http::error::need_buffer) check(error, "reading a response body", limit);
  out.append(space_.data(), space_.size() - body.size);
  co_return true;
}

}  // namespace

const std::string* ResponseHead::find(std::string_view name) const {
  for (const auto& [key, value] : headers)
    if (key == name) return &value;
  return nullptr;
}

std::shared_ptr<asio::ssl::context> make_client_tls(const std::string& ca_file) {
  auto tls = std::make_shared<asio::ssl::context>(asio::ssl::context::tls_client);
  tls->set_options(asio::ssl::context::default_workarounds | asio::ssl::context::no_tlsv1 |
                   asio::ssl::context::no_tlsv1_1);
  tls->set_verify_mode(asio::ssl::verify_peer);
  error_code error;
  tls->set_default_verify_paths(error);
  if (!ca_file.empty()) {
    tls->load_verify_file(ca_file, error);
    if (error) fail_input("cannot read the certificates ", ca_file, ": ", error.message());
  }
  return tls;
}

std::unique_ptr<HttpClient> make_http_client(const asio::any_io_executor& executor,
                                             const ServerAddress& server,
                                             const std::shared_ptr<asio::ssl::context>& tls,
                                             std::shared_ptr<KnownAddresses> known) {
  if (!server.tls)
    return std::make_unique<StreamClient<beast::tcp_stream>>(beast::tcp_stream(executor), server,
                                                             nullptr, std::move(known));
  TRIREME_CHECK(tls != nullptr, "an https server without a TLS context");
  return std::make_unique<StreamClient<TlsStream>>(TlsStream(beast::tcp_stream(executor), *tls),
                                                   server, tls, std::move(known));
}

asio::awaitable<std::string> read_whole_body(HttpClient& client, size_t most,
                                             std::chrono::milliseconds limit) {
  std::string out;
  while (co_await client.read_body(out, limit))
    if (out.size() > most)
      throw ClientError(concat("a response is larger than ", most, " bytes"), false);
  co_return out;
}

}  // namespace trireme
