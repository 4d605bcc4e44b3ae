// Runs the registry on this machine's GPU and prints lines of JSON: {"begin": op} before an op's
// cases, and one line for each case.
//  gpu_ops [--large] [--measure] [--dtypes D,...] [--after OP] [OP...]
//    --large    only the cases for measurements, each compared with another computation on the GPU,
//               and timed
//    --dtypes   only these; "other" includes types that are not floats of 16 bits or more
//    --after    starts after this op, in the order of --list
//    OP         only these
//  gpu_ops --list         names of the ops; needs no GPU
//  gpu_ops --libraries    libraries opened with the GPU: {"device", "cudnn": "" or why it is not
//                         used}
// Exit code 0: every case passed; 1: some failed; 2: no GPU, or an unknown op.
#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "engine/core/error.h"
#include "tests/cuda/registry.h"

namespace trireme::test {
namespace {

using Line = nlohmann::ordered_json;

struct Options {
  bool large = false, measure = false;
  std::set<std::string> dtypes, only;  // empty: all
  std::string after;
};

void print(const Line& line) {
  std::puts(line.dump().c_str());
  std::fflush(stdout);
}

std::string dtype_key(DType dtype) {
  return is_float(dtype) ? std::string(dtype_name(dtype)) : "other";
}

bool chosen(const Options& options, const OpCase& c) {
  return c.large == options.large && c.op > options.after &&
         (options.dtypes.empty() || options.dtypes.contains(dtype_key(c.dtype))) &&
         (options.only.empty() || options.only.contains(c.op));
}

Line line_of(const OpCase& c, cuda::Context& gpu, const Options& options) {
  const LargeReport report =
      options.large ? check_large_case(c, gpu) : LargeReport{check_case(c, gpu), ""};
  Line out = {{"op", c.op},
              {"shape", c.shape},
              {"dtype", text(c.dtype)},
              {"max_error", report.max_error},
              {"tolerance", report.tolerance},
              {"ok", report.failure.empty()},
              {"bitwise", report.bitwise},
              {"launches", report.launches}};
  if (options.large) out["reference"] = report.reference;
  if (!report.failure.empty()) out["failure"] = report.failure;
  if (!options.measure && !options.large) return out;
  const double seconds = measure_case(c, gpu);
  out["microseconds"] = seconds * 1e6;
  if (c.bytes > 0) out["gbytes_per_s"] = c.bytes / seconds * 1e-9;
  if (c.flops > 0) out["tflops"] = c.flops / seconds * 1e-12;
  return out;
}

std::set<std::string> op_names() {
  std::set<std::string> names;
  for (const OpCase& c : all_cases()) names.insert(c.op);
  return names;
}

int list() {
  for (const std::string& name : op_names()) std::puts(name.c_str());
  return 0;
}

// Without this check an unknown name would run no case and so report no failure.
void check_names(const Options& options) {
  const std::set<std::string> known = op_names();
  std::string unknown;
  for (const std::string& name : options.only)
    if (!known.contains(name)) unknown += (unknown.empty() ? "" : ", ") + name;
  if (!unknown.empty()) fail_input("no op has the name ", unknown, "; gpu_ops --list tells all");
}

int libraries() {
  const std::unique_ptr<cuda::Context> gpu = cuda::open(0);
  print({{"device", gpu->info.name},
         {"cudnn", gpu->attention != nullptr ? "" : gpu->no_attention},
         {"gemm_choice", cuda::gemm_choice(*gpu)}});
  return 0;
}

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--large")
      options.large = true;
    else if (argument == "--measure")
      options.measure = true;
    else if (argument == "--after" && i + 1 < argc)
      options.after = argv[++i];
    else if (argument == "--dtypes" && i + 1 < argc) {
      std::stringstream names(argv[++i]);
      for (std::string name; std::getline(names, name, ',');) options.dtypes.insert(name);
    } else
      options.only.insert(argument);
  }
  return options;
}

int run(const Options& options) {
  check_names(options);
  const std::unique_ptr<cuda::Context> gpu = cuda::open(0);
  std::vector<OpCase> cases = all_cases();
  std::ranges::stable_sort(cases, {}, &OpCase::op);
  bool good = true;
  std::string op;
  for (const OpCase& c : cases) {
    if (!chosen(options, c)) continue;
    if (std::exchange(op, c.op) != c.op) print({{"begin", c.op}});
    const Line out = line_of(c, *gpu, options);
    good = good && out["ok"].get<bool>();
    print(out);
  }
  return good ? 0 : 1;
}

int main_of(int argc, char** argv) {
  const std::string first = argc > 1 ? argv[1] : "";
  if (first == "--list") return list();
  if (first == "--libraries") return libraries();
  return run(parse(argc, argv));
}

}  // namespace
}  // namespace trireme::test

int main(int argc, char** argv) {
  try {
    return trireme::test::main_of(argc, argv);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "gpu_ops: %s\n", e.what());
    return 2;
  }
}
