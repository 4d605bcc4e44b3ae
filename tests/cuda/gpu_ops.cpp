// Runs the registry on this machine's GPU and prints one line of JSON for each case.
//   gpu_ops [--large] [--measure] [OP]     OP: only this op
//   gpu_ops --list                         the names of the ops, for which no GPU is needed
// Exit code 0: every case agrees with the CPU; 1: some does not; 2: there is no GPU.
#include <cstdio>
#include <nlohmann/json.hpp>
#include <set>

#include "tests/cuda/registry.h"

namespace trireme::test {
namespace {

nlohmann::ordered_json line(const OpCase& c, cuda::Context& gpu, bool measure) {
  const CaseReport report = check_case(c, gpu);
  nlohmann::ordered_json out = {{"op", c.op},
                                {"shape", c.shape},
                                {"dtype", text(c.dtype)},
                                {"max_error", report.max_error},
                                {"tolerance", report.tolerance},
                                {"ok", report.failure.empty()},
                                {"bitwise", report.bitwise},
                                {"launches", report.launches},
                                {"large", c.large}};
  if (!report.failure.empty()) out["failure"] = report.failure;
  if (!measure) return out;
  const double seconds = measure_case(c, gpu);
  out["microseconds"] = seconds * 1e6;
  if (c.bytes > 0) out["gbytes_per_s"] = c.bytes / seconds * 1e-9;
  if (c.flops > 0) out["tflops"] = c.flops / seconds * 1e-12;
  return out;
}

int list() {
  std::set<std::string> names;
  for (const OpCase& c : all_cases()) names.insert(c.op);
  for (const std::string& name : names) std::puts(name.c_str());
  return 0;
}

int run(int argc, char** argv) {
  bool large = false, measure = false;
  std::string only;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--list") return list();
    if (argument == "--large")
      large = true;
    else if (argument == "--measure")
      measure = true;
    else
      only = argument;
  }
  const std::unique_ptr<cuda::Context> gpu = cuda::open(0);
  bool good = true;
  for (const OpCase& c : all_cases()) {
    if ((c.large && !large) || (!only.empty() && c.op != only)) continue;
    const nlohmann::ordered_json out = line(c, *gpu, measure);
    good = good && out["ok"].get<bool>();
    std::puts(out.dump().c_str());
    std::fflush(stdout);
  }
  return good ? 0 : 1;
}

}  // namespace
}  // namespace trireme::test

int main(int argc, char** argv) {
  try {
    return trireme::test::run(argc, argv);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "gpu_ops: %s\n", e.what());
    return 2;
  }
}
