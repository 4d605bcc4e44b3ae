// Runs all layouts, or a sample, compares them with one rank and publishes the results as a page.
//
//   layout_sweep [--sample N] [--seed S] [--most RANKS] [--low-precision N] [--only TEXT]
//                [--publish FILE] [--commit NAME] [--command TEXT]
//
// Without --sample all combinations run (hours); --only selects those whose name contains TEXT.
// --low-precision also runs that many in float32 and bfloat16. --publish writes the page, with the
// given commit and command on it. Exit status 1: some differ by more than allowed; 2: no case
// selected.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <limits>

#include "tests/layouts/routing_margin.h"
#include "tests/layouts/shard_bytes.h"
#include "tests/layouts/sweep/page.h"

namespace trireme::test {
namespace {

struct Options {
  size_t sample = std::numeric_limits<size_t>::max();
  size_t low_precision = 0;
  uint64_t seed = 1;
  int most = 8;
  std::string publish, only, commit = "unknown", command = "layout_sweep";
};

class Sweep {
 public:
  explicit Sweep(const Options& options) : options_(options) {}

  bool run() {
    const std::vector<LayoutCase> dense = all_cases(options_.most);
    const std::vector<LayoutCase> experts = expert_cases(options_.most);
    const size_t all = dense.size() + experts.size();
    std::vector<LayoutCase> cases;
    for (const DType dtype : {DType::kF64, DType::kF32, DType::kBF16}) {
      const bool low = dtype != DType::kF64;
      if (low && options_.low_precision == 0) break;
      // In bfloat16 two experts are often equally good, and rounding decides: no experts there.
      const auto no_experts = std::vector<LayoutCase>();
      const std::vector<LayoutCase> drawn =
          draw(wanted(dense, dtype), wanted(dtype == DType::kBF16 ? no_experts : experts, dtype),
               low ? options_.low_precision : options_.sample, options_.seed + (low ? 1 : 0));
      cases.insert(cases.end(), drawn.begin(), drawn.end());
    }
    if (cases.empty()) throw std::invalid_argument("no case's name holds --only " + options_.only);
    report_ = {all, options_.most, options_.seed, options_.commit, options_.command, {}};
    for (size_t i = 0; i < cases.size(); ++i) {
      CaseReport result{.layout = cases[i]};
      try {
        check(result);
      } catch (const std::exception& e) {
        result.problem = e.what();
      }
      if (!result.problem.empty()) {
        ++failed_;
        std::printf("FAILED %s: %s\n", cases[i].name().c_str(), result.problem.c_str());
      }
      report_.cases.push_back(std::move(result));
      report_progress(i + 1, cases.size());
    }
    std::fprintf(stderr, "\n");
    std::printf("%zu of %zu combinations, %d failed\n", cases.size(), all, failed_);
    if (!options_.publish.empty()) {
      std::ofstream page(options_.publish);
      write_page(report_, page);
    }
    return failed_ == 0;
  }

 private:
  std::vector<LayoutCase> wanted(std::vector<LayoutCase> cases, DType dtype) const {
    for (LayoutCase& c : cases) c.dtype = dtype;
    std::erase_if(cases, [&](const LayoutCase& c) {
      return c.name().find(options_.only) == std::string::npos;
    });
    return cases;
  }

  // A quarter of the cases has experts: they have fewer combinations, and more to verify in each.
  static std::vector<LayoutCase> draw(const std::vector<LayoutCase>& dense,
                                      const std::vector<LayoutCase>& experts, size_t count,
                                      uint64_t seed) {
    const size_t sparse = count >= dense.size() + experts.size()
                              ? experts.size()
                              : std::min(count / 4, experts.size());
    std::vector<LayoutCase> cases =
        sample_cases(dense, std::min(count - sparse, dense.size()), seed);
    const std::vector<LayoutCase> more =
        sparse == 0 ? std::vector<LayoutCase>() : sample_cases(experts, sparse, seed);
    cases.insert(cases.end(), more.begin(), more.end());
    return cases;
  }

  const LayoutResult& reference(const LayoutCase& one) {
    const auto [known, fresh] = references_.try_emplace(one.name());
    if (fresh) known->second = run_layout(one);
    return known->second;
  }

  void check(CaseReport& result) {
    const LayoutCase& c = result.layout;
    LayoutCase one = reference_of(c);
    const LayoutResult& want = reference(one);
    LayoutError allowed = allowed_error(c.dtype);
    if (c.dtype != DType::kF64) {  // rounding on one rank bounds that on several
      one.dtype = DType::kF64;
      allowed = allowed_error(c.dtype, want, reference(one));
    }
    result.margin = want.routing_margin;
    const LayoutResult got = run_layout(c);
    result.error = compare_layouts(got, want, c.dtype);
    std::vector<std::string> problems = {layout_difference(got, want, c.dtype, allowed),
                                         stored_difference(got, config_of(c)),
                                         silent_group(got, config_of(c))};
    if (result.margin < required_routing_margin(c.dtype))
      problems.push_back(concat("two experts' scores are ", result.margin, " apart"));
    for (const std::string& problem : problems)
      if (!problem.empty()) result.problem += concat(result.problem.empty() ? "" : "; ", problem);
  }

  void report_progress(size_t done, size_t total) const {
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
    const double left = seconds / static_cast<double>(done) * static_cast<double>(total - done);
    std::fprintf(stderr, "\r%zu of %zu, %d failed, %.0f s left   ", done, total, failed_, left);
  }

  Options options_;
  std::map<std::string, LayoutResult> references_;
  SweepReport report_;
  int failed_ = 0;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i], value = argv[i + 1];
    if (name == "--publish")
      options.publish = value;
    else if (name == "--commit")
      options.commit = value;
    else if (name == "--command")
      options.command = value;
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
