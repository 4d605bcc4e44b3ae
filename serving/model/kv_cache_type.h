// Check of the KV cache's type against the weights and the device.
#pragma once

#include "engine/ops/attention/kv_codes.h"

namespace trireme {

// InputError if a model whose weights have the type `weights` cannot have a KV cache of this type
// on a GPU or a CPU.
void check_kv_type(const KvType& type, DType weights, bool gpu);

}  // namespace trireme
