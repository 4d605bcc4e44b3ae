#include "serving/api/endpoints/prefix_cache.h"

#include "serving/http/service/handler.h"

namespace trireme {
namespace {

HandlerResult reset_prefix_cache(ServiceContext& service, HttpRequest&) {
  service.engines.forget_prefixes();
  return {{.content_type = kResetPrefixCacheEndpoint.content_type}};
}

}  // namespace

extern const Handler kResetPrefixCacheHandler = {kResetPrefixCacheEndpoint, reset_prefix_cache};

}  // namespace trireme
