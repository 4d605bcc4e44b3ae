#include "engine/ops/backend/index_check.h"

namespace trireme {

void check_indices(const char* op, const char* operand, const ConstTensor& indices, int64_t limit,
                   int32_t ignored) {
  const auto* values = indices.as<int32_t>();
  const int64_t n = indices.numel();
  bool bad = false;  // a first loop without a branch, so that it vectorizes
  for (int64_t i = 0; i < n; ++i)
    bad |= values[i] != ignored && (values[i] < 0 || values[i] >= limit);
  if (!bad) return;
  for (int64_t i = 0; i < n; ++i)
    TRIREME_CHECK(values[i] == ignored || (values[i] >= 0 && values[i] < limit), op, ": ", operand,
                  "[", i, "] is ", values[i], ", expected 0 to ", limit - 1);
}

void check_indices(const char* op, const char* operand, const ConstTensor& indices, int64_t limit) {
  check_indices(op, operand, indices, limit, 0);
  // The check above ignores indices of 0, even into an empty table.
  TRIREME_CHECK(limit > 0 || indices.numel() == 0, op, ": ", operand, " indexes an empty table");
}

}  // namespace trireme
