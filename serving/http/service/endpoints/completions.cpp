#include "serving/api/endpoints/completions.h"

#include <algorithm>

#include "serving/http/service/generation.h"
#include "serving/http/service/handler.h"

namespace trireme {
namespace {

HandlerResult complete(ServiceContext& service, HttpRequest& http) {
  const CompletionRequest request = service.read(parse_completion, http.body);
  (void)service.find_model(request.model);
  size_t guess = 0;
  for (const Prompt& prompt : request.prompts)
    guess += prompt.is_text ? prompt.text.size() / kBytesPerToken : prompt.tokens.size();
  const int64_t each = std::max(request.n, request.best_of);
  auto ticket = service.admission.enter(http.tenant, std::ssize(request.prompts) * each,
                                        static_cast<int64_t>(guess));
  std::vector<std::vector<int32_t>> prompts;
  prompts.reserve(request.prompts.size());
  for (const Prompt& prompt : request.prompts)
    prompts.push_back(
        service.prompts.encode(prompt, request.add_special, service.config.max_model_len,
                               {.index = prompts.size(), .count = request.prompts.size()}));
  return generate(service, http, request, form_of(request), std::move(prompts), std::move(ticket));
}

}  // namespace

extern const Handler kCompletionsHandler = {kCompletionsEndpoint, complete};

}  // namespace trireme
