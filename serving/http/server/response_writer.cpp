#include "serving/http/server/response_writer.h"

#include "serving/http/server/response_text.h"

namespace trireme {
namespace {

// Largest body that is copied, to be written together with its head.
constexpr size_t kCopied = 64 << 10;

}  // namespace

std::string ResponseWriter::head_of(HttpExchange& exchange, int status, const std::string& type,
                                    const Headers& headers, const std::string& framing) {
  exchange.status = status;
  Headers all = headers;
  all.insert(all.end(), exchange.origin_headers.begin(), exchange.origin_headers.end());
  return head_text({.status = status,
                    .content_type = type,
                    .request_id = exchange.request.id,
                    .headers = std::move(all),
                    .framing = framing,
                    .keep = exchange.keep,
                    .version = exchange.request.head.version});
}

ResponseWriter::Awaitable<bool> ResponseWriter::write_whole(HttpExchange& exchange,
                                                            const HttpResponse& whole) {
  if (state_.draining) exchange.keep = false;
  std::string bytes = head_of(exchange, whole.status, whole.content_type, whole.headers,
                              concat("Content-Length: ", whole.content().size(), "\r\n"));
  const bool has_body = exchange.request.head.method != "HEAD";
  const bool by_itself = has_body && whole.content().size() > kCopied;
  if (has_body && !by_itself) bytes += whole.content();
  bool written = co_await transport_.write(bytes);
  if (written && by_itself) written = co_await transport_.write(whole.content());
  if (!written) co_return false;
  co_return exchange.keep;
}

ResponseWriter::Awaitable<bool> ResponseWriter::write_events(HttpExchange& exchange,
                                                             const std::string& events, bool begins,
                                                             bool ends) {
  const bool chunks = exchange.is_chunked();
  std::string bytes;
  if (begins)
    bytes = head_of(exchange, 200, "text/event-stream; charset=utf-8", {},
                    chunks ? "Transfer-Encoding: chunked\r\n" : "");
  if (!events.empty()) bytes += chunks ? chunk_text(events) : events;
  if (ends && chunks) bytes += "0\r\n\r\n";
  co_return co_await transport_.write(bytes);
}

}  // namespace trireme
