// Compatibility of the KV cache's type with the weights and the device.
#pragma once

#include "engine/ops/kv_codes.h"

namespace trireme {

// InputError where a model whose weights have the type `weights` cannot keep its cache as `type`.
void check_kv_type(const KvType& type, DType weights, bool gpu);

}  // namespace trireme
