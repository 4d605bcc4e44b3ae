#include "serving/api/endpoints/tokenize.h"

#include <nlohmann/json.hpp>

#include "serving/http/service/handler.h"

namespace trireme {
namespace {

HandlerResult tokenize(ServiceContext& service, HttpRequest& http) {
  const TokenizeRequest request = service.read(parse_tokenize, http.body);
  if (!request.model.empty()) (void)service.find_model(request.model);
  const std::vector<int32_t> tokens =
      request.variables != nullptr
          ? service.encode_chat(*request.variables, request.add_special, http.id)
          : service.prompts.encode({.text = request.prompt}, request.add_special);
  const std::function<std::string(int32_t)> spelling = [&service](int32_t token) {
    return valid_utf8(service.tokenizer.token(token));
  };
  const auto held = service.held_for(http);
  constexpr int64_t kBytesOfId = 8;  // including its comma
  int64_t bytes = kBytesOfId * std::ssize(tokens);
  if (request.token_strings)
    for (const int32_t token : tokens) bytes += std::ssize(spelling(token)) + 3;  // "",
  const auto hold = [&](int64_t so_many) {
    if (!held->set(so_many)) throw size_error(*held, "send less text at a time", "prompt");
  };
  hold(bytes);
  std::string body = tokenize_body(tokens, service.config.max_model_len,
                                   request.token_strings ? spelling : nullptr);
  body.shrink_to_fit();
  hold(std::ssize(body));
  return {{.body = std::move(body), .held = held}};
}

}  // namespace

extern const Handler kTokenizeHandler = {kTokenizeEndpoint, tokenize};

}  // namespace trireme
