// Collective operation in progress in a group: its identity, its byte counts, and its access to the
// transport.
#pragma once

#include <mutex>

#include "parallel/comm/rank_state.h"

namespace trireme {

class NodeWindow;

struct GroupState {
  std::shared_ptr<RankState> rank_state;
  std::string name;
  int context = 0;           // first part of every tag; unique among the groups of a rank
  std::vector<int> members;  // world ranks
  int rank = 0;              // index of this rank in members

  std::vector<std::vector<int>> nodes;  // group ranks of each node
  int node = 0;                         // index of this rank's node in nodes
  int local = 0;                        // index of this rank in nodes[node]

  enum class WindowState { kUnknown, kReady, kImpossible };
  WindowState window_state = WindowState::kUnknown;  // equal on all ranks of the group
  std::string window_problem;
  std::unique_ptr<NodeWindow> window;

  uint64_t sequence = 0;  // number of the latest collective
  Traffic traffic;        // of operations; accessed only by the thread that runs one
  std::mutex posted_mutex;
  Traffic posted_traffic;  // posted messages and GPU calls, counted by the thread that starts them

  GroupState();
  ~GroupState();
  int size() const { return static_cast<int>(members.size()); }
};

// Complete tag of a message in a group.
int message_tag(const GroupState& group, int tag);
// Passes a message to the transport and counts it. `peer` is a group rank. memory: keeps the data
// alive until the message has been transferred. device: remaining device work. Both may be null.
Work post_message(const std::shared_ptr<GroupState>& group, CommKind kind, void* data,
                  int64_t bytes, int peer, int tag, std::shared_ptr<const void> memory = nullptr,
                  std::shared_ptr<DevicePart> device = nullptr);

// Fills nodes, node and local from the members' coordinates.
void arrange_nodes(GroupState& group);

class Operation {
 public:
  // Throws if a rank is already lost: no collective starts after a peer's death.
  Operation(GroupState& group, CommKind kind, int64_t payload_bytes);
  ~Operation();
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;

  GroupState& group() { return group_; }
  int rank() const { return group_.rank; }
  int size() const { return group_.size(); }
  int collective_tag() const { return tag_; }
  OpInfo& info() { return info_; }
  Liveness& liveness() { return group_.rank_state->liveness; }
  std::byte* scratch(size_t which, int64_t bytes) {
    return group_.rank_state->scratch(which, bytes);
  }

  // At most two parts in each direction. Their `to` and `from` are group ranks; the group's context
  // is added to their tags. Skips parts of 0 bytes unless `empty_too`.
  void exchange(std::span<const SendPart> sends, std::span<const RecvPart> recvs,
                bool empty_too = false);
  // One step of a collective: one message in each direction.
  void step(int to, const void* out, int64_t out_bytes, int from, void* in, int64_t in_bytes);
  void count_window(int64_t bytes) { counter_->window_bytes += bytes; }

 private:
  GroupState& group_;
  OpInfo info_;
  Traffic::Counter* counter_;
  Traffic::Counter before_;
  const OpInfo* outer_;  // the enclosing operation, if any
  int tag_;
  std::chrono::steady_clock::time_point start_;
};

}  // namespace trireme
