#include "engine/ops/moe/token_marks.h"

#include <algorithm>
#include <limits>

#include "engine/ops/moe/token_marks.cuda.h"

namespace trireme {

void mark_tokens(Ctx& ctx, const Tensor& valid, const Tensor& segments, const ConstTensor& rows,
                 int64_t begin, int64_t length) {
  const int64_t n = valid.numel();
  check_operand("mark_tokens", "valid", valid, DType::kU8, {n});
  check_operand("mark_tokens", "segments", segments, DType::kI32, {n});
  if (rows.present()) {
    TRIREME_CHECK(begin >= 0 && begin + n <= rows.numel(), "mark_tokens: tokens [", begin, ", ",
                  begin + n, ") exceed the ", rows.numel(), " of the pass");
    check_operand("mark_tokens", "rows", rows, DType::kI64, {rows.numel()});
  }
  if (ctx.planning()) return;
  const TokenMarks args{.valid = valid.as<uint8_t>(),
                        .segments = segments.as<int32_t>(),
                        .rows = rows.present() ? rows.as<int64_t>() : nullptr,
                        .all = rows.present() ? rows.numel() : 0,
                        .begin = begin,
                        .count = n,
                        .length = length};
  if (ctx.gpu != nullptr) return cuda::mark_tokens(*ctx.gpu, args);
  int64_t first = std::numeric_limits<int64_t>::max();
  for (int64_t t = 0; t < args.all; ++t)
    if (args.rows[t] >= 0) first = std::min(first, args.rows[t]);
  for (int64_t t = 0; t < n; ++t) args.mark(t, first);
}

}  // namespace trireme
