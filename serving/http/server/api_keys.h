// API keys and their access rights. Only SHA-256 digests of keys are stored; they are compared in
// constant time.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "serving/api/endpoint.h"

namespace trireme {

class ApiKeys {
 public:
  // Admin keys have the rights of user keys, too. Without any key every client has the rights of a
  // user, and none has those of an admin. open_metrics: metrics need no key. InputError if a key is
  // empty.
  ApiKeys() = default;
  ApiKeys(const std::vector<std::string>& user_keys, const std::vector<std::string>& admin_keys,
          bool open_metrics = false);

  bool empty() const { return keys_.empty(); }
  // Checks the Authorization header, "Bearer KEY" (nullptr: absent). Throws ApiError 401 if a key
  // is needed and is missing or unknown, 403 if `access` needs an admin's key and this is none.
  // Returns a name for the key: equal for equal keys, and independent of the key's text; "" if the
  // server has at most one key or `access` needs none.
  std::string check(const std::string* authorization, Access access) const;

 private:
  using Digest = std::array<unsigned char, 32>;
  struct Key {
    Digest digest;
    bool admin;
  };
  static Digest digest(std::string_view key);
  std::vector<Key> keys_;
  bool open_metrics_ = false;
};

// Reads API keys from a file: one per line, trimmed. Ignores empty lines and lines that begin with
// #. InputError when the file is not a regular file, cannot be read, has no key, more than 10,000
// keys or a line of more than 4096 bytes. Logs a warning when every user of the machine may read
// the file.
std::vector<std::string> read_api_keys(const std::string& path);

}  // namespace trireme
