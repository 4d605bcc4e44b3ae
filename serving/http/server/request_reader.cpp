#include "serving/http/server/request_reader.h"

#include <algorithm>
#include <boost/beast/http/basic_parser.hpp>

namespace trireme {
namespace {

namespace http = boost::beast::http;
using boost::beast::error_code;
using BeastText = boost::beast::string_view;

constexpr size_t kMaxChunkHead = 8 << 10;  // a chunk's size line with extensions, or the trailer
// Shortest chunked body, "0\r\n\r\n". After the size of a last chunk, Beast's parser assumes that
// this many bytes are available, which holds only after another chunk.
constexpr size_t kMinChunkedBody = 5;

// Headers that are not lists: a repetition makes the request ambiguous.
constexpr const char* kSingleHeaders[] = {"Content-Length", "Content-Type", "Authorization",
                                          "X-Request-Timeout-Ms"};

std::string plain(BeastText text) { return std::string(text.data(), text.size()); }

std::string lower(std::string text) {
  for (char& c : text)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return text;
}

bool has_bare_line_feed(std::string_view bytes) {
  for (size_t at = bytes.find('\n'); at != std::string_view::npos; at = bytes.find('\n', at + 1))
    if (at == 0 || bytes[at - 1] != '\r') return true;
  return false;
}

bool is_fault_of_size(const error_code& error) { return error == http::error::body_limit; }

}  // namespace

// Stores the parser's results in the reader.
class RequestReader::Parser final : public http::basic_parser<true> {
 public:
  explicit Parser(RequestReader& reader) : reader_(reader) {}

 private:
  void on_request_impl(http::verb, BeastText method, BeastText target, int version,
                       error_code&) override {
    reader_.head_.method = plain(method);
    reader_.head_.target = plain(target);
    reader_.head_.version = version;
  }
  void on_response_impl(int, BeastText, int, error_code&) override {}
  void on_field_impl(http::field, BeastText name, BeastText value, error_code&) override {
    if (!head_done_)  // ignores the trailer
      reader_.head_.headers.emplace_back(lower(plain(name)), plain(value));
  }
  void on_header_impl(error_code&) override { head_done_ = true; }
  void on_body_init_impl(const boost::optional<std::uint64_t>&, error_code&) override {}
  size_t on_body_impl(BeastText body, error_code& error) override { return keep(body, error); }
  void on_chunk_header_impl(std::uint64_t, BeastText, error_code&) override {}
  size_t on_chunk_body_impl(std::uint64_t, BeastText body, error_code& error) override {
    return keep(body, error);
  }
  void on_finish_impl(error_code&) override {}

  size_t keep(BeastText body, error_code& error) {
    if (!reader_.keep_body_) return body.size();
    if (!reader_.share_.grow(static_cast<int64_t>(body.size()))) {
      reader_.refuse(503, "the server buffers too many large requests", "server_overloaded");
      error = http::error::body_limit;
      return 0;
    }
    reader_.body_.append(body.data(), body.size());
    return body.size();
  }

  RequestReader& reader_;
  bool head_done_ = false;
};

RequestReader::RequestReader(const HttpLimits& limits, std::shared_ptr<ByteBudget> all_bodies)
    : limits_(limits), share_(std::move(all_bodies)) {}

RequestReader::~RequestReader() = default;

void RequestReader::refuse(int status, const std::string& message, const char* code) {
  if (refusal_ != nullptr) return;
  refusal_ = std::make_unique<ApiError>(status, message, "", code);
  if (status == 503) refusal_->retry_after(1000);
  state_ = State::kRefused;
}

size_t RequestReader::feed(std::string_view bytes) {
  if (state_ == State::kHead) return feed_head(bytes);
  if (state_ == State::kBody) return feed_body(bytes);
  return 0;
}

size_t RequestReader::feed_head(std::string_view bytes) {
  // Empty lines before a request are ignored (RFC 9112, 2.2).
  if (!begun_ && bytes.substr(0, 2) == "\r\n") return 2;
  if (!begun_ && bytes == "\r") return 0;
  begun_ = begun_ || !bytes.empty();
  if (!scan(bytes)) return 0;
  parser_ = std::make_unique<Parser>(*this);
  parser_->header_limit(static_cast<std::uint32_t>(scanned_ + 1024));
  parser_->body_limit(limits_.body);
  error_code error;
  const size_t taken = parser_->put({bytes.data(), scanned_}, error);
  if (is_fault_of_size(error)) {
    refuse(413, concat("the body is larger than ", limits_.body, " bytes"), "body_too_large");
  } else if (error && error != http::error::need_more) {
    refuse(400, concat("invalid HTTP request: ", error.message()), "bad_request");
  } else if (!parser_->is_header_done() || taken != scanned_) {
    refuse(400, "invalid HTTP request", "bad_request");
  } else {
    finish_head();
  }
  return taken;
}

// Scans lines up to the empty one, after which scanned_ is the end of the head.
bool RequestReader::scan(std::string_view bytes) {
  while (state_ == State::kHead && scanned_ < bytes.size()) {
    const size_t end = bytes.find('\n', scanned_);
    const bool complete = end != std::string_view::npos;
    scanned_ = complete ? end + 1 : bytes.size();
    size_t length = (complete ? end : bytes.size()) - line_;
    if (complete) {
      if (length == 0 || bytes[end - 1] != '\r') {
        refuse(400, "expected CR LF at the end of each line of the head", "bad_request");
        return false;
      }
      --length;
    } else if (length > 0 && bytes.back() == '\r') {
      --length;
    }
    if (!end_line(length, bytes)) return false;
    if (!complete) return false;
    if (length == 0) return true;
    line_ = scanned_;
    headers_bytes_ += lines_ > 0 ? length : 0;
    ++lines_;
  }
  return false;
}

// Checks the limits of a line of which `length` bytes have arrived. False: rejected.
bool RequestReader::end_line(size_t length, std::string_view bytes) {
  if (lines_ == 0) {
    if (length <= limits_.request_line) return true;
    refuse(414, concat("the request line is longer than ", limits_.request_line, " bytes"),
           "request_line_too_long");
  } else if (length > limits_.header) {
    refuse(431, concat("a header is longer than ", limits_.header, " bytes"), "header_too_long");
  } else if (headers_bytes_ + length > limits_.headers_bytes) {
    refuse(431, concat("the headers are larger than ", limits_.headers_bytes, " bytes"),
           "headers_too_large");
  } else if (length > 0 && lines_ > limits_.headers) {
    refuse(431, concat("the request has more than ", limits_.headers, " headers"),
           "too_many_headers");
  } else if (length > 0 && (bytes[line_] == ' ' || bytes[line_] == '\t')) {
    refuse(400, "folded headers are not supported", "bad_request");
  } else {
    return true;
  }
  return false;
}

// Converts the target "http://HOST/PATH" to "/PATH", and sets the request's host to HOST, ignoring
// the Host header (RFC 9112, 3.2.2). False: rejected.
bool RequestReader::to_origin_form() {
  const size_t hosts = head_.count("host");
  if (hosts > 1 || (head_.version == 11 && hosts == 0)) {
    refuse(400, "expected exactly one Host header", "bad_request");
    return false;
  }
  const size_t colon = head_.target.find("://");
  if (colon == std::string::npos) return true;
  const std::string scheme = lower(head_.target.substr(0, colon));
  if (scheme != "http" && scheme != "https") return true;
  const size_t begin = colon + 3;
  const size_t end = std::min(head_.target.find_first_of("/?#", begin), head_.target.size());
  const std::string host = head_.target.substr(begin, end - begin);
  if (host.empty() || host.find('@') != std::string::npos) {
    refuse(400, "expected a host without a user name in the request's target", "bad_request");
    return false;
  }
  std::string rest = head_.target.substr(end);
  head_.target = rest.starts_with("/") ? std::move(rest) : "/" + rest;
  std::erase_if(head_.headers, [](const auto& header) { return header.first == "host"; });
  head_.headers.emplace_back("host", host);
  return true;
}

void RequestReader::finish_head() {
  if (!to_origin_form()) return;
  const size_t query = head_.target.find('?');
  head_.path = head_.target.substr(0, query);
  if (query != std::string::npos) head_.query = head_.target.substr(query + 1);
  head_.keep_alive = parser_->keep_alive();
  head_.chunked = parser_->chunked();
  if (const auto bytes = parser_->content_length()) head_.content_length = *bytes;
  const std::string* coding = head_.find("transfer-encoding");
  if (head_.path.empty() || head_.path[0] != '/')
    return refuse(400, "expected a request target that begins with /", "bad_request");
  const std::string* length = head_.find("content-length");
  if (length != nullptr && length->find(',') != std::string::npos)
    return refuse(400, "expected one value for the header Content-Length", "bad_request");
  for (const char* name : kSingleHeaders)
    if (head_.count(lower(name)) > 1)
      return refuse(400, concat("the header ", name, " is given twice"), "bad_request");
  if (coding != nullptr && head_.version < 11)
    return refuse(400, "Transfer-Encoding is not supported in HTTP/1.0", "bad_request");
  if (coding != nullptr && lower(*coding) != "chunked")
    return refuse(501, "the Transfer-Encoding is not supported; supported: chunked",
                  "not_implemented");
  state_ = parser_->is_done() ? State::kDone : State::kBody;
  if (state_ == State::kBody) parser_->eager(true);
}

size_t RequestReader::feed_body(std::string_view bytes) {
  error_code error;
  size_t taken = 0;
  if (head_.chunked && !chunks_begun_ && bytes.size() < kMinChunkedBody) return 0;
  chunks_begun_ = true;
  if (!bytes.empty()) taken = parser_->put({bytes.data(), bytes.size()}, error);
  if (state_ == State::kRefused) return taken;
  if (is_fault_of_size(error)) {
    refuse(413, concat("the body is larger than ", limits_.body, " bytes"), "body_too_large");
  } else if (error && error != http::error::need_more) {
    refuse(400, concat("invalid HTTP body: ", error.message()), "bad_request");
  } else if (parser_->is_done()) {
    state_ = State::kDone;
  } else if (taken == 0 && head_.chunked && has_bare_line_feed(bytes)) {
    refuse(400, "expected CR LF at the end of a chunk's head", "bad_request");
  } else if (taken == 0 && bytes.size() > kMaxChunkHead) {
    refuse(400, "a chunk's head is too long", "bad_request");
  }
  return taken;
}

}  // namespace trireme
