// Access to launchers' environment variables; no other source reads them.
#include "parallel/comm/launcher.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "parallel/comm/launcher_environment.h"
#include "parallel/comm/secret_file.h"

namespace trireme {
namespace {

constexpr int kMaxPort = 65535;
constexpr const char* kMpirun = "TRIREME_MPIRUN";
constexpr const char* kConsole = "TRIREME_CONSOLE";  // "120 shared": columns, and stderr as well

std::string variable(const char* name) {
  const char* value = std::getenv(name);  // NOLINT: before any thread is started
  return value == nullptr ? "" : value;
}

int number(const char* name, int lowest, int highest = 1 << 20) {
  const std::string value = variable(name);
  char* end = nullptr;
  const long parsed = std::strtol(value.c_str(), &end, 10);
  if (value.empty() || *end != '\0' || parsed < lowest || parsed > highest)
    fail_input("the launcher's variable ", name, "=\"", value, "\" is not a number from ", lowest,
               " to ", highest,
               "; correct it, unset it, or give --ranks N, which ignores launchers");
  return static_cast<int>(parsed);
}

// Secret of a run over TCP; empty: none is set.
std::string comm_secret() {
  const std::string secret = variable(kCommSecretVariable);
  const std::string path = variable(kCommSecretFileVariable);
  if (secret.empty()) return path.empty() ? path : read_secret_file(path);
  check_secret_size(secret, kCommSecretVariable);
  return secret;
}

constexpr const char* kUnsetOrRanks =
    "; unset both for a single process, or give --ranks N, which ignores them";

LauncherInfo launched(Launcher kind, const std::string& name, const char* size, const char* rank) {
  LauncherInfo info{kind, name, number(size, 1), number(rank, 0)};
  if (info.rank >= info.ranks)
    fail_input("the launcher's variables are ", rank, "=", info.rank, " and ", size, "=",
               info.ranks, ": ranks are numbered from 0 to ", info.ranks - 1, kUnsetOrRanks);
  return info;
}

LauncherInfo mpi(const std::string& name, const char* size, const char* rank) {
  return launched(Launcher::kMpi, name, size, rank);
}

// Reads RANK and WORLD_SIZE, which make this process a rank. With only some of the variables set,
// the process would train alone while the others run, or wait for ranks that it cannot reach.
LauncherInfo tcp() {
  const std::string rank = variable("RANK"), ranks = variable("WORLD_SIZE");
  if (rank.empty() && ranks.empty()) return {};
  if (rank.empty() || ranks.empty())
    fail_input("the launcher's variable ",
               rank.empty() ? "WORLD_SIZE=" : "RANK=", rank.empty() ? ranks : rank,
               " is set without ", rank.empty() ? "RANK" : "WORLD_SIZE",
               "; set all of RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, as torchrun does",
               kUnsetOrRanks);
  LauncherInfo info = launched(Launcher::kTcp, "torchrun variables", "WORLD_SIZE", "RANK");
  if (variable("MASTER_ADDR").empty()) {
    if (info.ranks == 1) return {};
    fail_input("the launcher's variables are RANK=", rank, " and WORLD_SIZE=", ranks,
               ", and MASTER_ADDR, where rank 0 listens, is not set; set it and MASTER_PORT",
               kUnsetOrRanks);
  }
  number("MASTER_PORT", 1, kMaxPort);
  return info;
}

// Variables that make a process a rank, for this program and for libraries.
constexpr std::array kRankVariables = {"OMPI_COMM_WORLD_SIZE",
                                       "OMPI_COMM_WORLD_RANK",
                                       "PMI_SIZE",
                                       "PMI_RANK",
                                       "PMIX_RANK",
                                       "SLURM_STEP_NUM_TASKS",
                                       "SLURM_PROCID",
                                       "WORLD_SIZE",
                                       "RANK",
                                       "LOCAL_RANK",
                                       "LOCAL_WORLD_SIZE",
                                       "TORCHELASTIC_USE_AGENT_STORE"};

// Further variables of mpirun's launch: with them a nested mpirun would join the outer one. All
// other OMPI_MCA_ and PMIX_MCA_ variables are user settings.
bool belongs_to_launch(std::string_view name) {
  constexpr std::array kPrefixes = {"OMPI_COMM_WORLD_", "PMI_", "PMIX_", "OMPI_MCA_ess",
                                    "OMPI_MCA_orte_ess"};
  constexpr std::array kNames = {"OMPI_MCA_orte_hnp_uri", "OMPI_MCA_orte_local_daemon_uri",
                                 "OMPI_MCA_pmix", "OMPI_UNIVERSE_SIZE"};
  const auto begins = [&](const char* prefix) { return name.starts_with(prefix); };
  return std::ranges::find(kRankVariables, name) != kRankVariables.end() ||
         std::ranges::find(kNames, name) != kNames.end() ||
         (std::ranges::any_of(kPrefixes, begins) && !name.starts_with("PMIX_MCA_"));
}

void unset_variables(bool (*chosen)(std::string_view name)) {
  std::vector<std::string> names;
  for (char** at = environ; *at != nullptr; ++at) {
    const std::string_view one = *at;
    if (const auto name = one.substr(0, one.find('=')); chosen(name)) names.emplace_back(name);
  }
  for (const std::string& name : names) ::unsetenv(name.c_str());
}

// Name and parent of a process; parent 0: none, or not visible.
struct ProcessName {
  std::string name;
  int parent = 0;
};

ProcessName process_name(int process) {
  std::ifstream in(concat("/proc/", process, "/stat"));
  std::string line;
  std::getline(in, line);
  // "17 (a name) S 1 ...": the name may itself contain parentheses.
  const size_t begin = line.find('('), end = line.rfind(')');
  if (begin == std::string::npos || end == std::string::npos) return {};
  ProcessName out{line.substr(begin + 1, end - begin - 1)};
  std::istringstream rest(line.substr(end + 1));
  char state = 0;
  rest >> state >> out.parent;
  return out;
}

}  // namespace

LauncherInfo detect_launcher() {
  if (!variable("OMPI_COMM_WORLD_SIZE").empty() || !variable("OMPI_COMM_WORLD_RANK").empty())
    return mpi("mpirun", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK");
  if (!variable("PMI_SIZE").empty()) return mpi("mpiexec", "PMI_SIZE", "PMI_RANK");
  // Only job steps set this variable: a batch script that runs the program without srun has none.
  const bool own_rendezvous = !variable("MASTER_ADDR").empty() && !variable("RANK").empty();
  if (!variable("SLURM_STEP_NUM_TASKS").empty() && !own_rendezvous &&
      number("SLURM_STEP_NUM_TASKS", 1) > 1)
    return mpi("srun", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID");
  return tcp();
}

bool runs_under_mpi_launcher() {
  const std::string tasks = variable("SLURM_STEP_NUM_TASKS");
  const bool many_tasks = !tasks.empty() && tasks != "1";
  if (variable("OMPI_COMM_WORLD_SIZE").empty() && variable("PMI_SIZE").empty() && !many_tasks)
    return false;
  // mpirun, mpiexec.hydra, hydra_pmi_proxy, orted, prterun, slurmstepd, ... A process that is not
  // visible (/proc with hidepid) may be such a launcher.
  constexpr std::array kNames = {"mpi",  "hydra_",     "pmi_", "orte",
                                 "prte", "slurmstepd", "pals", "flux"};
  int process = getppid();
  for (int above = 0; process > 0 && above < 64; ++above) {
    const ProcessName at = process_name(process);
    if (at.name.empty()) return true;
    const auto begins = [&](const char* name) { return at.name.starts_with(name); };
    if (std::ranges::any_of(kNames, begins)) return true;
    process = at.parent;
  }
  return false;
}

void forget_allocation() {
  unset_variables([](std::string_view name) { return name.starts_with("SLURM_"); });
}

std::string forget_launchers() {
  // A batch script has these two variables too and is not a rank.
  const std::string tasks = variable("SLURM_STEP_NUM_TASKS");
  const bool alone = tasks.empty() || tasks == "1";
  std::string shown;
  for (const char* name : kRankVariables) {
    const bool slurm = std::string_view(name).starts_with("SLURM_");
    if (variable(name).empty() || (slurm && alone)) continue;
    shown += concat(shown.empty() ? "" : ", ", name, "=", variable(name));
  }
  unset_variables(belongs_to_launch);
  return shown;
}

std::vector<std::string> environment_with(
    const std::vector<std::pair<std::string, std::string>>& changed) {
  std::vector<std::string> out;
  for (char** at = environ; *at != nullptr; ++at) {
    const std::string_view one = *at;
    const bool replaced = std::ranges::any_of(
        changed, [&](const auto& pair) { return one.substr(0, one.find('=')) == pair.first; });
    if (!replaced) out.emplace_back(one);
  }
  for (const auto& [name, value] : changed) out.push_back(concat(name, "=", value));
  return out;
}

std::string leader_from_environment() { return variable(kLeaderVariable); }

MachineRanks machine_ranks_from_environment() {
  const std::string value = variable(kMachineRanksVariable);
  MachineRanks out;
  if (value.empty()) return out;
  std::istringstream in(value);
  char slash = 0;
  in >> out.before >> slash >> out.all;
  if (!in || !in.eof() || slash != '/' || out.before < 0 || out.all <= out.before ||
      out.all > (1 << 20))
    fail_input("the variable ", kMachineRanksVariable, "=\"", value,
               "\": expected RANKS_BEFORE/ALL_RANKS, such as 2/6");
  return out;
}

std::string launcher_job() {
  for (const char* name : {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "PMI_JOBID"})
    if (std::string job = variable(name); !job.empty()) return job;
  const std::string job = variable("SLURM_JOB_ID");
  return job.empty() ? "" : concat(job, ".", variable("SLURM_STEP_ID"));
}

int slurm_machines() {
  return variable("SLURM_JOB_NUM_NODES").empty() ? 0 : number("SLURM_JOB_NUM_NODES", 1);
}

std::string executable_search_path() {
  const std::string path = variable("PATH");
  return path.empty() ? "/usr/local/bin:/usr/bin:/bin" : path;
}

std::string mpirun_session_folder() {
  for (const char* name : {"OMPI_MCA_orte_tmpdir_base", "TMPDIR", "TEMP", "TMP"})
    if (std::string folder = variable(name); !folder.empty()) return folder;
  return "/tmp";
}

void hand_down_mpirun(const std::string& path) {
  ::setenv(kMpirun, path.c_str(), 1);
  // mpirun's own look-ups fail without a search path.
  if (variable("PATH").empty()) ::setenv("PATH", executable_search_path().c_str(), 1);
  // mpirun fails without ssh and rsh, although it starts nothing on other machines here. Any
  // existing program satisfies it.
  ::setenv("OMPI_MCA_plm_rsh_agent", path.c_str(), 0);
}

std::string handed_down_mpirun() { return variable(kMpirun); }

void hand_down_console(const ConsoleTarget& target) {
  const std::string value = concat(target.columns, target.shared ? " shared" : " stdout");
  ::setenv(kConsole, value.c_str(), 1);
}

ConsoleTarget handed_down_console() {
  const std::string value = variable(kConsole);
  const long columns = std::strtol(value.c_str(), nullptr, 10);
  if (columns <= 0 || columns > 10000) return {};
  return {static_cast<int>(columns), value.ends_with(" shared")};
}

TcpOptions tcp_options_from_environment(double timeout_s) {
  TcpOptions options;
  options.master_address = variable("MASTER_ADDR");
  options.master_port = number("MASTER_PORT", 1, kMaxPort);
  // torchrun's agent itself listens on that port.
  if (variable("TORCHELASTIC_USE_AGENT_STORE") == "True") ++options.master_port;
  options.rank = number("RANK", 0);
  options.size = number("WORLD_SIZE", 1);
  options.timeout_s = timeout_s;
  options.secret = comm_secret();
  options.listen_address = variable(kListenAddressVariable);
  if (options.rank == 0 && !variable(kListenerVariable).empty())
    options.listener = number(kListenerVariable, 3);
  return options;
}

}  // namespace trireme
