// Shared parts of the bench commands: options, device, models by name, operands, timing and the
// machine's limits.
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

// Options of benchmarks that time single calls.
struct BenchOptions {
  std::string dtype = "all";      // float32, bfloat16 or all
  std::string device = "auto";    // auto, cpu or cuda
  int threads = 0;                // 0: all cores
  int samples = 5;                // timed samples; the result is their median
  int64_t peak_side = kPeakSide;  // --peak-side
  bool json = false;
  std::vector<DType> dtypes() const;  // the element types that `dtype` selects
};
void add_bench_options(CLI::App& app, BenchOptions& options);
// Adds --peak-side N: side of the square matrices with which a GPU's limits are measured.
void add_peak_option(CLI::App& app, int64_t& side);

// Opens the device that --device selects, for a command of one rank: the first GPU. nullptr: the
// CPU.
std::unique_ptr<cuda::Context> open_bench_device(const std::string& device);

// Configuration of a model. name: file name in configs/models, such as "qwen2.5-0.5b", or a path or
// Hub name as local_model() (engine/io/hub_cache.h) and load_model_config()
// (transformer/formats/load_config.h) accept it. InputError for an unknown name.
ModelConfig bench_model(const std::string& name);
std::string bench_model_names();  // "gpt2-124m, gpt2-1.5b, ..."

// Operands of benchmarks, allocated in the memory of the context's device. Random values are
// uniform in [-0.5, 0.5), because denormal numbers, NaN, and on a GPU zeros would change the speed.
class Operands {
 public:
  Operands() = default;  // host memory; only zeros() may be called
  explicit Operands(Ctx& ctx) : ctx_(&ctx) {}
  Tensor make(DType dtype, const Shape& shape);  // random values of a float type
  Tensor zeros(DType dtype, const Shape& shape);
  Tensor ids(const Shape& shape, int64_t below);  // int32, spread over [0, below)
  // Tensor of element type T whose values `fill` writes on the host.
  template <class T>
  Tensor filled(const Shape& shape, const std::function<void(T*)>& fill) {
    std::vector<T> values(static_cast<size_t>(shape.numel()));
    fill(values.data());
    return copied(ConstTensor(values.data(), dtype_of<T>, shape));
  }
  Tensor copied(const ConstTensor& host);  // copy of a host tensor

 private:
  Tensor take(DType dtype, const Shape& shape);
  Ctx* ctx_ = nullptr;
  std::vector<Buffer> buffers_;
};

// Seconds of one call: the median of `samples` averages. Each average is over as many calls as take
// about `sample_seconds`, at least one. Calls before the samples plan the scratch memory as in a
// training step, warm up and determine the number of calls. GPU calls are timed by the GPU's clock.
double median_seconds(Ctx& ctx, int samples, double sample_seconds,
                      const std::function<void()>& call);

double median(std::vector<double> values);  // of an even number: the upper of the two middle values

// Adds the implementations that the GPU's calls use: "attention" and "gemm_choice"; "no_cudnn" (the
// reason) if cuDNN's attention is not available, and "notes" if a library refused a call.
void add_kernel_choices(nlohmann::ordered_json& out, const cuda::Context& gpu);

// Measured performance limits of the device.
struct BenchCeiling {
  MachinePeak cpu;              // on a GPU only the number of threads
  std::vector<DevicePeak> gpu;  // one for each of BenchOptions::dtypes(); empty on the CPU
  // Peak of matrix products in GFLOP/s. On a CPU other types than bfloat16 have float32's. On a GPU
  // it must have been measured.
  double gflops(DType dtype) const;
  // Memory bandwidth in GB/s of reading, and of reading and writing, a buffer of `bytes` repeatedly
  // (engine/ops/gemm/peak.h). On a GPU: bandwidth of copies.
  double reading_gbytes(double bytes) const;
  double moving_gbytes(double bytes) const;
};
// Pins a thread team of options.threads (0: all available cores); returns its size.
int prepare_bench(const BenchOptions& options);
// Measures the limits of ctx's device.
BenchCeiling measure_ceiling(Ctx& ctx, const BenchOptions& options);
// Measures a CPU's limits again and keeps the maximum, since other processes may have disturbed the
// first measurement; call after each part of a long benchmark. with_memory: also the bandwidth. A
// GPU's limits are not measured again.
void raise_ceiling(const Ctx& ctx, BenchCeiling& ceiling, bool with_memory = true);
std::string ceiling_text(const Ctx& ctx,
                         const BenchCeiling& ceiling);  // lines: the device, and its limits

}  // namespace trireme
