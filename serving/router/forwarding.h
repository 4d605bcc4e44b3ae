// Request and response parts that a router forwards. Heads are rewritten, so that no peer's framing
// gets through (RFC 9110, 7.6.1).
#pragma once

#include <string>
#include <string_view>

#include "serving/http/server/exchange.h"

namespace trireme {

// Head to send before forwarded_body() to `authority` (host:port), with paths below `base`: sets
// Host, Content-Length and X-Request-Id; omits hop-by-hop headers, Accept-Encoding, Expect and
// Origin; sends HEAD as GET.
std::string forwarded_head(const HttpRequest& request, const std::string& authority,
                           const std::string& base);
// Body of a POST request; empty otherwise, since it would be taken for the next request.
std::string_view forwarded_body(const HttpRequest& request);

// Response headers (names in lower case) to return to the client: without hop-by-hop headers, and
// without those that the router writes itself.
Headers forwarded_headers(const Headers& headers);

// Removes and returns the bytes of `pending` up to the end of its last complete event, so that
// something may be inserted between events. seen: number of leading bytes already scanned without
// finding the end of an event.
std::string take_whole_events(std::string& pending, size_t seen);

// True for a path that some server may resolve to another one outside the forwarded paths: it has a
// segment "." or "..", in any encoding.
bool climbs(std::string_view path);

// Prompt text for prefix_blocks(); the scope is derived from model, salt and API key. Empty if the
// body is not a request of OpenAI's API.
struct PromptText {
  std::string text;
  uint64_t scope = 0;
};
PromptText prompt_text(const HttpRequest& request);

}  // namespace trireme
