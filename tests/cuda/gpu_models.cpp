// Trains tiny models on this machine's GPU and prints one line of JSON for each comparison:
//  golden  ten steps in float64 against PyTorch's losses and gradient norms (tests/golden)
//  cpu     twenty steps against the same twenty on the CPU
//
//  gpu_models [--cpu]     --cpu: uses the CPU instead of the GPU, to test the comparison itself
//  gpu_models --nccl      instead: every collective of one rank through NCCL, whose results are its
//                         operands
// Exit code 0: all agree; 1: some differ; 2: no GPU.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <nlohmann/json.hpp>

#include "parallel/comm/world.h"
#include "tests/support/compare.h"
#include "tests/training/step/golden_case.h"

namespace trireme::test {
namespace {

constexpr int64_t kCpuSteps = 20;

struct Curve {
  std::vector<double> losses, norms;
};

// Trains `steps` steps from the reference's weights; the reference's batches repeat.
Curve train(const GoldenCase& golden, int64_t steps, cuda::Context* gpu) {
  const RunConfig& config = golden.config();
  Curve curve;
  WorldOptions single;
  single.backend = "single";
  const std::unique_ptr<World> world = make_world(single);
  Ctx ctx(1, "activations", gpu);
  const Groups groups(world->world(), config.parallel);
  TrainState state(config, groups.layout);
  TrainStep step(config, state, groups, ctx);
  const ArenaPlan plan = start_fresh(state, step, ctx);  // also initializes the other weights
  golden.load_weights(ctx, state.store);
  state.optimizer.initialize(ctx);
  const SafetensorsReader reference = golden.open("steps");
  const int64_t batches = reference.tensor("losses").numel();
  for (int64_t s = 0; s < steps; ++s) {
    const StepResult result = step.run(s, {golden.batch(reference, s % batches)}, plan);
    curve.losses.push_back(result.loss);
    curve.norms.push_back(result.grad_norm);
  }
  return curve;
}

double worst(const std::vector<double>& got, const std::vector<double>& want) {
  double most = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    const double difference = std::abs(got[i] - want[i]) / std::abs(want[i]);
    most = std::max(most, std::isfinite(difference) ? difference : INFINITY);
  }
  return most;
}

bool report(const char* check, const std::string& model, DType dtype, const Curve& got,
            const Curve& want, double tolerance) {
  const double loss = worst(got.losses, want.losses), norm = worst(got.norms, want.norms);
  const bool ok = loss <= tolerance && norm <= 10 * tolerance;
  const auto number = [](double x) -> nlohmann::ordered_json {
    if (std::isfinite(x)) return x;
    return nullptr;
  };
  const nlohmann::ordered_json out = {{"check", check},
                                      {"model", model},
                                      {"dtype", dtype_name(dtype)},
                                      {"steps", want.losses.size()},
                                      {"last_loss", number(got.losses.back())},
                                      {"loss_difference", number(loss)},
                                      {"norm_difference", number(norm)},
                                      {"tolerance", tolerance},
                                      {"ok", ok}};
  std::puts(out.dump().c_str());
  std::fflush(stdout);
  return ok;
}

// Effect of rounding after twenty steps of these models: AdamW with a rate of 0.01 amplifies it.
double cpu_tolerance(DType dtype) {
  return dtype == DType::kF64 ? 1e-7 : dtype == DType::kF32 ? 2e-3 : 5e-2;
}

bool check_model(const std::string& name, cuda::Context* gpu) {
  bool good = true;
  {
    const GoldenCase golden(name, DType::kF64);
    const SafetensorsReader reference = golden.open("steps");
    const Curve want{to_doubles(reference.tensor("losses")),
                     to_doubles(reference.tensor("grad_norms"))};
    const Curve got = train(golden, std::ssize(want.losses), gpu);
    good = report("golden", name, DType::kF64, got, want, golden.steps_tolerance()) && good;
  }
  for (const DType dtype : {DType::kF64, DType::kF32, DType::kBF16}) {
    // The choice of experts is not continuous: two computations agree on it in float64 only.
    if (name == "mixtral" && dtype != DType::kF64) continue;
    const GoldenCase golden(name, dtype);
    const Curve want = train(golden, kCpuSteps, nullptr), got = train(golden, kCpuSteps, gpu);
    good = report("cpu", name, dtype, got, want, cpu_tolerance(dtype)) && good;
  }
  return good;
}

// The collectives of a run of several ranks, as far as one GPU can exercise them.
bool check_nccl() {
  WorldOptions single;
  single.backend = "single";
  const std::unique_ptr<World> world = make_world(single);
  const std::unique_ptr<cuda::Context> gpu = cuda::open(0);
  const DeviceAttachment attached = world->world().attach(*gpu, DeviceBackend::kNccl);
  const std::unique_ptr<Communicator> group = world->world().split(0, 0, "group");
  constexpr int64_t kElements = int64_t{1} << 20;
  const std::vector<double> values = normals("values", kElements);
  int operations = 0;
  bool same = true;
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const TestTensor host(dtype, {kElements}, values);
    const Buffer in_memory("in", (*host).bytes(), Memory::kDevice),
        out_memory("out", (*host).bytes(), Memory::kDevice);
    const Tensor in(in_memory.data(), dtype, {kElements}, DeviceType::kCuda);
    const Tensor out(out_memory.data(), dtype, {kElements}, DeviceType::kCuda);
    const auto check = [&](const std::function<void(Communicator&)>& operation,
                           const Tensor& result) {
      cuda::upload(*gpu, in.raw(), (*host).raw(), in.bytes());
      cuda::fill_bytes(*gpu, gpu->main, out.raw(), 0xff, out.bytes());
      operation(*group);
      std::string got(static_cast<size_t>(in.bytes()), '\0');
      cuda::download(*gpu, got.data(), result.raw(), result.bytes());
      same = same && std::memcmp(got.data(), (*host).raw(), got.size()) == 0;
      ++operations;
    };
    const std::vector<int64_t> all{kElements};
    check([&](Communicator& g) { g.all_reduce(in); }, in);
    check([&](Communicator& g) { g.all_gather(out, in); }, out);
    check([&](Communicator& g) { g.reduce_scatter(out, in); }, out);
    check([&](Communicator& g) { g.all_gather_v(in); }, in);
    check([&](Communicator& g) { g.reduce_scatter_v(in); }, in);
    check([&](Communicator& g) { g.broadcast(in, 0); }, in);
    check([&](Communicator& g) { g.all_to_all_v(out, all, in, all); }, out);
  }
  const nlohmann::ordered_json line = {
      {"ok", same}, {"backend", world->world().device_backend()}, {"operations", operations}};
  std::puts(line.dump().c_str());
  return same;
}

int run(int argc, char** argv) {
  if (argc > 1 && std::string(argv[1]) == "--nccl") return check_nccl() ? 0 : 1;
  const bool on_cpu = argc > 1 && std::string(argv[1]) == "--cpu";
  const std::unique_ptr<cuda::Context> gpu = on_cpu ? nullptr : cuda::open(0);
  bool good = true;
  for (const char* name : {"gpt2", "llama", "llama_variant", "mixtral"})
    good = check_model(name, gpu.get()) && good;
  return good ? 0 : 1;
}

}  // namespace
}  // namespace trireme::test

int main(int argc, char** argv) {
  try {
    return trireme::test::run(argc, argv);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "gpu_models: %s\n", e.what());
    return 2;
  }
}
