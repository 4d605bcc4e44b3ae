#include "serving/model/kv_cache_type.h"

#include "engine/core/error.h"

namespace trireme {

void check_kv_type(const KvType& type, DType weights, bool gpu) {
  if (type == KvType{weights}) return;
  if (weights == DType::kF64)
    fail_input("--kv-cache-dtype ", text(type),
               ": the KV cache of a float64 model has the type of the weights; give auto");
  if (gpu && type.codes == KvCodes::kNone)
    fail_input("--kv-cache-dtype ", text(type),
               ": on a GPU an unquantized KV cache has the type of the weights, ", text(weights),
               "; give auto or an 8-bit type, or use --device cpu");
}

}  // namespace trireme
