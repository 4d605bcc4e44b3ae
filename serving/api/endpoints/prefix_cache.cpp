#include "serving/api/endpoints/prefix_cache.h"

namespace trireme {

const Endpoint kResetPrefixCacheEndpoint = {.method = "POST",
                                            .path = "/reset_prefix_cache",
                                            .access = Access::kAdmin,
                                            .content_type = "text/plain"};

}  // namespace trireme
