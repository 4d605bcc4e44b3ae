// Products computed by oneDNN, its primitive cache, and weights in its packed layout.
//
// Creating a primitive takes about a microsecond if the library remembers the shape and
// milliseconds if it has to generate code. Hence each distinct product is created once and kept,
// with its memory descriptors; a repeated call sets pointers and runs.
#include <omp.h>
#include <sys/mman.h>

#include <bit>
#include <cstring>
#include <dnnl.hpp>
#include <unordered_map>

#include "engine/core/cpu.h"
#include "engine/core/out_of_memory.h"
#include "engine/ops/backend/instruction_set.h"
#include "engine/ops/gemm/gemm.h"
#include "engine/ops/gemm/gemm_library.h"

namespace trireme {
namespace {

using dnnl::memory;

// Far more than the distinct products of a training step; serving's ragged batches may exceed it.
constexpr size_t kMaxPrimitives = 4096;

using Key = std::array<int64_t, 10>;

struct KeyHash {
  size_t operator()(const Key& key) const {
    uint64_t hash = 0;
    for (int64_t word : key) hash = substream(hash, static_cast<uint64_t>(word));
    return hash;
  }
};

struct Product {
  dnnl::matmul primitive;
  std::unordered_map<int, memory> arguments;
  float alpha = 1;
  int64_t scratch_bytes = 0;
};

memory::data_type library_type(DType dtype) {
  switch (dtype) {
    case DType::kF32: return memory::data_type::f32;
    case DType::kBF16: return memory::data_type::bf16;
    default: TRIREME_UNREACHABLE("oneDNN matmul of ", dtype);
  }
}

// A (rows, columns) operand as stored, or read through its transpose.
memory::desc matrix(int64_t rows, int64_t columns, DType dtype, int64_t stride, bool transposed) {
  const memory::dims strides = transposed ? memory::dims{1, stride} : memory::dims{stride, 1};
  return memory::desc({rows, columns}, library_type(dtype), strides);
}

}  // namespace

struct GemmEngine::Impl {
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
  std::unordered_map<Key, Product, KeyHash> products;
  bool has_bf16 = false, has_amx = false;
};

struct PackedWeight::Impl {
  Buffer storage;
  DType dtype = DType::kF32;  // of the stored elements
  int64_t rows = 0, columns = 0;
  bool plain = false;  // row-major, without the library's layout
  memory::desc layout;
};

namespace {

// Application of alpha. oneDNN 2: a constant output scale, (product + bias) alpha. oneDNN 3: a
// scale of the source, passed at execution, product alpha + bias. A linear post-op before the sum
// is no substitute: with one row or one column oneDNN 3.7 computes it wrongly and writes outside
// the output (Gemm.MatchesPlainSums).
constexpr bool kScalesBias = DNNL_VERSION_MAJOR < 3;
#if DNNL_VERSION_MAJOR >= 3
constexpr int kScaleSlot = DNNL_ARG_ATTR_SCALES | DNNL_ARG_SRC;
#else
constexpr int kScaleSlot = -1;
#endif

void scale_by(dnnl::primitive_attr& attributes, float alpha) {
#if DNNL_VERSION_MAJOR >= 3
  (void)alpha;
  attributes.set_scales_mask(DNNL_ARG_SRC, 0);
#else
  attributes.set_output_scales(0, {alpha});
#endif
}

// bias: null: none.
dnnl::matmul::primitive_desc matmul_of(const dnnl::engine& engine, const memory::desc& a,
                                       const memory::desc& b, const memory::desc* bias,
                                       const memory::desc& c,
                                       const dnnl::primitive_attr& attributes) {
#if DNNL_VERSION_MAJOR >= 3
  using Made = dnnl::matmul::primitive_desc;
  return bias != nullptr ? Made(engine, a, b, *bias, c, attributes)
                         : Made(engine, a, b, c, attributes);
#else
  const auto desc =
      bias != nullptr ? dnnl::matmul::desc(a, b, *bias, c) : dnnl::matmul::desc(a, b, c);
  return {desc, attributes, engine};
#endif
}

// Whether a post-op adds the bias, after the sum.
bool has_late_bias(const GemmProblem& g) { return g.has_bias && g.alpha != 1.0f && kScalesBias; }

dnnl::matmul::primitive_desc describe(const dnnl::engine& engine, const GemmProblem& g,
                                      const memory::desc& weights) {
  const memory::desc a = matrix(g.m, g.k, g.in, g.lda, g.transpose_a);
  const memory::desc c = matrix(g.m, g.n, g.out, g.ldc, false);
  const memory::desc bias({1, g.n}, library_type(g.out), memory::dims{g.n, 1});
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  const bool late_bias = has_late_bias(g);
  dnnl::post_ops after;
  if (g.alpha != 1.0f) scale_by(attributes, g.alpha);
  if (g.accumulate) after.append_sum(1.0f);
  if (late_bias) after.append_binary(dnnl::algorithm::binary_add, bias);
  attributes.set_post_ops(after);
  return matmul_of(engine, a, weights, g.has_bias && !late_bias ? &bias : nullptr, c, attributes);
}

// The library's code generator ends the process if it gets no memory for code.
void check_room_for_code() {
  constexpr size_t kCode = size_t{16} << 20;  // a few times what one product takes
  void* room = mmap(nullptr, kCode, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (room == MAP_FAILED) throw OutOfMemory("gemm: no memory for the code of a oneDNN product");
  munmap(room, kCode);
}

[[noreturn]] void fail_product(const dnnl::error& error, const std::string& what) {
  const std::string message = concat("gemm: oneDNN ", what, ": ", error.what());
  if (error.status == dnnl_out_of_memory) throw OutOfMemory(message);
  throw Error(message);
}

Product make_product(const dnnl::engine& engine, const GemmProblem& g,
                     const memory::desc& weights) {
  check_room_for_code();
  try {
    const auto made = describe(engine, g, weights);
    Product out;
    out.primitive = dnnl::matmul(made);
    const auto unbound = [&](const memory::desc& d) { return memory(d, engine, nullptr); };
    out.arguments = {{DNNL_ARG_SRC, unbound(made.src_desc())},
                     {DNNL_ARG_WEIGHTS, unbound(made.weights_desc())},
                     {DNNL_ARG_DST, unbound(made.dst_desc())},
                     {DNNL_ARG_SCRATCHPAD, unbound(made.scratchpad_desc())}};
    if (g.has_bias) {
      const memory::desc bias({1, g.n}, library_type(g.out), memory::dims{g.n, 1});
      const int late = DNNL_ARG_ATTR_MULTIPLE_POST_OP(g.accumulate ? 1 : 0) | DNNL_ARG_SRC_1;
      out.arguments.emplace(has_late_bias(g) ? late : DNNL_ARG_BIAS, unbound(bias));
    }
    out.alpha = g.alpha;
    if (g.alpha != 1.0f && !kScalesBias)
      out.arguments.emplace(kScaleSlot, unbound({{1}, memory::data_type::f32, memory::dims{1}}));
    out.scratch_bytes = static_cast<int64_t>(made.scratchpad_desc().get_size());
    return out;
  } catch (const dnnl::error& e) {
    fail_product(
        e, concat("refuses ", g.in, " (", g.m, ", ", g.k, ") x (", g.k, ", ", g.n, ") -> ", g.out));
  }
}

// `packed` distinguishes a product with that weight's layout from one with plain weights.
Product& find_product(Ctx& ctx, const GemmProblem& g, const memory::desc& weights, bool packed) {
  const int64_t flags = int64_t{g.transpose_a} | int64_t{g.transpose_b} << 1 |
                        int64_t{g.accumulate} << 2 | int64_t{g.has_bias} << 3 |
                        int64_t{packed} << 4 | int64_t{g.in == DType::kBF16} << 5 |
                        int64_t{g.out == DType::kBF16} << 6;
  const Key key{g.m,        g.n,   g.k,   g.lda,
                g.ldb,      g.ldc, flags, int64_t{std::bit_cast<uint32_t>(g.alpha)},
                ctx.threads};
  GemmEngine::Impl& engine = *ctx.gemm->impl;
  // The library splits a product over as many threads as OpenMP has when the primitive is created.
  if (omp_get_max_threads() != ctx.threads) omp_set_num_threads(ctx.threads);
  const auto known = engine.products.find(key);
  if (known != engine.products.end()) return known->second;
  if (engine.products.size() >= kMaxPrimitives) engine.products.clear();
  return engine.products.emplace(key, make_product(engine.engine, g, weights)).first->second;
}

void execute(Ctx& ctx, Product& product, const GemmProblem& g, const GemmPointers& p) {
  Activation scratch =
      ctx.allocate("gemm.scratch", DType::kU8, {std::max<int64_t>(1, product.scratch_bytes)});
  if (ctx.planning()) return;
  for (auto& [slot, argument] : product.arguments) {
    // The library takes every pointer as writable, including those it only reads.
    void* pointer = const_cast<void*>(p.bias);
    if (slot == DNNL_ARG_SRC) pointer = const_cast<void*>(p.a);
    if (slot == DNNL_ARG_WEIGHTS) pointer = const_cast<void*>(p.b);
    if (slot == DNNL_ARG_DST) pointer = p.c;
    if (slot == DNNL_ARG_SCRATCHPAD) pointer = scratch->raw();
    if (slot == kScaleSlot) pointer = &product.alpha;
    argument.set_data_handle(pointer);
  }
  try {
    product.primitive.execute(ctx.gemm->impl->stream, product.arguments);
    ctx.gemm->impl->stream.wait();
  } catch (const dnnl::error& e) {
    fail_product(e, concat("failed on (", g.m, ", ", g.k, ") x (", g.k, ", ", g.n, ")"));
  }
}

// bfloat16 needs AVX-512 in this library, which is queried for it. On a processor without the
// instructions it would emulate them at a third of the rate of float32 (measured: AVX-512 without
// bf16, oneDNN 2.6.3).
bool makes_bf16_product(const dnnl::engine& engine) {
  if (!cpu_has_avx512_bf16()) return false;
  GemmProblem g;
  g.m = g.n = g.k = g.lda = g.ldb = g.ldc = 64;
  g.in = g.out = DType::kBF16;
  try {
    describe(engine, g, matrix(64, 64, DType::kBF16, 64, false));
    return true;
  } catch (const dnnl::error&) {
    return false;
  }
}

}  // namespace

GemmEngine::GemmEngine() : impl(std::make_unique<Impl>()) {
  impl->has_bf16 = makes_bf16_product(impl->engine);
  // The library's instruction sets are bit masks, and a set includes the bits of those below it.
  const auto amx = static_cast<unsigned>(dnnl::cpu_isa::avx512_core_amx);
  impl->has_amx = (static_cast<unsigned>(dnnl::get_effective_cpu_isa()) & amx) == amx;
}
GemmEngine::~GemmEngine() = default;

bool library_has_bf16(const GemmEngine& engine) { return engine.impl->has_bf16; }
bool library_has_amx(const GemmEngine& engine) { return engine.impl->has_amx; }

void limit_instruction_set(Isa isa) {
  const bool lower = isa > best_isa();
  limit_isa(isa);
  if (!lower) return;  // the library's own best may exceed ours
  const auto limit = isa == Isa::kAvx2 ? dnnl::cpu_isa::avx2 : dnnl::cpu_isa::sse41;
  TRIREME_CHECK(dnnl::set_max_cpu_isa(limit) == dnnl::status::success, "limit_instruction_set(",
                isa_name(isa), ") after the first product");
}

void library_gemm(Ctx& ctx, const GemmProblem& g, const GemmPointers& p) {
  const memory::desc weights = matrix(g.k, g.n, g.in, g.ldb, g.transpose_b);
  execute(ctx, find_product(ctx, g, weights, false), g, p);
}

PackedWeight::PackedWeight() = default;
PackedWeight::~PackedWeight() = default;
PackedWeight::PackedWeight(PackedWeight&&) noexcept = default;
PackedWeight& PackedWeight::operator=(PackedWeight&&) noexcept = default;

int64_t PackedWeight::rows() const {
  TRIREME_CHECK(present(), "the packed weight is empty");
  return impl_->rows;
}

int64_t PackedWeight::columns() const {
  TRIREME_CHECK(present(), "the packed weight is empty");
  return impl_->columns;
}

PackedWeight library_pack(Ctx& ctx, const ConstTensor& w) {
  // Packed weights are for products with few rows; the layout for 16 rows is also accepted by the
  // library for other numbers of rows.
  GemmProblem g;
  g.m = 16;
  g.n = w.size(0);
  g.k = w.size(1);
  g.lda = g.k;
  g.ldc = g.n;
  g.in = g.out = w.dtype();
  GemmEngine::Impl& engine = *ctx.gemm->impl;
  const memory::desc any({g.k, g.n}, library_type(g.in), memory::format_tag::any);
  try {
    PackedWeight out;
    out.impl_ = std::make_unique<PackedWeight::Impl>();
    out.impl_->rows = g.n;
    out.impl_->columns = g.k;
    out.impl_->dtype = g.in;
    out.impl_->layout = describe(engine.engine, g, any).weights_desc();
    out.impl_->storage =
        Buffer("packed weight", static_cast<int64_t>(out.impl_->layout.get_size()));
    memory from(matrix(g.k, g.n, g.in, w.size(0) == 1 ? g.k : w.stride(0), true), engine.engine,
                const_cast<void*>(w.raw()));
    memory to(out.impl_->layout, engine.engine, out.impl_->storage.data());
    dnnl::reorder(from, to).execute(engine.stream, from, to);
    engine.stream.wait();
    return out;
  } catch (const dnnl::error& e) {
    throw Error(
        concat("gemm: oneDNN cannot pack the weight ", w.dtype(), w.shape(), ": ", e.what()));
  }
}

PackedWeight keep_plain(const Ctx& ctx, const ConstTensor& w) {
  PackedWeight out;
  out.impl_ = std::make_unique<PackedWeight::Impl>();
  out.impl_->plain = true;
  out.impl_->rows = w.size(0);
  out.impl_->columns = w.size(1);
  out.impl_->dtype = w.dtype();
  out.impl_->storage = Buffer("weight copy", w.bytes(), ctx.memory());
  if (ctx.planning()) return out;
  std::byte* to = out.impl_->storage.data();
  if (ctx.gpu != nullptr && w.contiguous()) {
    cuda::copy_async(*ctx.gpu, ctx.gpu->main, to, w.raw(), w.bytes());
    return out;
  }
  const int64_t row_bytes = w.size(1) * dtype_size(w.dtype());
  for (int64_t i = 0; i < w.size(0); ++i, to += row_bytes) {
    const void* const row = w.slice(0, i, i + 1).raw();
    if (ctx.gpu != nullptr)
      cuda::copy_async(*ctx.gpu, ctx.gpu->main, to, row, row_bytes);
    else
      std::memcpy(to, row, static_cast<size_t>(row_bytes));
  }
  return out;
}

bool is_plain(const PackedWeight& w) { return w.impl_->plain; }

ConstTensor plain_weight(const PackedWeight& w) {
  return w.impl_->storage.tensor(w.impl_->dtype, {w.impl_->rows, w.impl_->columns});
}

DType packed_dtype(const PackedWeight& w) { return w.impl_->dtype; }

void library_gemm_packed(Ctx& ctx, const GemmProblem& g, const GemmPointers& p,
                         const PackedWeight& w) {
  GemmPointers pointers = p;
  pointers.b = w.impl_->storage.data();
  execute(ctx, find_product(ctx, g, w.impl_->layout, true), g, pointers);
}

std::string gemm_library_version() {
  const dnnl_version_t& v = *dnnl_version();
  const auto isa = [] {
    switch (dnnl::get_effective_cpu_isa()) {
      case dnnl::cpu_isa::sse41: return "sse41";
      case dnnl::cpu_isa::avx: return "avx";
      case dnnl::cpu_isa::avx2: return "avx2";
      case dnnl::cpu_isa::avx2_vnni: return "avx2_vnni";
      case dnnl::cpu_isa::avx512_core: return "avx512_core";
      case dnnl::cpu_isa::avx512_core_vnni: return "avx512_core_vnni";
      case dnnl::cpu_isa::avx512_core_bf16: return "avx512_core_bf16";
      case dnnl::cpu_isa::avx512_core_amx: return "avx512_core_amx";
      default: return "unnamed instruction set";
    }
  };
  return concat("oneDNN ", v.major, ".", v.minor, ".", v.patch, " (", isa(), ")");
}

}  // namespace trireme
