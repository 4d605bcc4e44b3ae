// Arbitrary bytes as the body of an API request: accepted, or refused with a client error status.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "serving/api/api_error.h"
#include "serving/api/endpoints/chat.h"
#include "serving/api/endpoints/completions.h"
#include "serving/api/endpoints/detokenize.h"
#include "serving/api/endpoints/embeddings.h"
#include "serving/api/endpoints/tokenize.h"

namespace {

template <class Parse>
void parse(const Parse& parse_body, std::string_view body) {
  try {
    parse_body(body, trireme::RequestLimits{.vocab_size = 1000});
  } catch (const trireme::ApiError& error) {
    if (error.status() != 400 && error.status() != 501) std::abort();
    trireme::error_body(error);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view body(reinterpret_cast<const char*>(data), size);
  parse(trireme::parse_completion, body);
  parse(trireme::parse_chat, body);
  parse(trireme::parse_embeddings, body);
  parse(trireme::parse_tokenize, body);
  parse(trireme::parse_detokenize, body);
  return 0;
}
