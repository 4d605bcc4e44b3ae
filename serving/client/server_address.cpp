#include "serving/client/server_address.h"

#include <algorithm>
#include <charconv>

#include "engine/core/error.h"

namespace trireme {
namespace {

bool is_port(const std::string& text) {
  int port = 0;
  const char* end = text.data() + text.size();
  const auto read = std::from_chars(text.data(), end, port);
  return read.ec == std::errc() && read.ptr == end && port > 0 && port < 65536;
}

// Characters that are safe in a request's head.
bool is_plain(const std::string& text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return c > ' ' && c < '\x7f' && c != '@' && c != '\\'; });
}

}  // namespace

std::string ServerAddress::authority() const {
  const bool brackets = host.find(':') != std::string::npos;
  return concat(brackets ? "[" : "", host, brackets ? "]" : "", ":", port);
}

std::string ServerAddress::url() const {
  return concat(tls ? "https://" : "http://", authority(), base);
}

ServerAddress parse_server_address(const std::string& url, const std::string& option) {
  const auto refuse = [&](const char* why) {
    fail_input(option, " ", url, ": ", why, "; expected http://HOST:PORT or https://HOST");
  };
  ServerAddress out;
  out.tls = url.starts_with("https://");
  if (!out.tls && !url.starts_with("http://")) refuse("it does not begin with http:// or https://");
  const std::string rest = url.substr(out.tls ? 8 : 7);
  if (!is_plain(rest) || rest.find_first_of("?#") != std::string::npos)
    refuse("it has a character that is not allowed in an address");
  const size_t slash = std::min(rest.find('/'), rest.size());
  out.base = rest.substr(slash);
  while (out.base.ends_with('/')) out.base.pop_back();
  const std::string authority = rest.substr(0, slash);
  const bool brackets = authority.starts_with('[');
  const size_t end =
      brackets ? authority.find(']') : std::min(authority.find(':'), authority.size());
  if (end == std::string::npos) refuse("the bracket is not closed");
  out.host = authority.substr(brackets ? 1 : 0, end - (brackets ? 1 : 0));
  const std::string behind = authority.substr(std::min(end + (brackets ? 1 : 0), authority.size()));
  if (out.host.empty()) refuse("it has no host");
  out.port = behind.empty() ? (out.tls ? "443" : "80") : behind.substr(1);
  if (!behind.empty() && (behind[0] != ':' || !is_port(out.port)))
    refuse("the port is not a number from 1 to 65535");
  return out;
}

}  // namespace trireme
