#include "serving/api/endpoint.h"
#include "serving/api/endpoints/chat.h"
#include "serving/api/endpoints/completions.h"
#include "serving/api/endpoints/detokenize.h"
#include "serving/api/endpoints/embeddings.h"
#include "serving/api/endpoints/lora_adapters.h"
#include "serving/api/endpoints/prefix_cache.h"
#include "serving/api/endpoints/status.h"
#include "serving/api/endpoints/tokenize.h"
#include "serving/api/endpoints/weights.h"

namespace trireme {

std::span<const Endpoint* const> endpoints() {
  static constexpr const Endpoint* kAll[] = {
      &kCompletionsEndpoint,      &kChatEndpoint,        &kEmbeddingsEndpoint,
      &kTokenizeEndpoint,         &kDetokenizeEndpoint,  &kReplaceWeightsEndpoint,
      &kServedWeightsEndpoint,    &kLoadAdapterEndpoint, &kUnloadAdapterEndpoint,
      &kResetPrefixCacheEndpoint, &kModelsEndpoint,      &kModelEndpoint,
      &kVersionEndpoint,          &kMetricsEndpoint,     &kHealthEndpoint,
      &kHealthLiveEndpoint,       &kHealthReadyEndpoint, &kOpenApiEndpoint};
  return kAll;
}

}  // namespace trireme
