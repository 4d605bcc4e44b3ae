#include "engine/ops/attention/kv_codes.h"

namespace trireme {

std::string text(const KvType& type) {
  switch (type.codes) {
    case KvCodes::kInt8: return "int8";
    case KvCodes::kE4M3: return "fp8_e4m3";
    case KvCodes::kE5M2: return "fp8_e5m2";
    case KvCodes::kNone: break;
  }
  return text(type.dtype);
}

int64_t row_bytes(const KvType& type, int64_t width) {
  const int64_t scale = type.codes == KvCodes::kNone ? 0 : dtype_size(DType::kF32);
  return width * dtype_size(type.dtype) + scale;
}

}  // namespace trireme
