// Compatibility of the KV cache's type with the weights and the device.
#pragma once

#include "engine/ops/attention/kv_codes.h"

namespace trireme {

// InputError if a model with weights of type `weights` cannot have a KV cache of this type.
void check_kv_type(const KvType& type, DType weights, bool gpu);

}  // namespace trireme
