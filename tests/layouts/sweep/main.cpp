// Runs every layout, or a sample of them, against one rank and writes what it found as a page.
//
//   layout_sweep [--sample N] [--seed S] [--most RANKS] [--low-precision N] [--only TEXT]
//                [--publish FILE]
//
// Without --sample all combinations run (hours); --only takes those whose name holds TEXT.
// --low-precision runs that many of them in float32 and bfloat16 too. Exit status 1 when any differs by
// more than allowed.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <limits>

#include "tests/layouts/shard_bytes.h"

namespace trireme::test {
namespace {

struct Options {
  size_t sample = std::numeric_limits<size_t>::max();
  size_t low_precision = 0;
  uint64_t seed = 1;
  int most = 8;
  std::string publish, only;
};

struct Row {  // of the page: all cases with the same mesh
  int cases = 0;
  LayoutError worst;
  int failed = 0;
};

class Sweep {
 public:
  explicit Sweep(const Options& options) : options_(options) {}

  bool run() {
    std::vector<LayoutCase> all = all_cases(options_.most);
    const std::vector<LayoutCase> experts = expert_cases(options_.most);
    all.insert(all.end(), experts.begin(), experts.end());
    std::erase_if(all, [&](const LayoutCase& c) {
      return c.name().find(options_.only) == std::string::npos;
    });
    std::vector<LayoutCase> cases =
        options_.sample < all.size() ? sample_cases(all, options_.sample, options_.seed) : all;
    // In bfloat16 two experts are often as good as each other, and rounding decides: no experts there.
    const std::vector<LayoutCase> dense = all_cases(options_.most);
    for (const DType dtype : {DType::kF32, DType::kBF16})
      for (LayoutCase c : sample_cases(dtype == DType::kF32 ? all : dense, options_.low_precision,
                                       options_.seed + 1)) {
        if (options_.low_precision == 0) break;
        c.dtype = dtype;
        cases.push_back(c);
      }
    for (size_t i = 0; i < cases.size(); ++i) {
      try {
        check(cases[i]);
      } catch (const std::exception& e) {
        ++failed_;
        std::printf("FAILED %s: %s\n", cases[i].name().c_str(), e.what());
      }
      report_progress(i + 1, cases.size());
    }
    std::fprintf(stderr, "\n");
    std::printf("%zu of %zu combinations, %d failed\n", cases.size(), all.size(), failed_);
    if (!options_.publish.empty()) publish(all.size(), cases.size());
    return failed_ == 0;
  }

 private:
  void check(const LayoutCase& c) {
    const LayoutCase one = reference_of(c);
    const auto [known, fresh] = references_.try_emplace(one.name());
    if (fresh) known->second = run_layout(one);
    const LayoutResult got = run_layout(c);
    const LayoutError error = compare_layouts(got, known->second, c.dtype);
    std::string problem = layout_difference(got, known->second, c.dtype);
    for (const std::string& other :
         {stored_difference(got, config_of(c)), silent_group(got, config_of(c))})
      if (!other.empty()) problem += concat(problem.empty() ? "" : "; ", other);
    Row& row = rows_[{c.dtype, mesh(c)}];
    ++row.cases;
    row.worst.loss = std::max(row.worst.loss, error.loss);
    row.worst.norm = std::max(row.worst.norm, error.norm);
    row.worst.gradient = std::max(row.worst.gradient, error.gradient);
    for (const std::string& variant : variants(c)) ++variants_[variant];
    if (problem.empty()) return;
    ++row.failed;
    ++failed_;
    std::printf("FAILED %s: %s\n", c.name().c_str(), problem.c_str());
  }

  void report_progress(size_t done, size_t total) const {
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
    const double left = seconds / static_cast<double>(done) * static_cast<double>(total - done);
    std::fprintf(stderr, "\r%zu of %zu, %d failed, %.0f s left   ", done, total, failed_, left);
  }

  void publish(size_t combinations, size_t run) const {
    std::ofstream page(options_.publish);
    page
        << "# Layouts\n\nWritten by `scripts/test_layouts.sh`. Each line trains the same model (8 "
           "layers, grouped-query heads, sizes that the dims do not divide) for 5 steps under "
           "every "
           "schedule, recompute policy and data form of the sample, and gives the largest relative "
           "difference from one rank.\n\n"
        << run << " runs; there are " << combinations << " combinations for up to " << options_.most
        << " ranks in float64.\n\n| dtype | mesh | cases | failed | loss | gradient norm | "
           "gradients "
           "|\n|---|---|---|---|---|---|---|\n";
    for (const auto& [key, row] : rows_) {
      char line[256];
      std::snprintf(line, sizeof line, "| %s | %s | %d | %d | %.1e | %.1e | %.1e |\n",
                    std::string(dtype_name(key.first)).c_str(), key.second.c_str(), row.cases,
                    row.failed, row.worst.loss, row.worst.norm, row.worst.gradient);
      page << line;
    }
    page << "\n| variant | runs |\n|---|---|\n";
    for (const auto& [variant, count] : variants_)
      page << "| " << variant << " | " << count << " |\n";
  }

  Options options_;
  std::map<std::string, LayoutResult> references_;
  std::map<std::pair<DType, std::string>, Row> rows_;
  std::map<std::string, int> variants_;
  int failed_ = 0;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i], value = argv[i + 1];
    if (name == "--publish")
      options.publish = value;
    else if (name == "--only")
      options.only = value;
    else if (name == "--sample")
      options.sample = std::stoul(value);
    else if (name == "--low-precision")
      options.low_precision = std::stoul(value);
    else if (name == "--seed")
      options.seed = std::stoul(value);
    else if (name == "--most")
      options.most = std::stoi(value);
    else
      throw std::invalid_argument("unknown option " + name);
  }
  if (argc % 2 == 0) throw std::invalid_argument("an option without a value");
  return options;
}

}  // namespace
}  // namespace trireme::test

int main(int argc, char** argv) try {
  return trireme::test::Sweep(trireme::test::parse(argc, argv)).run() ? 0 : 1;
} catch (const std::exception& e) {
  std::fprintf(stderr, "layout_sweep: %s\n", e.what());
  return 2;
}
