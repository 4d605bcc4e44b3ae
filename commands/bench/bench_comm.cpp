// Benchmark of collectives (`bench comm`) over a range of sizes, with the columns of nccl-tests.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "commands/bench/bench.h"
#include "commands/bench/bench_support.h"
#include "commands/command_line.h"
#include "commands/connect.h"
#include "commands/rank_options.h"
#include "parallel/agree.h"
#include "parallel/comm/mpi/mpi_own.h"

namespace trireme {
namespace {

constexpr uint64_t kMaxBytes = uint64_t{4} << 30;  // MPI's element counts are 32-bit integers

struct BenchCommArguments {
  std::vector<std::string> operations;
  std::string dtype = "float32";
  uint64_t least = 1 << 10, most = 64 << 20;
  int64_t factor = 4;
  int iterations = 20;
  CommConfig comm;
  int ranks = 0;
  bool json = false;
};

struct BenchCommKind {
  CommKind kind;
  const char* name;
};
constexpr std::array<BenchCommKind, 6> kKinds{{{CommKind::kAllReduce, "all_reduce"},
                                               {CommKind::kAllGather, "all_gather"},
                                               {CommKind::kReduceScatter, "reduce_scatter"},
                                               {CommKind::kAllToAll, "all_to_all"},
                                               {CommKind::kBroadcast, "broadcast"},
                                               {CommKind::kSend, "send_recv"}}};

// Ratio of bus bandwidth to algorithm bandwidth, as in nccl-tests: the bytes that each rank must
// send per byte of the operation.
double bus_factor(CommKind kind, int ranks) {
  const double n = ranks;
  switch (kind) {
    case CommKind::kAllReduce: return 2 * (n - 1) / n;
    case CommKind::kAllGather:
    case CommKind::kReduceScatter:
    case CommKind::kAllToAll: return (n - 1) / n;
    default: return 1;
  }
}

struct Row {
  const char* name;
  int64_t bytes, count;
  double seconds, mpi_seconds;  // of the slowest rank; mpi_seconds 0: not measured
  int64_t wrong;                // elements, over all ranks
};

// One operation on n elements; n is a multiple of the ranks.
class Case {
 public:
  Case(Communicator& group, CommKind kind, DType dtype, int64_t n)
      : group_(group), kind_(kind), n_(n), part_(n / group.size()) {
    // bfloat16 represents sums of up to 64 such values exactly. Therefore at most 64 ranks
    // contribute to an element; neighbouring elements have different ones.
    const bool sums = kind == CommKind::kAllReduce || kind == CommKind::kReduceScatter;
    if (sums) stride_ = ceil_div(group.size(), 64);
    in_ = memory_.zeros(dtype, {kind == CommKind::kAllGather ? part_ : n});
    out_ = memory_.zeros(dtype, {kind == CommKind::kReduceScatter ? part_ : n});
  }

  void run() const {
    const int size = group_.size(), rank = group_.rank();
    switch (kind_) {
      case CommKind::kAllReduce: return group_.all_reduce(out_);
      case CommKind::kAllGather: return group_.all_gather(out_, in_);
      case CommKind::kReduceScatter: return group_.reduce_scatter(out_, in_);
      case CommKind::kAllToAll: return group_.all_to_all(out_, in_);
      case CommKind::kBroadcast: return group_.broadcast(out_, 0);
      default: return group_.send_recv(in_, (rank + 1) % size, out_, (rank + size - 1) % size);
    }
  }
  void run_mpi() const { mpi_own_collective(kind_, out_.as<float>(), in_.as<float>(), n_); }

  // Runs once on known values and returns the number of wrong elements of this rank's result.
  // Leaves zeros, which repeated sums do not change.
  int64_t verify() const {
    set(in_, [&](int64_t i) { return value(group_.rank(), i); });
    set(out_, [&](int64_t i) { return value(group_.rank(), i); });
    run();
    int64_t wrong = 0;
    for (int64_t i = 0; i < out_.numel(); ++i)
      if (get(out_, i) != expected(i)) ++wrong;
    for (const Tensor& t : {in_, out_}) set(t, [](int64_t) { return 0.0f; });
    return wrong;
  }

 private:
  // Integers up to 4 on one of stride_ ranks and 0 on the others: sums are at most 4 * 64, and
  // bfloat16 represents every integer up to 256.
  float value(int rank, int64_t i) const {
    return (rank + i) % stride_ == 0 ? static_cast<float>((rank + i) / stride_ % 5) : 0.0f;
  }
  static float get(const Tensor& t, int64_t i) {
    return t.dtype() == DType::kF32 ? t.as<float>()[i] : static_cast<float>(t.as<bf16>()[i]);
  }
  template <class F>
  static void set(const Tensor& t, const F& f) {
    for (int64_t i = 0; i < t.numel(); ++i) {
      if (t.dtype() == DType::kF32)
        t.as<float>()[i] = f(i);
      else
        t.as<bf16>()[i] = bf16(f(i));
    }
  }
  float sum(int64_t i) const {
    float total = 0;
    for (int r = 0; r < group_.size(); ++r) total += value(r, i);
    return total;
  }
  float expected(int64_t i) const {
    const int size = group_.size(), rank = group_.rank();
    const int piece = static_cast<int>(i / std::max<int64_t>(1, part_));
    switch (kind_) {
      case CommKind::kAllReduce: return sum(i);
      case CommKind::kAllGather: return value(piece, i % part_);
      case CommKind::kReduceScatter: return sum(rank * part_ + i);
      case CommKind::kAllToAll: return value(piece, rank * part_ + i % part_);
      case CommKind::kBroadcast: return value(0, i);
      default: return value((rank + size - 1) % size, i);
    }
  }

  Communicator& group_;
  CommKind kind_;
  int64_t n_, part_, stride_ = 1;
  Operands memory_;
  Tensor in_, out_;
};

// Mean seconds of one call on the slowest rank, after two warm-up calls.
template <class F>
double mean_seconds(Communicator& group, int iterations, const F& call) {
  for (int k = 0; k < 2; ++k) call();
  group.barrier();
  const auto start = std::chrono::steady_clock::now();
  for (int k = 0; k < iterations; ++k) call();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  return group.all_reduce_scalar(took.count() / iterations, ReduceOp::kMax);
}

Row measure(World& world, const BenchCommArguments& args, const BenchCommKind& kind,
            int64_t bytes) {
  Communicator& group = world.world();
  const DType dtype = args.dtype == "float32" ? DType::kF32 : DType::kBF16;
  const int64_t n =
      std::max<int64_t>(group.size(), round_up(bytes / dtype_size(dtype), group.size()));
  const Case test(group, kind.kind, dtype, n);
  Row row{kind.name, n * dtype_size(dtype), n, 0, 0, 0};
  row.wrong = group.all_reduce_scalar(test.verify(), ReduceOp::kSum);
  row.seconds = mean_seconds(group, args.iterations, [&] { test.run(); });
  if (world.backend() == "mpi" && dtype == DType::kF32)
    row.mpi_seconds = mean_seconds(group, args.iterations, [&] { test.run_mpi(); });
  return row;
}

double gbytes_per_second(const Row& row, double seconds) {
  return static_cast<double>(row.bytes) / seconds * 1e-9;
}

void print_head(const World& world, const BenchCommArguments& args) {
  std::printf("# %s, %s, %d iterations after 2; time of the slowest rank\n",
              world.describe().c_str(), args.dtype.c_str(), args.iterations);
  std::printf(
      "# busbw = algbw x 2(n-1)/n for all_reduce, (n-1)/n for all_gather, reduce_scatter and "
      "all_to_all, 1 otherwise\n");
  std::printf("%-15s %12s %12s %10s %12s %8s %8s %7s %12s %8s\n", "# operation", "size (B)",
              "count", "type", "time (us)", "algbw", "busbw", "#wrong", "MPI (us)", "speedup");
}

void print_row(const Row& row, const BenchCommArguments& args, int ranks, CommKind kind) {
  const double rate = gbytes_per_second(row, row.seconds);
  std::printf("%-15s %12lld %12lld %10s %12.1f %8.2f %8.2f %7lld", row.name,
              static_cast<long long>(row.bytes), static_cast<long long>(row.count),
              args.dtype.c_str(), row.seconds * 1e6, rate, rate * bus_factor(kind, ranks),
              static_cast<long long>(row.wrong));
  if (row.mpi_seconds > 0)
    std::printf(" %12.1f %7.2fx\n", row.mpi_seconds * 1e6, row.mpi_seconds / row.seconds);
  else
    std::printf(" %12s %8s\n", "-", "-");
  std::fflush(stdout);
}

nlohmann::ordered_json to_json(const Row& row, const BenchCommArguments& args, int ranks,
                               CommKind kind) {
  const double rate = gbytes_per_second(row, row.seconds);
  nlohmann::ordered_json out = {{"operation", row.name},
                                {"bytes", row.bytes},
                                {"count", row.count},
                                {"dtype", args.dtype},
                                {"us", row.seconds * 1e6},
                                {"algbw_gbytes_per_second", rate},
                                {"busbw_gbytes_per_second", rate * bus_factor(kind, ranks)},
                                {"wrong", row.wrong}};
  if (row.mpi_seconds > 0) out["mpi_us"] = row.mpi_seconds * 1e6;
  return out;
}

void run_bench_comm(const BenchCommArguments& args, const CLI::App& command,
                    const CommandLine& line) {
  before_connecting([&] {
    if (args.least == 0) fail_input("--min 0 has no next size: give at least 1 byte");
    if (args.least > args.most) fail_input("--min ", args.least, " is above --max ", args.most);
    if (args.most > kMaxBytes)
      fail_input("--max ", args.most, " is above ", kMaxBytes, ": give at most 4G");
    ensure_ranks(args.ranks, line.argc, line.argv);
    if (detect_launcher().ranks == 1)
      fail_input("bench comm needs at least 2 ranks: give --ranks N, or use mpirun");
  });
  const std::unique_ptr<World> world =
      connect_ranks(world_options(args.comm), facts_of_command(command));
  pin_rank(*world, 0);
  const bool speaks = world->rank() == 0;
  nlohmann::ordered_json out = {{"ranks", world->size()}, {"world", world->describe()}};
  if (speaks && !args.json) print_head(*world, args);
  int64_t wrong = 0;
  for (const BenchCommKind& kind : kKinds) {
    if (!args.operations.empty() &&
        std::ranges::find(args.operations, kind.name) == args.operations.end())
      continue;
    for (auto bytes = static_cast<int64_t>(args.least); bytes <= static_cast<int64_t>(args.most);
         bytes *= args.factor) {
      const Row row = measure(*world, args, kind, bytes);
      wrong += row.wrong;
      if (!speaks) continue;
      if (args.json)
        out["rows"].push_back(to_json(row, args, world->size(), kind.kind));
      else
        print_row(row, args, world->size(), kind.kind);
    }
  }
  if (speaks && args.json) std::printf("%s\n", out.dump(2).c_str());
  if (wrong > 0) throw Error(concat(wrong, " elements of the results were wrong"));
}

}  // namespace

CLI::App* add_bench_comm(CLI::App& parent, const CommandLine& line) {
  auto args = std::make_shared<BenchCommArguments>();
  CLI::App* command = parent.add_subcommand(
      "comm",
      "Time collectives over a range of sizes, in the format of nccl-tests, against MPI's own");
  std::vector<std::string> names;
  names.reserve(std::size(kKinds));
  for (const BenchCommKind& kind : kKinds) names.emplace_back(kind.name);
  command->add_option("--operation", args->operations, "Operations to time (default: all)")
      ->delimiter(',')
      ->check(CLI::IsMember(names));
  command
      ->add_option("--dtype", args->dtype,
                   "Element type: float32 or bfloat16 (MPI's own collectives: float32 only)")
      ->capture_default_str()
      ->check(CLI::IsMember({"float32", "bfloat16"}));
  command->add_option("--min", args->least, "Smallest size in bytes, such as 8, 64K or 1M")
      ->transform(CLI::AsSizeValue(false))
      ->capture_default_str();
  command->add_option("--max", args->most, "Largest size in bytes")
      ->transform(CLI::AsSizeValue(false))
      ->capture_default_str();
  command->add_option("--factor", args->factor, "Ratio of consecutive sizes")
      ->check(CLI::Range(2, 1024))
      ->capture_default_str();
  command->add_option("--iterations", args->iterations, "Timed calls per size")
      ->check(CLI::Range(1, 100'000))
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
  command->footer(
      "Example: trireme bench comm --ranks 4 --operation all_reduce,all_gather --max 256M");
  command->callback([args, command, line] { run_bench_comm(*args, *command, line); });
  return command;
}

}  // namespace trireme
