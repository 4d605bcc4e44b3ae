#include "serving/http/service/embedding.h"

#include <algorithm>

#include "serving/http/service/embedding_task.h"
#include "serving/http/service/generation.h"

namespace trireme {

HandlerResult embed(ServiceContext& service, const HttpRequest& http, const ServedId& model,
                    const EmbeddedTexts& input, EmbeddingResponse response) {
  const auto& [texts, param, add_special, kept, keeps_end, salt] = input;
  const int64_t max_tokens = service.config.max_model_len;
  const ResponseLimits& limits = service.config.responses;
  EmbeddingWork work{
      .texts = {},
      .dimensions = static_cast<size_t>(response.dimensions),
      .normalizes = response.normalizes,
      .at_a_time = std::min(texts.size(), static_cast<size_t>(service.config.admission.running)),
      .held = HeldBytes(limits.whole, limits.always, service.responses.of(http.tenant)),
      .write_body = std::move(response.write_body),
      .lease = model.lease};
  if (!work.held.set(response.bytes)) throw size_error(work.held, response.way_out, param);
  work.ticket = service.admission.enter(http.tenant, static_cast<int64_t>(work.at_a_time),
                                        static_cast<int64_t>(http.body.size()) / kBytesPerToken);
  const auto params = std::make_shared<const SamplingParams>();
  for (size_t i = 0; i < texts.size(); ++i) {
    const Prompt& text = texts[i];
    const TextField field{param, i, texts.size()};
    std::vector<int32_t> tokens =
        kept > 0 ? service.prompts.encode_part(text, add_special, kept, keeps_end)
                 : service.prompts.encode(text, add_special, max_tokens, field);
    if (tokens.empty()) fail_field(param, field.name(), " has no tokens");
    if (std::ssize(tokens) > max_tokens)
      throw ApiError(400,
                     concat(field.name(), " has ", tokens.size(), " tokens, at most ", max_tokens,
                            " are allowed"),
                     param, "context_length_exceeded");
    work.texts.push_back({.prompt = std::move(tokens),
                          .sampling_params = params,
                          .salt = salt_of(model, http.tenant, salt),
                          .adapter = model.card.adapter,
                          .embeds = true});
  }
  return {{}, std::make_unique<EmbeddingTask>(service.engines, service.metrics, std::move(work))};
}

}  // namespace trireme
