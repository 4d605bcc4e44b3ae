// Arbitrary bytes as HTTP requests, in pieces of a size given by the first byte: the result does
// not depend on the pieces, and the memory of the bodies is released.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "serving/http/server/request_reader.h"

namespace {

using trireme::RequestReader;

// The accepted requests. An error after them may be detected sooner or later, depending on how much
// of it the parser sees at once (a quoted text in a chunk extension that ends after its line), but
// it never becomes another request.
std::vector<std::string> read(std::string_view bytes, size_t piece) {
  trireme::HttpLimits limits;
  limits.body = 4096;
  const auto budget = std::make_shared<trireme::ByteBudget>(1 << 20);
  std::vector<std::string> out;
  std::string buffer;
  size_t at = 0;
  for (bool refused = false; !refused;) {
    RequestReader reader(limits, budget);
    const auto open = [&] {
      return reader.state() == RequestReader::State::kHead ||
             reader.state() == RequestReader::State::kBody;
    };
    while (open()) {
      const size_t taken = reader.feed(buffer);
      if (taken > buffer.size()) std::abort();
      buffer.erase(0, taken);
      if (taken > 0 || !open()) continue;
      if (at == bytes.size()) return out;
      const size_t more = std::min(piece, bytes.size() - at);
      buffer.append(bytes.substr(at, more));
      at += more;
    }
    refused = reader.state() == RequestReader::State::kRefused;
    if (!refused) out.push_back(reader.head().method + reader.head().path + reader.take_body());
  }
  return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (read(bytes, data[0] % 64 + 1) != read(bytes, bytes.size() + 1)) std::abort();
  return 0;
}
