// Assignment of GPUs to ranks and choice of the backend for their tensors.
#include <algorithm>
#include <exception>
#include <map>
#include <sstream>

#include "parallel/comm/collectives/collectives.h"
#include "parallel/comm/device/device_collectives.h"

namespace trireme {
namespace {

// Each rank's proposal, exchanged between all ranks.
struct Candidate {
  DeviceBackend wanted = DeviceBackend::kAuto;
  int device = 0;
  cuda::NcclStatus nccl;
};

std::string write_candidate(const Candidate& c) {
  return concat(static_cast<int>(c.wanted), "\n", c.device, "\n", c.nccl.version, "\n",
                c.nccl.bus_id, "\n", c.nccl.reason);
}

Candidate read_candidate(const std::string& line) {
  Candidate c;
  std::istringstream in(line);
  std::string wanted, device;
  std::getline(in, wanted);
  std::getline(in, device);
  c.wanted = static_cast<DeviceBackend>(std::stoi(wanted));
  c.device = std::stoi(device);
  std::getline(in, c.nccl.version);
  std::getline(in, c.nccl.bus_id);
  std::getline(in, c.nccl.reason);
  return c;
}

// "rank 0 (process 4711 on node17) and rank 2 (...) both use GPU 0000:17:00.0 (cuda:0)"; "" if
// every rank has its own GPU.
std::string shared_gpu(const RankState& state, const std::vector<Candidate>& all) {
  std::map<std::pair<int, std::string>, size_t> first;  // (host, bus id) -> rank
  for (size_t r = 0; r < all.size(); ++r) {
    const std::pair key{state.coordinates[r].host, all[r].nccl.bus_id};
    const auto [it, fresh] = first.try_emplace(key, r);
    if (!fresh)
      return concat(state.liveness.who(static_cast<int>(it->second)), " and ",
                    state.liveness.who(static_cast<int>(r)), " both use GPU ", key.second,
                    " (cuda:", all[r].device, ")");
  }
  return "";
}

// "rank 1 (process 4711 on node17) cannot use it: ..."; "" if every rank has NCCL.
std::string without_nccl(const RankState& state, const std::vector<Candidate>& all) {
  for (size_t r = 0; r < all.size(); ++r) {
    if (all[r].nccl.version.empty())
      return concat(state.liveness.who(static_cast<int>(r)),
                    " cannot use it: ", all[r].nccl.reason);
    if (all[r].nccl.version != all[0].nccl.version)
      return concat(state.liveness.who(static_cast<int>(r)), " has version ", all[r].nccl.version,
                    ", ", state.liveness.who(0), " has ", all[0].nccl.version);
  }
  return "";
}

struct Choice {
  DeviceBackend backend = DeviceBackend::kStaged;
  std::string reason = {};  // why tensors are staged without being configured so
};

// The same result on all ranks. Chooses the slow backend only where it is clearly intended.
Choice choose(const RankState& state, const std::vector<Candidate>& all) {
  for (size_t r = 1; r < all.size(); ++r)
    if (all[r].wanted != all[0].wanted)
      fail_input(state.liveness.who(static_cast<int>(r)),
                 " has a different comm.device_backend than ", state.liveness.who(0),
                 "; give all ranks the same configuration");
  const DeviceBackend wanted = all[0].wanted;
  if (wanted == DeviceBackend::kStaged) return {};
  // A single rank never sends anything.
  if (all.size() == 1 && wanted == DeviceBackend::kAuto) return {};
  const std::string missing = without_nccl(state, all);
  if (!missing.empty() && wanted == DeviceBackend::kNccl)
    fail_input("comm.device_backend nccl: ", missing,
               "; install NCCL everywhere or set comm.device_backend to staged");
  if (!missing.empty()) return {DeviceBackend::kStaged, concat("NCCL: ", missing)};
  const std::string shared = shared_gpu(state, all);
  const bool threads = !state.transport->ranks_are_processes();
  if (!shared.empty() && wanted == DeviceBackend::kAuto && threads)
    return {DeviceBackend::kStaged, shared};
  if (!shared.empty())
    fail_input(shared,
               ", and NCCL needs a GPU for each rank: start one rank per GPU, or set "
               "comm.device_backend to staged (through host memory, slow)");
  return {DeviceBackend::kNccl};
}

// An error here is reported to all ranks as the reason against NCCL.
cuda::NcclStatus probe(const cuda::Context& gpu) {
  cuda::NcclStatus status;
  if (&cuda::probe_nccl == nullptr) {
    status.reason = "built without NCCL";
    return status;
  }
  try {
    return cuda::probe_nccl(gpu);
  } catch (const std::exception& error) {
    status.reason = error.what();
    std::ranges::replace(status.reason, '\n', ' ');
    return status;
  }
}

}  // namespace

DeviceBackend parse_device_backend(const std::string& name) {
  if (name == "auto") return DeviceBackend::kAuto;
  if (name == "nccl") return DeviceBackend::kNccl;
  if (name == "staged") return DeviceBackend::kStaged;
  fail_input("comm.device_backend \"", name, "\" is not supported; supported: auto, nccl, staged");
}

DeviceAttachment Communicator::attach(cuda::Context& gpu, DeviceBackend backend) {
  RankState& state = *state_->rank_state;
  TRIREME_CHECK(size() == state.transport->size(), "a device is attached to the world, not to \"",
                name(), "\"");
  TRIREME_CHECK(!state.device, "a device is attached already");
  Candidate mine{backend, gpu.device, {}};
  // Skipped where NCCL is not needed, since the library is large.
  if (size() > 1 || backend == DeviceBackend::kNccl) mine.nccl = probe(gpu);
  std::vector<Candidate> all;
  for (const std::string& line : all_gather_strings(write_candidate(mine)))
    all.push_back(read_candidate(line));
  const Choice choice = choose(state, all);
  state.device_note = choice.reason;
  state.device = choice.backend == DeviceBackend::kNccl ? cuda::make_nccl_collectives(gpu, state)
                                                        : make_staged_collectives(gpu, state);
  DeviceAttachment attachment(state_->rank_state);
  state.device->open(state_);
  return attachment;
}

std::string Communicator::device_backend() const {
  const RankState& state = *state_->rank_state;
  return state.device ? state.device->name() : std::string();
}

DeviceAttachment::DeviceAttachment(std::shared_ptr<RankState> rank_state)
    : rank_state_(std::move(rank_state)), exceptions_(std::uncaught_exceptions()) {}

DeviceAttachment::DeviceAttachment(DeviceAttachment&& other) noexcept
    : rank_state_(std::exchange(other.rank_state_, nullptr)), exceptions_(other.exceptions_) {}

DeviceAttachment& DeviceAttachment::operator=(DeviceAttachment&& other) noexcept {
  std::swap(rank_state_, other.rank_state_);
  std::swap(exceptions_, other.exceptions_);
  return *this;
}

DeviceAttachment::~DeviceAttachment() { detach(); }

void DeviceAttachment::detach() noexcept {
  if (!rank_state_) return;
  RankState& state = *rank_state_;
  if (std::uncaught_exceptions() > exceptions_) {
    state.liveness.report_lost(
        concat("rank ", state.transport->rank(), " stopped because of an error"));
    state.transport->broadcast_loss();
  }
  if (state.liveness.lost()) state.device->give_up();
  state.device.reset();
}

}  // namespace trireme
