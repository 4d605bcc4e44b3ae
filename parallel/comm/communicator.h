// Communicator: collectives and messages of one group of ranks, on tensors.
//
// Rules
//   Every rank of the group calls the same operations in the same order; operations on different
//   groups of one rank are also executed in the order in which this rank started them.
//   Tensors are contiguous. Results are bit-identical on all ranks and from run to run, and depend
//   on the layout (ranks, nodes, algorithm) only through the order of additions.
//   An async form returns at once; one worker thread per rank executes operations in order. The
//   operand must stay alive and untouched until Work::wait(). A blocking operation runs in the
//   calling thread if nothing is queued before it, else after the queue.
//   One thread of a rank at a time starts operations.
//   Posted messages (post_send, post_recv) are outside this order: they start at once.
//
// Tensors of a GPU (Tensor::device())
//   A rank attaches its GPU once (attach), before it makes groups. From then on operands are on the
//   host or on that GPU; the ranks agree on which. Strings, scalars and barriers stay on the host
//   and imply nothing about the progress of device work.
//   The context's thread starts the operations. An operation runs after the work that was queued on
//   the main stream when it was started. Work::wait() makes the main stream, and no other, wait for
//   the operation. A blocking form is the async form followed by that wait: the host does not learn
//   when an operation ends.
//     nccl    Collectives, send, recv and send_recv are queued on the context's comm stream, in the
//             order in which this rank starts them over all groups: the host waits for nothing. A
//             send ends when it is received, so neighbours that exchange must use send_recv. Posted
//             messages use one stream per direction between two ranks (open_paths) and arrive in
//             the order of sending whatever their tags, so receives must be posted in that order.
//             Every rank needs its own GPU. NCCL rounds sums of 16-bit floats at every hop, in an
//             order that NCCL chooses and that is the same in every run on the same machines.
//             Traffic counts the bytes that the host's ring would send, and no seconds.
//     staged  Through pinned host memory and the host's transport: any transport, any number of
//             ranks per GPU. The host waits for copies. The bits and the traffic are those of
//             the host's collectives.
//   A lost rank ends NCCL's operations too: the device continues with undefined results, and the
//   next operation or Work::wait() throws. Values read by the host since then are invalid
//   (check_alive).
//
// Failure: a rank that dies, throws or does not respond for `timeout_s` makes every operation of
// the other ranks, waiting or later, throw Error(ExitCode::kLostRank) naming rank, group, operation
// and bytes.
//
// Algorithms and traffic formulas: docs/design/communication.md.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/core/tensor.h"
#include "engine/ops/rows/reduce.h"
#include "parallel/comm/liveness/traffic.h"

namespace trireme {

enum class CommAlgorithm : uint8_t {
  kAuto,  // window inside a node, ring between nodes; kRing if a node cannot share memory
  kRing,  // one ring over all ranks of the group, point-to-point only
  kShm,   // as kAuto, but an error if the ranks of a node cannot share memory
};
CommAlgorithm parse_comm_algorithm(const std::string& name);  // "auto", "ring", "shm"

// Backend for GPU tensors.
enum class DeviceBackend : uint8_t {
  kAuto,  // nccl; staged if a rank has no NCCL, and if ranks are threads that share a GPU
  kNccl,
  kStaged,
};
DeviceBackend parse_device_backend(const std::string& name);  // "auto", "nccl", "staged"

// Direction of posted messages between two group ranks.
struct MessagePath {
  int from = 0, to = 0;
  auto operator<=>(const MessagePath&) const = default;
};

struct CommOptions {
  CommAlgorithm algorithm = CommAlgorithm::kAuto;
  int ranks_per_node = 0;  // 0: the real hosts; else virtual nodes of this many ranks
  // Upper limit on the piece of one rank that passes through the node-local window at a time.
  int64_t window_bytes = 25 << 20;
  double timeout_s = 600;  // longest wait for a peer inside one operation
  // Debug: before each collective, compare its sequence number, kind, bytes, dtype, ReduceOp and
  // root between the ranks; Error if they differ.
  bool check_operations = false;
};

struct RankState;   // state shared by the communicators of one rank
struct GroupState;  // members, node windows, counters of one communicator
namespace cuda {
struct Context;
}

// Attachment of a rank's GPU to its communicators; destroy it before the context. The destructor
// waits for started operations. During exception unwinding it instead reports to the other ranks
// that this one is lost.
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
  int exceptions_ = 0;  // in flight when this object was made
};

// A started operation. Copies refer to the same operation. wait() only while a communicator of the
// rank exists.
class Work {
 public:
  Work() = default;        // no operation: done
  void wait() const;       // returns when the operation is done; rethrows its error
  bool done() const;       // nothing is in progress; received data may be read after wait()
  double seconds() const;  // duration on the host; 0 until it ends, and always with NCCL
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
  int node(int rank) const;        // index of a member's (virtual) node
  const CommOptions& options() const;

  // data = reduction over the ranks, in place. float64, float32, bfloat16 and float16 (accumulated
  // in float32), int64, int32.
  void all_reduce(const Tensor& data, ReduceOp op = ReduceOp::kSum);
  Work all_reduce_async(const Tensor& data, ReduceOp op = ReduceOp::kSum);
  // out (size * n) = the ranks' in (n), one after the other. in may be its own piece of out.
  void all_gather(const Tensor& out, const ConstTensor& in);
  Work all_gather_async(const Tensor& out, const ConstTensor& in);
  // out (n) = piece `rank` of the reduction of the ranks' in (size * n). out may be that piece of
  // in; the rest of in is unchanged.
  void reduce_scatter(const Tensor& out, const ConstTensor& in, ReduceOp op = ReduceOp::kSum);
  Work reduce_scatter_async(const Tensor& out, const ConstTensor& in, ReduceOp op = ReduceOp::kSum);
  // In-place forms over uneven pieces: data (n) is cut into piece_of(n, size, r), which differ by
  // at most one element (collectives.h). all_gather_v: every rank contributes its piece and
  // receives the others'. reduce_scatter_v: a rank's piece becomes its part of the reduction; the
  // other pieces are undefined afterwards.
  void all_gather_v(const Tensor& data);
  Work all_gather_v_async(const Tensor& data);
  void reduce_scatter_v(const Tensor& data, ReduceOp op = ReduceOp::kSum);
  Work reduce_scatter_v_async(const Tensor& data, ReduceOp op = ReduceOp::kSum);
  void broadcast(const Tensor& data, int root);  // data = that of group rank `root`, in place
  Work broadcast_async(const Tensor& data, int root);
  // out piece s = piece `rank` of rank s's in; `size` equal pieces. out and in must not overlap.
  void all_to_all(const Tensor& out, const ConstTensor& in);
  // all_to_all with in_counts[r] elements for rank r and out_counts[s] elements from rank s; pieces
  // follow one another. The counts of sender and receiver must match.
  void all_to_all_v(const Tensor& out, std::span<const int64_t> out_counts, const ConstTensor& in,
                    std::span<const int64_t> in_counts);
  Work all_to_all_v_async(const Tensor& out, std::span<const int64_t> out_counts,
                          const ConstTensor& in, std::span<const int64_t> in_counts);
  // Point to point; to, from: group ranks. tag in [0, kMaxTag]. The receiving tensor must have
  // exactly the message's size.
  static constexpr int kMaxTag = 4095;
  void send(const ConstTensor& data, int to, int tag = 0);
  void recv(const Tensor& data, int from, int tag = 0);
  // Posted forms, independent of all other operations: the message is transferred while this rank
  // computes or waits inside other operations, in any order. Messages with one tag between two
  // ranks are received in the order in which they are sent, by receives in the order in which they
  // are posted. Sender and receiver must be different ranks. Traffic's seconds do not include them.
  Work post_send(const ConstTensor& data, int to, int tag = 0);
  Work post_recv(const Tensor& data, int from, int tag = 0);
  // Send and receive at once, so that neighbours may exchange without deadlock.
  void send_recv(const ConstTensor& out, int to, const Tensor& in, int from, int tag = 0);
  Work send_recv_async(const ConstTensor& out, int to, const Tensor& in, int from, int tag = 0);
  void barrier();

  // Small values, for set-up and reports.
  std::vector<std::string> all_gather_strings(const std::string& mine);
  std::string broadcast_string(const std::string& value, int root);
  double all_reduce_scalar(double value, ReduceOp op);
  int64_t all_reduce_scalar(int64_t value, ReduceOp op);

  // Splits this group: ranks with equal color form a group, ordered by (key, rank). Collective over
  // this group. color < 0: the caller joins none and gets nullptr. If a device is attached, the
  // group's device backend is opened here, not during its first operation.
  std::unique_ptr<Communicator> split(int color, int key, const std::string& name);

  // Both wait for the operations started so far, then read or clear this rank's counters of the
  // group.
  Traffic traffic() const;
  void reset_traffic();

  // Makes every waiting and later operation of every rank throw Error(kLostRank) with this reason.
  void abort(const std::string& reason);
  // World communicator only, collective. Throws InputError on every rank, before any work and
  // naming the cause, if the backend cannot be used: no NCCL, or two ranks on one GPU. A single
  // rank uses NCCL only if it is selected by name; its collectives then go through NCCL, so that
  // NCCL can be tested with one rank.
  [[nodiscard]] DeviceAttachment attach(cuda::Context& gpu,
                                        DeviceBackend backend = DeviceBackend::kAuto);
  std::string device_backend() const;  // "nccl 2.28.9", "staged"; "" without an attached GPU
  // Prepares posted messages of GPU tensors on these paths; already open paths cost nothing.
  // Collective over the group, the same paths in the same order on every rank.
  void open_paths(std::span<const MessagePath> paths);
  // Throws Error(kLostRank) if a peer is known to be lost; starts no communication.
  void check_alive() const;

 private:
  std::shared_ptr<GroupState> state_;
};

}  // namespace trireme
