#include "serving/http/server/head_checks.h"

#include <algorithm>
#include <array>
#include <boost/asio/ip/address.hpp>
#include <charconv>
#include <random>

namespace trireme {
namespace {

std::string trimmed_lower(std::string_view text) {
  constexpr std::string_view kBlanks = " \t";
  const size_t begin = std::min(text.find_first_not_of(kBlanks), text.size());
  text = text.substr(begin, text.find_last_not_of(kBlanks) + 1 - begin);
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c; });
  return out;
}

// True for "localhost" and loopback addresses, with any port. Names such as 127.example belong to
// other machines.
bool is_local_name(const std::string& host) {
  const bool brackets = host.starts_with("[");
  const size_t end = std::min(brackets ? host.find(']') : host.find(':'), host.size());
  const std::string port = host.substr(std::min(end + (brackets ? 1 : 0), host.size()));
  if ((brackets && end == host.size()) || (!port.empty() && port[0] != ':')) return false;
  if (port.find_first_not_of("0123456789", 1) != std::string::npos) return false;
  std::string name = brackets ? host.substr(1, end - 1) : trimmed_lower(host.substr(0, end));
  if (!brackets && name.ends_with('.')) name.pop_back();  // fully qualified name
  if (name == "localhost") return true;
  boost::system::error_code error;
  const boost::asio::ip::address address = boost::asio::ip::make_address(name, error);
  return !error && address.is_loopback();
}

// Value of a media type's parameter, without quotes; empty: absent. Does not support a
// semicolon within quotes, which no character set contains.
std::string parameter_of(std::string_view content_type, std::string_view name) {
  while (content_type.find(';') != std::string_view::npos) {
    content_type.remove_prefix(content_type.find(';') + 1);
    const std::string_view one = content_type.substr(0, content_type.find(';'));
    const size_t equals = one.find('=');
    if (equals == std::string_view::npos || trimmed_lower(one.substr(0, equals)) != name) continue;
    std::string value = trimmed_lower(one.substr(equals + 1));
    if (value.size() >= 2 && value.front() == '"' && value.back() == '"')
      value = value.substr(1, value.size() - 2);
    return value;
  }
  return {};
}

// Checks the type, charset and encoding of a request's body.
void check_body_headers(const RequestHead& head) {
  const auto refuse = [](const std::string& message) {
    throw ApiError(415, message, "", "unsupported_media_type");
  };
  const std::string* type = head.find("content-type");
  if (type == nullptr || trimmed_lower(type->substr(0, type->find(';'))) != "application/json")
    refuse("expected the header Content-Type: application/json");
  const std::string charset = parameter_of(*type, "charset");
  if (!charset.empty() && charset != "utf-8" && charset != "utf8" && charset != "us-ascii")
    refuse(concat("the charset ", charset.substr(0, 100),
                  " is not supported; supported: utf-8, us-ascii"));
  // Repeated headers form one list (RFC 9110, 5.3).
  for (const auto& [name, value] : head.headers)
    if (name == "content-encoding" && trimmed_lower(value) != "identity")
      refuse(concat("the Content-Encoding ", value.substr(0, 100),
                    " is not supported: send the body uncompressed"));
}

}  // namespace

std::string random_request_id() {
  thread_local std::mt19937_64 source{std::random_device{}()};
  std::array<char, 33> text{};
  for (size_t i = 0; i < 32; i += 16) {
    uint64_t bits = source();
    for (size_t k = 0; k < 16; ++k, bits >>= 4) text[i + k] = "0123456789abcdef"[bits & 15];
  }
  return text.data();
}

std::string request_id_of(const RequestHead& head) {
  const std::string* given = head.find("x-request-id");
  const auto harmless = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_' || c == '.';
  };
  const bool taken = given != nullptr && !given->empty() && given->size() <= 128 &&
                     std::all_of(given->begin(), given->end(), harmless);
  return taken ? *given : random_request_id();
}

const Route& find_route(const HeadRules& rules, HttpRequest& request, std::string& other_methods) {
  const RequestHead& head = request.head;
  const std::string* host = head.find("host");
  if (rules.local_names_only && host != nullptr && !is_local_name(*host))
    throw ApiError(
        403,
        "without API keys this server serves localhost only; give it keys, or use http://localhost",
        "", "host_not_allowed");
  const Route* route = rules.routes.find(head.method, head.path, other_methods);
  request.tenant = rules.keys.check(head.find("authorization"),
                                    route == nullptr ? Access::kUser : route->access);
  if (route == nullptr && other_methods.empty())
    throw ApiError(404, concat("unknown path ", head.path.substr(0, 200)), "", "not_found");
  if (route == nullptr)
    throw ApiError(405, concat(head.path.substr(0, 200), " supports only ", other_methods), "",
                   "method_not_allowed");
  return *route;
}

void check_headers(const Route& route, HttpRequest& request) {
  const RequestHead& head = request.head;
  const bool has_body = head.chunked || head.content_length.value_or(0) > 0;
  if (const std::string* expect = head.find("expect");
      expect != nullptr && trimmed_lower(*expect) != "100-continue")
    throw ApiError(417,
                   concat("the header Expect: ", expect->substr(0, 100),
                          " is not supported; supported: 100-continue"),
                   "", "expectation_failed");
  if (route.method == "POST" && has_body) check_body_headers(head);
  const std::string* timeout = head.find("x-request-timeout-ms");
  if (timeout == nullptr) return;
  int64_t ms = 0;
  const char* end = timeout->data() + timeout->size();
  const auto read = std::from_chars(timeout->data(), end, ms);
  if (read.ec != std::errc() || read.ptr != end || ms < 1 || ms > 86'400'000)
    throw ApiError(400, "X-Request-Timeout-Ms: expected milliseconds from 1 to 86400000", "",
                   "invalid_value");
  request.timeout = std::chrono::milliseconds(ms);
}

}  // namespace trireme
