#include "training/sites/local_sites.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <map>
#include <thread>

#include "engine/core/cpu.h"
#include "engine/io/atomic_file.h"
#include "engine/observe/log.h"
#include "parallel/child_process.h"
#include "training/sites/rendezvous.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

constexpr auto kPoll = std::chrono::milliseconds(50);

// File that only this user can read, removed at the end.
class SecretFile {
 public:
  SecretFile(const std::string& folder, const std::string& secret)
      : path_(folder + "/sites.secret") {
    fs::create_directories(folder);
    unlink(path_.c_str());
    const int file =
        open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    const std::string line = secret + "\n";
    const bool written = file >= 0 && write(file, line.data(), line.size()) == std::ssize(line);
    const int reason = errno;
    if (file >= 0) close(file);
    if (!written) fail_input("cannot write ", path_, ": ", std::strerror(reason));
  }
  ~SecretFile() { unlink(path_.c_str()); }
  SecretFile(const SecretFile&) = delete;
  SecretFile& operator=(const SecretFile&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// Serves in a thread until it is destroyed.
class ServedRendezvous {
 public:
  ServedRendezvous() : hub_({}), thread_([this] { serve(); }) {}
  ~ServedRendezvous() {
    stop_ = true;
    thread_.join();
  }
  ServedRendezvous(const ServedRendezvous&) = delete;
  ServedRendezvous& operator=(const ServedRendezvous&) = delete;
  const Rendezvous& hub() const { return hub_; }

 private:
  void serve() {
    try {
      hub_.run(stop_);
    } catch (const std::exception& e) {
      log_warning("the rendezvous has failed: ", e.what());
    }
  }
  Rendezvous hub_;
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

bool has_lost_its_reader(int output) {
  pollfd state{output, 0, 0};
  return poll(&state, 1, 0) > 0 && (state.revents & POLLERR) != 0;
}

// Waits for all children, and passes signals on to them. site_of: by process.
int wait_for_all(std::map<int, int>& site_of, const std::function<int()>& take_signal) {
  int result = 0;
  bool lost_reader = false;
  while (!site_of.empty()) {
    int status = 0;
    const int process = waitpid(-1, &status, WNOHANG);
    if (process > 0 && site_of.contains(process)) {
      const int code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
      if (code != 0) log_warning("site ", site_of[process], " has ended with exit code ", code);
      if (result == 0) result = code;
      site_of.erase(process);
      continue;
    }
    int signal = take_signal();
    if (!lost_reader && has_lost_its_reader(STDOUT_FILENO)) {
      lost_reader = true;
      signal = SIGUSR2;
    }
    if (signal != 0)
      for (const auto& [child, site] : site_of) kill(child, signal);
    std::this_thread::sleep_for(kPoll);
  }
  return result;
}

}  // namespace

std::vector<std::string> keys_of_local_site(const LocalSites& sites, int site,
                                            const std::string& rendezvous,
                                            const std::string& secret_file) {
  std::vector<std::string> keys{concat("outer.sites=", sites.sites), concat("outer.site=", site),
                                concat("outer.rendezvous=", rendezvous),
                                concat("outer.secret_file=", secret_file),
                                concat("output_dir=", sites.output_dir, "/site-", site)};
  if (sites.divides_cores)
    keys.push_back(concat("cpu.threads_per_rank=",
                          std::max(1, available_cores() / (sites.sites * sites.ranks))));
  return keys;
}

int run_local_sites(const LocalSites& sites, const std::function<int()>& take_signal) {
  const ServedRendezvous rendezvous;
  const SecretFile secret(sites.output_dir, rendezvous.hub().secret());
  const int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
  std::map<int, int> site_of;
  for (int site = 0; site < sites.sites; ++site) {
    ChildCommand child{.words = sites.command, .blocks_requests = true};
    for (const std::string& key :
         keys_of_local_site(sites, site, rendezvous.hub().address(), secret.path())) {
      child.words.emplace_back("--set");
      child.words.push_back(key);
    }
    if (site > 0 && nowhere >= 0) child.out = nowhere;
    site_of[start_child(child)] = site;
  }
  if (nowhere >= 0) close(nowhere);
  log_info(sites.sites, " sites, in ", sites.output_dir, "/site-0 to site-", sites.sites - 1,
           "; this console has the output of site 0 and the rounds of all");
  return wait_for_all(site_of, take_signal);
}

}  // namespace trireme
