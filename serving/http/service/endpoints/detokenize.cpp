#include "serving/api/endpoints/detokenize.h"

#include <algorithm>

#include "serving/http/service/handler.h"

namespace trireme {
namespace {

constexpr int64_t kMaxDetokenized = 1 << 17;  // ids, if max_model_len is lower

HandlerResult detokenize(ServiceContext& service, HttpRequest& http) {
  const DetokenizeRequest request = service.read(parse_detokenize, http.body);
  if (!request.model.empty()) (void)service.find_model(request.model);
  const int64_t most = std::max(service.config.max_model_len, kMaxDetokenized);
  if (std::ssize(request.tokens) > most)
    fail_field("tokens", "tokens has ", request.tokens.size(), " entries, at most ", most,
               " are allowed");
  // A short id may decode to hundreds of bytes: the size is checked before the text is built.
  int64_t bytes = 0;
  for (const int32_t token : request.tokens) bytes += std::ssize(service.tokenizer.token(token));
  const auto held = service.held_for(http);
  const auto hold = [&](int64_t so_many) {
    if (!held->set(so_many)) throw size_error(*held, "send fewer tokens at a time", "tokens");
  };
  hold(bytes);
  std::string body =
      detokenize_body(service.tokenizer.decode(request.tokens, !request.skip_special));
  body.shrink_to_fit();
  hold(std::ssize(body));
  return {{.body = std::move(body), .held = held}};
}

}  // namespace

extern const Handler kDetokenizeHandler = {kDetokenizeEndpoint, detokenize};

}  // namespace trireme
