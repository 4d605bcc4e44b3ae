#include "parallel/comm/transport/shared_secret.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/random.h>

#include "engine/core/error.h"
#include "engine/core/tensor.h"

namespace trireme {

std::string random_bytes(size_t count) {
  std::string bytes(count, '\0');
  if (getrandom(bytes.data(), count, 0) != static_cast<ssize_t>(count))
    throw Error("the system returns no random bytes");
  return bytes;
}

std::string hex_digits(std::string_view bytes) {
  std::string out;
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    out += {"0123456789abcdef"[byte >> 4], "0123456789abcdef"[byte & 15]};
  }
  return out;
}

std::string make_secret() { return hex_digits(random_bytes(32)); }

std::string secret_proof(const std::string& secret, std::initializer_list<std::string_view> parts) {
  std::string message;
  for (const std::string_view part : parts) {
    const uint64_t length = part.size();
    message.append(reinterpret_cast<const char*>(&length), sizeof length);
    message.append(part);
  }
  std::string digest(EVP_MAX_MD_SIZE, '\0');
  unsigned length = 0;
  const unsigned char* done =
      HMAC(EVP_sha256(), secret.data(), narrow<int>(secret.size()),
           reinterpret_cast<const unsigned char*>(message.data()), message.size(),
           reinterpret_cast<unsigned char*>(digest.data()), &length);
  TRIREME_CHECK(done != nullptr && length == kProofBytes, "HMAC-SHA256 of OpenSSL failed");
  digest.resize(length);
  return digest;
}

bool equal_in_constant_time(std::string_view a, std::string_view b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace trireme
