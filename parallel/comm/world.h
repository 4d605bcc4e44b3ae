// World: all ranks of a run, whatever the launcher, and the hosts and nodes that they run on.
#pragma once

#include <functional>

#include "parallel/comm/communicator.h"
#include "parallel/comm/launcher.h"

namespace trireme {

struct WorldOptions {
  std::string backend = "auto";  // auto: as detect_launcher() reports; mpi; tcp; single
  CommOptions comm;
  std::string build_id;  // empty: of this executable; ranks with different ids refuse to start
  // Prints the message about a lost rank before the watchdog (liveness/watchdog.h) or the monitor
  // of MPI_Init (init_watch.h) ends the process.
  std::function<void(const std::string&)> announce_loss;
};

// Connection of one rank to the others. The destructor waits for the other ranks' destructors and
// finalizes MPI. During exception unwinding it instead reports this rank as lost, and after a loss
// it waits for nothing.
class World {
 public:
  explicit World(std::shared_ptr<RankState> state);
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  Communicator& world() { return *world_; }
  int rank() const;
  int size() const;
  int local_rank() const;  // among this host's ranks, including other groups (rank_commands())
  int local_size() const;  // number of these ranks
  // True if the ranks of this host may all use the same cores; false if a launcher bound them.
  bool shares_cores() const;
  int host() const;  // index of this rank's host
  int node() const;  // index of this rank's (virtual) node
  int nodes() const;
  std::string backend() const;  // "single", "mpi", "tcp", "threads"
  // "4 ranks over mpi on 1 host, 2 nodes", plus ", GPUs over nccl 2.28.9" with an attached GPU.
  std::string describe() const;
  // Reason why GPU tensors are staged through host memory although comm.device_backend is auto;
  // otherwise empty.
  const std::string& device_note() const;
  // Waits for the operations started so far, then returns this rank's counters over all groups.
  Traffic traffic() const;
  // Registers a handler for SIGTERM, which then no longer ends this rank; another thread calls it.
  // No effect for a single rank, for ranks that are threads, and if mpirun's ranks are on several
  // machines: the SIGTERM may then mean that mpirun has lost a rank on another machine and is about
  // to kill this one.
  void on_termination(void (*request)());
  // Cores that the thread of asynchronous operations may use (pin_rank).
  void set_worker_cores(int first, int count);

 private:
  std::shared_ptr<RankState> state_;
  std::unique_ptr<Communicator> world_;
  void end();
  int exceptions_;  // uncaught when this object was made
};

// Connects the ranks and compares their build ids, wire formats and communication options.
// InputError if they differ, or if the backend cannot connect as many ranks as were launched.
std::unique_ptr<World> make_world(const WorldOptions& options);

// Ranks as threads of this process: calls fn once per rank and joins them. If a rank throws, the
// others are woken with an error; rethrows the exception of the lowest rank that failed by itself.
void run_threads(int ranks, const std::function<void(Communicator&)>& fn,
                 const CommOptions& options = {});
void run_thread_worlds(int ranks, const std::function<void(World&)>& fn,
                       const CommOptions& options = {});

}  // namespace trireme
