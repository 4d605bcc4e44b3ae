// Copies between host memory and a rank's device.
#pragma once

#include <vector>

#include "engine/ops/context.h"

namespace trireme {

// dst = src: contiguous tensors of one dtype and shape, without overlap, each on the host or on the
// context's device.
//   host to device    through staging memory: src may be changed or freed on return
//   device to device  queued on the main stream; src may be freed in stream order
//   device to host    waits for all earlier work of the main stream and for the copy; not for use
//                     inside a training step
//   host to host      complete on return
// Does nothing in a planning run.
void transfer(Ctx& ctx, const Tensor& dst, const ConstTensor& src);

// Every byte of y = value; 0xff makes signed integers -1. y is contiguous and on the context's
// device, where the fill is queued on the main stream. Does nothing in a planning run.
void fill_bytes(Ctx& ctx, const Tensor& y, uint8_t value);

// Returns all elements of t, contiguous, of dtype T, on any device. Waits like a transfer() to the
// host; returns zeros in a planning run.
template <class T>
std::vector<T> to_host(Ctx& ctx, const ConstTensor& t) {
  std::vector<T> out(static_cast<size_t>(t.numel()));
  transfer(ctx, Tensor(out.data(), dtype_of<T>, t.shape()), t);
  return out;
}

// Calls fill(part, first) on the host to write y, or read(part, first) to read x; both are
// contiguous, of rank 1. `part` holds elements [first, first + part.numel()). A tensor on the host
// is one part, in place. A tensor on a GPU is split into parts of at most 64 MiB in a host buffer,
// in ascending order. There is no call for an empty tensor.
void fill_from_host(Ctx& ctx, const Tensor& y,
                    const std::function<void(const Tensor& part, int64_t first)>& fill);
void read_on_host(Ctx& ctx, const ConstTensor& x,
                  const std::function<void(const ConstTensor& part, int64_t first)>& read);

}  // namespace trireme
