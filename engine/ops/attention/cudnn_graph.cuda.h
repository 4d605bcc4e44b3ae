// Graphs of cuDNN's backend interface: tensors, operations between them, and the execution plans of
// its engines. For CUDA sources only.
//
// Tensors that a plan reads or writes have numbers, by which run() receives their addresses;
// temporary ones exist inside the engine only. Plans are made from a device description, without
// opening the device: engine support can be determined on a machine without a GPU too.
#pragma once

#include <cudnn.h>

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "engine/core/error.h"

namespace trireme::cuda::dnn {

// clang-format off
#define TRIREME_CUDNN_FUNCTIONS(X)                                                               \
  X(cudnnCreate) X(cudnnDestroy) X(cudnnSetStream) X(cudnnGetVersion) X(cudnnGetLastErrorString) \
  X(cudnnBackendCreateDescriptor) X(cudnnBackendDestroyDescriptor) X(cudnnBackendFinalize)       \
  X(cudnnBackendSetAttribute) X(cudnnBackendGetAttribute) X(cudnnBackendExecute)
// clang-format on

// Functions of the library, opened once per process.
struct Functions {
  std::string missing;  // reason why the library cannot be opened; "" if it is open
#define TRIREME_DECLARE(name) decltype(&::name) name = nullptr;
  TRIREME_CUDNN_FUNCTIONS(TRIREME_DECLARE)
#undef TRIREME_DECLARE
};
const Functions& functions();

// Thrown if no engine of this cuDNN version supports the graph on this device: use another path.
struct Unsupported : Error {
  using Error::Error;
};
// Throws Unsupported for the statuses NOT_SUPPORTED, Error for other failures.
void check(cudnnStatus_t status, const char* call);

// Owner of a backend descriptor.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(cudnnBackendDescriptorType_t type);
  Descriptor(Descriptor&& other) noexcept : raw_(std::exchange(other.raw_, nullptr)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(raw_, other.raw_);
    return *this;
  }
  ~Descriptor();
  cudnnBackendDescriptor_t raw() const { return raw_; }
  void set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, const void* values,
           int64_t count = 1);
  void set(cudnnBackendAttributeName_t name, cudnnBackendDescriptor_t value) {
    set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, &value);
  }
  void finalize();

 private:
  cudnnBackendDescriptor_t raw_ = nullptr;
};

Descriptor describe_device(int device);
// Descriptor from the library's own description of a device, as JSON.
Descriptor describe_device(const std::string& json);

struct Plan {
  Descriptor plan;
  std::set<int64_t> tensors;  // numbers of the tensors that are not temporary
  int64_t workspace = 0;      // bytes
};

class Graph {
 public:
  using Tensor = cudnnBackendDescriptor_t;
  using Sizes = std::vector<int64_t>;
  // offsets: (sizes[0] + 1) int64 on the device: start of each entry of the first dimension, in
  // elements; null: given by the strides.
  Tensor tensor(int64_t number, cudnnDataType_t type, const Sizes& sizes, const Sizes& strides,
                Tensor offsets = nullptr);
  Tensor temporary(cudnnDataType_t type, const Sizes& sizes, const Sizes& strides);
  Tensor temporary(cudnnDataType_t type, const Sizes& sizes);  // contiguous
  // float32 sums that an engine accumulates in pieces, in an unspecified order. Initially 0.
  Tensor sums(int64_t number, const Sizes& sizes, const Sizes& strides);
  Tensor scalar(int64_t number);  // float32, on the host

  // c (..., M, N) = a (..., M, K) b (..., K, N). A size that differs between entries of the first
  // dimension is given by an int32 tensor with one element per entry; null: the tensors' own size.
  struct ActualSizes {
    Tensor m = nullptr, n = nullptr, k = nullptr;
  };
  void matmul(Tensor a, Tensor b, Tensor c, const ActualSizes& sizes);
  // y = mode(x) and y = mode(x, b), element by element.
  void unary(cudnnPointwiseMode_t mode, Tensor x, Tensor y);
  void binary(cudnnPointwiseMode_t mode, Tensor x, Tensor b, Tensor y);
  // y = selector ? x : b
  void select(Tensor x, Tensor b, Tensor selector, Tensor y);
  void index(Tensor like, int64_t axis, Tensor y);  // y[...] = its position along the axis
  // Reduces x over the dimensions in which y is smaller.
  void reduce(cudnnReduceTensorOp_t kind, Tensor x, Tensor y);
  void reshape(Tensor x, Tensor y);  // here: transposes the last two dimensions

  const std::set<int64_t>& tensors() const { return tensors_; }  // numbers

  // Engine configurations for a device, best first.
  std::vector<Descriptor> configurations(const Descriptor& device);
  // Plan of the first configuration that can be finalized. Throws Unsupported if there is none.
  Plan prepare(const Descriptor& device);

 private:
  Tensor add_tensor(int64_t number, cudnnDataType_t type, const Sizes& sizes, const Sizes& strides,
                    bool temporary, bool by_value, Tensor offsets = nullptr,
                    bool reordered = false);
  void pointwise(cudnnPointwiseMode_t mode, Tensor x, Tensor y, Tensor b, Tensor selector,
                 int64_t axis);
  void add_operation(Descriptor operation);
  std::vector<Descriptor> parts_;
  std::vector<cudnnBackendDescriptor_t> operations_;
  Descriptor graph_;
  int64_t temporaries_ = 0;
  std::set<int64_t> tensors_;
};

// Makes the configuration's plan; returns the status of cudnnBackendFinalize. Leaves plan.tensors
// empty.
cudnnStatus_t make_plan(const Descriptor& configuration, const Descriptor& device, Plan& plan);

// addresses: one for each numbered tensor; those of scalars are host addresses. Throws Error if one
// is missing (the engine might read anywhere), null, or not the graph's.
void run(cudnnHandle_t handle, const Plan& plan, const std::map<int64_t, const void*>& addresses,
         void* workspace);

}  // namespace trireme::cuda::dnn
