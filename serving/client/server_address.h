// Address of an HTTP server: "http://host:port/base", "https://[::1]:8443".
#pragma once

#include <string>

namespace trireme {

struct ServerAddress {
  bool tls = false;
  std::string host;  // name or address, without brackets
  std::string port;  // 1 to 65535; default: 80, with TLS 443
  std::string base;  // prefix of every path: "" or "/base", without a final slash

  std::string authority() const;  // "host:port", for the header Host
  std::string url() const;        // scheme, authority and base
};

// Parses an address. InputError, with the prefix `option`, for an invalid one, or one with a user
// name, query or fragment.
ServerAddress parse_server_address(const std::string& url, const std::string& option);

}  // namespace trireme
