// Conversion of the requests and responses that the router forwards. Heads are rewritten, so that
// no peer's framing gets through (RFC 9110, 7.6.1).
#pragma once

#include <string>
#include <string_view>

#include "serving/http/server/exchange.h"

namespace trireme {

// Head of the forwarded request to `authority` (host:port), with `base` before its path;
// forwarded_body() follows it. Sets Host, X-Request-Id and, for POST, Content-Length. Omits
// hop-by-hop headers, Accept-Encoding, Expect and Origin. Sends HEAD as GET.
std::string forwarded_head(const HttpRequest& request, const std::string& authority,
                           const std::string& base);
// Body of a POST request. Empty for other methods, whose forwarded heads have no Content-Length:
// the server would parse the body as the next request.
std::string_view forwarded_body(const HttpRequest& request);

// Response headers (names in lower case) for the client, without hop-by-hop headers, CORS headers
// (Access-Control-*), and those that the router writes itself: Content-Type, Date, Server and
// X-Request-Id.
Headers forwarded_headers(const Headers& headers);

// Removes and returns the bytes of `pending` up to the end of its last complete event, so that
// something may be inserted between events. Lines end with LF or CRLF, or all with CR. seen: number
// of leading bytes already scanned without finding the end of an event.
std::string take_whole_events(std::string& pending, size_t seen);

// True if the path has a segment "." or "..", also percent-encoded or with backslashes: a server
// might resolve it to a path that the router does not forward.
bool has_dot_segments(std::string_view path);

// Prompt text and scope for prefix_blocks(). The text is the body's member "prompt", else its
// members "tools" and "messages"; of a value that is no string, its JSON. It is empty if there is
// none of them, or if the body is not a JSON object. The scope is derived from model, cache_salt
// and API key.
struct PromptText {
  std::string text;
  uint64_t scope = 0;
};
PromptText prompt_text(const HttpRequest& request);

}  // namespace trireme
