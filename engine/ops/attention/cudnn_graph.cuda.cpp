#ifdef TRIREME_CUDNN
#include "engine/ops/attention/cudnn_graph.cuda.h"

#include <array>

#include "engine/device/cuda/shared_library.h"

namespace trireme::cuda::dnn {
namespace {

constexpr int64_t kFirstTemporary = 1000;  // numbers of temporaries, not used by tensors

Functions load_functions() {
  Functions f;
  const SharedLibrary library = open_shared_library(concat("libcudnn.so.", CUDNN_MAJOR));
  if (!library.present()) {
    f.missing = library.reason;
    return f;
  }
#define TRIREME_LOAD(name) load_function(library, f.name, #name);
  TRIREME_CUDNN_FUNCTIONS(TRIREME_LOAD)
#undef TRIREME_LOAD
  return f;
}

Graph::Sizes contiguous(const Graph::Sizes& sizes) {
  Graph::Sizes strides(sizes.size(), 1);
  for (size_t i = sizes.size(); i-- > 1;) strides[i - 1] = strides[i] * sizes[i];
  return strides;
}

}  // namespace

const Functions& functions() {
  static const Functions loaded = load_functions();
  return loaded;
}

void check(cudnnStatus_t status, const char* call) {
  if (status == CUDNN_STATUS_SUCCESS) [[likely]]
    return;
  std::array<char, 1024> message{};
  functions().cudnnGetLastErrorString(message.data(), message.size());
  const std::string what =
      concat("cuDNN: ", call, " failed (", static_cast<int>(status), "): ", message.data());
  if (CUDNN_STATUS_CATEGORY(static_cast<int>(status)) == CUDNN_STATUS_NOT_SUPPORTED)
    throw Unsupported(what);
  throw Error(what);
}

Descriptor::Descriptor(cudnnBackendDescriptorType_t type) {
  check(functions().cudnnBackendCreateDescriptor(type, &raw_), "cudnnBackendCreateDescriptor");
}

Descriptor::~Descriptor() {
  if (raw_ != nullptr) (void)functions().cudnnBackendDestroyDescriptor(raw_);
}

void Descriptor::set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                     const void* values, int64_t count) {
  check(functions().cudnnBackendSetAttribute(raw_, name, type, count, values),
        "cudnnBackendSetAttribute");
}

void Descriptor::finalize() {
  check(functions().cudnnBackendFinalize(raw_), "cudnnBackendFinalize");
}

Descriptor describe_device(int device) {
  Descriptor d(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
  const int32_t number = device;
  d.set(CUDNN_ATTR_DEVICEPROP_DEVICE_ID, CUDNN_TYPE_INT32, &number);
  d.finalize();
  return d;
}

Descriptor describe_device(const std::string& json) {
  Descriptor d(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
  d.set(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, json.data(), std::ssize(json));
  d.finalize();
  return d;
}

// --- tensors ---

Graph::Tensor Graph::add_tensor(int64_t number, cudnnDataType_t type, const Sizes& sizes,
                                const Sizes& strides, bool temporary, bool by_value, Tensor offsets,
                                bool reordered) {
  Descriptor d(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  // For parts of a tensor that start at offsets, and for tables of integers, only an element's
  // alignment is guaranteed.
  int64_t alignment = 16;
  if (type == CUDNN_DATA_INT64 && !temporary) alignment = 8;
  if (type == CUDNN_DATA_INT32 && !temporary) alignment = 4;
  if (type == CUDNN_DATA_FLOAT && offsets != nullptr) alignment = 4;
  d.set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, &type);
  d.set(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, sizes.data(), std::ssize(sizes));
  d.set(CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, strides.data(), std::ssize(strides));
  d.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, &number);
  d.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, &alignment);
  d.set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, &temporary);
  d.set(CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, &by_value);
  if (offsets != nullptr) d.set(CUDNN_ATTR_TENSOR_RAGGED_OFFSET_DESC, offsets);
  const cudnnBackendTensorReordering_t order = CUDNN_TENSOR_REORDERING_F16x16;
  if (reordered)
    d.set(CUDNN_ATTR_TENSOR_REORDERING_MODE, CUDNN_TYPE_TENSOR_REORDERING_MODE, &order);
  d.finalize();
  if (!temporary) tensors_.insert(number);
  parts_.push_back(std::move(d));
  return parts_.back().raw();
}

Graph::Tensor Graph::tensor(int64_t number, cudnnDataType_t type, const Sizes& sizes,
                            const Sizes& strides, Tensor offsets) {
  TRIREME_CHECK(number < kFirstTemporary, "tensor ", number);
  return add_tensor(number, type, sizes, strides, false, false, offsets);
}

Graph::Tensor Graph::sums(int64_t number, const Sizes& sizes, const Sizes& strides) {
  return add_tensor(number, CUDNN_DATA_FLOAT, sizes, strides, false, false, nullptr, true);
}

Graph::Tensor Graph::temporary(cudnnDataType_t type, const Sizes& sizes, const Sizes& strides) {
  return add_tensor(kFirstTemporary + temporaries_++, type, sizes, strides, true, false);
}

Graph::Tensor Graph::temporary(cudnnDataType_t type, const Sizes& sizes) {
  return temporary(type, sizes, contiguous(sizes));
}

Graph::Tensor Graph::scalar(int64_t number) {
  return add_tensor(number, CUDNN_DATA_FLOAT, {1, 1, 1, 1}, {1, 1, 1, 1}, false, true);
}

// --- operations ---

void Graph::add_operation(Descriptor operation) {
  operation.finalize();
  operations_.push_back(operation.raw());
  parts_.push_back(std::move(operation));
}

void Graph::matmul(Tensor a, Tensor b, Tensor c, const ActualSizes& sizes) {
  Descriptor kind(CUDNN_BACKEND_MATMUL_DESCRIPTOR);
  const cudnnDataType_t sums = CUDNN_DATA_FLOAT;
  kind.set(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, &sums);
  kind.finalize();
  Descriptor d(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
  d.set(CUDNN_ATTR_OPERATION_MATMUL_ADESC, a);
  d.set(CUDNN_ATTR_OPERATION_MATMUL_BDESC, b);
  d.set(CUDNN_ATTR_OPERATION_MATMUL_CDESC, c);
  d.set(CUDNN_ATTR_OPERATION_MATMUL_DESC, kind.raw());
  if (sizes.m != nullptr) d.set(CUDNN_ATTR_OPERATION_MATMUL_GEMM_M_OVERRIDE_DESC, sizes.m);
  if (sizes.n != nullptr) d.set(CUDNN_ATTR_OPERATION_MATMUL_GEMM_N_OVERRIDE_DESC, sizes.n);
  if (sizes.k != nullptr) d.set(CUDNN_ATTR_OPERATION_MATMUL_GEMM_K_OVERRIDE_DESC, sizes.k);
  parts_.push_back(std::move(kind));
  add_operation(std::move(d));
}

void Graph::pointwise(cudnnPointwiseMode_t mode, Tensor x, Tensor y, Tensor b, Tensor selector,
                      int64_t axis) {
  Descriptor kind(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  const bool logical = mode == CUDNN_POINTWISE_CMP_GE || mode == CUDNN_POINTWISE_CMP_LT ||
                       mode == CUDNN_POINTWISE_LOGICAL_AND;
  const cudnnDataType_t type = logical ? CUDNN_DATA_BOOLEAN : CUDNN_DATA_FLOAT;
  kind.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, &mode);
  kind.set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, &type);
  if (axis >= 0) kind.set(CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, &axis);
  kind.finalize();
  Descriptor d(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  d.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, kind.raw());
  d.set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
  if (b != nullptr) d.set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b);
  if (selector != nullptr) d.set(CUDNN_ATTR_OPERATION_POINTWISE_TDESC, selector);
  d.set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
  parts_.push_back(std::move(kind));
  add_operation(std::move(d));
}

void Graph::unary(cudnnPointwiseMode_t mode, Tensor x, Tensor y) {
  pointwise(mode, x, y, nullptr, nullptr, -1);
}
void Graph::binary(cudnnPointwiseMode_t mode, Tensor x, Tensor b, Tensor y) {
  pointwise(mode, x, y, b, nullptr, -1);
}
void Graph::select(Tensor x, Tensor b, Tensor selector, Tensor y) {
  pointwise(CUDNN_POINTWISE_BINARY_SELECT, x, y, b, selector, -1);
}
void Graph::index(Tensor like, int64_t axis, Tensor y) {
  pointwise(CUDNN_POINTWISE_GEN_INDEX, like, y, nullptr, nullptr, axis);
}

void Graph::reduce(cudnnReduceTensorOp_t operation, Tensor x, Tensor y) {
  Descriptor kind(CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
  const cudnnDataType_t sums = CUDNN_DATA_FLOAT;
  kind.set(CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, &operation);
  kind.set(CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, &sums);
  kind.finalize();
  Descriptor d(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
  d.set(CUDNN_ATTR_OPERATION_REDUCTION_DESC, kind.raw());
  d.set(CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x);
  d.set(CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y);
  parts_.push_back(std::move(kind));
  add_operation(std::move(d));
}

void Graph::reshape(Tensor x, Tensor y) {
  Descriptor d(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
  d.set(CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x);
  d.set(CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y);
  add_operation(std::move(d));
}

// --- plans ---

std::vector<Descriptor> Graph::configurations(const Descriptor& device) {
  graph_ = Descriptor(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  graph_.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, operations_.data(),
             std::ssize(operations_));
  graph_.finalize();
  Descriptor heuristics(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  const cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A;
  heuristics.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph_.raw());
  heuristics.set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, &mode);
  heuristics.set(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, device.raw());
  heuristics.finalize();
  const auto results = [&](int64_t room, cudnnBackendDescriptor_t* into) {
    int64_t count = 0;
    check(functions().cudnnBackendGetAttribute(heuristics.raw(), CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                               CUDNN_TYPE_BACKEND_DESCRIPTOR, room, &count, into),
          "cudnnBackendGetAttribute");
    return count;
  };
  std::vector<Descriptor> found;
  std::vector<cudnnBackendDescriptor_t> raw;
  for (int64_t i = results(0, nullptr); i > 0; --i) {
    found.emplace_back(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    raw.push_back(found.back().raw());
  }
  if (!raw.empty()) found.resize(static_cast<size_t>(results(std::ssize(raw), raw.data())));
  return found;
}

cudnnStatus_t make_plan(const Descriptor& configuration, const Descriptor& device, Plan& plan) {
  plan.plan = Descriptor(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
  plan.plan.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, configuration.raw());
  plan.plan.set(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, device.raw());
  const cudnnStatus_t status = functions().cudnnBackendFinalize(plan.plan.raw());
  if (status != CUDNN_STATUS_SUCCESS) return status;
  int64_t count = 0;
  check(functions().cudnnBackendGetAttribute(plan.plan.raw(),
                                             CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                             CUDNN_TYPE_INT64, 1, &count, &plan.workspace),
        "cudnnBackendGetAttribute");
  return status;
}

Plan Graph::prepare(const Descriptor& device) {
  for (const Descriptor& configuration : configurations(device)) {
    Plan plan;
    if (make_plan(configuration, device, plan) != CUDNN_STATUS_SUCCESS) continue;
    plan.tensors = tensors_;
    return plan;
  }
  throw Unsupported("cuDNN: no engine runs this graph");
}

void run(cudnnHandle_t handle, const Plan& plan, const std::map<int64_t, const void*>& addresses,
         void* workspace) {
  std::vector<int64_t> numbers;
  std::vector<const void*> pointers;
  for (const int64_t number : plan.tensors)
    TRIREME_CHECK(addresses.contains(number), "cuDNN: tensor ", number, " has no address");
  for (const auto& [number, pointer] : addresses) {
    TRIREME_CHECK(pointer != nullptr && plan.tensors.contains(number), "cuDNN: tensor ", number,
                  pointer == nullptr ? " has no memory" : " is not one of the graph's");
    numbers.push_back(number);
    pointers.push_back(pointer);
  }
  Descriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, numbers.data(),
           std::ssize(numbers));
  pack.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, pointers.data(),
           std::ssize(pointers));
  pack.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, &workspace);
  pack.finalize();
  check(functions().cudnnBackendExecute(handle, plan.plan.raw(), pack.raw()),
        "cudnnBackendExecute");
}

}  // namespace trireme::cuda::dnn
#endif  // TRIREME_CUDNN
