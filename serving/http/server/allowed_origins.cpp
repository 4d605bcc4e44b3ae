#include "serving/http/server/allowed_origins.h"

#include <algorithm>
#include <string_view>

#include "engine/core/error.h"

namespace trireme {
namespace {

constexpr char kReadableHeaders[] = "X-Request-Id, Retry-After, retry-after-ms, x-should-retry";
constexpr char kPreflightSeconds[] = "600";  // for which browsers may cache the response

bool is_origin(std::string_view origin) {
  size_t scheme = 0;
  for (const std::string_view one : {"http://", "https://"})
    if (origin.starts_with(one)) scheme = one.size();
  if (scheme == 0 || origin.size() == scheme) return false;
  // Browsers send neither the scheme's own port, nor upper case, nor a path: such an origin would
  // match no header.
  if (origin.ends_with(scheme == std::string_view("http://").size() ? ":80" : ":443")) return false;
  return std::ranges::all_of(origin.substr(scheme), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '.' || c == '_' ||
           c == ':' || c == '[' || c == ']';
  });
}

}  // namespace

AllowedOrigins::AllowedOrigins(std::vector<std::string> origins) : origins_(std::move(origins)) {
  for (const std::string& origin : origins_) {
    if (origin == "*")
      all_ = true;
    else if (!is_origin(origin))
      fail_input("allowed origin \"", origin, "\": give \"*\" or http(s)://HOST[:PORT] in lower ",
                 "case, without a path and without :80 or :443, as browsers send it");
  }
}

bool AllowedOrigins::allows(const std::string& origin) const {
  return all_ || std::ranges::find(origins_, origin) != origins_.end();
}

Headers AllowedOrigins::headers(const RequestHead& head) const {
  Headers out;
  if (origins_.empty()) return out;
  // Also for requests without Origin, so that caches keep both variants.
  if (!all_) out.emplace_back("Vary", "Origin");
  const std::string* origin = head.find("origin");
  if (origin == nullptr || head.count("origin") > 1 || !allows(*origin)) return out;
  out.emplace_back("Access-Control-Allow-Origin", all_ ? "*" : *origin);
  out.emplace_back("Access-Control-Expose-Headers", kReadableHeaders);
  return out;
}

std::optional<HttpResponse> AllowedOrigins::preflight(const RequestHead& head) const {
  const std::string* origin = head.find("origin");
  if (origins_.empty() || head.method != "OPTIONS" || origin == nullptr ||
      head.find("access-control-request-method") == nullptr)
    return std::nullopt;
  if (head.count("origin") > 1 || !allows(*origin))
    return response_of(ApiError(
        403, concat("the origin ", origin->substr(0, 200), " is not one of --allowed-origins"), "",
        "origin_not_allowed"));
  HttpResponse response{.content_type = "text/plain"};
  response.headers = {{"Access-Control-Allow-Methods", "GET, HEAD, POST"},
                      {"Access-Control-Max-Age", kPreflightSeconds}};
  if (const std::string* wanted = head.find("access-control-request-headers")) {
    response.headers.emplace_back("Access-Control-Allow-Headers", *wanted);
    response.headers.emplace_back("Vary", "Access-Control-Request-Headers");
  }
  return response;
}

}  // namespace trireme
