#include "engine/ops/gemm/blas_lt.cuda.h"

#include <algorithm>
#include <array>
#include <bit>
#include <unordered_map>
#include <vector>

#include "engine/core/random.h"
#include "engine/device/cuda/launch_times.h"
#include "engine/device/launch.h"
#include "engine/ops/gemm/fill_rows.cuda.h"
#ifndef TRIREME_EMULATED
#include "engine/device/cuda/shared_library.h"
#endif

namespace trireme::cuda {
namespace {

// Workspace that the library's heuristics expect: tiles are larger from Hopper on.
int64_t workspace_bytes(const DeviceInfo& info) {
  return int64_t{info.compute_major >= 9 ? 32 : 8} << 20;
}

// Far more than the distinct products of a training step.
constexpr size_t kMaxPlans = 4096;
constexpr int kTimedAlgorithms = 8;

BlasLtFunctions load_functions() {
  BlasLtFunctions lt;
#ifdef TRIREME_EMULATED
#define TRIREME_LOAD(name) lt.name = &::name;
#else
  // The library defines the layout of descriptors, but the header defines their attributes.
  const SharedLibrary library = open_shared_library(concat("libcublasLt.so.", CUBLAS_VER_MAJOR));
  if (!library.present())
    fail_input("device cuda needs ", library.name, ", which cannot be opened (", library.reason,
               "); install the CUDA toolkit ", CUBLAS_VER_MAJOR,
               " or add the folder of the library to LD_LIBRARY_PATH");
#define TRIREME_LOAD(name) load_function(library, lt.name, #name);
#endif
  TRIREME_CUBLASLT_FUNCTIONS(TRIREME_LOAD)
#undef TRIREME_LOAD
  return lt;
}

void check(cublasStatus_t status, const char* call, const GemmProblem& g) {
  if (status == CUBLAS_STATUS_SUCCESS) [[likely]]
    return;
  throw Error(concat("gemm: ", call, " failed (",
                     blas_lt_functions().cublasLtGetStatusString(status), ") on ", g.in, " (", g.m,
                     ", ", g.k, ") x (", g.k, ", ", g.n, ") -> ", g.out));
}

cudaDataType_t library_type(DType dtype, Float8Format format = {}) {
  switch (dtype) {
    case DType::kU8: return format == Float8Format::kE4M3 ? CUDA_R_8F_E4M3 : CUDA_R_8F_E5M2;
    case DType::kF64: return CUDA_R_64F;
    case DType::kF32: return CUDA_R_32F;
    case DType::kBF16: return CUDA_R_16BF;
    case DType::kF16: return CUDA_R_16F;
    default: TRIREME_UNREACHABLE("cuBLASLt product of ", dtype);
  }
}

// Owner of a descriptor.
template <class D, cublasStatus_t (*BlasLtFunctions::*kDestroy)(D)>
struct Descriptor {
  D raw = nullptr;
  Descriptor() = default;
  Descriptor(Descriptor&& other) noexcept : raw(std::exchange(other.raw, nullptr)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(raw, other.raw);
    return *this;
  }
  ~Descriptor() {
    if (raw != nullptr) (void)(blas_lt_functions().*kDestroy)(raw);
  }
};
using MatmulDesc = Descriptor<cublasLtMatmulDesc_t, &BlasLtFunctions::cublasLtMatmulDescDestroy>;
using Layout = Descriptor<cublasLtMatrixLayout_t, &BlasLtFunctions::cublasLtMatrixLayoutDestroy>;
using Preference =
    Descriptor<cublasLtMatmulPreference_t, &BlasLtFunctions::cublasLtMatmulPreferenceDestroy>;

// Power of two that divides the address, limited to the few values the library distinguishes.
constexpr int64_t kVector = 16;
int64_t alignment_of(const void* pointer) {
  constexpr int64_t kBest = 256;
  if (pointer == nullptr) return kBest;
  const auto address = reinterpret_cast<uintptr_t>(pointer);
  const int64_t exact = address == 0 ? kBest : int64_t{1} << std::min(std::countr_zero(address), 8);
  return exact >= kBest ? kBest : std::min(exact, kVector);
}

// For operands whose first row differs each time, no more alignment is assumed than for rows.
int64_t alignment_of(const void* pointer, const GemmProblem& g) {
  const int64_t exact = alignment_of(pointer);
  return g.varying_rows ? std::min(exact, kVector) : exact;
}

// Largest number of rows of the range that contains `rows`; ranges are an eighth of a power of two
// wide.
int64_t max_of_range(int64_t rows) {
  const auto below = static_cast<uint64_t>(std::max<int64_t>(rows - 1, 1));
  return round_up(rows, std::max<int64_t>(1, static_cast<int64_t>(std::bit_floor(below)) / 8));
}

// Product that is prepared for g: g itself, or the largest of its range. These rows are columns of
// the library's matrices; no algorithm's requirements on strides and addresses depend on their
// number.
GemmProblem prepared_for(GemmProblem g) {
  int64_t& rows = g.transpose_a ? g.k : g.m;
  if (g.varying_rows) rows = max_of_range(rows);
  return g;
}

// All properties that a prepared product depends on; alpha is given in the call.
using Key = std::array<int64_t, 8>;
Key key_of(const GemmProblem& g, const GemmPointers& p) {
  const int64_t flags =
      int64_t{g.transpose_a} | int64_t{g.transpose_b} << 1 | int64_t{g.accumulate} << 2 |
      int64_t{g.has_bias} << 3 | static_cast<int64_t>(g.in) << 4 |
      static_cast<int64_t>(g.out) << 8 | static_cast<int64_t>(g.a_format) << 12 |
      static_cast<int64_t>(g.b_format) << 13 | static_cast<int64_t>(g.a_scaling) << 14 |
      static_cast<int64_t>(g.b_scaling) << 16 | int64_t{g.varying_rows} << 18;
  const int64_t alignments = alignment_of(p.a, g) | alignment_of(p.b, g) << 10 |
                             alignment_of(p.c, g) << 20 | alignment_of(p.bias, g) << 30;
  return {g.m, g.n, g.k, g.lda, g.ldb, g.ldc, flags, alignments};
}
struct KeyHash {
  size_t operator()(const Key& key) const {
    uint64_t hash = 0;
    for (int64_t word : key) hash = substream(hash, static_cast<uint64_t>(word));
    return hash;
  }
};

struct Plan {
  MatmulDesc desc;
  Layout a, b, c;  // in the library's order: a is the stored B, b the stored A
  cublasLtMatmulAlgo_t algorithm{};
  bool bias_first = false;  // writes the bias to C first and adds the product to it
  bool added = false;       // beta = 1
  int64_t used = 0;         // number of the product it last served
};

void set(const MatmulDesc& desc, cublasLtMatmulDescAttributes_t name, const auto& value,
         const GemmProblem& g) {
  check(blas_lt_functions().cublasLtMatmulDescSetAttribute(desc.raw, name, &value, sizeof value),
        "cublasLtMatmulDescSetAttribute", g);
}

void set(const Preference& preference, cublasLtMatmulPreferenceAttributes_t name, const auto& value,
         const GemmProblem& g) {
  check(blas_lt_functions().cublasLtMatmulPreferenceSetAttribute(preference.raw, name, &value,
                                                                 sizeof value),
        "cublasLtMatmulPreferenceSetAttribute", g);
}

Layout make_layout(cudaDataType_t type, int64_t rows, int64_t columns, int64_t ld,
                   const GemmProblem& g) {
  Layout layout;
  // A single column may have any stride; the library requires one that is valid for a matrix.
  check(blas_lt_functions().cublasLtMatrixLayoutCreate(
            &layout.raw, type, static_cast<uint64_t>(rows), static_cast<uint64_t>(columns),
            std::max(rows, ld)),
        "cublasLtMatrixLayoutCreate", g);
  return layout;
}

// The library's A is the stored B. A null pointer would mean a factor of one.
void set_scales(const MatmulDesc& desc, const GemmProblem& g, const GemmPointers& p) {
  if (g.in != DType::kU8) return;
  set(desc, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, p.b_inverse, g);
  set(desc, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, p.a_inverse, g);
}

// Scaling modes of groups, supported by the library from 12.9 on.
void set_scaling(const MatmulDesc& desc, const GemmProblem& g) {
  if (g.a_scaling == Float8Scaling::kTensor) return;
#if CUBLAS_VERSION >= 120900
  constexpr size_t kSince = 120900;
  if (const size_t version = blas_lt_functions().cublasLtGetVersion(); version < kSince)
    fail_input("cuBLASLt ", version / 10000, ".", version / 100 % 100,
               " cannot multiply 8-bit floats with scales of groups, 12.9 can; use one scale for "
               "each tensor");
  const auto mode = [](Float8Scaling scaling) {
    return static_cast<int32_t>(scaling == Float8Scaling::kRowGroup
                                    ? CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F
                                    : CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F);
  };
  set(desc, CUBLASLT_MATMUL_DESC_A_SCALE_MODE, mode(g.b_scaling), g);
  set(desc, CUBLASLT_MATMUL_DESC_B_SCALE_MODE, mode(g.a_scaling), g);
#else
  fail_input("built with CUDA ", CUDART_VERSION / 1000, ".", CUDART_VERSION / 10 % 100,
             ", products of 8-bit floats with scales of groups need 12.9; use one scale for each "
             "tensor");
#endif
}

// The stored matrices as column-major ones: their transposes.
Plan describe(const GemmProblem& g, const GemmPointers& p, bool bias_first) {
  Plan plan;
  const bool wide = g.in == DType::kF64;
  check(blas_lt_functions().cublasLtMatmulDescCreate(&plan.desc.raw,
                                                     wide ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F,
                                                     wide ? CUDA_R_64F : CUDA_R_32F),
        "cublasLtMatmulDescCreate", g);
  const cublasOperation_t of_a = g.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N;
  const cublasOperation_t of_b = g.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N;
  set(plan.desc, CUBLASLT_MATMUL_DESC_TRANSA, of_a, g);
  set(plan.desc, CUBLASLT_MATMUL_DESC_TRANSB, of_b, g);
  plan.bias_first = bias_first;
  plan.added = g.accumulate || bias_first;
  if (g.has_bias && !bias_first) {
    const cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_BIAS;
    set(plan.desc, CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue, g);
    set(plan.desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, p.bias, g);
    const cudaDataType_t type = library_type(g.out);
    set(plan.desc, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, type, g);
  }
  if (g.in == DType::kU8) {
    const int8_t fast = 0;  // sums with fewer bits than float32's between their parts
    set(plan.desc, CUBLASLT_MATMUL_DESC_FAST_ACCUM, fast, g);
    set_scaling(plan.desc, g);
  }
  set_scales(plan.desc, g, p);
  const cudaDataType_t a = library_type(g.in, g.a_format), b = library_type(g.in, g.b_format);
  plan.a = g.transpose_b ? make_layout(b, g.k, g.n, g.ldb, g) : make_layout(b, g.n, g.k, g.ldb, g);
  plan.b = g.transpose_a ? make_layout(a, g.m, g.k, g.lda, g) : make_layout(a, g.k, g.m, g.lda, g);
  plan.c = make_layout(library_type(g.out), g.n, g.m, g.ldc, g);
  return plan;
}

using Result = cublasLtMatmulHeuristicResult_t;

// The library's algorithms for the product, best first; empty if there are none.
std::vector<Result> algorithms(cublasLtHandle_t handle, int64_t room, const Plan& plan,
                               const GemmProblem& g, const GemmPointers& p, int most) {
  const BlasLtFunctions& lt = blas_lt_functions();
  Preference preference;
  check(lt.cublasLtMatmulPreferenceCreate(&preference.raw), "cublasLtMatmulPreferenceCreate", g);
  const auto workspace = static_cast<uint64_t>(room);
  set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, workspace, g);
  const uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  set(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, reductions, g);
  const auto alignment = [&](cublasLtMatmulPreferenceAttributes_t name, const void* pointer) {
    const auto bytes = static_cast<uint32_t>(alignment_of(pointer, g));
    set(preference, name, bytes, g);
  };
  alignment(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, p.b);
  alignment(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, p.a);
  alignment(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, p.c);
  alignment(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, p.c);
  std::vector<Result> found(static_cast<size_t>(most));
  int count = 0;
  const cublasStatus_t status =
      lt.cublasLtMatmulAlgoGetHeuristic(handle, plan.desc.raw, plan.a.raw, plan.b.raw, plan.c.raw,
                                        plan.c.raw, preference.raw, most, found.data(), &count);
  if (status == CUBLAS_STATUS_NOT_SUPPORTED) return {};
  check(status, "cublasLtMatmulAlgoGetHeuristic", g);
  found.resize(static_cast<size_t>(count));
  std::erase_if(found, [&](const Result& r) {
    return r.state != CUBLAS_STATUS_SUCCESS || r.workspaceSize > workspace;
  });
  return found;
}

}  // namespace

const BlasLtFunctions& blas_lt_functions() {
  static const BlasLtFunctions functions = load_functions();
  return functions;
}

struct BlasLt::Impl {
  cublasLtHandle_t handle = nullptr;
  Buffer workspace;
  std::unordered_map<Key, Plan, KeyHash> plans;
  std::optional<GemmAlgorithms> kept;
  int64_t made = 0;
  int64_t products = 0;

  void forget_old();
  Plan& find(Context& gpu, const GemmProblem& g, const GemmPointers& p);
  Plan make(Context& gpu, const GemmProblem& g, const GemmPointers& p);
  cublasStatus_t queue(Context& gpu, const Plan& plan, const cublasLtMatmulAlgo_t& algorithm,
                       const GemmProblem& g, const GemmPointers& p);
  void run(Context& gpu, const Plan& plan, const cublasLtMatmulAlgo_t& algorithm,
           const GemmProblem& g, const GemmPointers& p) {
    check(queue(gpu, plan, algorithm, g, p), "cublasLtMatmul", g);
  }
  cublasLtMatmulAlgo_t fastest(Context& gpu, const Plan& plan,
                               const std::vector<Result>& candidates, const GemmProblem& g,
                               const GemmPointers& p);
};

// Drops the least recently used half of the plans.
void BlasLt::Impl::forget_old() {
  std::vector<int64_t> uses;
  uses.reserve(plans.size());
  for (const auto& [key, plan] : plans) uses.push_back(plan.used);
  const auto middle = uses.begin() + std::ssize(uses) / 2;
  std::ranges::nth_element(uses, middle);
  std::erase_if(plans, [&](const auto& known) { return known.second.used < *middle; });
}

Plan& BlasLt::Impl::find(Context& gpu, const GemmProblem& g, const GemmPointers& p) {
  const Key key = key_of(g, p);
  auto known = plans.find(key);
  if (known == plans.end()) {
    if (plans.size() >= kMaxPlans) forget_old();
    known = plans.emplace(key, make(gpu, g, p)).first;
  }
  known->second.used = ++products;
  return known->second;
}

Plan BlasLt::Impl::make(Context& gpu, const GemmProblem& g, const GemmPointers& p) {
  ++made;
  const bool keeps = kept.has_value() && !g.varying_rows;
  if (keeps)
    if (const auto known = kept->chosen.find(key_of(g, p)); known != kept->chosen.end()) {
      Plan plan = describe(g, p, known->second.bias_first);
      plan.algorithm = std::bit_cast<cublasLtMatmulAlgo_t>(known->second.algorithm);
      return plan;
    }
  const int most = gpu.autotune && !g.varying_rows && !gpu.capturing ? kTimedAlgorithms : 1;
  // Some combinations of types lack the epilogue that adds a bias.
  for (const bool bias_first : {false, true}) {
    if (bias_first && !g.has_bias) break;
    Plan plan = describe(g, p, bias_first);
    const std::vector<Result> candidates = algorithms(handle, workspace.bytes(), plan, g, p, most);
    if (candidates.empty()) continue;
    plan.algorithm =
        candidates.size() == 1 ? candidates[0].algo : fastest(gpu, plan, candidates, g, p);
    if (keeps)
      kept->chosen[key_of(g, p)] = {std::bit_cast<std::array<uint64_t, 8>>(plan.algorithm),
                                    bias_first};
    return plan;
  }
  throw Error(
      concat("gemm: cuBLASLt has no algorithm for ", g.in, " (", g.m, ", ", g.k, ") x (", g.k, ", ",
             g.n, ") -> ", g.out, ", row strides ", g.lda, ", ", g.ldb, ", ", g.ldc,
             g.in == DType::kU8 ? "; try another fp8.recipe, or set fp8.enabled to false" : ""));
}

cublasStatus_t BlasLt::Impl::queue(Context& gpu, const Plan& plan,
                                   const cublasLtMatmulAlgo_t& algorithm, const GemmProblem& g,
                                   const GemmPointers& p) {
  const float alpha = g.alpha, beta = plan.added ? 1.0f : 0.0f;
  const double alpha64 = g.alpha, beta64 = plan.added ? 1.0 : 0.0;
  const bool wide = g.in == DType::kF64;
  return blas_lt_functions().cublasLtMatmul(
      handle, plan.desc.raw, wide ? static_cast<const void*>(&alpha64) : &alpha, p.b, plan.a.raw,
      p.a, plan.b.raw, wide ? static_cast<const void*>(&beta64) : &beta, p.c, plan.c.raw, p.c,
      plan.c.raw, &algorithm, workspace.data(), static_cast<size_t>(workspace.bytes()),
      static_cast<cudaStream_t>(gpu.main.raw));
}

// Two rounds of each, of which the second counts: the first may load code.
cublasLtMatmulAlgo_t BlasLt::Impl::fastest(Context& gpu, const Plan& plan,
                                           const std::vector<Result>& candidates,
                                           const GemmProblem& g, const GemmPointers& p) {
  constexpr int kRepeats = 5;
  // The product is computed many times, but must be added to C once.
  const Buffer other("autotune", g.m * g.ldc * dtype_size(g.out), Memory::kDevice);
  fill_bytes(gpu, gpu.main, other.data(), 0, other.bytes());
  GemmPointers scratch = p;
  scratch.c = other.data();
  cudaEvent_t begin = nullptr, end = nullptr;
  check_runtime(cudaEventCreate(&begin), "gemm", "cudaEventCreate");
  check_runtime(cudaEventCreate(&end), "gemm", "cudaEventCreate");
  const auto stream = static_cast<cudaStream_t>(gpu.main.raw);
  size_t best = 0;
  float best_time = 0;
  for (size_t i = 0; i < candidates.size(); ++i) {
    run(gpu, plan, candidates[i].algo, g, scratch);
    check_runtime(cudaEventRecord(begin, stream), "gemm", "cudaEventRecord");
    for (int r = 0; r < kRepeats; ++r) run(gpu, plan, candidates[i].algo, g, scratch);
    check_runtime(cudaEventRecord(end, stream), "gemm", "cudaEventRecord");
    check_runtime(cudaEventSynchronize(end), "gemm", "cudaEventSynchronize");
    float time = 0;
    check_runtime(cudaEventElapsedTime(&time, begin, end), "gemm", "cudaEventElapsedTime");
    if (i > 0 && time >= best_time) continue;
    best = i;
    best_time = time;
  }
  (void)cudaEventDestroy(begin);
  (void)cudaEventDestroy(end);
  return candidates[best].algo;
}

BlasLt::BlasLt(const DeviceInfo& info) : impl_(std::make_unique<Impl>()) {
  impl_->workspace = Buffer("cuBLASLt workspace", workspace_bytes(info), Memory::kDevice);
  check(blas_lt_functions().cublasLtCreate(&impl_->handle), "cublasLtCreate", {});
}

BlasLt::~BlasLt() {
  impl_->plans.clear();
  (void)blas_lt_functions().cublasLtDestroy(impl_->handle);
}

int64_t BlasLt::plans_made() const { return impl_->made; }

std::optional<GemmAlgorithms>& BlasLt::kept() const { return impl_->kept; }

void BlasLt::multiply(Context& gpu, const GemmProblem& g, const GemmPointers& p) {
  const Plan& plan = impl_->find(gpu, prepared_for(g), p);
  if (plan.bias_first)
    write_bias(gpu, g, p);
  else if (g.has_bias)
    set(plan.desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, p.bias, g);
  set_scales(plan.desc, g, p);
  const TimedCall timed(gpu, static_cast<cudaStream_t>(gpu.main.raw), "product of ", g.in, " ", g.m,
                        " x ", g.n, " x ", g.k);
  if (!g.varying_rows) {
    impl_->run(gpu, plan, plan.algorithm, g, p);
  } else if (impl_->queue(gpu, describe(g, p, plan.bias_first), plan.algorithm, g, p) !=
             CUBLAS_STATUS_SUCCESS) {
    // The library supports the algorithm for the largest of the range, but not for this product.
    GemmProblem alone = g;
    alone.varying_rows = false;
    return multiply(gpu, alone, p);
  }
  ++gpu.launches;
  if (gpu.synchronous) synchronize(gpu, gpu.main);
}

void write_bias(Context& gpu, const GemmProblem& g, const GemmPointers& p) {
  dispatch_float("gemm", g.out, [&]<class T>() {
    fill_rows(gpu, static_cast<T*>(p.c), static_cast<const T*>(p.bias), g.m, g.n, g.ldc);
  });
}

}  // namespace trireme::cuda
