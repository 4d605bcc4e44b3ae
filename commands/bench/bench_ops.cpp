// Benchmark of ops (`bench ops`): time of each op, compared with the floor of the machine, which is
// the time of the op's bytes at the measured bandwidth, or of its multiply-adds at the measured
// peak (CPU: of float32; GPU: of matrix products of the operands' type).
#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>

#include "commands/bench/bench.h"
#include "commands/bench/bench_support.h"
#include "commands/bench/op_timer.h"
#include "engine/ops/attention/attention.h"
#include "engine/ops/attention/rotary.h"
#include "engine/ops/gemm/gemm.h"
#include "engine/ops/loss/cross_entropy.h"
#include "engine/ops/norm/norm.h"
#include "engine/ops/optimizer/optimizer_step.h"
#include "engine/ops/quantized/float8.h"
#include "engine/ops/rows/activation.h"
#include "engine/ops/rows/elementwise.h"
#include "engine/ops/rows/embedding.h"

namespace trireme {
namespace {

struct BenchOpsOptions : BenchOptions {
  int64_t tokens = 8192;
  int64_t sequence = 256;
};

// GPT-2 124M: sizes of one layer and of the head.
constexpr int64_t kC = 768, kF = 3072, kH = 12, kD = 64, kV = 50257, kHeadTokens = 256;
// Rows of a chunk of the loss on a GPU (loss_chunk_rows).
constexpr int64_t kDeviceHeadTokens = 4096;
constexpr int64_t kFlat = int64_t{1} << 24;  // parameters of the optimizer's range

// Times the ops of one element type.
class OpBench {
 public:
  // ceiling: raised after each group of ops.
  OpBench(Ctx& ctx, const BenchOpsOptions& options, BenchCeiling& ceiling, DType dtype)
      : ctx_(ctx),
        options_(options),
        ceiling_(ceiling),
        dtype_(dtype),
        t_(options.tokens),
        timer_(ctx, options.samples, dtype) {}

  std::vector<BenchOpsResult> run() {
    for (const auto group :
         {&OpBench::norms, &OpBench::activations, &OpBench::moves, &OpBench::embeddings,
          &OpBench::attention, &OpBench::head, &OpBench::optimizer, &OpBench::few_rows,
          &OpBench::serving, &OpBench::casts, &OpBench::compression}) {
      (this->*group)();
      raise_ceiling(ctx_, ceiling_);
    }
    return timer_.take();
  }

 private:
  double width() const { return timer_.width(); }

  void time(const std::string& op, const Shape& shape, double bytes, double operations,
            const std::function<void()>& call) {
    timer_.time(op, shape, bytes, operations, call);
  }

  void norms() {
    Operands m(ctx_);
    const Shape rows{t_, kC};
    const Tensor x = m.make(dtype_, rows), residual = m.make(dtype_, rows),
                 h = m.make(dtype_, rows), y = m.make(dtype_, rows);
    const Tensor w = m.make(dtype_, {kC}), b = m.make(dtype_, {kC});
    const Tensor rstd = m.zeros(DType::kF32, {t_}), mean = m.zeros(DType::kF32, {t_});
    const Tensor dw = m.zeros(DType::kF32, {kC}), db = m.zeros(DType::kF32, {kC});
    const double matrix = width() * static_cast<double>(t_ * kC);
    time("rmsnorm forward, residual", rows, 4 * matrix, 0,
         [&] { rmsnorm_forward(ctx_, y, rstd, h, x, residual, w, 1e-5); });
    time("rmsnorm backward", rows, 4 * matrix, 0,
         [&] { rmsnorm_backward(ctx_, y, dw, x, residual, h, w, rstd, false); });
    time("layernorm forward, residual", rows, 4 * matrix, 0,
         [&] { layernorm_forward(ctx_, y, mean, rstd, h, x, residual, w, b, 1e-5); });
    time("layernorm backward", rows, 4 * matrix, 0,
         [&] { layernorm_backward(ctx_, y, dw, db, x, residual, h, w, mean, rstd, false); });
  }

  void activations() {
    using enum ActivationFunction;
    Operands m(ctx_);
    const Shape rows{t_, kF};
    const Tensor x = m.make(dtype_, rows), y = m.make(dtype_, rows), dy = m.make(dtype_, rows);
    const Tensor gate_up = m.make(dtype_, {t_, 2 * kF}), db = m.zeros(DType::kF32, {kF});
    const double matrix = width() * static_cast<double>(t_ * kF);
    time("gelu forward", rows, 2 * matrix, 0, [&] { activation_forward(ctx_, kGelu, y, x); });
    time("gelu backward", rows, 3 * matrix, 0, [&] { activation_backward(ctx_, kGelu, y, dy, x); });
    time("silu_gated forward", rows, 3 * matrix, 0,
         [&] { gated_forward(ctx_, kSilu, y, gate_up); });
    time("bias backward", rows, matrix, 0, [&] { bias_backward(ctx_, db, dy, false); });
    // Last: it overwrites its input.
    time("silu_gated backward", rows, 5 * matrix, 0,
         [&] { gated_backward(ctx_, kSilu, gate_up, dy, gate_up); });
  }

  void moves() {
    Operands m(ctx_);
    const Shape rows{t_, kC};
    const Tensor x = m.make(dtype_, rows), y = m.make(dtype_, rows), z = m.make(dtype_, rows);
    const Tensor global_index =
        m.filled<int64_t>({t_}, [&](int64_t* out) { std::iota(out, out + t_, 0); });
    const double matrix = width() * static_cast<double>(t_ * kC);
    time("add", rows, 3 * matrix, 0, [&] { add(ctx_, y, x, z); });
    time("dropout, residual", rows, 3 * matrix, 0, [&] {
      dropout(ctx_, y, x, z, global_index, 0.1, RandomKey{1, 2});
    });
    const Shape angles{options_.sequence, kD};
    const Tensor table = m.filled<float>(angles, [&](float* out) {
      rotary_table(Tensor(out, DType::kF32, angles), plain_rotary_frequencies(10000.0, kD));
    });
    const Tensor positions = m.ids({t_}, options_.sequence);
    time("rotary", {t_, kH, kD}, 2 * matrix, 0,
         [&] { rotary(ctx_, x.split_last(kH, kD), table, positions, false); });
  }

  void embeddings() {
    Operands m(ctx_);
    const Tensor table = m.make(dtype_, {kV, kC}), y = m.make(dtype_, {t_, kC});
    const Tensor d_table = m.zeros(DType::kF32, {kV, kC}), ids = m.ids({t_}, kV);
    const double elements = static_cast<double>(t_ * kC);
    time("embedding forward", {t_, kC}, 2 * width() * elements, 0,
         [&] { embedding_forward(ctx_, y, table, ids, false); });
    time("embedding backward", {t_, kC}, (width() + 8) * elements, 0,
         [&] { embedding_backward(ctx_, d_table, y, ids, true); });
  }

  void attention() {
    attention("attention", std::min(options_.sequence, t_), kH, kH, kD);
    // The shape of cuDNN's own benchmark figures, for comparison.
    constexpr int64_t kLong = 4096;
    if (ctx_.gpu != nullptr && t_ >= kLong)
      attention("attention, 64 on 8 heads,", kLong, 64, 8, 128);
  }

  // Attention over sequences of s tokens.
  void attention(const std::string& name, int64_t s, int64_t q_heads, int64_t kv_heads, int64_t d) {
    Operands m(ctx_);
    const int64_t sequences = t_ / s, t = sequences * s;
    const Shape heads{t, q_heads, d}, shared{t, kv_heads, d};
    const Tensor q = m.make(dtype_, heads), k = m.make(dtype_, shared), v = m.make(dtype_, shared),
                 out = m.make(dtype_, heads), dout = m.make(dtype_, heads);
    const Tensor dq = m.make(dtype_, heads), dk = m.make(dtype_, shared),
                 dv = m.make(dtype_, shared);
    const Tensor lse = m.zeros(DType::kF32, {q_heads, t});
    const Tensor cu = m.filled<int32_t>({sequences + 1}, [&](int32_t* offsets) {
      for (int64_t i = 0; i <= sequences; ++i) offsets[i] = narrow<int32_t>(i * s);
    });
    AttentionArgs args;
    args.scale = 1.0 / std::sqrt(static_cast<double>(d));
    args.uniform_length = s;
    // One product of each query with the keys it sees, over all heads and tokens.
    const double product =
        2.0 * static_cast<double>(heads.numel()) * static_cast<double>(s + 1) / 2;
    const double of_queries = width() * static_cast<double>(heads.numel()),
                 of_keys = width() * static_cast<double>(shared.numel());
    time(name + " forward", heads, 2 * (of_queries + of_keys), 2 * product,
         [&] { attention_forward(ctx_, out, lse, q, k, v, cu, cu, args); });
    time(name + " backward", heads, 4 * (of_queries + of_keys), 5 * product,
         [&] { attention_backward(ctx_, dq, dk, dv, dout, out, lse, q, k, v, cu, cu, args); });
  }

  void head() {
    head(kHeadTokens);
    if (ctx_.gpu != nullptr && t_ >= kDeviceHeadTokens) head(kDeviceHeadTokens);
  }

  void head(int64_t tokens) {
    Operands m(ctx_);
    const Shape rows{tokens, round_up(kV, 64)};
    const Tensor logits = m.make(DType::kF32, rows);
    const Tensor d_logits = dtype_ == DType::kF32 ? logits : m.make(dtype_, rows);
    const Tensor targets = m.ids({tokens}, kV), loss = m.zeros(DType::kF64, {1});
    const Tensor scale = m.filled<double>({1}, [](double* out) { *out = 1.0; });
    time("cross-entropy with gradient", rows, (4 + width()) * static_cast<double>(rows.numel()), 0,
         [&] { softmax_cross_entropy(ctx_, loss, {}, d_logits, logits, targets, scale, kV); });
  }

  void optimizer() {
    Operands m(ctx_);
    const Shape flat{kFlat};
    const bool masters = dtype_ != DType::kF32;
    const Tensor param = m.make(dtype_, flat),
                 master = masters ? m.make(DType::kF32, flat) : Tensor();
    const Tensor grad = m.make(DType::kF32, flat), mean = m.zeros(DType::kF32, flat),
                 square = m.zeros(DType::kF32, flat);
    StepScalars decided{1.0, 1e-4, 1, 0};
    const Tensor scalars = m.copied(ConstTensor(&decided, DType::kU8, Shape{kStepScalarsBytes}));
    const Tensor sum = m.zeros(DType::kF64, {1});
    const double n = static_cast<double>(kFlat);
    // Reads p, g, m, v; writes p, m, v, and the narrow parameter if there is a master.
    time(masters ? "adamw, float32 master" : "adamw", flat, (28 + (masters ? width() : 0)) * n, 0,
         [&] { adamw_step(ctx_, param, master, grad, mean, square, scalars, {}); });
    time("sum of squares", flat, 4 * n, 0, [&] { sum_of_squares(ctx_, sum, grad); });
  }

  void few_rows() {
    Operands m(ctx_);
    const Shape shape{kV, kC};
    const Tensor w = m.make(dtype_, shape);
    for (const int64_t rows : {1, 2, 4}) {
      const Tensor x = m.make(dtype_, {rows, kC}), y = m.zeros(dtype_, {rows, kV});
      const double products = static_cast<double>(kV * kC);
      time(concat("linear, ", rows, rows == 1 ? " row" : " rows"), shape, width() * products,
           2 * products * static_cast<double>(rows), [&] { linear_forward(ctx_, y, x, w, {}); });
    }
  }

  void serving() {
    time_paged_attention(timer_, t_);
    time_sampler(timer_);
  }

  void compression() { time_compression(timer_); }

  // One pass to fp8 codes, plain and transposed, as products in fp8 need both.
  void casts() {
    Operands m(ctx_);
    const Shape rows{t_, kF};
    const Tensor x = m.make(dtype_, rows), codes = m.zeros(DType::kU8, rows),
                 turned = m.zeros(DType::kU8, {kF, t_});
    const Tensor inverse = m.zeros(DType::kF32, {1}), largest = m.zeros(DType::kF32, {1});
    const Tensor scale = m.filled<float>({1}, [](float* out) { *out = 1.0f; });
    const double elements = static_cast<double>(rows.numel());
    constexpr Float8Format kFormat = Float8Format::kE4M3;
    time("amax", rows, width() * elements, 0, [&] { amax(ctx_, largest, x, false); });
    time("cast to fp8", rows, (width() + 1) * elements, 0,
         [&] { quantize_float8(ctx_, codes, inverse, x, scale, kFormat); });
    time("cast to fp8, transposed", rows, (width() + 1) * elements, 0, [&] {
      quantize_float8_transposed(ctx_, turned, inverse, x, scale, kFormat, Float8Scaling::kTensor);
    });
  }

  Ctx& ctx_;
  const BenchOpsOptions& options_;
  BenchCeiling& ceiling_;
  DType dtype_;
  int64_t t_;
  OpTimer timer_;
};

void print_json(const Ctx& ctx, const BenchCeiling& ceiling,
                const std::vector<BenchOpsResult>& results) {
  nlohmann::ordered_json out;
  if (ctx.gpu != nullptr) {
    out["device"] = ctx.gpu->info.name;
    out["copy_gbytes"] = ceiling.gpu.front().copy_gbytes;
    add_kernel_choices(out, *ctx.gpu);
    for (const DevicePeak& peak : ceiling.gpu)
      out["gemm_tflops"][std::string(dtype_name(peak.dtype))] = peak.gemm_tflops;
  } else {
    out["threads"] = ceiling.cpu.threads;
    out["peak_float32_gflops"] = ceiling.cpu.float32_gflops;
    out["peak_read_gbytes"] = ceiling.cpu.memory_gbytes();
  }
  for (const BenchOpsResult& r : results)
    out["ops"].push_back({{"op", r.op},
                          {"dtype", dtype_name(r.dtype)},
                          {"shape", r.shape},
                          {"ms", r.seconds * 1e3},
                          {"gbytes_per_second", r.bytes / r.seconds * 1e-9},
                          {"gflops", r.operations / r.seconds * 1e-9},
                          {"share_of_floor", r.share(ceiling)}});
  std::printf("%s\n", out.dump(2).c_str());
}

void print_ops_table(const std::vector<BenchOpsResult>& results, const BenchCeiling& ceiling) {
  std::printf("%-30s %-9s %-16s %10s %8s %9s %8s\n", "op", "dtype", "shape", "ms", "GB/s",
              "GFLOP/s", "% floor");
  for (const BenchOpsResult& r : results)
    std::printf("%-30s %-9s %-16s %10.3f %8.1f %9.1f %8.1f\n", r.op.c_str(),
                std::string(dtype_name(r.dtype)).c_str(), r.shape.c_str(), r.seconds * 1e3,
                r.bytes / r.seconds * 1e-9, r.operations / r.seconds * 1e-9,
                100 * r.share(ceiling));
}

void run_bench_ops(const BenchOpsOptions& options) {
  const int threads = prepare_bench(options);
  const std::unique_ptr<cuda::Context> gpu = open_bench_device(options.device);
  Ctx ctx(threads, "bench", gpu.get());
  BenchCeiling ceiling = measure_ceiling(ctx, options);
  std::vector<BenchOpsResult> results;
  for (const DType dtype : options.dtypes())
    for (BenchOpsResult& r : OpBench(ctx, options, ceiling, dtype).run())
      results.push_back(std::move(r));
  if (options.json) return print_json(ctx, ceiling, results);
  std::printf("%s\n", ceiling_text(ctx, ceiling).c_str());
  print_ops_table(results, ceiling);
  std::printf(
      "\n%% floor: floor divided by the op's time. The floor is the time of the op's bytes at the\n"
      "measured bandwidth, or of its multiply-adds at the measured peak, whichever is longer.\n");
}

}  // namespace

CLI::App* add_bench_ops(CLI::App& parent) {
  CLI::App* app =
      parent.add_subcommand("ops", "Time every op against the measured memory bandwidth or peak");
  auto options = std::make_shared<BenchOpsOptions>();
  add_bench_options(*app, *options);
  app->add_option("--tokens", options->tokens, "Rows (tokens) of the operands")
      ->check(CLI::Range(int64_t{16}, int64_t{1} << 20))
      ->capture_default_str();
  app->add_option("--sequence", options->sequence, "Sequence length of attention, in tokens")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20))
      ->capture_default_str();
  app->callback([options] { run_bench_ops(*options); });
  return app;
}

}  // namespace trireme
