// CORS policy of a server (Fetch standard): the origins whose web pages may call it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "serving/http/server/exchange.h"

namespace trireme {

class AllowedOrigins {
 public:
  AllowedOrigins() = default;  // allows none: no response has CORS headers
  // origins: "*" (all), or an origin as browsers write it: http://HOST or https://HOST, with :PORT
  // unless it is the scheme's default. InputError for any other text, such as one with another
  // scheme, upper case or a path.
  explicit AllowedOrigins(std::vector<std::string> origins);

  // CORS headers of every response to this request: those for its origin if that is allowed, and
  // Vary unless all origins are.
  Headers headers(const RequestHead& head) const;
  // Response to a preflight (OPTIONS with Origin and Access-Control-Request-Method, which browsers
  // send without an API key): 200, or 403 for an origin that is not allowed or a repeated Origin
  // header. Does not include headers(). nullopt: the request is not a preflight, or no origins are
  // allowed.
  std::optional<HttpResponse> preflight(const RequestHead& head) const;

 private:
  bool allows(const std::string& origin) const;

  std::vector<std::string> origins_;
  bool all_ = false;
};

}  // namespace trireme
