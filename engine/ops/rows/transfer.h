// Copies between host memory and the device that a rank computes on.
#pragma once

#include <vector>

#include "engine/ops/context.h"

namespace trireme {

// dst = src: contiguous tensors of one dtype and shape, without overlap, each on the host or on the
// context's device.
//   within the device, and from the host   returns at once: src may be changed (host) or freed in
//                                          stream order (device)
//   to the host                            waits for all earlier work and for the copy; not for use
//                                          inside a training step
// Does nothing in a planning run.
void transfer(Ctx& ctx, const Tensor& dst, const ConstTensor& src);

// Every byte of y = value; 0xff makes integers -1. y is contiguous.
void fill_bytes(Ctx& ctx, const Tensor& y, uint8_t value);

// All elements of t, on any device; waits like transfer() to the host.
template <class T>
std::vector<T> to_host(Ctx& ctx, const ConstTensor& t) {
  std::vector<T> out(static_cast<size_t>(t.numel()));
  transfer(ctx, Tensor(out.data(), dtype_of<T>, t.shape()), t);
  return out;
}

// Calls `fill(part, first)` to write a contiguous tensor of rank 1 on the host, elements [first,
// first + n) at a time: in place on the CPU, on a GPU through a buffer of 64 MiB. Likewise
// `read(part, first)`.
void fill_from_host(Ctx& ctx, const Tensor& y,
                    const std::function<void(const Tensor& part, int64_t first)>& fill);
void read_on_host(Ctx& ctx, const ConstTensor& x,
                  const std::function<void(const ConstTensor& part, int64_t first)>& read);

}  // namespace trireme
