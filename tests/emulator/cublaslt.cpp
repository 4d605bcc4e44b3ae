// cublasLtMatmul on the CPU, exactly as its descriptors define: D = alpha op(A) op(B) + beta C [+
// bias], column-major, batches at their strides, products summed in the compute type in the order
// of k and rounded once.
//
// Stricter than the library: refuses attributes that are not modelled, and a product that differs
// from the request of its algorithm (shapes, transposes, alignment of every pointer, workspace),
// which on a device would fault or give wrong results. float64 has no epilogue with a bias, as a
// library may lack any combination.
//
// FP8 as on compute capability 9.0: A transposed, B not, never E5M2 times E5M2, every leading
// dimension and address a multiple of 16 bytes, no fast accumulation, float32 factors in device
// memory. Factors are one for each operand, or one for each group (at addresses that are multiples
// of 16 bytes, in whole fours of rows and columns): groups of 128 along k, all rows of the first
// group before the second; or of 128 by 128, along k first, in whole fours.
#include <cublasLt.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "engine/core/float16.h"
#include "engine/core/float8.h"
#include "tests/emulator/emulator.h"
#include "tests/emulator/report.h"

using emulator::detail::die;
using trireme::bf16;
using trireme::f16;
using trireme::fp8_e4m3;
using trireme::fp8_e5m2;

struct cublasLtContext {
  int opened = 0;
};
struct cublasLtMatmulDescOpaque_t {
  cublasComputeType_t compute;
  cudaDataType_t scale;
  cublasOperation_t transpose_a = CUBLAS_OP_N, transpose_b = CUBLAS_OP_N;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  const void* bias = nullptr;
  int bias_type = -1;  // -1: type of D
  const float *a_scale = nullptr, *b_scale = nullptr;
  int32_t a_mode = CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F, b_mode = a_mode;
  int8_t fast = 0;
};
struct cublasLtMatrixLayoutOpaque_t {
  cudaDataType_t type;
  uint64_t rows, columns;
  int64_t ld;
  int32_t batches = 1;
  int64_t batch_stride = 0;
};
struct cublasLtMatmulPreferenceOpaque_t {
  uint64_t workspace = 0;
  uint32_t reductions = 7;
  uint32_t a = 256, b = 256, c = 256, d = 256;  // alignments
};

namespace {

constexpr uint64_t kAlgorithmMark = 0x6d61746d756c, kWorkspaceNeeded = 4096;

template <class T>
cublasStatus_t take(T& to, const void* value, size_t bytes) {
  if (bytes != sizeof(T)) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(&to, value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

uintptr_t size_of(cudaDataType_t type) {
  switch (type) {
    case CUDA_R_64F: return 8;
    case CUDA_R_32F: return 4;
    case CUDA_R_16F:
    case CUDA_R_16BF: return 2;
    case CUDA_R_8F_E4M3:
    case CUDA_R_8F_E5M2: return 1;
  }
  die("cuBLASLt: type %d", static_cast<int>(type));
}

bool is_float8(cudaDataType_t type) { return size_of(type) == 1; }

// Maximum number of columns: an algorithm supports this many, or fewer.
uint64_t max_columns(std::initializer_list<const cublasLtMatrixLayoutOpaque_t*> layouts) {
  uint64_t most = 0;
  for (const auto* m : layouts) most = std::max(most, m->columns);
  return most;
}

// A number that differs where products differ in more than the number of columns.
uint64_t fingerprint(const cublasLtMatmulDescOpaque_t& desc,
                     std::initializer_list<const cublasLtMatrixLayoutOpaque_t*> layouts) {
  uint64_t hash = 1469598103934665603u;
  const auto add = [&](uint64_t word) { hash = (hash ^ word) * 1099511628211u; };
  for (uint64_t word :
       {uint64_t{desc.compute}, uint64_t{desc.scale}, uint64_t{desc.transpose_a},
        uint64_t{desc.transpose_b}, uint64_t{desc.epilogue}, static_cast<uint64_t>(desc.fast),
        static_cast<uint64_t>(desc.a_mode), static_cast<uint64_t>(desc.b_mode)})
    add(word);
  for (const auto* m : layouts)
    for (uint64_t word :
         {uint64_t{m->type}, m->rows, static_cast<uint64_t>(m->ld),
          static_cast<uint64_t>(m->batches), static_cast<uint64_t>(m->batch_stride)})
      add(word);
  return hash;
}

// The product's descriptors and operands in host variables.
struct Product {
  cublasLtMatmulDescOpaque_t desc;
  cublasLtMatrixLayoutOpaque_t a, b, c, d;
  const void *a_data, *b_data, *c_data;
  void* d_data;
  double alpha, beta;
};

template <class T>
double load(const void* data, int64_t index) {
  const T value = static_cast<const T*>(data)[index];
  if constexpr (sizeof(T) <= 2)
    return static_cast<double>(static_cast<float>(value));
  else
    return static_cast<double>(value);
}

double load(cudaDataType_t type, const void* data, int64_t index) {
  switch (type) {
    case CUDA_R_64F: return load<double>(data, index);
    case CUDA_R_32F: return load<float>(data, index);
    case CUDA_R_16F: return load<f16>(data, index);
    case CUDA_R_16BF: return load<bf16>(data, index);
    case CUDA_R_8F_E4M3: return load<fp8_e4m3>(data, index);
    case CUDA_R_8F_E5M2: return load<fp8_e5m2>(data, index);
  }
  die("cuBLASLt: type %d", static_cast<int>(type));
}

template <class Compute>
void store(cudaDataType_t type, void* data, int64_t index, Compute value) {
  switch (type) {
    case CUDA_R_64F: static_cast<double*>(data)[index] = static_cast<double>(value); return;
    case CUDA_R_32F: static_cast<float*>(data)[index] = static_cast<float>(value); return;
    case CUDA_R_16F: static_cast<f16*>(data)[index] = f16(static_cast<float>(value)); return;
    case CUDA_R_16BF: static_cast<bf16*>(data)[index] = bf16(static_cast<float>(value)); return;
    default: die("cuBLASLt: output type %d", static_cast<int>(type));
  }
  die("cuBLASLt: type %d", static_cast<int>(type));
}

// op(M) of one batch, (rows, columns), column-major.
template <class Compute>
std::vector<Compute> unpacked(const cublasLtMatrixLayoutOpaque_t& m, const void* data,
                              cublasOperation_t op, int64_t batch) {
  const auto rows = static_cast<int64_t>(op == CUBLAS_OP_N ? m.rows : m.columns);
  const auto columns = static_cast<int64_t>(op == CUBLAS_OP_N ? m.columns : m.rows);
  std::vector<Compute> values(static_cast<size_t>(rows * columns));
  for (int64_t j = 0; j < columns; ++j)
    for (int64_t i = 0; i < rows; ++i) {
      const int64_t at = batch * m.batch_stride + (op == CUBLAS_OP_N ? i + j * m.ld : j + i * m.ld);
      values[static_cast<size_t>(i + j * rows)] = static_cast<Compute>(load(m.type, data, at));
    }
  return values;
}

constexpr int64_t kGroup = 128;

// Factor of element (row, x) of an operand with `rows` rows and k columns, in the product's
// orientation.
float group_factor(int32_t mode, const float* scale, int64_t rows, int64_t k, int64_t row,
                   int64_t x) {
  if (mode == CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F) return scale[x / kGroup * rows + row];
  const int64_t groups = (k + kGroup - 1) / kGroup, stride = (groups + 3) / 4 * 4;
  return scale[row / kGroup * stride + x / kGroup];
}

// Adds a sum over each group of k, times the factors of both operands.
template <class Compute>
void add_groups(const Product& p, const std::vector<Compute>& a, const Compute* b, int64_t j,
                int64_t k, std::vector<Compute>& sums) {
  const auto m = static_cast<int64_t>(p.d.rows), n = static_cast<int64_t>(p.d.columns);
  for (int64_t first = 0; first < k; first += kGroup) {
    const auto of_b =
        static_cast<Compute>(group_factor(p.desc.b_mode, p.desc.b_scale, n, k, j, first));
    for (int64_t i = 0; i < m; ++i) {
      Compute sum{0};
      for (int64_t x = first; x < std::min(k, first + kGroup); ++x)
        sum += a[static_cast<size_t>(i + x * m)] * b[x];
      const auto of_a =
          static_cast<Compute>(group_factor(p.desc.a_mode, p.desc.a_scale, m, k, i, first));
      sums[static_cast<size_t>(i)] += of_a * of_b * sum;
    }
  }
}

bool in_groups(const cublasLtMatmulDescOpaque_t& desc) {
  return desc.a_mode != CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F;
}

template <class Compute>
void multiply(const Product& p, int64_t batch) {
  const auto a = unpacked<Compute>(p.a, p.a_data, p.desc.transpose_a, batch);
  const auto b = unpacked<Compute>(p.b, p.b_data, p.desc.transpose_b, batch);
  const bool groups = in_groups(p.desc);
  const auto m = static_cast<int64_t>(p.d.rows), n = static_cast<int64_t>(p.d.columns);
  const int64_t k = m == 0 ? 0 : std::ssize(a) / m;
  const auto bias_type =
      p.desc.bias_type < 0 ? p.d.type : static_cast<cudaDataType_t>(p.desc.bias_type);
  Compute alpha = static_cast<Compute>(p.alpha);
  if (!groups && p.desc.a_scale != nullptr) alpha *= static_cast<Compute>(*p.desc.a_scale);
  if (!groups && p.desc.b_scale != nullptr) alpha *= static_cast<Compute>(*p.desc.b_scale);
  std::vector<Compute> sums(static_cast<size_t>(m));
  for (int64_t j = 0; j < n; ++j) {
    std::ranges::fill(sums, Compute{0});
    if (groups) add_groups(p, a, b.data() + j * k, j, k, sums);
    for (int64_t x = 0; x < k && !groups; ++x) {
      const Compute factor = b[static_cast<size_t>(x + j * k)];
      const Compute* const column = a.data() + x * m;
      for (int64_t i = 0; i < m; ++i) sums[static_cast<size_t>(i)] += column[i] * factor;
    }
    for (int64_t i = 0; i < m; ++i) {
      Compute value = alpha * sums[static_cast<size_t>(i)];
      if (p.beta != 0)
        value += static_cast<Compute>(p.beta) *
                 static_cast<Compute>(
                     load(p.c.type, p.c_data, batch * p.c.batch_stride + i + j * p.c.ld));
      if (p.desc.epilogue == CUBLASLT_EPILOGUE_BIAS)
        value += static_cast<Compute>(load(bias_type, p.desc.bias, i));
      store(p.d.type, p.d_data, batch * p.d.batch_stride + i + j * p.d.ld, value);
    }
  }
}

bool supported_modes(const cublasLtMatmulDescOpaque_t& desc,
                     const cublasLtMatrixLayoutOpaque_t& d) {
  if (!in_groups(desc)) return desc.b_mode == CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F;
  const auto known = [](int32_t mode) {
    return mode == CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F ||
           mode == CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F;
  };
  const bool vectors = desc.a_mode == CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F ||
                       desc.b_mode == CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F;
  return known(desc.a_mode) && known(desc.b_mode) && vectors && desc.a_scale != nullptr &&
         desc.b_scale != nullptr && d.rows % 4 == 0 && d.columns % 4 == 0;
}

bool supported_float8(const cublasLtMatmulDescOpaque_t& desc, const cublasLtMatrixLayoutOpaque_t& a,
                      const cublasLtMatrixLayoutOpaque_t& b,
                      const cublasLtMatrixLayoutOpaque_t& d) {
  const bool both_wide = a.type == CUDA_R_8F_E5M2 && b.type == CUDA_R_8F_E5M2;
  const bool aligned = a.ld % 16 == 0 && b.ld % 16 == 0 &&
                       static_cast<uintptr_t>(d.ld) * size_of(d.type) % 16 == 0 &&
                       a.rows % 16 == 0 && a.columns % 16 == 0;
  return !both_wide && aligned && supported_modes(desc, d) && desc.fast == 0 &&
         desc.transpose_a == CUBLAS_OP_T && desc.transpose_b == CUBLAS_OP_N &&
         desc.epilogue == CUBLASLT_EPILOGUE_DEFAULT && desc.compute == CUBLAS_COMPUTE_32F &&
         desc.scale == CUDA_R_32F && (d.type == CUDA_R_16BF || d.type == CUDA_R_32F);
}

bool supported(const cublasLtMatmulDescOpaque_t& desc, const cublasLtMatrixLayoutOpaque_t& a,
               const cublasLtMatrixLayoutOpaque_t& b, const cublasLtMatrixLayoutOpaque_t& c,
               const cublasLtMatrixLayoutOpaque_t& d) {
  if (c.type != d.type) return false;
  if (is_float8(a.type) && is_float8(b.type)) return supported_float8(desc, a, b, d);
  if (desc.a_scale != nullptr || desc.b_scale != nullptr || in_groups(desc) || a.type != b.type)
    return false;
  if (desc.compute == CUBLAS_COMPUTE_64F)
    return desc.scale == CUDA_R_64F && a.type == CUDA_R_64F && d.type == CUDA_R_64F &&
           desc.epilogue == CUBLASLT_EPILOGUE_DEFAULT;
  const bool narrow = a.type == CUDA_R_16F || a.type == CUDA_R_16BF;
  const bool outputs = d.type == CUDA_R_32F || (narrow && d.type == a.type);
  const bool bias = desc.bias_type < 0 || desc.bias_type == static_cast<int>(d.type);
  return desc.compute == CUBLAS_COMPUTE_32F && desc.scale == CUDA_R_32F && outputs && bias &&
         (narrow || a.type == CUDA_R_32F);
}

bool shapes_agree(const cublasLtMatmulDescOpaque_t& desc, const cublasLtMatrixLayoutOpaque_t& a,
                  const cublasLtMatrixLayoutOpaque_t& b, const cublasLtMatrixLayoutOpaque_t& c,
                  const cublasLtMatrixLayoutOpaque_t& d) {
  const bool ta = desc.transpose_a == CUBLAS_OP_T, tb = desc.transpose_b == CUBLAS_OP_T;
  for (const auto* m : {&a, &b, &c, &d})
    if (m->ld < static_cast<int64_t>(m->rows) || m->rows == 0 || m->columns == 0 ||
        m->batches != d.batches)
      return false;
  return (ta ? a.columns : a.rows) == d.rows && (tb ? b.rows : b.columns) == d.columns &&
         (ta ? a.rows : a.columns) == (tb ? b.columns : b.rows) && c.rows == d.rows &&
         c.columns == d.columns;
}

// Checks the addresses against the alignments that the algorithm was requested for.
void check_pointers(const cublasLtMatmulAlgo_t& algorithm, const Product& p) {
  const void* const pointers[] = {p.a_data, p.b_data, p.c_data, p.d_data};
  const cudaDataType_t types[] = {p.a.type, p.b.type, p.c.type, p.d.type};
  for (size_t i = 0; i < 4; ++i) {
    const auto address = reinterpret_cast<uintptr_t>(pointers[i]);
    const auto promised = static_cast<uintptr_t>(algorithm.data[2 + i]);
    if (address == 0 || address % promised != 0 || address % size_of(types[i]) != 0)
      die("cublasLtMatmul: operand %zu at 0x%zx, the algorithm was chosen for multiples of %zu "
          "bytes",
          i, static_cast<size_t>(address), static_cast<size_t>(promised));
  }
}

}  // namespace

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  *handle = new cublasLtContext{1};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}
const char* cublasLtGetStatusString(cublasStatus_t status) {
  return status == CUBLAS_STATUS_NOT_SUPPORTED   ? "not supported"
         : status == CUBLAS_STATUS_INVALID_VALUE ? "invalid value"
                                                 : "failed";
}
size_t cublasLtGetVersion() { return 130000; }

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* desc, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
  *desc = new cublasLtMatmulDescOpaque_t{.compute = compute, .scale = scale};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc) {
  delete desc;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, size_t bytes) {
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA: return take(desc->transpose_a, value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB: return take(desc->transpose_b, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE: return take(desc->epilogue, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER: return take(desc->bias, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE: return take(desc->bias_type, value, bytes);
    case CUBLASLT_MATMUL_DESC_A_SCALE_POINTER: return take(desc->a_scale, value, bytes);
    case CUBLASLT_MATMUL_DESC_B_SCALE_POINTER: return take(desc->b_scale, value, bytes);
    case CUBLASLT_MATMUL_DESC_A_SCALE_MODE: return take(desc->a_mode, value, bytes);
    case CUBLASLT_MATMUL_DESC_B_SCALE_MODE: return take(desc->b_mode, value, bytes);
    case CUBLASLT_MATMUL_DESC_FAST_ACCUM: return take(desc->fast, value, bytes);
    default: return CUBLAS_STATUS_INVALID_VALUE;
  }
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType type,
                                          uint64_t rows, uint64_t columns, int64_t ld) {
  *layout =
      new cublasLtMatrixLayoutOpaque_t{.type = type, .rows = rows, .columns = columns, .ld = ld};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  delete layout;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t attribute,
                                                const void* value, size_t bytes) {
  switch (attribute) {
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT: return take(layout->batches, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET:
      return take(layout->batch_stride, value, bytes);
    default: return CUBLAS_STATUS_INVALID_VALUE;
  }
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  *preference = new cublasLtMatmulPreferenceOpaque_t;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  delete preference;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void* value, size_t bytes) {
  switch (attribute) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES: return take(preference->workspace, value, bytes);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
      return take(preference->reductions, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES: return take(preference->a, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES: return take(preference->b, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES: return take(preference->c, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES: return take(preference->d, value, bytes);
    default: return CUBLAS_STATUS_INVALID_VALUE;
  }
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int requested,
                                              cublasLtMatmulHeuristicResult_t results[],
                                              int* returned) {
  *returned = 0;
  if (handle == nullptr || requested <= 0 || !shapes_agree(*desc, *a, *b, *c, *d))
    return CUBLAS_STATUS_INVALID_VALUE;
  if (!supported(*desc, *a, *b, *c, *d)) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (is_float8(a->type) &&
      std::min({preference->a, preference->b, preference->c, preference->d}) < 16)
    return CUBLAS_STATUS_NOT_SUPPORTED;
  for (; *returned < std::min(requested, 3); ++*returned) {
    cublasLtMatmulHeuristicResult_t& result = results[*returned];
    result = {};
    result.algo = {{kAlgorithmMark, fingerprint(*desc, {a, b, c, d}), preference->a, preference->b,
                    preference->c, preference->d, std::min(preference->workspace, kWorkspaceNeeded),
                    static_cast<uint64_t>(*returned) | max_columns({a, b, c, d}) << 8}};
    result.workspaceSize = result.algo.data[6];
    result.wavesCount = 1.0f;
  }
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void* alpha,
                              const void* a, cublasLtMatrixLayout_t a_layout, const void* b,
                              cublasLtMatrixLayout_t b_layout, const void* beta, const void* c,
                              cublasLtMatrixLayout_t c_layout, void* d,
                              cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t* algorithm, void* workspace,
                              size_t workspace_bytes, cudaStream_t stream) {
  if (handle == nullptr || !shapes_agree(*desc, *a_layout, *b_layout, *c_layout, *d_layout))
    return CUBLAS_STATUS_INVALID_VALUE;
  if (!supported(*desc, *a_layout, *b_layout, *c_layout, *d_layout))
    return CUBLAS_STATUS_NOT_SUPPORTED;
  if (algorithm == nullptr || algorithm->data[0] != kAlgorithmMark)
    die("cublasLtMatmul: no algorithm of the heuristic");
  if (algorithm->data[1] != fingerprint(*desc, {a_layout, b_layout, c_layout, d_layout}))
    die("cublasLtMatmul: the algorithm was chosen for another product");
  if (max_columns({a_layout, b_layout, c_layout, d_layout}) > algorithm->data[7] >> 8)
    die("cublasLtMatmul: the algorithm was chosen for fewer columns");
  if (workspace_bytes < algorithm->data[6] || (workspace_bytes > 0 && workspace == nullptr))
    die("cublasLtMatmul: %zu bytes of workspace, the algorithm needs %zu", workspace_bytes,
        static_cast<size_t>(algorithm->data[6]));
  if (reinterpret_cast<uintptr_t>(workspace) % 256 != 0)
    die("cublasLtMatmul: the workspace is not aligned to 256 bytes");
  for (const float* scale : {desc->a_scale, desc->b_scale})
    if (in_groups(*desc) && reinterpret_cast<uintptr_t>(scale) % 16 != 0)
      die("cublasLtMatmul: the factors of groups are not aligned to 16 bytes");
  if (desc->epilogue == CUBLASLT_EPILOGUE_BIAS && desc->bias == nullptr)
    die("cublasLtMatmul: a bias epilogue without a bias");
  const bool wide = desc->scale == CUDA_R_64F;
  const auto scalar = [wide](const void* value) {
    return wide ? *static_cast<const double*>(value)
                : static_cast<double>(*static_cast<const float*>(value));
  };
  const Product p{*desc, *a_layout, *b_layout, *c_layout,     *d_layout,   a,
                  b,     c,         d,         scalar(alpha), scalar(beta)};
  check_pointers(*algorithm, p);
  const cudaError_t error = emulator::enqueue(stream, "cublasLtMatmul", [p, wide] {
    for (int64_t batch = 0; batch < p.d.batches; ++batch)
      wide ? multiply<double>(p, batch) : multiply<float>(p, batch);
  });
  return error == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}
