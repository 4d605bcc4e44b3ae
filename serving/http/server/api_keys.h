// Who may do what. Only digests of keys are kept, and comparing takes the same time whether a key
// is nearly right or not at all.
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
  // An admin's key is a user's as well. Without any key everyone is a user and nobody an admin.
  ApiKeys() = default;
  ApiKeys(const std::vector<std::string>& user_keys, const std::vector<std::string>& admin_keys,
          bool open_metrics = false);

  bool empty() const { return keys_.empty(); }
  // authorization: the header's value, "Bearer KEY"; nullptr: there is none. ApiError 401 or 403.
  // Returns a name for the key, "" where there are not several: equal for equal keys, and nothing
  // can be learnt of the key from it.
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

// The keys of a file: one a line, without the spaces around it; empty lines and those that begin
// with # are none. InputError where the file cannot be read or has no key. Warns of a file that
// everyone may read.
std::vector<std::string> read_api_keys(const std::string& path);

}  // namespace trireme
