#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <random>
#include <sstream>

#include "tests/cuda/kernel_coverage.h"
#include "tests/cuda/ops_session.h"

namespace trireme::test {
namespace {

struct Options {
  size_t sample = 0;  // 0: every case
  uint64_t seed = 1;
  std::vector<std::string> dtypes = {};  // empty: all
};
Options options;
std::unique_ptr<cuda::Context> gpu;

// Kernels that this program need not launch, each with its reason.
const std::map<std::string, std::string> kElsewhere = {
    {"step_control.cu decide_kernel", "no op of engine/ops; test_cuda_step"},
    {"sequence_table.cu table_kernel", "for cuDNN, which is not emulated; test_cuda_step"},
    {"sequence_table.cu clear_kernel", "for cuDNN, which is not emulated; test_cuda_step"},
    {"sequence_table.cu statistic_kernel", "for cuDNN, which is not emulated; test_cuda_step"},
    {"step_control.cu scale_kernel", "no op of engine/ops; cuda/training"},
};

bool of_everything() {
  const testing::UnitTest& tests = *testing::UnitTest::GetInstance();
  return options.sample == 0 && options.dtypes.empty() &&
         tests.test_to_run_count() == tests.total_test_count();
}

class Session : public testing::Environment {
 public:
  void TearDown() override {
    gpu.reset();
    if (!of_everything()) return;
    const KernelCoverage coverage = kernel_coverage();
    size_t ran = 0;
    for (const auto& [kernel, launched] : coverage.kernels) {
      const bool excused = kElsewhere.contains(kernel);
      EXPECT_NE(launched, excused)
          << kernel << (launched ? " has a reason not to run, and ran" : " never ran");
      ran += launched;
    }
    for (const auto& [kernel, reason] : kElsewhere)
      EXPECT_TRUE(coverage.kernels.contains(kernel)) << kernel << " is no kernel";
    for (const std::string& instance : coverage.idle)
      std::printf("never launched: %s\n", instance.c_str());
    std::printf("%zu of %zu kernels ran (%zu are tried elsewhere); %lld of %lld instances\n", ran,
                coverage.kernels.size(), kElsewhere.size(),
                static_cast<long long>(coverage.launched),
                static_cast<long long>(coverage.instances));
  }
};

// Sample of `count` cases for each op and dtype, in the registry's order.
std::vector<OpCase> sampled(std::vector<OpCase> cases, size_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::map<std::pair<std::string, DType>, std::vector<std::pair<uint64_t, size_t>>> groups;
  for (size_t i = 0; i < cases.size(); ++i)
    groups[{cases[i].op, cases[i].dtype}].emplace_back(random(), i);
  std::vector<size_t> kept;
  for (auto& [group, members] : groups) {
    std::sort(members.begin(), members.end());
    members.resize(std::min(members.size(), count));
    for (const auto& [draw, index] : members) kept.push_back(index);
  }
  std::sort(kept.begin(), kept.end());
  std::vector<OpCase> out;
  for (const size_t i : kept) out.push_back(std::move(cases[i]));
  return out;
}

void parse(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (name.starts_with("--gtest")) continue;
    const std::string value = i + 1 < argc ? argv[++i] : "";
    if (name == "--sample") {
      options.sample = std::stoul(value);
    } else if (name == "--seed") {
      options.seed = std::stoul(value);
    } else if (name == "--dtypes") {
      std::stringstream list(value);
      for (std::string dtype; std::getline(list, dtype, ',');) options.dtypes.push_back(dtype);
    } else {
      fail_input("unknown option ", name);
    }
  }
  if (options.sample > 0)
    std::printf("%zu cases of each op and dtype, --seed %llu\n", options.sample,
                static_cast<unsigned long long>(options.seed));
}

}  // namespace

cuda::Context& shared_gpu() {
  if (!gpu) gpu = cuda::open(0);
  return *gpu;
}

std::vector<OpCase> emulated_cases() {
  std::vector<OpCase> cases = all_cases();
  std::erase_if(cases, [](const OpCase& c) { return c.large; });
  return cases;
}

std::vector<OpCase> chosen_cases() {
  std::vector<OpCase> cases = emulated_cases();
  if (!options.dtypes.empty())
    std::erase_if(cases, [](const OpCase& c) {
      return std::ranges::find(options.dtypes, text(c.dtype)) == options.dtypes.end();
    });
  if (options.sample > 0) cases = sampled(std::move(cases), options.sample, options.seed);
  return cases;
}

}  // namespace trireme::test

int main(int argc, char** argv) {
  try {
    trireme::test::parse(argc, argv);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "test_cuda_ops: %s\n", e.what());
    return 2;
  }
  testing::InitGoogleTest(&argc, argv);
  testing::AddGlobalTestEnvironment(new trireme::test::Session);
  return RUN_ALL_TESTS();
}
