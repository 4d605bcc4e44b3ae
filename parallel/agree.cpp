#include "parallel/agree.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "engine/observe/log.h"
#include "parallel/comm/world.h"

namespace trireme {
namespace {

constexpr auto kLauncherTakes =
    std::chrono::seconds(5);  // a launcher's time to end all ranks after the first failure

// Reports each distinct message of `said` on the lowest rank that has it. Entry of a rank: "+"
// without an error, else "-" and the message.
void speak(const std::vector<std::string>& said, int rank) {
  const auto own = static_cast<size_t>(rank);
  if (said[own].front() != '-') return;
  for (size_t r = 0; r < own; ++r)
    if (said[r] == said[own]) return;
  report_failure(concat(rank == 0 ? "" : concat("rank ", rank, ": "), said[own].substr(1)));
}

}  // namespace

void agreed(Communicator& group, const std::function<void()>& f) {
  if (group.size() == 1) return f();
  std::string mine = "+";
  try {
    f();
  } catch (const InputError& e) {
    mine = concat("-", e.what());
  }
  const std::vector<std::string> said = group.all_gather_strings(mine);
  const auto failed =
      std::ranges::find_if(said, [](const std::string& s) { return s.front() == '-'; });
  if (failed == said.end()) return;
  speak(said, group.rank());
  try {
    group.barrier();  // no rank exits before every message is written
  } catch (const Error&) {
    // Some rank left during the barrier: it had passed the barrier, or it died. Neither changes the
    // result.
  }
  throw ReportedError(failed->substr(1));
}

std::string from_rank_0(Communicator& group, const std::function<std::string()>& f) {
  std::string value;
  agreed(group, [&] {
    if (group.rank() == 0) value = f();
  });
  return group.size() == 1 ? value : group.broadcast_string(value, 0);
}

void before_connecting(const std::function<void()>& f) {
  try {
    set_log_rank(detect_launcher().rank);  // messages common to all ranks are logged by rank 0 only
    f();
  } catch (const InputError&) {
    if (detect_launcher().rank != 0) std::this_thread::sleep_for(kLauncherTakes);
    throw;
  }
}

}  // namespace trireme
