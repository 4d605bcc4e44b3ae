// Rank program of the MPI tests, started by mpirun (run_mpi_tests.py).
//
//   mpi_ranks collectives ALGORITHM RANKS_PER_NODE     every collective against plain loops
//   mpi_ranks pipeline ALGORITHM RANKS_PER_NODE        every pipeline schedule
//   mpi_ranks traffic ALGORITHM RANKS_PER_NODE BYTES   one all-reduce; prints this rank's counters
//   mpi_ranks die RANK                                 that rank kills itself in an all-reduce
//   mpi_ranks throw RANK                               that rank throws instead of joining
//   mpi_ranks speed BYTES...                           all-reduce against MPI_Allreduce
#include <mpi.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>

#include "engine/core/memory.h"
#include "parallel/comm/world.h"
#include "parallel/launch.h"
#include "tests/parallel/collective_checks.h"
#include "tests/parallel/pipeline/toy_stage.h"

namespace trireme {
namespace {

using Words = std::vector<std::string>;

WorldOptions options(const Words& words) {
  WorldOptions o;
  if (words.size() > 1) o.comm.algorithm = parse_comm_algorithm(words[1]);
  if (words.size() > 2) o.comm.ranks_per_node = std::atoi(words[2].c_str());
  o.comm.timeout_s = 30;
  return o;
}

int report(const std::string& wrong) {
  if (!wrong.empty()) std::printf("%s\n", wrong.c_str());
  return wrong.empty() ? 0 : 1;
}

// Prints numbers on one line, so that lines of several ranks do not mix.
int traffic(World& world, int64_t bytes) {
  const Buffer buffer("gradients", bytes);
  const Tensor data = buffer.tensor(DType::kF32, {bytes / 4});
  world.world().all_reduce(data);  // sets up the window before counting
  world.world().barrier();
  world.world().reset_traffic();
  MPI_Pcontrol(0);
  world.world().all_reduce(data);
  const Traffic::Counter counter = world.world().traffic()[CommKind::kAllReduce];
  std::printf("traffic rank %d sent %lld window %lld\n", world.rank(),
              static_cast<long long>(counter.sent_bytes),
              static_cast<long long>(counter.window_bytes));
  return 0;
}

int fail(World& world, int rank, bool die) {
  const Buffer buffer("gradients", 1 << 20);
  const Tensor data = buffer.tensor(DType::kF32, {1 << 18});
  for (int k = 0; k < 100'000; ++k) {
    if (k == 5 && world.rank() == rank) {
      if (die) kill(getpid(), SIGKILL);
      throw Error("rank program told to throw");
    }
    world.world().all_reduce(data);
  }
  return 0;
}

double milliseconds(const std::function<void()>& f) {
  const auto start = std::chrono::steady_clock::now();
  f();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
      .count();
}

// Alternates between the two, so that both run under the same conditions; reports medians.
int speed(World& world, const Words& words) {
  pin_rank(world, 0);
  for (size_t w = 1; w < words.size(); ++w) {
    const int64_t bytes = std::atoll(words[w].c_str());
    const Buffer buffer("gradients", bytes), out("result", bytes);
    const Tensor data = buffer.tensor(DType::kF32, {bytes / 4});
    out.touch(1);
    buffer.touch(1);
    std::vector<double> ours, theirs, in_place;
    for (int k = 0; k < 12; ++k) {
      world.world().barrier();
      ours.push_back(milliseconds([&] { world.world().all_reduce(data); }));
      world.world().barrier();
      theirs.push_back(milliseconds([&] {
        MPI_Allreduce(buffer.data(), out.data(), static_cast<int>(bytes / 4), MPI_FLOAT, MPI_SUM,
                      MPI_COMM_WORLD);
      }));
      world.world().barrier();
      in_place.push_back(milliseconds([&] {
        MPI_Allreduce(MPI_IN_PLACE, buffer.data(), static_cast<int>(bytes / 4), MPI_FLOAT, MPI_SUM,
                      MPI_COMM_WORLD);
      }));
    }
    const auto median = [](std::vector<double>& v) {
      std::ranges::sort(v);
      return v[v.size() / 2];
    };
    const double a = median(ours), b = median(theirs), c = median(in_place);
    if (world.rank() == 0)
      std::printf(
          "%d ranks, %lld bytes: ours %.3f ms, MPI_Allreduce %.3f ms (%.1fx), in place "
          "%.3f ms (%.1fx)\n",
          world.size(), static_cast<long long>(bytes), a, b, b / a, c, c / a);
  }
  return 0;
}

int run(const Words& words) {
  const std::string& what = words.at(0);
  const bool has_options = what == "collectives" || what == "traffic" || what == "pipeline";
  const auto world = make_world(options(has_options ? words : Words{what}));
  try {
    if (what == "collectives") return report(test::check_collectives(world->world()));
    if (what == "pipeline") return report(test::check_pipeline(world->world()));
    if (what == "traffic") return traffic(*world, std::atoll(words.at(3).c_str()));
    if (what == "die") return fail(*world, std::atoi(words.at(1).c_str()), true);
    if (what == "throw") return fail(*world, std::atoi(words.at(1).c_str()), false);
    if (what == "speed") return speed(*world, words);
    fail_input("unknown test \"", what, "\"");
  } catch (const Error& e) {
    world->world().abort(concat("rank ", world->rank(), " failed: ", e.what()));
    throw;
  }
}

}  // namespace
}  // namespace trireme

int main(int argc, char** argv) {
  try {
    return trireme::run({argv + 1, argv + argc});
  } catch (const trireme::Error& e) {
    std::fprintf(stderr, "error: %s\n", e.what());
    return static_cast<int>(e.code());
  }
}
