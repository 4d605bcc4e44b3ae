#include "parallel/comm/secret_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "engine/io/file_error.h"
#include "engine/io/input_file.h"
#include "engine/observe/log.h"

namespace trireme {
namespace {

// First bytes of an open file, enough for a secret of kMaxSecret characters and its line end.
std::string read_secret_bytes(int descriptor, const std::string& path) {
  std::array<char, kMaxSecret + 2> bytes{};
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t got = ::read(descriptor, bytes.data() + done, bytes.size() - done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail_file("read", path, errno);
    if (got == 0) break;
    done += static_cast<size_t>(got);
  }
  return {bytes.data(), done};
}

}  // namespace

void check_secret_size(const std::string& secret, const std::string& from) {
  if (secret.size() < kMinSecret || secret.size() > kMaxSecret)
    fail_input("the secret in ", from, " has ", secret.size(), " characters; give it ", kMinSecret,
               " to ", kMaxSecret, ", such as the output of openssl rand -hex 32");
}

std::string read_secret_file(const std::string& path) {
  const int descriptor = open_regular_file(path, "read");
  std::string secret;
  struct stat info {};
  try {
    if (::fstat(descriptor, &info) != 0) fail_file("inspect", path, errno);
    secret = read_secret_bytes(descriptor, path);
  } catch (...) {
    ::close(descriptor);
    throw;
  }
  ::close(descriptor);
  secret.resize(std::min(secret.size(), secret.find('\n')));
  if (secret.ends_with('\r')) secret.pop_back();
  check_secret_size(secret, path);
  if ((info.st_mode & (S_IRGRP | S_IROTH)) != 0)
    log_warning("other users of this machine may read the secret in ", path, ": chmod 600 ", path);
  return secret;
}

}  // namespace trireme
