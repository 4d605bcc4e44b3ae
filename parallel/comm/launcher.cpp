// The one place that reads the variables launchers set.
#include "parallel/comm/launcher.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "engine/observe/log.h"
#include "parallel/comm/launcher_environment.h"

namespace trireme {
namespace {

constexpr const char* kConsole = "TRIREME_CONSOLE";  // "120 shared": columns, and stderr as well

std::string variable(const char* name) {
  const char* value = std::getenv(name);  // NOLINT: before any thread is started
  return value == nullptr ? "" : value;
}

int number(const char* name, int lowest) {
  const std::string value = variable(name);
  char* end = nullptr;
  const long parsed = std::strtol(value.c_str(), &end, 10);
  if (value.empty() || *end != '\0' || parsed < lowest || parsed > (1 << 20))
    fail_input("the launcher's variable ", name, "=\"", value, "\" is not a number of at least ",
               lowest);
  return static_cast<int>(parsed);
}

constexpr size_t kMinSecret = 16, kMaxSecret = 4096;  // characters

// The secret of a run over TCP; empty: none is given.
std::string comm_secret() {
  std::string secret = variable(kCommSecretVariable), from = kCommSecretVariable;
  const std::string path = variable(kCommSecretFileVariable);
  if (secret.empty() && path.empty()) return {};
  if (secret.empty()) {
    from = path;
    std::error_code error;
    const auto status = std::filesystem::status(path, error);
    std::ifstream file(path);
    if (!std::filesystem::is_regular_file(status) || !std::getline(file, secret))
      fail_input("the file of the ranks' secret ", path, " (", kCommSecretFileVariable,
                 ") cannot be read");
    constexpr auto kOthers = std::filesystem::perms::others_read;
    if ((status.permissions() & kOthers) != std::filesystem::perms::none)
      log_warning("everyone on this machine may read the secret in ", path, ": chmod 600 ", path);
  }
  if (secret.size() < kMinSecret || secret.size() > kMaxSecret)
    fail_input("the ranks' secret in ", from, " has ", secret.size(), " characters; give it ",
               kMinSecret, " to ", kMaxSecret, ", as of openssl rand -hex 32");
  return secret;
}

LauncherInfo mpi(const std::string& name, const char* size, const char* rank) {
  return {Launcher::kMpi, name, number(size, 1), number(rank, 0)};
}

}  // namespace

LauncherInfo detect_launcher() {
  if (!variable("OMPI_COMM_WORLD_SIZE").empty())
    return mpi("mpirun", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK");
  if (!variable("PMI_SIZE").empty()) return mpi("mpiexec", "PMI_SIZE", "PMI_RANK");
  // Variables of a job step: a batch script that runs the program without srun has none.
  const bool own_rendezvous = !variable("MASTER_ADDR").empty() && !variable("RANK").empty();
  if (!variable("SLURM_STEP_NUM_TASKS").empty() && !own_rendezvous &&
      number("SLURM_STEP_NUM_TASKS", 1) > 1)
    return mpi("srun", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID");
  if (!variable("WORLD_SIZE").empty() && !variable("RANK").empty() &&
      !variable("MASTER_ADDR").empty()) {
    LauncherInfo info{Launcher::kTcp, "torchrun variables", number("WORLD_SIZE", 1),
                      number("RANK", 0)};
    if (info.rank >= info.ranks)
      fail_input("the launcher's variables say RANK=", info.rank, " of WORLD_SIZE=", info.ranks);
    return info;
  }
  return {};
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
               "\" does not say which of how many ranks are this group's");
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
  options.master_port = number("MASTER_PORT", 1);
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
