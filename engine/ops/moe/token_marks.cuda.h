// GPU kernel of engine/ops/moe/token_marks.h, and the computation of one token on both devices.
#pragma once

#include "engine/core/host_device.h"
#include "engine/device/context.h"

namespace trireme {

struct TokenMarks {
  uint8_t* valid;
  int32_t* segments;
  const int64_t* rows;           // (all) global token indices, < 0: padding; null: absent
  int64_t all;                   // elements of `rows`: T, or 0 if it is absent
  int64_t begin, count, length;  // tokens [begin, begin + count); length: of a sequence

  // Marks token begin + t. first: the smallest non-negative element of `rows`; any value if there
  // is none.
  TRIREME_HOST_DEVICE void mark(int64_t t, int64_t first) const {
    const int64_t row = rows != nullptr ? rows[begin + t] : 0;
    valid[t] = row >= 0 ? 1 : 0;
    segments[t] = rows != nullptr && length > 0 && row >= 0
                      ? static_cast<int32_t>(row / length - first / length)
                      : 0;
  }
};

namespace cuda {
TRIREME_CUDA_DECL void mark_tokens(Context& gpu, const TokenMarks& args);
}

}  // namespace trireme
