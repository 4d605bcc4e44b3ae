#include "parallel/comm/collectives/operation.h"

#include <array>
#include <map>

#include "parallel/comm/collectives/node_window.h"

namespace trireme {
namespace {

// A tag is context * kTagsPerContext + (a user's tag, or kFirstCollectiveTag + sequence).
constexpr int kTagsPerContext = 2 * (Communicator::kMaxTag + 1);
constexpr int kFirstCollectiveTag = Communicator::kMaxTag + 1;

}  // namespace

GroupState::GroupState() = default;
GroupState::~GroupState() = default;

void arrange_nodes(GroupState& group) {
  std::map<int, size_t> index;  // node number of the world -> node of the group
  group.nodes.clear();
  for (int r = 0; r < group.size(); ++r) {
    const int world_rank = group.members[static_cast<size_t>(r)];
    const int node = group.rank_state->coordinates[static_cast<size_t>(world_rank)].node;
    const auto [it, fresh] = index.try_emplace(node, group.nodes.size());
    if (fresh) group.nodes.emplace_back();
    if (r == group.rank) {
      group.node = static_cast<int>(it->second);
      group.local = static_cast<int>(group.nodes[it->second].size());
    }
    group.nodes[it->second].push_back(r);
  }
}

int message_tag(const GroupState& group, int tag) { return group.context * kTagsPerContext + tag; }

Work post_message(const std::shared_ptr<GroupState>& group, CommKind kind, void* data,
                  int64_t bytes, int peer, int tag, std::shared_ptr<const void> memory,
                  std::shared_ptr<DevicePart> device) {
  RankState& rank_state = *group->rank_state;
  auto message = std::make_shared<PostedMessage>();
  message->sends = kind == CommKind::kSend;
  message->peer = group->members[static_cast<size_t>(peer)];
  message->tag = message_tag(*group, tag);
  message->data = static_cast<std::byte*>(data);
  message->bytes = bytes;
  // Not the group itself: it owns the rank's state, which a thread inside the transport must not be
  // the last one to release.
  auto kept = std::make_shared<std::pair<std::string, std::shared_ptr<const void>>>(
      group->name, std::move(memory));
  message->op = {kind, &kept->first, group->rank, group->size(), bytes, false};
  message->keep = std::move(kept);
  rank_state.liveness.throw_if_lost(message->op);
  const Traffic::Counter moved{1, bytes, message->sends ? bytes : 0, 0, 0};
  rank_state.count(kind, moved);
  {
    const std::lock_guard lock(group->posted_mutex);
    group->posted_traffic[kind] += moved;
  }
  return rank_state.worker.post(
      message->op,
      [&](auto done) {
        message->done = std::move(done);
        rank_state.transport->post(std::move(message));
      },
      std::move(device));
}

Operation::Operation(GroupState& group, CommKind kind, int64_t payload_bytes)
    : group_(group),
      info_{kind, &group.name, group.rank, group.size(), payload_bytes, false},
      counter_(&group.traffic[kind]),
      before_(*counter_),
      start_(std::chrono::steady_clock::now()) {
  liveness().throw_if_lost(info_);
  ++counter_->calls;
  counter_->payload_bytes += payload_bytes;
  const bool collective = kind != CommKind::kSend && kind != CommKind::kRecv;
  if (collective) ++group.sequence;
  tag_ = kFirstCollectiveTag + static_cast<int>(group.sequence % kFirstCollectiveTag);
  outer_ = liveness().enter(&info_);
}

Operation::~Operation() {
  liveness().enter(outer_);
  const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start_;
  counter_->seconds += spent.count();
  group_.rank_state->count(info_.kind, *counter_ - before_);
}

void Operation::exchange(std::span<const SendPart> sends, std::span<const RecvPart> recvs,
                         bool empty_too) {
  // A collective step has one message in each direction; all_to_all_v and the like proceed pair by
  // pair.
  std::array<SendPart, 2> out;
  std::array<RecvPart, 2> in;
  TRIREME_CHECK(sends.size() <= out.size() && recvs.size() <= in.size(), info_, ": ", sends.size(),
                " sends and ", recvs.size(), " receives at once, expected at most 2 each");
  size_t outs = 0, ins = 0;
  for (SendPart part : sends) {
    if (part.bytes == 0 && !empty_too) continue;
    part.to = group_.members[static_cast<size_t>(part.to)];
    part.tag = message_tag(group_, part.tag);
    counter_->sent_bytes += part.bytes;
    out[outs++] = part;
  }
  for (RecvPart part : recvs) {
    if (part.bytes == 0 && !empty_too) continue;
    part.from = group_.members[static_cast<size_t>(part.from)];
    part.tag = message_tag(group_, part.tag);
    in[ins++] = part;
  }
  if (outs + ins == 0) return;
  group_.rank_state->transport->exchange({out.data(), outs}, {in.data(), ins}, info_, liveness());
}

void Operation::step(int to, const void* out, int64_t out_bytes, int from, void* in,
                     int64_t in_bytes) {
  const SendPart send{to, tag_, out, out_bytes};
  const RecvPart recv{from, tag_, in, in_bytes};
  exchange({&send, 1}, {&recv, 1});
}

}  // namespace trireme
