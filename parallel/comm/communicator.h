// Communicator: collectives of one group of ranks on tensors.
//
// Rules
//   Every rank of the group calls the same operations in the same order; operations on different
//   groups of one rank are also executed in the order in which this rank started them.
//   Tensors are contiguous. Results are bit-identical on all ranks and from run to run, and depend
//   on the layout (ranks, nodes, algorithm) only through the order of additions.
//   An async form returns at once; one worker thread per rank executes operations in order. The
//   operand must stay alive and untouched until Work::wait(). A blocking operation runs in the
//   calling thread when nothing is queued before it, else behind the queue.
//   One thread of a rank at a time starts operations.
//   Posted messages (post_send, post_recv) stand outside this order: they move on at once.
//
// Tensors of a GPU (Tensor::device())
//   A rank is told its GPU once (attach), before it makes groups. What it then gives to an operation
//   lies on the host or on that GPU; the ranks agree on which. Strings, scalars and barriers stay on the
//   host and say nothing about the device.
//   The context's thread starts the operations. They see what was queued on the main stream before they
//   were started, and Work::wait() makes the main stream wait for them; neither is seen by other streams.
//   A blocking form is the async one followed by that wait, so the host does not learn when an
//   operation ends, and Traffic counts no seconds for it. Bytes are counted as those of the host's ring.
//     nccl    Collectives, send, recv and send_recv are queued on the context's comm stream, in the
//             order in which this rank starts them over all groups: the host waits for nothing. A send
//             ends when it is received: neighbours that exchange must use send_recv. Posted messages
//             travel on a stream for each direction between two ranks (open_paths) and arrive in the
//             order of sending whatever their tags, so they must be posted for receipt in that order.
//             Every rank needs a GPU of its own. NCCL rounds sums of 16-bit floats at every hop, in an
//             order of its own choice that is the same in every run on the same machines.
//     staged  Through pinned host memory and the host's transport: every transport, any number of ranks
//             on a GPU. Waits on the host by its nature. The bits are those of the host's collectives.
//   A rank that is lost ends NCCL's operations too: the device goes on with undefined results, and the
//   next operation or Work::wait() throws. What the host has read since then is void (check_alive).
//
// Failure: a rank that dies, throws or stops answering for `timeout_s` makes every operation of the
// others, waiting or later, throw Error(ExitCode::kLostRank) naming rank, group, operation and
// bytes.
//
// Algorithms and traffic formulas: docs/design/communication.md.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/core/tensor.h"
#include "engine/ops/reduce.h"
#include "parallel/comm/liveness/traffic.h"

namespace trireme {

enum class CommAlgorithm : uint8_t {
  kAuto,  // window inside a node, ring between nodes
  kRing,  // one ring over all ranks of the group, point-to-point only
  kShm,   // as kAuto, but an error where the ranks of a node cannot share memory
};
CommAlgorithm parse_comm_algorithm(const std::string& name);  // "auto", "ring", "shm"

// How tensors of a GPU travel.
enum class DeviceBackend : uint8_t {
  kAuto,  // nccl; staged where a rank has no NCCL, and where ranks are threads that share a GPU
  kNccl,
  kStaged,
};
DeviceBackend parse_device_backend(const std::string& name);  // "auto", "nccl", "staged"

// Posted messages from one group rank to another.
struct MessagePath {
  int from = 0, to = 0;
  auto operator<=>(const MessagePath&) const = default;
};

struct CommOptions {
  CommAlgorithm algorithm = CommAlgorithm::kAuto;
  int ranks_per_node = 0;           // 0: as the hosts are; else virtual nodes of this many ranks
  int64_t window_bytes = 25 << 20;  // largest piece of one rank in the node-local window
  double timeout_s = 600;           // longest wait for a peer inside one operation
  bool check_operations = false;    // debug: compare sequence, kind, bytes, dtype before moving
};

struct RankState;   // what the communicators of one rank share
struct GroupState;  // members, node windows, counters of one communicator
namespace cuda {
struct Context;
}

// A rank's GPU is in use by its communicators until this is destroyed, before the context is. Waits
// for what was started; where an exception is under way it tells the other ranks instead that this
// one is lost.
class DeviceAttachment {
 public:
  DeviceAttachment() = default;
  explicit DeviceAttachment(std::shared_ptr<RankState> rank_state);
  DeviceAttachment(DeviceAttachment&& other) noexcept;
  DeviceAttachment& operator=(DeviceAttachment&& other) noexcept;
  ~DeviceAttachment();

 private:
  void detach() noexcept;
  std::shared_ptr<RankState> rank_state_;
  int exceptions_ = 0;  // under way when this object was made
};

// A started operation. Copies refer to the same operation.
class Work {
 public:
  Work() = default;   // nothing: done
  void wait() const;  // returns when the operation is done; rethrows its error
  bool done() const;
  double seconds() const;  // time the operation took once it ran; 0 before
 private:
  friend class CommWorker;
  struct State;
  std::shared_ptr<State> state_;
};

class Communicator {
 public:
  explicit Communicator(std::shared_ptr<GroupState> state) : state_(std::move(state)) {}
  ~Communicator();  // waits for the operations started so far
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const;  // of the caller, in the group
  int size() const;
  const std::string& name() const;
  int world_rank(int rank) const;  // of a member
  int nodes() const;               // (virtual) nodes the group touches
  const CommOptions& options() const;

  // data = reduction over the ranks, in place. float64, float32, bfloat16 and float16 (accumulated
  // in float32), int64, int32.
  void all_reduce(const Tensor& data, ReduceOp op = ReduceOp::kSum);
  Work all_reduce_async(const Tensor& data, ReduceOp op = ReduceOp::kSum);
  // out (size * n) = the ranks' in (n), one behind the other. in may be its own place in out.
  void all_gather(const Tensor& out, const ConstTensor& in);
  Work all_gather_async(const Tensor& out, const ConstTensor& in);
  // out (n) = piece `rank` of the reduction of the ranks' in (size * n). out may be that piece of
  // in; in is otherwise unchanged.
  void reduce_scatter(const Tensor& out, const ConstTensor& in, ReduceOp op = ReduceOp::kSum);
  Work reduce_scatter_async(const Tensor& out, const ConstTensor& in, ReduceOp op = ReduceOp::kSum);
  // The same in place over uneven pieces: data (n) is cut into piece_of(n, size, r), which differ
  // by one element at most (collectives.h). all_gather_v: every rank gives its piece and receives
  // the others'. reduce_scatter_v: a rank's own piece becomes its part of the reduction; what the
  // other pieces hold afterwards is undefined.
  void all_gather_v(const Tensor& data);
  Work all_gather_v_async(const Tensor& data);
  void reduce_scatter_v(const Tensor& data, ReduceOp op = ReduceOp::kSum);
  Work reduce_scatter_v_async(const Tensor& data, ReduceOp op = ReduceOp::kSum);
  void broadcast(const Tensor& data, int root);
  Work broadcast_async(const Tensor& data, int root);
  // out piece s = piece `rank` of rank s's in; `size` equal pieces. No overlap.
  void all_to_all(const Tensor& out, const ConstTensor& in);
  // The same with in_counts[r] elements for rank r and out_counts[s] elements from rank s; pieces
  // follow one another. The counts of sender and receiver must agree.
  void all_to_all_v(const Tensor& out, std::span<const int64_t> out_counts, const ConstTensor& in,
                    std::span<const int64_t> in_counts);
  Work all_to_all_v_async(const Tensor& out, std::span<const int64_t> out_counts,
                          const ConstTensor& in, std::span<const int64_t> in_counts);
  // Point to point. tag in [0, kMaxTag]. A message is received into a tensor of its exact size.
  static constexpr int kMaxTag = 4095;
  void send(const ConstTensor& data, int to, int tag = 0);
  void recv(const Tensor& data, int from, int tag = 0);
  // The same beside everything else: the message travels while this rank computes or waits inside
  // other operations, in whatever order those are. Messages of one tag between two ranks are
  // received in the order in which they are sent and, on the other side, posted. Between different
  // ranks. Traffic's seconds do not count them.
  Work post_send(const ConstTensor& data, int to, int tag = 0);
  Work post_recv(const Tensor& data, int from, int tag = 0);
  // Both at once, so that neighbours may exchange without deadlock.
  void send_recv(const ConstTensor& out, int to, const Tensor& in, int from, int tag = 0);
  Work send_recv_async(const ConstTensor& out, int to, const Tensor& in, int from, int tag = 0);
  void barrier();

  // Small values, for set-up and reports.
  std::vector<std::string> all_gather_strings(const std::string& mine);
  std::string broadcast_string(const std::string& value, int root);
  double all_reduce_scalar(double value, ReduceOp op);
  int64_t all_reduce_scalar(int64_t value, ReduceOp op);

  // Ranks with equal color form a group, ordered by (key, rank). Collective over this group.
  // color < 0: the caller joins none and gets nullptr. Where a device is attached the group gets
  // what carries its tensors, here and not in the middle of its first operation.
  std::unique_ptr<Communicator> split(int color, int key, const std::string& name);

  // Waits for the operations started so far, then reads or clears the counters of this rank.
  Traffic traffic() const;
  void reset_traffic();

  // Makes every waiting and later operation of every rank throw Error(kLostRank) with this reason.
  void abort(const std::string& reason);
  // Of the world's communicator, collective. InputError on every rank where the backend cannot be
  // used:
  // no NCCL, or two ranks on one GPU, before any work and naming them. One rank takes NCCL only
  // when it is asked for by name, and its collectives then go through it, for whoever wants to see
  // it work.
  [[nodiscard]] DeviceAttachment attach(cuda::Context& gpu,
                                        DeviceBackend backend = DeviceBackend::kAuto);
  std::string device_backend() const;  // "nccl 2.28.9", "staged"; "" where no GPU is attached
  // Readies what posted messages of GPU tensors need on these paths; paths that are open already
  // cost nothing. Collective over the group, the same paths in the same order on every rank.
  void open_paths(std::span<const MessagePath> paths);
  // Throws that error if a peer is known to be lost; starts no communication.
  void check_alive() const;

 private:
  std::shared_ptr<GroupState> state_;
};

}  // namespace trireme
