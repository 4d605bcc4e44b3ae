#include "parallel/launch.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <sstream>

#include "engine/core/cpu.h"
#include "parallel/comm/launcher_environment.h"

namespace trireme {
namespace {

// The first executable of this name on the search path; empty when there is none.
std::string find_program(const std::string& name) {
  std::istringstream folders(executable_search_path());
  for (std::string folder; std::getline(folders, folder, ':');) {
    std::string candidate = concat(folder.empty() ? "." : folder, "/", name);
    if (access(candidate.c_str(), X_OK) == 0 && !std::filesystem::is_directory(candidate))
      return candidate;
  }
  return {};
}

}  // namespace

LaunchHost this_host() { return {geteuid() == 0, find_program("mpirun")}; }

std::vector<std::string> mpirun_command(const LaunchHost& host, int ranks,
                                        const std::vector<std::string>& command) {
  TRIREME_CHECK(ranks >= 1 && !command.empty(), "mpirun of ", ranks, " ranks");
  if (host.mpirun.empty())
    fail_input("--ranks ", ranks, ": mpirun was not found on the search path; install Open MPI ",
               "(Debian: openmpi-bin) or start the ranks with another launcher");
  std::vector<std::string> line{host.mpirun};
  // Open MPI refuses to start as root unless told; in a container there is often nobody else.
  if (host.root) line.push_back("--allow-run-as-root");
  // The engine pins its threads itself (pin_rank); a binding to one core would confine the team.
  line.insert(line.end(), {"--bind-to", "none"});
  // mpirun counts physical cores as slots, fewer than the processors a rank may use, and would
  // refuse more ranks than that.
  line.insert(line.end(), {"--map-by", ":OVERSUBSCRIBE"});
  // No rank reads the standard input; mpirun would swallow what a calling script still needs.
  line.insert(line.end(), {"--stdin", "none"});
  line.insert(line.end(), {"-n", text(ranks)});
  line.insert(line.end(), command.begin(), command.end());
  return line;
}

void join_console() {
  if (detect_launcher().kind != Launcher::kNone) console_behind_launcher(handed_down_console());
}

void ensure_ranks(int ranks, int argc, char** argv) {
  const LauncherInfo launcher = detect_launcher();
  if (launcher.kind != Launcher::kNone) {
    join_console();
    if (ranks > 0 && ranks != launcher.ranks)
      fail_input("--ranks ", ranks, " disagrees with ", launcher.name, ", which started ",
                 launcher.ranks, "; leave --ranks out or make them equal");
    return;
  }
  if (ranks < 0) fail_input("--ranks ", ranks, " must be at least 1");
  if (ranks <= 1) return;
  std::vector<std::string> command(argv, argv + argc);
  std::error_code error;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", error);
  if (!error) command[0] = self.string();  // argv[0] may be relative to another folder
  std::vector<std::string> line = mpirun_command(this_host(), ranks, command);
  std::vector<char*> arguments;
  arguments.reserve(line.size() + 1);
  for (std::string& word : line) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  hand_down_console(console_target());
  execv(arguments[0], arguments.data());
  throw Error(concat("cannot start ", line[0], ": ", std::strerror(errno)));
}

int pin_rank(World& world, int threads_per_rank) {
  const int cores = available_cores();
  const bool divide = world.shares_cores();
  const int share = divide ? std::max(1, cores / world.local_size()) : cores;
  const int threads = threads_per_rank > 0 ? threads_per_rank : share;
  const int first = divide ? world.local_rank() * share % cores : 0;
  // Asynchronous operations may use any core of the rank's share, also while it computes.
  world.set_worker_cores(first, share);
  pin_team(first, threads);
  return threads;
}

}  // namespace trireme
