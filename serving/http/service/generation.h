// Generation requests of an endpoint: from a request and its prompts to a response computed by the
// engines.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "serving/api/generation_response.h"
#include "serving/http/service/service_context.h"

namespace trireme {

// Estimate for admission, used for prompts before they are tokenized.
inline constexpr int64_t kBytesPerToken = 4;

// Salt of the prefix cache. Prefixes are shared among requests with equal salts: same API key, same
// cache_salt and same adapter, in whatever slot.
std::string salt_of(const ServedId& model, const std::string& tenant, const std::string& salt);

// ApiError when a prompt leaves no room for the tokens that the request wants.
HandlerResult generate(ServiceContext& service, const HttpRequest& http,
                       const GenerationRequest& request, ResponseForm form,
                       std::vector<std::vector<int32_t>> prompts,
                       std::unique_ptr<Admission::Ticket> ticket);

}  // namespace trireme
