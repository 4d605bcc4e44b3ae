// API keys and what each may access. Only digests of keys are stored, and they are compared in
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
  // Admin keys have the rights of user keys too. Without any key everyone is a user and nobody an
  // admin.
  ApiKeys() = default;
  ApiKeys(const std::vector<std::string>& user_keys, const std::vector<std::string>& admin_keys,
          bool open_metrics = false);

  bool empty() const { return keys_.empty(); }
  // authorization: the header's value, "Bearer KEY"; nullptr: the header is absent. Throws ApiError
  // 401 or 403. Returns a name for the key, equal for equal keys, which reveals nothing of the key;
  // "" if there is at most one key.
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

// API keys of a file: one per line, trimmed; empty lines and lines that begin with # are ignored.
// InputError when the file cannot be read or has no key. Warns when everyone may read the file.
std::vector<std::string> read_api_keys(const std::string& path);

}  // namespace trireme
