// Benchmark of matrix products with few rows (`bench rows`), as in generation, compared with
// reading their weights once from memory (on a GPU: at the bandwidth of a copy, read plus written).
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <vector>

#include "commands/bench/bench.h"
#include "commands/bench/bench_support.h"
#include "commands/rank_options.h"
#include "engine/core/cpu.h"
#include "engine/core/random.h"
#include "engine/ops/gemm/gemm.h"
#include "engine/ops/quantized/quantized_weight.h"

namespace trireme {
namespace {

constexpr int64_t kOut = 8192, kIn = 2048;  // of Llama 1B's gate, up and (swapped) down

struct BenchRowsOptions : BenchOptions {
  std::optional<BlockFormat> quantization;
  std::vector<int64_t> rows = {1, 2, 4, 8, 16, 32};
  int64_t mib = 512;  // of weights, more than a cache holds
};

struct BenchRowsResult {
  DType dtype;
  int64_t rows = 0;
  double seconds = 0;
  // share_of_reading: time of reading the weight at the measured bandwidth, divided by `seconds`.
  // share_of_floor: the same, but with the time of the operations at the measured peak if that is
  // longer. Quantized weights are multiplied as integers, whose peak is not measured; both shares
  // are then equal.
  double share_of_reading = 0, share_of_floor = 0;
};

// Weight matrices that are read one after the other. If together they exceed the caches, every read
// comes from memory.
class WeightSet {
 public:
  WeightSet(Ctx& ctx, const BenchRowsOptions& options, DType dtype)
      : operands_(ctx), format_(options.quantization) {
    const int64_t bytes = format_.has_value() ? block_matrix_bytes(*format_, kOut, kIn)
                                              : kOut * kIn * dtype_size(dtype);
    const int64_t count = std::max<int64_t>(1, (options.mib << 20) / bytes);
    const std::vector<std::byte> blocks =
        format_.has_value() ? random_blocks(*format_) : std::vector<std::byte>();
    for (int64_t i = 0; i < count; ++i)
      matrices_.push_back(format_.has_value() ? operands_.copied(ConstTensor(
                                                    blocks.data(), DType::kU8, Shape{bytes}))
                                              : operands_.make(dtype, {kOut, kIn}));
    bytes_ = count * bytes;
  }

  int64_t bytes() const { return bytes_; }
  int64_t count() const { return std::ssize(matrices_); }

  // y (R, out) = x (R, in) w^T for each matrix.
  void multiply(Ctx& ctx, const Tensor& y, const ConstTensor& x) const {
    for (const Tensor& w : matrices_) {
      if (!format_.has_value()) {
        linear_forward(ctx, y, x, w, {});
        continue;
      }
      const QuantizedMatrix matrix{.format = *format_, .rows = kOut, .columns = kIn, .bytes = w};
      linear_forward_blocks(ctx, y, x, std::span(&matrix, 1), {});
    }
  }

 private:
  // Matrix of random codes with scales of 0.01.
  static std::vector<std::byte> random_blocks(BlockFormat format) {
    const auto size = static_cast<size_t>(block_file_bytes(format));
    const uint16_t scale = f16(0.01f).bits;
    std::vector<std::byte> block(size),
        bytes(static_cast<size_t>(block_matrix_bytes(format, kOut, kIn)));
    const QuantizedMatrix matrix{.format = format, .rows = kOut, .columns = kIn, .bytes = {}};
    const Tensor to(bytes.data(), DType::kU8, Shape{std::ssize(bytes)});
    uint64_t word = 0;
    for (int64_t row = 0; row < kOut; ++row)
      for (int64_t b = 0; b < kIn / kQuantBlock; ++b) {
        for (std::byte& code : block)
          code = static_cast<std::byte>(philox_word({1, stream_id("bench rows")}, word++ % 4096));
        std::memcpy(block.data(), &scale, sizeof scale);
        store_block(matrix, to, row, b, block.data());
      }
    return bytes;
  }

  Operands operands_;
  std::optional<BlockFormat> format_;
  std::vector<Tensor> matrices_;
  int64_t bytes_ = 0;
};

double gflops(const BenchRowsResult& r) {
  return 2e-9 * static_cast<double>(r.rows * kOut * kIn) / r.seconds;
}

// Measures the bandwidth and every number of rows in each round. The ceiling is the best bandwidth
// of all rounds.
std::vector<BenchRowsResult> measure(Ctx& ctx, const BenchRowsOptions& options, DType dtype) {
  const WeightSet weights(ctx, options, dtype);
  std::vector<std::vector<double>> seconds(options.rows.size());
  BenchCeiling ceiling = measure_ceiling(ctx, options);
  for (int round = 0; round < options.samples; ++round) {
    raise_ceiling(ctx, ceiling);
    for (size_t i = 0; i < options.rows.size(); ++i) {
      Operands operands(ctx);
      const Tensor x = operands.make(dtype, {options.rows[i], kIn});
      const Tensor y = operands.zeros(dtype, {options.rows[i], kOut});
      seconds[i].push_back(median_seconds(ctx, 1, 0.03, [&] { weights.multiply(ctx, y, x); }));
    }
  }
  const auto bytes = static_cast<double>(weights.bytes());
  const double reading = bytes / (ceiling.reading_gbytes(bytes) * 1e9);
  std::vector<BenchRowsResult> results;
  for (size_t i = 0; i < options.rows.size(); ++i) {
    const double pass = median(seconds[i]);
    const auto count = static_cast<double>(weights.count());
    BenchRowsResult r{.dtype = dtype, .rows = options.rows[i], .seconds = pass / count};
    r.share_of_reading = reading / pass;
    r.share_of_floor = options.quantization.has_value()
                           ? r.share_of_reading
                           : std::max(r.share_of_reading, gflops(r) / ceiling.gflops(dtype));
    results.push_back(r);
  }
  return results;
}

std::string weights_name(const BenchRowsOptions& options, const BenchRowsResult& r) {
  return quantization_name(options.quantization, r.dtype);
}

void print_json(const Ctx& ctx, const BenchRowsOptions& options,
                const std::vector<BenchRowsResult>& results) {
  nlohmann::ordered_json out;
  out["device"] = ctx.gpu != nullptr ? ctx.gpu->info.name : cpu_model_name();
  out["threads"] = ctx.threads;
  if (ctx.gpu != nullptr) add_kernel_choices(out, *ctx.gpu);
  for (const BenchRowsResult& r : results)
    out["products"].push_back({{"dtype", dtype_name(r.dtype)},
                               {"weights", weights_name(options, r)},
                               {"rows", r.rows},
                               {"ms", r.seconds * 1e3},
                               {"gflops", gflops(r)},
                               {"share_of_reading", r.share_of_reading},
                               {"share_of_floor", r.share_of_floor}});
  std::printf("%s\n", out.dump(2).c_str());
}

void print_table(const BenchRowsOptions& options, const std::vector<BenchRowsResult>& results) {
  std::printf("y (R, %lld) = x (R, %lld) w^T\n%-10s %-10s %5s %9s %9s %10s %8s\n",
              static_cast<long long>(kOut), static_cast<long long>(kIn), "dtype", "weights", "R",
              "ms", "GFLOP/s", "% reading", "% floor");
  for (const BenchRowsResult& r : results)
    std::printf("%-10s %-10s %5lld %9.3f %9.1f %10.1f %8.1f\n",
                std::string(dtype_name(r.dtype)).c_str(), weights_name(options, r).c_str(),
                static_cast<long long>(r.rows), r.seconds * 1e3, gflops(r),
                100 * r.share_of_reading, 100 * r.share_of_floor);
}

void run_bench_rows(const BenchRowsOptions& options) {
  const int threads = prepare_bench(options);
  const std::unique_ptr<cuda::Context> gpu = open_bench_device(options.device);
  Ctx ctx(threads, "bench", gpu.get());
  std::vector<BenchRowsResult> results;
  for (const DType dtype : options.dtypes())
    for (const BenchRowsResult& r : measure(ctx, options, dtype)) results.push_back(r);
  if (options.json) return print_json(ctx, options, results);
  print_table(options, results);
}

}  // namespace

CLI::App* add_bench_rows(CLI::App& parent) {
  CLI::App* app = parent.add_subcommand(
      "rows",
      "Time matrix products with few rows, as in decoding, against reading their weights once");
  auto options = std::make_shared<BenchRowsOptions>();
  add_bench_options(*app, *options);
  add_quantization_option(*app, options->quantization);
  app->add_option("--rows", options->rows, "Row counts to time")
      ->delimiter(',')
      ->check(CLI::Range(int64_t{1}, int64_t{4096}))
      ->capture_default_str();
  app->add_option("--weights-mib", options->mib,
                  "Size of the weights in MiB; must exceed the processor's caches")
      ->check(CLI::Range(int64_t{1}, int64_t{65536}))
      ->capture_default_str();
  app->callback([options] { run_bench_rows(*options); });
  return app;
}

}  // namespace trireme
