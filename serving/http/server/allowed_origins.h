// Web pages of other origins that may use a server (CORS of the Fetch standard).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "serving/http/server/exchange.h"

namespace trireme {

class AllowedOrigins {
 public:
  AllowedOrigins() = default;  // none, and no response names any
  // Each "*", which stands for all, or as browsers write it: http://HOST or https://HOST, and :PORT
  // where it is not the scheme's own. InputError for anything else.
  explicit AllowedOrigins(std::vector<std::string> origins);

  // Headers that every response to this request has.
  Headers headers(const RequestHead& head) const;
  // Response to a preflight, OPTIONS with Origin and Access-Control-Request-Method, which browsers
  // send without an API key: 200, or 403 for an origin that is not allowed. Absent: the request is
  // none, or no origins are allowed.
  std::optional<HttpReply> preflight(const RequestHead& head) const;

 private:
  bool allows(const std::string& origin) const;

  std::vector<std::string> origins_;
  bool all_ = false;
};

}  // namespace trireme
