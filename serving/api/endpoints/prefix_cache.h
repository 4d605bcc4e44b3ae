// POST /reset_prefix_cache.
#pragma once

#include "serving/api/endpoint.h"

namespace trireme {

extern const Endpoint kResetPrefixCacheEndpoint;

}  // namespace trireme
