#include "serving/http/server/api_keys.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>

#include <filesystem>
#include <fstream>

#include "engine/observe/log.h"
#include "serving/api/api_error.h"

namespace trireme {
namespace {

constexpr size_t kMaxLine = 4096, kMaxKeys = 10'000;  // per file

}  // namespace

ApiKeys::Digest ApiKeys::digest(std::string_view key) {
  Digest out{};
  const int done = EVP_Digest(key.data(), key.size(), out.data(), nullptr, EVP_sha256(), nullptr);
  TRIREME_CHECK(done == 1, "OpenSSL cannot compute SHA-256");
  return out;
}

ApiKeys::ApiKeys(const std::vector<std::string>& user_keys,
                 const std::vector<std::string>& admin_keys, bool open_metrics)
    : open_metrics_(open_metrics) {
  const auto add = [&](const std::vector<std::string>& keys, bool admin) {
    for (const std::string& key : keys) {
      if (key.empty()) fail_input("an API key is empty");
      keys_.push_back({digest(key), admin});
    }
  };
  add(user_keys, false);
  add(admin_keys, true);
}

std::vector<std::string> read_api_keys(const std::string& path) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  // Opening a FIFO would wait for a writer.
  const bool regular = std::filesystem::is_regular_file(status);
  std::ifstream file;
  if (regular) file.open(path);
  if (!file.is_open()) fail_input("the file of API keys ", path, " cannot be read");
  if ((status.permissions() & std::filesystem::perms::others_read) != std::filesystem::perms::none)
    log_warning("every user of this machine can read the API keys in ", path, ": chmod 600 ", path);
  std::vector<std::string> keys;
  constexpr char kSpace[] = " \t\r";
  int64_t number = 0;
  for (std::string line; std::getline(file, line);) {
    ++number;
    if (line.size() > kMaxLine)
      fail_input("the file of API keys ", path, " has ", line.size(), " bytes in line ", number,
                 "; put one key of at most ", kMaxLine, " bytes in each line");
    const size_t begin = line.find_first_not_of(kSpace);
    if (begin == std::string::npos || line[begin] == '#') continue;
    if (keys.size() == kMaxKeys)
      fail_input("the file of API keys ", path, " has more than ", kMaxKeys,
                 " keys; remove those from line ", number, " on");
    keys.push_back(line.substr(begin, line.find_last_not_of(kSpace) - begin + 1));
  }
  if (keys.empty()) fail_input("the file of API keys ", path, " has no key");
  return keys;
}

std::string ApiKeys::check(const std::string* authorization, Access access) const {
  if (access == Access::kOpen) return {};
  if (access == Access::kMetrics && (open_metrics_ || keys_.empty())) return {};
  const auto refuse = [](int status, const char* message, const char* code) {
    throw ApiError(status, message, "", code);
  };
  const char* admin_needed =
      access == Access::kMetrics
          ? "metrics need an admin's API key (--admin-api-key), or a server with --metrics-access "
            "open"
          : "this needs an admin's API key (the server's option --admin-api-key)";
  if (keys_.empty()) {
    if (access == Access::kAdmin) refuse(403, admin_needed, "admin_key_required");
    return {};
  }
  if (authorization == nullptr)
    refuse(401, "missing API key: expected the header Authorization: Bearer KEY",
           "missing_api_key");
  constexpr std::string_view kScheme = "Bearer ";
  std::string_view given = *authorization;
  bool bearer = given.size() > kScheme.size();
  for (size_t i = 0; bearer && i < kScheme.size(); ++i)
    bearer = (given[i] | 0x20) == (kScheme[i] | 0x20);
  if (!bearer) refuse(401, "Invalid API key", "invalid_api_key");
  given.remove_prefix(kScheme.size());
  given.remove_prefix(std::min(given.find_first_not_of(' '), given.size()));  // RFC 9110, 11.4
  const Digest digest_of_given = digest(given);
  size_t found = keys_.size();
  bool admin = false;
  for (size_t i = 0; i < keys_.size(); ++i) {  // compares with all keys: constant time
    const bool equal =
        CRYPTO_memcmp(keys_[i].digest.data(), digest_of_given.data(), digest_of_given.size()) == 0;
    if (equal) found = i;
    if (equal) admin = admin || keys_[i].admin;
  }
  if (found == keys_.size()) refuse(401, "Invalid API key", "invalid_api_key");
  if (access != Access::kUser && !admin) refuse(403, admin_needed, "admin_key_required");
  return keys_.size() == 1 ? "" : concat("key-", found);
}

}  // namespace trireme
