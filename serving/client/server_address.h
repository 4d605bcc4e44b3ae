// Address of an HTTP server: "http://host:port/base", "https://[::1]:8443".
#pragma once

#include <string>

namespace trireme {

struct ServerAddress {
  bool tls = false;
  std::string host;  // name or address, without brackets
  std::string port;
  std::string base;  // prefix of every path: "" or "/base", without a final slash

  std::string authority() const;  // "host:port", for the header Host
  std::string url() const;        // scheme, authority and base
};

// option: prefix of the InputError for an invalid address. User names, queries and fragments are
// rejected.
ServerAddress parse_server_address(const std::string& url, const std::string& option);

}  // namespace trireme
