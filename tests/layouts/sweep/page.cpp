#include "tests/layouts/sweep/page.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "tests/layouts/routing_margin.h"

namespace trireme::test {
namespace {

struct Row {
  int cases = 0, failed = 0;
  LayoutError worst;
  double margin = std::numeric_limits<double>::infinity();

  void add(const CaseReport& report) {
    ++cases;
    failed += report.problem.empty() ? 0 : 1;
    worst.loss = std::max(worst.loss, report.error.loss);
    worst.norm = std::max(worst.norm, report.error.norm);
    worst.gradient = std::max(worst.gradient, report.error.gradient);
    worst.value = std::max(worst.value, report.error.value);
    margin = std::min(margin, report.margin);
  }
};

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1e", value);
  return text;
}

void write_errors(std::ostream& page, const LayoutError& error) {
  page << " | " << number(error.loss) << " | " << number(error.norm) << " | "
       << number(error.gradient) << " | " << number(error.value) << " |\n";
}

void write_summary(const SweepReport& report, std::ostream& page) {
  int failed = 0;
  std::map<DType, Row> rows;
  for (const CaseReport& c : report.cases) {
    rows[c.layout.dtype].add(c);
    failed += c.problem.empty() ? 0 : 1;
  }
  page << "# Layouts\n\n"
          "The promise: every legal layout gives the loss, the gradients and the gradient norm of "
          "one "
          "rank. This page is written by its test, `scripts/test_layouts.sh`.\n\n"
       << "| | |\n|---|---|\n| combinations for up to " << report.most << " ranks | "
       << report.combinations << " |\n| runs here | " << report.cases.size() << " |\n| failed | "
       << failed << " |\n| sample's seed | " << report.seed << " |\n| commit | " << report.commit
       << " |\n\n"
       << "The largest differences from one rank over all runs and steps, and what is allowed:\n\n"
          "| dtype | runs | loss | gradient norm | gradients | final values |\n"
          "|---|---|---|---|---|---|\n";
  for (const auto& [dtype, row] : rows) {
    page << "| " << dtype_name(dtype) << " | " << row.cases;
    write_errors(page, row.worst);
    page << "| allowed | ";
    write_errors(page, allowed_error(dtype));
  }
}

void write_method(const SweepReport& report, std::ostream& page) {
  page
      << "\nA run trains for 5 steps of 8 sequences on ranks that are threads: 8 layers of width "
         "32, 8 heads over 2 key/value heads (GPT-2: 8), a vocabulary of 61, sequences of 23 "
         "tokens, an "
         "inner width of 45: sizes that the dimensions do not divide. The loss and the gradient "
         "norm of "
         "every step are compared, the whole gradient of every logical tensor after every step, "
         "and the "
         "parameters at the end; a tensor by the norm of its difference. Every run must also store "
         "on "
         "every rank exactly the bytes of its shard, of parameters, gradients and optimizer states "
         "(`tests/layouts/shard_bytes.h`), and move bytes in every group of more than one rank: a "
         "dimension that is ignored fails. That one collective less is noticed, in each dimension, "
         "is a "
         "test of its own (`tests/layouts/test_dropped.cpp`); real processes under MPI are "
         "`tests/e2e/test_layouts.py`.\n\n";
  std::map<DType, double> margins;
  for (const CaseReport& c : report.cases) {
    const auto [at, fresh] = margins.try_emplace(c.layout.dtype, c.margin);
    if (!fresh) at->second = std::min(at->second, c.margin);
  }
  page << "Models with experts choose among them: in no run is a choice nearer to another than "
          "rounding "
          "could reach. The least margin of a score was";
  const char* separator = " ";
  for (const auto& [dtype, margin] : margins)
    if (std::isfinite(margin)) {
      page << separator << number(margin) << " in " << dtype_name(dtype)
           << " (demanded: " << number(required_routing_margin(dtype)) << ")";
      separator = ", ";
    }
  page << ". In bfloat16 two experts are often as good as each other and rounding decides, so "
          "experts are "
          "not compared there.\n\n"
          "The bubble of `zb_h2` is zero between a rank's own first and last instruction, without "
          "an "
          "optimizer barrier; a rank that waits for all others before the update loses (p - 1) F "
          "all "
          "the same ([pipeline parallelism](pipeline-parallelism.md#the-schedules)). What is "
          "compared "
          "here are results, not times.\n";
}

void write_dimensions(const SweepReport& report, std::ostream& page) {
  std::vector<std::string> order;
  std::map<std::string, std::map<std::string, Row>> rows;
  for (const CaseReport& c : report.cases)
    for (const auto& [name, value] : dimensions(c.layout)) {
      if (!rows.contains(name)) order.push_back(name);
      Row& row = rows[name][value];
      if (c.layout.dtype == DType::kF64) {
        row.add(c);
      } else {
        ++row.cases;
        row.failed += c.problem.empty() ? 0 : 1;
      }
    }
  page << "\n## By dimension\n\nRuns with each value, in any dtype, and their largest differences "
          "in "
          "float64.\n\n| dimension | value | runs | failed | loss | gradient norm | gradients | "
          "final "
          "values |\n|---|---|---|---|---|---|---|---|\n";
  for (const std::string& name : order)
    for (const auto& [value, row] : rows[name]) {
      page << "| " << name << " | " << value << " | " << row.cases << " | " << row.failed;
      write_errors(page, row.worst);
    }
}

void write_cases(const SweepReport& report, std::ostream& page) {
  page << "\n## Cases\n\n`scripts/test_layouts.sh --only \"pp1 dp1 cp1 tp4 sp, zb_h1\"` repeats "
          "those whose "
          "name holds the text.\n\n| case | loss | gradient norm | gradients | final values |\n"
          "|---|---|---|---|---|\n";
  for (const CaseReport& c : report.cases) {
    page << "| " << c.layout.name() << (c.problem.empty() ? "" : concat(" FAILED: ", c.problem));
    write_errors(page, c.error);
  }
}

}  // namespace

void write_page(const SweepReport& report, std::ostream& page) {
  write_summary(report, page);
  write_method(report, page);
  write_dimensions(report, page);
  write_cases(report, page);
}

}  // namespace trireme::test
