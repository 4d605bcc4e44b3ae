// Subcommands of `trireme bench`:
//   gemm, rows   matrix products of a training step, and those with few rows, as in decoding
//   ops          single ops
//   train        training steps
//   decode       decoding of one sequence
//   steps        engine steps of a server, on the CPU
//   comm         collectives
//   compress     all-reduces of compressed gradients
//   serve        any server under load
// gemm, rows, ops, train and decode compare the times with limits of this machine, which they
// measure in the same run.
#pragma once

namespace CLI {
class App;
}

namespace trireme {

struct CommandLine;

// Each adds to `parent` one subcommand that runs the benchmark and prints the results.
CLI::App* add_bench_gemm(CLI::App& parent);
CLI::App* add_bench_rows(CLI::App& parent);
CLI::App* add_bench_ops(CLI::App& parent);
CLI::App* add_bench_train(CLI::App& parent);
CLI::App* add_bench_decode(CLI::App& parent);
CLI::App* add_bench_steps(CLI::App& parent);
CLI::App* add_bench_comm(CLI::App& parent, const CommandLine& line);
CLI::App* add_bench_compress(CLI::App& parent, const CommandLine& line);
CLI::App* add_bench_serve(CLI::App& parent);

}  // namespace trireme
