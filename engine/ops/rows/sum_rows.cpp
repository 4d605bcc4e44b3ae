#include "engine/ops/rows/sum_rows.h"

#include <algorithm>
#include <vector>

#include "engine/core/parallel_for.h"
#include "engine/ops/rows/reduce.h"
#include "engine/ops/rows/sum_rows.cuda.h"

namespace trireme {
namespace {

void check_rows(const ConstTensor& t, const ConstTensor& like) {
  TRIREME_CHECK(t.rank() == 2 && (t.size(1) <= 1 || t.stride(1) == 1), "sum_rows: ", t.shape(),
                " must be (rows, columns) with adjacent columns");
  check_shape("sum_rows", "a term", t, like.shape());
  check_dtype("sum_rows", "a term", t, like.dtype());
}

// A kernel takes a limited number of addresses: more terms are added in several launches, with the
// unrounded sum kept in `sum` between them.
void sum_on_gpu(Ctx& ctx, const Tensor& y, const Tensor& sum, std::span<const ConstTensor> terms) {
  dispatch_float("sum_rows", y.dtype(), [&]<class T>() {
    for (size_t begin = 0; begin < terms.size(); begin += cuda::kMaxTerms) {
      const size_t count = std::min(terms.size() - begin, cuda::kMaxTerms);
      cuda::SumRows<T> args{.y = begin + count == terms.size() ? y.as<T>() : nullptr,
                            .y_stride = y.stride(0),
                            .sum = sum.present() ? sum.as<compute_t<T>>() : nullptr,
                            .accumulates = begin > 0,
                            .terms = {},
                            .strides = {},
                            .count = static_cast<int>(count),
                            .rows = y.size(0),
                            .columns = y.size(1)};
      for (size_t i = 0; i < count; ++i) {
        args.terms[i] = terms[begin + i].as<T>();
        args.strides[i] = terms[begin + i].stride(0);
      }
      cuda::sum_rows<T>(*ctx.gpu, args);
    }
  });
}

}  // namespace

void sum_rows(Ctx& ctx, const Tensor& y, std::span<const ConstTensor> terms) {
  TRIREME_CHECK(!terms.empty(), "sum_rows: expected at least one term");
  check_rows(y, y);
  for (const ConstTensor& term : terms) check_rows(term, y);
  Activation sum;
  if (ctx.gpu != nullptr && terms.size() > cuda::kMaxTerms)
    sum = ctx.allocate("sum_rows.sum", sum_dtype(y.dtype()), y.shape());
  if (ctx.planning() || y.numel() == 0) return;
  const TimeScope scope(ctx.profile, TimeCategory::kOther);
  if (ctx.gpu != nullptr) return sum_on_gpu(ctx, y, sum, terms);
  const int64_t element = dtype_size(y.dtype());
  constexpr int64_t kElementsWorthAThread = 1 << 14;
  parallel_for(ctx.threads, y.size(0), kElementsWorthAThread / (y.size(1) + 1) + 1,
               [&](int64_t begin, int64_t end) {
                 std::vector<const void*> from(terms.size());
                 for (int64_t r = begin; r < end; ++r) {
                   for (size_t i = 0; i < terms.size(); ++i)
                     from[i] = static_cast<const std::byte*>(terms[i].raw()) +
                               r * terms[i].stride(0) * element;
                   auto* to = static_cast<std::byte*>(y.raw()) + r * y.stride(0) * element;
                   reduce_ranges(y.dtype(), ReduceOp::kSum, to, from, y.size(1));
                 }
               });
}

}  // namespace trireme
