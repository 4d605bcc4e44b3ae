// Collectives of groups whose nodes have shared windows, and the creation of windows.
#include <algorithm>
#include <cstring>

#include "parallel/comm/collectives/collectives.h"
#include "parallel/comm/collectives/node_window.h"

namespace trireme {
namespace {

// Large enough that the two waits of a piece do not count, small enough that the caller's piece is
// still in cache when its reduced form returns (docs/design/communication.md).
constexpr int64_t kReducePiece = int64_t{1} << 19;
// With more ranks than cores every wait costs a context switch, so pieces are larger.
constexpr int64_t kOversubscribedPiece = int64_t{1} << 21;

int64_t slot_bytes(const RankState& state) {
  const int64_t wanted = state.oversubscribed ? kOversubscribedPiece : kReducePiece;
  return round_up(
      std::clamp<int64_t>(wanted, 64, std::max<int64_t>(64, state.options.window_bytes)), 64);
}

const std::vector<int>& own_node(const GroupState& group) {
  return group.nodes[static_cast<size_t>(group.node)];
}

// Shared memory of this rank's node; empty with a reason in `problem` if it cannot be created.
SharedMemory make_memory(Operation& op, std::string& problem) {
  GroupState& group = op.group();
  const std::vector<int>& node = own_node(group);
  SharedMemory memory;
  const int64_t bytes =
      NodeWindow::required_bytes(static_cast<int>(node.size()), slot_bytes(*group.rank_state));
  try {
    if (group.local == 0) memory = SharedMemory::create(bytes);
  } catch (const Error& e) {
    problem = e.what();
  }
  const std::vector<std::string> addresses = gather_strings(op, memory.address());
  const std::string& address = addresses[static_cast<size_t>(node[0])];
  if (group.local != 0 && !address.empty()) try {
      memory = SharedMemory::attach(address, bytes);
    } catch (const Error& e) {
      problem = e.what();
    }
  return memory;
}

}  // namespace

bool ensure_window(Operation& op) {
  GroupState& group = op.group();
  using State = GroupState::WindowState;
  if (group.window_state != State::kUnknown) return group.window_state == State::kReady;
  Operation setup(group, CommKind::kControl, 0);
  --group.sequence;
  const RankState& rank_state = *group.rank_state;
  std::string problem;
  SharedMemory memory = make_memory(setup, problem);
  const std::vector<std::string> problems = gather_strings(setup, problem);
  memory.close_address();
  group.window_state = State::kReady;
  for (size_t r = 0; r < problems.size(); ++r) {
    if (problems[r].empty()) continue;
    group.window_state = State::kImpossible;
    group.window_problem = concat("rank ", r, ": ", problems[r]);
    return false;
  }
  std::vector<int> world_ranks;
  for (int r : own_node(group)) world_ranks.push_back(group.members[static_cast<size_t>(r)]);
  group.window =
      std::make_unique<NodeWindow>(std::move(memory), std::move(world_ranks), group.local,
                                   slot_bytes(rank_state), !rank_state.oversubscribed);
  return true;
}

void node_all_reduce(Operation& op, DType dtype, ReduceOp reduce, void* data, int64_t n) {
  GroupState& group = op.group();
  size_t min_ranks = group.members.size();  // ranks of the smallest node
  for (const auto& node : group.nodes) min_ranks = std::min(min_ranks, node.size());
  NodeWindow::BetweenNodes between;
  std::vector<int> ring;  // one rank of each node: those with this rank's local index
  if (group.nodes.size() > 1) {
    if (static_cast<size_t>(group.local) < min_ranks)
      for (const auto& node : group.nodes) ring.push_back(node[static_cast<size_t>(group.local)]);
    between = [&](void* slice, int64_t count) {
      ring_all_reduce(op, dtype, reduce, slice, count, ring, group.node);
    };
  }
  op.count_window(group.window->all_reduce(dtype, reduce, data, n, static_cast<int>(min_ranks),
                                           between, op.info(), op.liveness()));
}

bool window_reduce_scatter_pieces(Operation& op, DType dtype, ReduceOp reduce, void* data,
                                  int64_t n) {
  NodeWindow& window = *op.group().window;
  if (!window.fits(dtype_size(dtype))) return false;
  op.count_window(window.reduce_scatter(dtype, reduce, data, n, op.info(), op.liveness()));
  return true;
}

bool window_all_gather_pieces(Operation& op, int64_t width, void* data, int64_t n) {
  NodeWindow& window = *op.group().window;
  if (!window.fits(width)) return false;
  op.count_window(window.all_gather(width, data, n, op.info(), op.liveness()));
  return true;
}

}  // namespace trireme
