// Parts shared by the bench commands: device, models by name, operands, planned calls, timing.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "engine/ops/context.h"
#include "engine/ops/gemm/device_peak.h"
#include "engine/ops/gemm/peak.h"
#include "transformer/config/model_config.h"

namespace CLI {
class App;
}

namespace trireme {

// Options of the benchmarks of single calls.
struct BenchOptions {
  std::string dtype = "all";
  std::string device = "auto";
  int threads = 0;  // 0: all cores
  int samples = 5;
  int64_t peak_side = kPeakSide;
  bool json = false;
  std::vector<DType> dtypes() const;  // the types that `dtype` selects
};
void add_bench_options(CLI::App& app, BenchOptions& options);
// --peak-side N: side of the products and copies that determine a GPU's ceilings.
void add_peak_option(CLI::App& app, int64_t& side);

// Device selected by --device, for a command of one rank; null: the CPU.
std::unique_ptr<cuda::Context> open_bench_device(const std::string& device);

// Model of configs/models by its file's name, such as "qwen2.5-0.5b", or by the path of a
// config.json.
ModelConfig bench_model(const std::string& name);
std::string bench_model_names();  // "gpt2-124m, gpt2-1.5b, ..."

// Owner of operands in the context's memory. Random values are uniform in [-0.5, 0.5): denormal
// numbers or NaN would change speed, and so would zeros on a GPU.
class Operands {
 public:
  Operands() = default;  // on the host
  explicit Operands(Ctx& ctx) : ctx_(&ctx) {}
  Tensor make(DType dtype, const Shape& shape);  // float types
  Tensor zeros(DType dtype, const Shape& shape);
  Tensor ids(const Shape& shape, int64_t below);  // int32, scattered over [0, below)
  // Tensor of element type T with values written by `fill` on the host.
  template <class T>
  Tensor filled(const Shape& shape, const std::function<void(T*)>& fill) {
    std::vector<T> values(static_cast<size_t>(shape.numel()));
    fill(values.data());
    return copied(ConstTensor(values.data(), dtype_of<T>, shape));
  }
  Tensor copied(const ConstTensor& host);

 private:
  Tensor take(DType dtype, const Shape& shape);
  Ctx* ctx_ = nullptr;
  std::vector<Buffer> buffers_;
};

// Seconds of one call: the median of `samples` averages, each over as many calls as fill
// `sample_seconds`. Scratch is planned as in a training step; the first call does not count. GPU
// calls are timed with the GPU's clock.
double median_seconds(Ctx& ctx, int samples, double sample_seconds,
                      const std::function<void()>& call);

double median(std::vector<double> values);  // the upper one of two

// Adds the implementations used by a GPU's calls: "attention", "gemm_choice", and "notes" if a
// library refused something.
void add_kernel_choices(nlohmann::ordered_json& out, const cuda::Context& gpu);

// Performance limits of the measured device.
struct BenchCeiling {
  MachinePeak cpu;
  std::vector<DevicePeak> gpu;  // by dtype of the options; empty on the CPU
  double gflops(DType dtype) const;
  // Rates of reading, and of reading and writing, `bytes` repeatedly (engine/ops/gemm/peak.h). On a
  // GPU: of copies.
  double reading_gbytes(double bytes) const;
  double moving_gbytes(double bytes) const;
};
// Pins the team of options.threads; measures the peak of ctx's device.
int prepare_bench(const BenchOptions& options);
BenchCeiling measure_ceiling(Ctx& ctx, const BenchOptions& options);
// Measures a CPU's ceilings again and keeps the maximum; call after each part of a long run.
// with_memory: also measures reading. A GPU's ceilings do not change.
void raise_ceiling(const Ctx& ctx, BenchCeiling& ceiling, bool with_memory = true);
std::string ceiling_line(const Ctx& ctx,
                         const BenchCeiling& ceiling);  // the device, and the peaks

}  // namespace trireme
