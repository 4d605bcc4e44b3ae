// Where a server of HTTP is: "http://host:port/base", "https://[::1]:8443".
#pragma once

#include <string>

namespace trireme {

struct ServerAddress {
  bool tls = false;
  std::string host;  // a name or an address, without brackets
  std::string port;
  std::string base;  // what comes before every path: "" or "/base", without a last slash

  std::string authority() const;  // "host:port", for the header Host
  std::string url() const;        // as it was meant: scheme, authority and base
};

// option: begins the message of the InputError for anything that is no such address: user names,
// queries and fragments have no meaning here.
ServerAddress parse_server_address(const std::string& url, const std::string& option);

}  // namespace trireme
