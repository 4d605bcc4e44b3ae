#include "serving/api/endpoints/prefix_cache.h"

#include "serving/http/service/handler.h"

namespace trireme {
namespace {

HttpAnswer reset_prefix_cache(ServiceContext& service, HttpRequest&) {
  service.engines.forget_prefixes();
  return {{.content_type = "text/plain"}};
}

}  // namespace

extern const Handler kResetPrefixCacheHandler = {kResetPrefixCacheEndpoint, reset_prefix_cache};

}  // namespace trireme
