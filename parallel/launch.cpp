#include "parallel/launch.h"

#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <sstream>

#include "engine/core/cpu.h"
#include "engine/observe/log.h"
#include "parallel/child_process.h"
#include "parallel/comm/launcher_environment.h"
#include "parallel/comm/transport/reserved_port.h"
#include "parallel/comm/transport/shared_secret.h"
#include "parallel/comm/transport/transport.h"
#include "parallel/launch_checks.h"

namespace trireme {
namespace {

// First executable of this name on the search path; empty when there is none.
std::string find_program(const std::string& name) {
  std::istringstream folders(executable_search_path());
  for (std::string folder; std::getline(folders, folder, ':');) {
    std::string candidate = concat(folder.empty() ? "." : folder, "/", name);
    if (access(candidate.c_str(), X_OK) == 0 && !std::filesystem::is_directory(candidate))
      return candidate;
  }
  return {};
}

std::vector<std::string> srun_command(int ranks, const std::vector<std::string>& command,
                                      const GroupPosition& position) {
  std::vector<std::string> line{find_program("srun")};
  if (line[0].empty())
    fail_input(
        "--launcher srun: srun was not found on the search path; --launcher local starts "
        "all ranks on this machine");
  for (const std::string& word : {concat("--ntasks=", ranks), std::string("--mpi=pmix"),
                                  std::string("--kill-on-bad-exit=1"), std::string("--input=none")})
    line.push_back(word);
  if (position.groups > 1) {
    const int machines = slurm_machines() / position.groups;
    line.push_back(concat("--nodes=", machines));
    line.push_back(concat("--relative=", position.number * machines));
  }
  line.insert(line.end(), command.begin(), command.end());
  return line;
}

}  // namespace

LaunchHost this_host() { return {geteuid() == 0, find_program("mpirun")}; }

std::vector<std::string> mpirun_command(const LaunchHost& host, int ranks,
                                        const std::vector<std::string>& command) {
  TRIREME_CHECK(ranks >= 1 && !command.empty(), "mpirun needs a command and at least 1 rank, got ",
                ranks);
  if (host.mpirun.empty())
    fail_input("--ranks ", ranks, ": mpirun was not found on the search path; install Open MPI ",
               "(Debian: openmpi-bin) or start the ranks with another launcher");
  std::vector<std::string> line{host.mpirun};
  // Open MPI refuses to run as root without this option; in a container root is often the only
  // user.
  if (host.root) line.push_back("--allow-run-as-root");
  // The engine pins its threads itself (pin_rank); binding to one core would confine the team to
  // it.
  line.insert(line.end(), {"--bind-to", "none"});
  // mpirun counts physical cores as slots, fewer than the processors a rank may use, and would
  // refuse more ranks than slots.
  line.insert(line.end(), {"--map-by", ":OVERSUBSCRIBE"});
  // No rank reads standard input; mpirun would consume the calling script's.
  line.insert(line.end(), {"--stdin", "none"});
  line.insert(line.end(), {"-n", text(ranks)});
  line.insert(line.end(), command.begin(), command.end());
  return line;
}

void join_console() {
  if (detect_launcher().kind != Launcher::kNone)
    console_use_launcher_terminal(handed_down_console());
}

void claim_ranks(int ranks) {
  const bool started = !handed_down_mpirun().empty() || !leader_from_environment().empty();
  if (started || runs_under_mpi_launcher()) return;
  const std::string ignored = forget_launchers();
  if (!ignored.empty())
    log_warning("--ranks ", ranks, " starts its own ranks: ignoring ", ignored,
                " in the environment; under a launcher leave --ranks out");
}

bool must_start_ranks(int ranks) {
  join_console();
  if (ranks < 0) fail_input("--ranks ", ranks, " must be at least 1");
  const LauncherInfo launcher = detect_launcher();
  if (launcher.kind != Launcher::kNone) {
    if (ranks > 0 && ranks != launcher.ranks)
      fail_input("--ranks ", ranks, " disagrees with ", launcher.name, ", which started ",
                 launcher.ranks, "; leave --ranks out or make them equal");
    return false;
  }
  if (const std::string mpirun = handed_down_mpirun(); ranks > 1 && !mpirun.empty())
    fail_input("--ranks ", ranks, ": ", mpirun,
               " started a rank without the variables of Open MPI ",
               "(OMPI_COMM_WORLD_SIZE); put Open MPI's mpirun first on the search path, or start ",
               "the ranks with another launcher");
  if (ranks > 1 && !has_mpi()) fail_input("--ranks ", ranks, ": ", kWithoutMpi);
  return ranks > 1;
}

void prepare_for_mpirun(const std::string& mpirun, int ranks) {
  check_mpirun(mpirun, ranks);
  if (const int machines = slurm_machines(); machines > 1)
    log_warning("--ranks ", ranks, " starts all ranks on this machine; for those of the other ",
                machines - 1, " machines of the Slurm allocation use srun in its place");
  forget_allocation();
  hand_down_mpirun(mpirun);
  hand_down_console(console_target());
}

void ensure_ranks(int ranks, int argc, char** argv) {
  if (!must_start_ranks(ranks)) return;
  std::vector<std::string> line = mpirun_command(this_host(), ranks, own_command(argc, argv));
  prepare_for_mpirun(line[0], ranks);
  replace_process(std::move(line));
}

std::vector<std::string> own_command(int argc, char** argv) {
  std::vector<std::string> command(argv, argv + argc);
  std::error_code error;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", error);
  if (!error) command[0] = self.string();  // argv[0] may be relative to another folder
  return command;
}

RankLauncher rank_launcher(const std::string& name) {
  if (name == "auto") return slurm_machines() > 1 ? RankLauncher::kSrun : RankLauncher::kLocal;
  if (name == "local") return RankLauncher::kLocal;
  if (name == "mpirun") return RankLauncher::kMpirun;
  if (name == "srun") return RankLauncher::kSrun;
  fail_input("--launcher \"", name, "\" is not supported; supported: auto, local, mpirun, srun");
}

void check_groups(RankLauncher launcher, int groups) {
  if (groups == 1 || launcher == RankLauncher::kLocal) return;
  constexpr char kWayOut[] =
      "--launcher local starts all on this machine; or start one server for each replica and "
      "`trireme route` in front of them";
  if (launcher == RankLauncher::kMpirun)
    fail_input("--launcher mpirun: it would put the ranks of all ", groups,
               " replicas on the same cores and GPUs; ", kWayOut);
  if (const int machines = slurm_machines(); machines == 0 || machines % groups != 0)
    fail_input("--launcher srun: each of ", groups, " replicas needs machines of its own, and the ",
               "allocation has ", machines, "; ", kWayOut);
}

std::vector<RankCommand> rank_commands(RankLauncher launcher, int ranks,
                                       const std::vector<std::string>& command,
                                       const std::string& leader, const GroupPosition& position) {
  const std::pair<std::string, std::string> leader_variable{kLeaderVariable, leader};
  if (launcher == RankLauncher::kSrun)
    return {{srun_command(ranks, command, position), {leader_variable}}};
  if (launcher == RankLauncher::kMpirun) {
    std::vector<std::string> line = mpirun_command(this_host(), ranks, command);
    line.insert(line.begin() + 1, {"-x", kLeaderVariable});  // also on other machines
    return {{std::move(line), {leader_variable}}};
  }
  const auto port = std::make_shared<const ReservedPort>();
  std::vector<RankCommand> out;
  out.reserve(static_cast<size_t>(ranks));
  const std::string all = concat(position.number * ranks, "/", position.groups * ranks);
  const std::string secret = make_secret();
  for (int rank = 0; rank < ranks; ++rank) {
    const bool listens = rank == 0 && ranks > 1;  // a single rank would not close it
    out.push_back({command,
                   {leader_variable,
                    {kMachineRanksVariable, all},
                    {"MASTER_ADDR", "127.0.0.1"},
                    {"MASTER_PORT", text(port->number())},
                    {"RANK", text(rank)},
                    {"WORLD_SIZE", text(ranks)},
                    {kCommSecretVariable, secret},
                    {kListenAddressVariable, ""},
                    {kListenerVariable, listens ? text(kInheritedListener) : ""},
                    {"TORCHELASTIC_USE_AGENT_STORE", "False"}},
                   port,
                   listens});
  }
  return out;
}

int start_process(const RankCommand& command, int out, int err) {
  return start_child({.words = command.words,
                      .variables = command.variables,
                      .out = out,
                      .err = err,
                      .listener = command.listens ? command.port->descriptor() : -1});
}

void end_with_parent() { prctl(PR_SET_PDEATHSIG, SIGKILL); }

int pin_rank(World& world, int threads_per_rank) {
  const int cores = available_cores();
  const bool divide = world.shares_cores();
  const int share = divide ? std::max(1, cores / world.local_size()) : cores;
  const int threads = threads_per_rank > 0 ? threads_per_rank : share;
  const int first = divide ? world.local_rank() * share % cores : 0;
  // Asynchronous operations may use any core of the rank's share, also while the rank computes.
  world.set_worker_cores(first, share);
  pin_team(first, threads);
  return threads;
}

}  // namespace trireme
