// What goes through a router and what does not: heads are written anew, so that nobody else's
// framing gets through (RFC 9110, 7.6.1).
#pragma once

#include <string>
#include <string_view>

#include "serving/http/server/exchange.h"

namespace trireme {

// What goes before forwarded_body() when the request is sent on to `authority` (host:port), below
// `base`: its own Host, Content-Length and X-Request-Id; without headers that concern one
// connection only, and without Accept-Encoding and Expect.
std::string forwarded_head(const HttpRequest& request, const std::string& authority,
                           const std::string& base);
// Of POST the request's own, of others none: it would be one more request's beginning.
std::string_view forwarded_body(const HttpRequest& request);

// Of an answer's headers (names in lower case) those that go back: not the ones of one connection,
// nor those that the router writes itself.
Headers forwarded_headers(const Headers& headers);

// The bytes of `pending` up to the end of its last whole event, which are taken from it: between
// events something may be put in. seen: so many of its bytes have been looked at, and no event ends
// among them.
std::string take_whole_events(std::string& pending, size_t seen);

// A path that some server may take for another one, above those that go through: with "." or ".."
// between its slashes, however they are spelled.
bool climbs(std::string_view path);

// What a prompt begins with, for prefix_blocks(): model, salt and key go into the scope. "" where
// the body is none of OpenAI's.
struct PromptText {
  std::string text;
  uint64_t scope = 0;
};
PromptText prompt_text(const HttpRequest& request);

}  // namespace trireme
