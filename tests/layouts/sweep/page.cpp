#include "tests/layouts/sweep/page.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "tests/layouts/routing_margin.h"

namespace trireme::test {
namespace {

struct Row {
  int cases = 0, failed = 0;
  std::optional<LayoutError> worst;  // absent: nothing was compared

  void count(const CaseReport& report) {
    ++cases;
    failed += report.problem.empty() ? 0 : 1;
  }
  void compare(const CaseReport& report) {
    if (!report.error) return;
    if (!worst) worst.emplace();
    worst->loss = std::max(worst->loss, report.error->loss);
    worst->norm = std::max(worst->norm, report.error->norm);
    worst->gradient = std::max(worst->gradient, report.error->gradient);
    worst->value = std::max(worst->value, report.error->value);
    worst->first_gradient = std::max(worst->first_gradient, report.error->first_gradient);
  }
};

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1e", value);
  return text;
}

void write_errors(std::ostream& page, const std::optional<LayoutError>& error) {
  if (!error) {
    page << " | - | - | - | - |\n";
    return;
  }
  page << " | " << number(error->loss) << " | " << number(error->norm) << " | "
       << number(error->gradient) << " | " << number(error->value) << " |\n";
}

// Writes the number of combinations that ran, and how they were selected.
void write_sample(const SweepReport& report, std::ostream& page) {
  const auto full = std::ranges::count(report.cases, DType::kF64,
                                       [](const CaseReport& c) { return c.layout.dtype; });
  page
      << "Of " << report.combinations << " combinations for up to " << report.most << " ranks "
      << full << " ran in float64, and " << std::ssize(report.cases) - full
      << ", drawn by themselves, in float32 or bfloat16. "
         "A sample is drawn by its seed: from all combinations in a shuffled order first each that "
         "has a value of a dimension that none before it has, then the next ones; of float64 and "
         "float32 one in four has experts. CI runs a small seeded sample (`layouts/sweep` of "
         "ctest, "
         "part of `scripts/test.sh --rest`; its size is in `tests/CMakeLists.txt`).\n\n";
}

void write_summary(const SweepReport& report, std::ostream& page) {
  int failed = 0;
  std::map<DType, Row> rows;
  for (const CaseReport& c : report.cases) {
    rows[c.layout.dtype].count(c);
    rows[c.layout.dtype].compare(c);
    failed += c.problem.empty() ? 0 : 1;
  }
  page << "# Layouts\n\n"
          "The promise: every legal layout gives the loss, the gradients and the gradient norm of "
          "one rank. This page is what its test found.\n\n";
  write_sample(report, page);
  page << "| | |\n|---|---|\n| runs | " << report.cases.size() << " |\n| failed | " << failed
       << " |\n| seed | " << report.seed << " |\n| commit | " << report.commit
       << " |\n| made by | `" << report.command << "` |\n\n"
       << "The largest differences from one rank over all runs and steps, and what is allowed:\n\n"
          "| dtype | runs | first gradients | loss | gradient norm | gradients | final values |\n"
          "|---|---|---|---|---|---|---|\n";
  for (const auto& [dtype, row] : rows) {
    page << "| " << dtype_name(dtype) << " | " << row.cases << " | "
         << (row.worst ? number(row.worst->first_gradient) : "-");
    write_errors(page, row.worst);
    page << "| allowed | | " << number(allowed_error(dtype).first_gradient);
    write_errors(page, allowed_error(dtype));
  }
  page << "\nGradients of the first step are of the same parameters, so that no more is allowed "
          "there, and a fault of 30 % is noticed in bfloat16 too "
          "(`AFaultOf30PercentIsNoticedInBFloat16` of "
          "`tests/layouts/test_layouts.cpp`). In later steps of float32 and bfloat16 rounding has "
          "become other parameters: there gradients, their norm and the final values may be off by "
          "four times what one rank is off from float64 where that is more, but not by more than "
          "the gradient itself.\n";
}

// Writes the bugs that the comparison must detect, each with the figure that does.
void write_controls(std::ostream& page) {
  page << "Negative controls show that the comparison can fail. `tests/layouts/test_dropped.cpp` "
          "leaves out one collective of a run, in each dimension. "
          "`tests/layouts/test_published_bugs.cpp` and `tests/layouts/test_resume_bugs.cpp` plant "
          "silent bugs that became public in 2026:\n\n"
          "| planted | after | noticed by |\n|---|---|---|\n"
          "| norm without the experts of other tp ranks | Megatron-LM PR 5916 | gradient norm |\n"
          "| norm without the heads of other tp ranks | Megatron-LM issue 7452, finding 8 | "
          "gradient norm |\n"
          "| a norm shared by heads, without other ranks' heads | issue 7452, finding 11 | "
          "gradients |\n"
          "| valid tokens counted on each rank alone | issue 7452, finding 3 | loss, gradients |\n"
          "| one shard of the vocabulary taken for all | issue 7452, gathered logits | loss |\n"
          "| recompute over another group of ranks | issue 7452, finding 4 | gradients |\n"
          "| layers loaded by their number in the stage | issue 7452, finding 12 | tensors after "
          "loading |\n"
          "| gradients of experts scaled as dense ones | Megatron-LM PR 7165 | gradients, their "
          "norm |\n"
          "| gradients not added over context ranks | VeOmni PR 1115 | gradients, their norm |\n"
          "| one of two uses of a table lost under ZeRO 2 | DeepSpeed issue 8224 | gradients |\n"
          "| replicas of weights not loaded by a resume | Megatron-LM PR 6920 | replicas after "
          "loading, the next loss |\n\n";
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
         "parameters at the end; a tensor by the norm of its difference. Ranks that store the same "
         "parameter must hold the same bits of it. Every run must also store "
         "on "
         "every rank exactly the bytes of its shard, of parameters, gradients and optimizer states "
         "(`tests/layouts/shard_bytes.h`), and move bytes in every group of more than one rank: a "
         "dimension that is ignored fails. Real processes under MPI are "
         "`tests/e2e/test_layouts.py`.\n\n";
  write_controls(page);
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
          "the same ([pipeline parallelism](../design/pipeline-parallelism.md#the-schedules)). "
          "What is "
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
      row.count(c);
      if (c.layout.dtype == DType::kF64) row.compare(c);
    }
  page << "\n## By dimension\n\nRuns with each value, in any dtype, and their largest differences "
          "in float64 (-: it ran in lower precision only).\n\n| dimension | value | runs | failed "
          "| loss | gradient norm | gradients | "
          "final "
          "values |\n|---|---|---|---|---|---|---|---|\n";
  for (const std::string& name : order)
    for (const auto& [value, row] : rows[name]) {
      page << "| " << name << " | " << value << " | " << row.cases << " | " << row.failed;
      write_errors(page, row.worst);
    }
}

// Writes the meaning of the words in case names.
void write_legend(std::ostream& page) {
  page << "\n## Names of cases\n\n"
          "| in a name | means |\n|---|---|\n"
          "| `pp2 dp1 cp2 tp4` | ranks of pipeline, data, context and tensor parallelism |\n"
          "| `ep2 etp2` | ranks that divide the experts, and each expert's matrices; without it 1 "
          "|\n"
          "| `sp` | sequence parallelism: norms and residual stream by tokens over the tp ranks |\n"
          "| `a2a2`, `a2a4` | so many cp ranks exchange heads (a2a, Ulysses); where cp is more, "
          "rings "
          "of such groups (a2a+p2p); without it one ring (p2p) |\n"
          "| `contiguous` | a cp rank holds one piece of a sequence; without it two, zigzag |\n"
          "| `1f1b`, `gpipe`, `interleaved_1f1b`, `zb_h1`, `zb_h2`, `custom` | pipeline schedule; "
          "custom: from a file |\n"
          "| `x2` | 2 chunks of layers on every stage |\n"
          "| `uneven` | stages of 5 and 3 layers; without it equal ones |\n"
          "| `zero1`, `zero2`, `zero3` | ZeRO stage; without it none |\n"
          "| `offload cpu`, `offload nvme` | where optimizer states lie; without it beside the "
          "weights |\n"
          "| `selective`, `full` | what backward computes again: norms and MLP activations, or "
          "whole "
          "blocks; without it nothing |\n"
          "| `packed` | several documents in a sequence; without it one |\n"
          "| `llama`, `gpt2` | model |\n"
          "| `mistral` | llama with a sliding window in all layers, linear positions |\n"
          "| `qwen2` | llama with biases of q, k and v, a window in the upper layers, dynamic "
          "positions |\n"
          "| `qwen3` | llama with normalized queries and keys, yarn positions |\n"
          "| `gemma2` | llama with norms before and after the branches, GELU gates, soft caps of "
          "scores and logits, windows in every other layer; tied head |\n"
          "| `gemma3` | llama with norms before and after the branches, GELU gates, a soft cap of "
          "logits and two kinds of layers, with a window and positions of their own or without |\n"
          "| `smollm3` | llama with layers that no position rotates, and windows in those; tied "
          "head |\n"
          "| `granite` | llama with scaled embedding, softmax, branches and logits; tied head |\n"
          "| `olmo2` | llama with norms after the branches in place of those before, norms of all "
          "heads of queries and of keys |\n"
          "| `glm4` | llama with norms after the branches, yarn positions on half of each head, of "
          "neighbouring elements, queries scaled by position, biases of q, k and v |\n"
          "| `mixtral`, `qwen2_moe`, `deepseek` | models with experts |\n"
          "| `deepseek_v3` | with experts and latent attention |\n"
          "| `gpt_oss` | with experts of limited SwiGLU, biases of all products, attention sinks, "
          "windows in every other layer |\n"
          "| `llama4` | with experts whose inputs are scaled, attention in chunks, layers that no "
          "position rotates and whose queries are scaled by position, norms without weights |\n"
          "| `dropout` | dropout 0.1; without it none |\n"
          "| `float64`, `float32`, `bfloat16` | precision of the whole run |\n";
}

void write_cases(const SweepReport& report, std::ostream& page) {
  page << "\n## Cases\n\n`scripts/test_layouts.sh --only \"pp1 dp1 cp1 tp4 sp, zb_h1\"` repeats "
          "those whose name holds the text. It writes this page only when `--publish` is given "
          "too.\n\n"
          "| case | loss | gradient norm | gradients | final values |\n"
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
  write_legend(page);
  write_cases(report, page);
}

}  // namespace trireme::test
