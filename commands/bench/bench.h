// Benchmarks of `trireme bench`. `gemm`, `rows`, `ops`, `train`, `decode`, `steps` and `comm`
// measure products, ops, training steps, tokens and collectives, relative to limits of this machine
// that are measured in the same run. `serve` measures a server under load.
#pragma once

namespace CLI {
class App;
}

namespace trireme {

struct CommandLine;

// Each adds its subcommand to `parent`; the subcommand's callback runs the benchmark and prints.
CLI::App* add_bench_gemm(CLI::App& parent);
CLI::App* add_bench_rows(CLI::App& parent);
CLI::App* add_bench_ops(CLI::App& parent);
CLI::App* add_bench_train(CLI::App& parent);
CLI::App* add_bench_decode(CLI::App& parent);
CLI::App* add_bench_steps(CLI::App& parent);
CLI::App* add_bench_comm(CLI::App& parent, const CommandLine& line);
CLI::App* add_bench_serve(CLI::App& parent);

}  // namespace trireme
