// Check of the KV cache's type against the weights and the device.
#pragma once

#include "engine/ops/attention/kv_codes.h"

namespace trireme {

// InputError if a model whose weights have the type `weights` cannot have a KV cache of this type
// on its device; gpu: a GPU, else the CPU. The type of the weights is always possible. Float64
// weights allow no other type. On a GPU, the only other types are 8-bit codes.
void check_kv_type(const KvType& type, DType weights, bool gpu);

}  // namespace trireme
