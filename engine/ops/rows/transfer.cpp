#include "engine/ops/rows/transfer.h"

#include <algorithm>
#include <cstring>

namespace trireme {

void transfer(Ctx& ctx, const Tensor& dst, const ConstTensor& src) {
  check_operand("transfer", "dst", dst, src.dtype(), src.shape());
  check_contiguous("transfer", "src", src);
  const int64_t bytes = src.bytes();
  if (ctx.planning() || bytes == 0) return;
  const bool from_host = src.device() == DeviceType::kCpu,
             to_host = dst.device() == DeviceType::kCpu;
  if (from_host && to_host) {
    std::memcpy(dst.raw(), src.raw(), static_cast<size_t>(bytes));
    return;
  }
  TRIREME_CHECK(ctx.gpu != nullptr, "transfer between ", src.device(), " and ", dst.device(),
                " on a rank without a GPU");
  if (from_host)
    cuda::upload(*ctx.gpu, dst.raw(), src.raw(), bytes);
  else if (to_host)
    cuda::download(*ctx.gpu, dst.raw(), src.raw(), bytes);
  else
    cuda::copy_async(*ctx.gpu, ctx.gpu->main, dst.raw(), src.raw(), bytes);
}

namespace {

constexpr int64_t kHostBufferBytes = int64_t{64} << 20;

// Calls f(begin, end, buffer) for parts of n elements that fit into one host buffer.
template <class F>
void for_each_part(int64_t n, DType dtype, F&& f) {
  const int64_t most = std::min(n, kHostBufferBytes / dtype_size(dtype));
  const Buffer buffer("host buffer", most * dtype_size(dtype));
  for (int64_t begin = 0; begin < n; begin += most) {
    const int64_t end = std::min(n, begin + most);
    f(begin, end, buffer.tensor(dtype, Shape{end - begin}));
  }
}

}  // namespace

void fill_from_host(Ctx& ctx, const Tensor& y,
                    const std::function<void(const Tensor&, int64_t)>& fill) {
  TRIREME_CHECK(y.rank() == 1, "fill_from_host: y is ", y.shape(), ", expected (n)");
  check_contiguous("fill_from_host", "y", y);
  if (y.numel() == 0) return;
  if (y.device() == DeviceType::kCpu) return fill(y, 0);
  for_each_part(y.numel(), y.dtype(), [&](int64_t begin, int64_t end, const Tensor& part) {
    fill(part, begin);
    transfer(ctx, y.slice(0, begin, end), part);
  });
}

void read_on_host(Ctx& ctx, const ConstTensor& x,
                  const std::function<void(const ConstTensor&, int64_t)>& read) {
  TRIREME_CHECK(x.rank() == 1, "read_on_host: x is ", x.shape(), ", expected (n)");
  check_contiguous("read_on_host", "x", x);
  if (x.numel() == 0) return;
  if (x.device() == DeviceType::kCpu) return read(x, 0);
  for_each_part(x.numel(), x.dtype(), [&](int64_t begin, int64_t end, const Tensor& part) {
    transfer(ctx, part, x.slice(0, begin, end));
    read(part, begin);
  });
}

void fill_bytes(Ctx& ctx, const Tensor& y, uint8_t value) {
  check_contiguous("fill_bytes", "y", y);
  if (ctx.planning() || y.bytes() == 0) return;
  if (ctx.gpu != nullptr)
    cuda::fill_bytes(*ctx.gpu, ctx.gpu->main, y.raw(), value, y.bytes());
  else
    std::memset(y.raw(), value, static_cast<size_t>(y.bytes()));
}

}  // namespace trireme
