// `trireme bench gemm`, `ops` and `train`: what each product, op and training step reaches of what this
// machine can do, both measured in the same run.
#pragma once

namespace CLI {
class App;
}

namespace trireme {

// Each adds its subcommand to `parent`; the subcommand's callback does the work and prints.
CLI::App* add_bench_gemm(CLI::App& parent);
CLI::App* add_bench_ops(CLI::App& parent);
CLI::App* add_bench_train(CLI::App& parent);

}  // namespace trireme
