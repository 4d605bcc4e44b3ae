// Benchmark of compressed all-reduces (`bench compress`) beside the plain one: bytes, time, error.
#include <CLI/CLI.hpp>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "commands/bench/bench.h"
#include "commands/bench/bench_support.h"
#include "commands/command_line.h"
#include "commands/connect.h"
#include "commands/rank_options.h"
#include "engine/core/random.h"
#include "engine/ops/rows/fill_normal.h"
#include "engine/ops/rows/transfer.h"
#include "parallel/agree.h"
#include "parallel/outer/compressed_all_reduce.h"
#include "parallel/outer/compressors/compressors.h"
#include "parallel/outer/compressors/power_sgd.h"

namespace trireme {
namespace {

constexpr int64_t kColumns = 1024;
constexpr uint64_t kMaxGradientBytes = uint64_t{4} << 30;

struct BenchCompressArguments {
  uint64_t size = 25 << 20;
  double ratio = 0.01;
  int rank = 4;
  int iterations = 20, threads = 1;
  CommConfig comm;
  int ranks = 0;
  bool json = false;
};

struct CompressRow {
  std::string method;
  int64_t sent = 0, plain_sent = 0;       // bytes of this rank
  double seconds = 0, plain_seconds = 0;  // of the slowest rank
  double error = 0;                       // of one sum, relative, in the L2 norm
};

std::vector<std::pair<std::string, CompressionOptions>> methods(
    const BenchCompressArguments& args) {
  return {{"quantize, 8 bits", {.bits = 8}},
          {"quantize, 4 bits", {.bits = 4}},
          {"quantize, 1 bit", {.bits = 1}},
          {concat("top_k, ratio ", args.ratio), {"top_k", 8, args.ratio, 4, 0}},
          {concat("random_k, ratio ", args.ratio), {"random_k", 8, args.ratio, 4, 0}},
          {concat("powersgd, rank ", args.rank), {.method = "powersgd", .rank = args.rank}}};
}

// Mean seconds of one call on the slowest rank.
template <class F>
double seconds_per_call(Communicator& group, int iterations, const F& call) {
  group.barrier();
  const auto start = std::chrono::steady_clock::now();
  for (int k = 0; k < iterations; ++k) call();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  return group.all_reduce_scalar(took.count() / iterations, ReduceOp::kMax);
}

// Relative L2 distance of two float32 tensors.
double distance(const Tensor& a, const Tensor& b) {
  double difference = 0, norm = 0;
  for (int64_t i = 0; i < a.numel(); ++i) {
    const double x = a.as<float>()[i], y = b.as<float>()[i];
    difference += (x - y) * (x - y);
    norm += y * y;
  }
  return std::sqrt(difference / norm);
}

// Sums of normally distributed numbers over the ranks.
class Benchmark {
 public:
  Benchmark(World& world, const BenchCompressArguments& args)
      : group_(world.world()),
        args_(args),
        ctx_(args.threads, "bench compress"),
        rows_(ceil_div(static_cast<int64_t>(args.size) / 4, kColumns)),
        input_(memory_.zeros(DType::kF32, {rows_ * kColumns})),
        data_(memory_.zeros(DType::kF32, {rows_ * kColumns})),
        sum_(memory_.zeros(DType::kF32, {rows_ * kColumns})) {
    fill_normal(ctx_, input_, {static_cast<uint64_t>(group_.rank()), stream_id("input")}, 1.0, {});
    transfer(ctx_, sum_, input_);
    group_.all_reduce(sum_);
  }

  int64_t rows() const { return rows_; }

  CompressRow measure(const std::string& name, const CompressionOptions& options) {
    const auto compressor = make_compressor(options);
    CompressionState state(*compressor, {{0, rows_, kColumns, {.stream = stream_id("input")}}},
                           DType::kF32, {group_.size(), group_.rank()}, true);
    state.allocate(ctx_);
    CompressedAllReduce compressed(group_, state, ctx_);
    int64_t round = 0;
    const auto run = [&] {
      compressed.start(input_, round++);
      compressed.finish(data_);
    };
    CompressRow row{.method = name,
                    .sent = group_.all_reduce_scalar(state.sent_bytes(), ReduceOp::kMax)};
    const int64_t ranks = group_.size();
    row.plain_sent = 2 * (ranks - 1) * data_.bytes() / ranks;
    run();
    row.error = distance(data_, sum_);
    const auto plain = [&] { group_.all_reduce(data_); };
    seconds_per_call(group_, 2, plain);
    // In turns, so that other work on the machine disturbs both.
    const int turns = std::min(args_.iterations, 4);
    for (int turn = 0; turn < turns; ++turn) {
      const int calls = args_.iterations * (turn + 1) / turns - args_.iterations * turn / turns;
      transfer(ctx_, data_, input_);
      row.plain_seconds += seconds_per_call(group_, calls, plain) * calls / args_.iterations;
      row.seconds += seconds_per_call(group_, calls, run) * calls / args_.iterations;
    }
    return row;
  }

 private:
  Communicator& group_;
  const BenchCompressArguments& args_;
  Ctx ctx_;
  Operands memory_;
  int64_t rows_;
  Tensor input_, data_, sum_;
};

// Time per byte sent, as a multiple of the plain all-reduce's.
double byte_time_ratio(const CompressRow& row) {
  return row.seconds / static_cast<double>(row.sent) /
         (row.plain_seconds / static_cast<double>(row.plain_sent));
}

void print_head(const World& world, const BenchCompressArguments& args, int64_t rows) {
  std::printf(
      "# %s, float32 (%lld, %lld), %d iterations; time of the slowest rank, bytes of the one that "
      "sends most\n",
      world.describe().c_str(), static_cast<long long>(rows), static_cast<long long>(kColumns),
      args.iterations);
  std::printf("# time/byte: per byte sent, as a multiple of the plain all-reduce's\n");
  std::printf("%-22s %12s %8s %10s %10s %10s %10s\n", "# method", "sent (B)", "smaller",
              "time (ms)", "plain (ms)", "time/byte", "error");
}

void print_row(const CompressRow& row) {
  std::printf("%-22s %12lld %7.2fx %10.2f %10.2f %10.2f %10.2e\n", row.method.c_str(),
              static_cast<long long>(row.sent),
              static_cast<double>(row.plain_sent) / static_cast<double>(row.sent),
              row.seconds * 1e3, row.plain_seconds * 1e3, byte_time_ratio(row), row.error);
  std::fflush(stdout);
}

nlohmann::ordered_json to_json(const CompressRow& row) {
  return {{"method", row.method},
          {"sent_bytes", row.sent},
          {"plain_sent_bytes", row.plain_sent},
          {"ms", row.seconds * 1e3},
          {"plain_ms", row.plain_seconds * 1e3},
          {"time_per_byte_ratio", byte_time_ratio(row)},
          {"error", row.error}};
}

void run_bench_compress(const BenchCompressArguments& args, const CLI::App& command,
                        const CommandLine& line) {
  before_connecting([&] {
    if (args.size > kMaxGradientBytes)
      fail_input("--size ", args.size, " is above ", kMaxGradientBytes, ": give at most 4G");
    if (args.size < 4)
      fail_input("--size ", args.size, " holds no float32 element: give at least 4 bytes");
    if (!(args.ratio > 0 && args.ratio <= 1))
      fail_input("--ratio ", args.ratio, " is no fraction: give a number above 0, at most 1");
    ensure_ranks(args.ranks, line.argc, line.argv);
    if (detect_launcher().ranks == 1)
      fail_input("bench compress needs at least 2 ranks: give --ranks N, or use mpirun");
  });
  const std::unique_ptr<World> world =
      connect_ranks(world_options(args.comm), facts_of_command(command));
  pin_rank(*world, 0);
  const bool is_root = world->rank() == 0;
  nlohmann::ordered_json out = {{"ranks", world->size()}, {"world", world->describe()}};
  Benchmark benchmark(*world, args);
  if (is_root && !args.json) print_head(*world, args, benchmark.rows());
  for (const auto& [name, options] : methods(args)) {
    const CompressRow row = benchmark.measure(name, options);
    if (is_root && args.json) out["rows"].push_back(to_json(row));
    if (is_root && !args.json) print_row(row);
  }
  if (is_root && args.json) std::printf("%s\n", out.dump(2).c_str());
}

}  // namespace

CLI::App* add_bench_compress(CLI::App& parent, const CommandLine& line) {
  auto args = std::make_shared<BenchCompressArguments>();
  CLI::App* command = parent.add_subcommand(
      "compress", "Time all-reduces of compressed float32 gradients against the plain one");
  command->add_option("--size", args->size, "Bytes of the gradients, such as 64K or 25M")
      ->transform(CLI::AsSizeValue(false))
      ->capture_default_str();
  command->add_option("--ratio", args->ratio, "Fraction of elements sent by top_k and random_k")
      ->capture_default_str();
  command->add_option("--rank", args->rank, "Rank of powersgd's factors")
      ->check(CLI::Range(1, kMaxPowerSgdRank))
      ->capture_default_str();
  command->add_option("--iterations", args->iterations, "Timed calls per method")
      ->check(CLI::Range(1, 100'000))
      ->capture_default_str();
  command->add_option("--threads", args->threads, "Threads per rank")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  command
      ->add_option("--algorithm", args->comm.algorithm,
                   "Algorithm: auto, ring or shm (comm.algorithm)")
      ->capture_default_str();
  command
      ->add_option("--ranks-per-node", args->comm.ranks_per_node,
                   "Ranks per virtual node; 0: no virtual nodes (comm.ranks_per_node)")
      ->capture_default_str();
  add_ranks_option(*command, args->ranks);
  command->add_flag("--json", args->json, "Print one JSON object");
  command->footer("Example: trireme bench compress --ranks 2 --size 25M");
  command->callback([args, command, line] { run_bench_compress(*args, *command, line); });
  return command;
}

}  // namespace trireme
