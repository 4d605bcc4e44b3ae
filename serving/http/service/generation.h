// Generation for an endpoint: from a request and its prompts to a response that engines compute.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "serving/api/generation_reply.h"
#include "serving/http/service/service_context.h"

namespace trireme {

// Estimate for admission, of prompts that are not tokenized yet.
inline constexpr int64_t kBytesPerToken = 4;

// Prefixes are shared among requests of equal salts: same key, same cache_salt and same adapter,
// whatever its slot.
std::string salt_of(const ServedId& model, const std::string& tenant, const std::string& salt);

// ApiError where a prompt leaves no room for what the request asks for.
HttpAnswer generate(ServiceContext& service, const HttpRequest& http,
                    const GenerationRequest& request, ReplyForm form,
                    std::vector<std::vector<int32_t>> prompts,
                    std::unique_ptr<Admission::Place> place);

}  // namespace trireme
