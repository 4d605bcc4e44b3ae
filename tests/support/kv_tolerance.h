// Error bounds of rounded KV cache rows (engine/ops/attention/kv_codes.h), for tests.
#pragma once

#include <cmath>

#include "engine/ops/attention/kv_codes.h"
#include "tests/support/compare.h"

namespace trireme::test {

// Largest error of an element, relative to its row's largest magnitude.
//   codes: half a step of the integers up to 127; for floats with 3 and 2 bits of mantissa 2^-4 and
//   2^-3 of the element, which is at most the largest; and three roundings of float32: the scale,
//   its inverse, a product.
//   floats: half a unit in the last place.
inline double kv_row_error(const KvType& type) {
  const double arithmetic = 3 * dtype_eps(DType::kF32);
  switch (type.codes) {
    case KvCodes::kInt8: return 0.5 / 127 + arithmetic;
    case KvCodes::kE4M3: return 0x1p-4 + arithmetic;
    case KvCodes::kE5M2: return 0x1p-3 + arithmetic;
    case KvCodes::kNone: break;
  }
  return dtype_eps(type.dtype) / 2;
}

// Largest error of an element of attention's result where keys and values were rounded in this way.
//   A score scale q . k has an error of at most d = scale |q|_1 max|k| e (e the error above).
//   Probabilities are quotients of exponentials: each is wrong by a factor of at most exp(2 d).
//   With p and v exact, p' and v' rounded,
//   |sum p' v' - sum p v| <= sum p' |v' - v| + sum |p' - p| |v| <= max|v| (e + exp(2 d) - 1).
inline double kv_attention_error(const KvType& type, double scale, double sum_of_query,
                                 double max_key, double max_value) {
  const double e = kv_row_error(type), d = scale * sum_of_query * max_key * e;
  return max_value * (e + std::expm1(2 * d));
}

}  // namespace trireme::test
