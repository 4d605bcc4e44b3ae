#include "serving/http/service/handler.h"

namespace trireme {

// Defined in endpoints/, each next to its function.
extern const Handler kCompletionsHandler, kChatHandler, kEmbeddingsHandler, kTokenizeHandler,
    kDetokenizeHandler, kReplaceWeightsHandler, kServedWeightsHandler, kLoadAdapterHandler,
    kUnloadAdapterHandler, kResetPrefixCacheHandler, kModelsHandler, kModelHandler, kVersionHandler,
    kMetricsHandler, kHealthHandler, kHealthLiveHandler, kHealthReadyHandler, kOpenApiHandler;

std::span<const Handler* const> handlers() {
  static constexpr const Handler* kAll[] = {
      &kCompletionsHandler,      &kChatHandler,        &kEmbeddingsHandler,
      &kTokenizeHandler,         &kDetokenizeHandler,  &kReplaceWeightsHandler,
      &kServedWeightsHandler,    &kLoadAdapterHandler, &kUnloadAdapterHandler,
      &kResetPrefixCacheHandler, &kModelsHandler,      &kModelHandler,
      &kVersionHandler,          &kMetricsHandler,     &kHealthHandler,
      &kHealthLiveHandler,       &kHealthReadyHandler, &kOpenApiHandler};
  return kAll;
}

}  // namespace trireme
