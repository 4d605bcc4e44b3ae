#include "parallel/comm/world.h"

#include <algorithm>
#include <exception>
#include <set>

#include "parallel/comm/collectives/collectives.h"
#include "parallel/comm/init_watch.h"
#include "parallel/comm/launcher_environment.h"

namespace trireme {
namespace {

const RankCoordinates& own_coordinates(const RankState& state) {
  return state.coordinates[static_cast<size_t>(state.transport->rank())];
}

std::shared_ptr<GroupState> world_group(const std::shared_ptr<RankState>& state) {
  auto group = std::make_shared<GroupState>();
  group->rank_state = state;
  group->name = "world";
  group->rank = state->transport->rank();
  for (int r = 0; r < state->transport->size(); ++r) group->members.push_back(r);
  arrange_nodes(*group);
  // connect_rank() has used the numbers before these.
  group->sequence = 1 << 8;
  return group;
}

// Last operation of a run: no rank leaves before all have arrived.
void say_goodbye(RankState& state) {
  GroupState group;
  group.name = "world";
  group.rank = state.transport->rank();
  for (int r = 0; r < state.transport->size(); ++r) group.members.push_back(r);
  group.sequence = 1 << 9;
  // Not owned: its World is being destroyed.
  group.rank_state = std::shared_ptr<RankState>(&state, [](RankState*) {});
  Operation op(group, CommKind::kBarrier, 0);
  op.info().goodbye = true;
  state.liveness.leave();
  dissemination_barrier(op);
  state.transport->finish();
}

}  // namespace

World::World(std::shared_ptr<RankState> state)
    : state_(std::move(state)),
      world_(std::make_unique<Communicator>(world_group(state_))),
      exceptions_(std::uncaught_exceptions()) {}

World::~World() {
  end();
  state_->liveness.mark_ended();
  if (state_->watchdog) state_->watchdog->stop();
}

void World::end() {
  if (std::uncaught_exceptions() > exceptions_) {
    world_->abort(concat("rank ", rank(), " stopped because of an error"));
    return;
  }
  if (state_->liveness.lost()) return;
  try {
    state_->worker.run([&] { say_goodbye(*state_); });
  } catch (const std::exception&) {
    // A peer died at the very end; no remaining work needs it.
    state_->transport->broadcast_loss();
  }
}

int World::rank() const { return state_->transport->rank(); }
int World::size() const { return state_->transport->size(); }
int World::local_rank() const {
  return state_->machine_ranks.before + own_coordinates(*state_).local;
}
int World::local_size() const { return std::max(state_->host_ranks, state_->machine_ranks.all); }
bool World::shares_cores() const { return state_->same_cores; }
int World::host() const { return own_coordinates(*state_).host; }
int World::node() const { return own_coordinates(*state_).node; }

int World::nodes() const {
  int last = 0;
  for (const RankCoordinates& member : state_->coordinates) last = std::max(last, member.node);
  return last + 1;
}

std::string World::backend() const { return state_->transport->name(); }

const std::string& World::device_note() const { return state_->device_note; }

std::string World::describe() const {
  std::set<int> hosts;
  for (const RankCoordinates& member : state_->coordinates) hosts.insert(member.host);
  const auto count = [](int64_t n, const char* what) {
    return concat(n, " ", what, n == 1 ? "" : "s");
  };
  std::string device = world_->device_backend();
  if (size() == 1 && device == "staged") device.clear();
  return concat(count(size(), "rank"), " over ", backend(), " on ",
                count(static_cast<int64_t>(hosts.size()), "host"), ", ", count(nodes(), "node"),
                device.empty() ? "" : ", GPUs over ", device);
}

Traffic World::traffic() const {
  state_->worker.run([] {});
  const std::lock_guard lock(state_->traffic_mutex);
  return state_->traffic;
}

void World::on_termination(void (*request)()) {
  const bool apart = backend() == "mpi" && state_->board_ranks < size();
  if (state_->watchdog && !apart) state_->watchdog->on_termination(request);
}

void World::set_worker_cores(int first, int count) { state_->worker.set_cores(first, count); }

std::unique_ptr<World> make_world(const WorldOptions& options) {
  const LauncherInfo launcher = detect_launcher();
  std::string backend = options.backend;
  if (backend == "auto")
    backend = launcher.kind == Launcher::kMpi   ? "mpi"
              : launcher.kind == Launcher::kTcp ? "tcp"
                                                : "single";
  std::unique_ptr<Transport> transport;
  if (backend == "mpi") {
    const InitWatch watch(launcher, options.comm.timeout_s, options.announce_loss);
    transport = make_mpi_transport();
  } else if (backend == "tcp")
    transport = make_tcp_transport(tcp_options_from_environment(options.comm.timeout_s));
  else if (backend == "single")
    transport = make_single_transport();
  else
    fail_input("comm.backend \"", backend,
               "\" is not supported; supported: auto, mpi, tcp, single");
  // The configuration was read for the launcher's number of ranks.
  if (transport->size() != launcher.ranks)
    fail_input(launcher.kind == Launcher::kNone ? "no known launcher" : launcher.name, " started ",
               launcher.ranks, launcher.ranks == 1 ? " process" : " processes",
               " but comm.backend ", backend, " sees ", transport->size(), "; ",
               backend == "mpi" ? "use the launcher of the MPI library this program is linked with "
                                  "(mpirun; Slurm: srun --mpi=pmix), or comm.backend auto"
                                : "use comm.backend auto");
  return std::make_unique<World>(
      connect_rank(std::move(transport), options.comm, options.build_id, options.announce_loss));
}

}  // namespace trireme
