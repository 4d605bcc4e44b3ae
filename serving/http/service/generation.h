// Generation for an endpoint: from a request and its prompts to a response computed by the engines.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "serving/api/generation_response.h"
#include "serving/http/service/service_context.h"

namespace trireme {

// Estimated bytes per prompt token, for admission before the prompt is tokenized.
inline constexpr int64_t kBytesPerToken = 4;

// Salt of the prefix cache, which shares prefixes only among requests with equal salts: same API
// key, same cache_salt and same adapter (an adapter that is loaded again counts as another).
std::string salt_of(const ServedId& model, const std::string& tenant, const std::string& salt);

// Returns a pending response. prompts: token ids of each. ticket: admission of all choices; this
// sets its number of prompt tokens. ApiError 404 when the model is not served, 400 when a prompt is
// empty or leaves no room for the requested tokens.
HandlerResult generate(ServiceContext& service, const HttpRequest& http,
                       const GenerationRequest& request, ResponseForm form,
                       std::vector<std::vector<int32_t>> prompts,
                       std::unique_ptr<Admission::Ticket> ticket);

}  // namespace trireme
