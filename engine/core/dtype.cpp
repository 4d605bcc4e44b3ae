#include "engine/core/dtype.h"

#include <limits>

namespace trireme {

uint16_t float_to_half_bits(float value) { return f16(value).bits; }

float half_bits_to_float(uint16_t bits) {
  f16 half;
  half.bits = bits;
  return static_cast<float>(half);
}

int64_t dtype_size(DType dtype) {
  switch (dtype) {
    case DType::kF64:
    case DType::kI64: return 8;
    case DType::kF32:
    case DType::kI32: return 4;
    case DType::kBF16:
    case DType::kF16:
    case DType::kU16: return 2;
    case DType::kU8: return 1;
  }
  TRIREME_UNREACHABLE("dtype ", static_cast<int>(dtype));
}

std::string_view dtype_name(DType dtype) {
  switch (dtype) {
    case DType::kF64: return "float64";
    case DType::kF32: return "float32";
    case DType::kBF16: return "bfloat16";
    case DType::kF16: return "float16";
    case DType::kI64: return "int64";
    case DType::kI32: return "int32";
    case DType::kU16: return "uint16";
    case DType::kU8: return "uint8";
  }
  TRIREME_UNREACHABLE("dtype ", static_cast<int>(dtype));
}

bool is_float(DType dtype) {
  return dtype == DType::kF64 || dtype == DType::kF32 || dtype == DType::kBF16 ||
         dtype == DType::kF16;
}

double dtype_eps(DType dtype) {
  switch (dtype) {
    case DType::kF64: return std::numeric_limits<double>::epsilon();
    case DType::kF32: return std::numeric_limits<float>::epsilon();
    case DType::kBF16: return 0x1p-7;
    case DType::kF16: return 0x1p-10;
    default: break;
  }
  TRIREME_UNREACHABLE("dtype_eps of ", dtype);
}

}  // namespace trireme
