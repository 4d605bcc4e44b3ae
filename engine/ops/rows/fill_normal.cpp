#include "engine/ops/rows/fill_normal.h"

#include "engine/core/normal_number.h"
#include "engine/core/parallel_for.h"
#include "engine/ops/rows/fill_normal.cuda.h"

namespace trireme {

void fill_normal(Ctx& ctx, const Tensor& y, const RandomKey& key, double deviation,
                 const ElementIndex& index) {
  TRIREME_CHECK(y.rank() == 1, "fill_normal: y is ", y.shape(), ", expected (n)");
  check_contiguous("fill_normal", "y", y);
  if (ctx.planning() || y.numel() == 0) return;
  dispatch_float("fill_normal", y.dtype(), [&]<class T>() {
    T* const out = y.as<T>();
    if (ctx.gpu != nullptr)
      return cuda::fill_normal<T>(
          *ctx.gpu, {.y = out, .n = y.numel(), .key = key, .deviation = deviation, .index = index});
    constexpr int64_t kElementsWorthAThread = 4096;
    parallel_for(ctx.threads, y.numel(), kElementsWorthAThread, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        out[i] = static_cast<T>(static_cast<compute_t<T>>(
            deviation * philox_normal(key, static_cast<uint64_t>(index.of(i)))));
    });
  });
}

}  // namespace trireme
