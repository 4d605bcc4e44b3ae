// Transport: point-to-point messages between ranks, the base of every collective.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <span>

#include "parallel/comm/liveness/liveness.h"

namespace trireme {

struct SendPart {
  int to = 0;  // world rank
  int tag = 0;
  const void* data = nullptr;
  int64_t bytes = 0;
};

struct RecvPart {
  int from = 0;  // world rank
  int tag = 0;
  void* data = nullptr;
  int64_t bytes = 0;  // the message must have exactly this size
};

// Message that is transferred while its rank computes or runs other operations.
struct PostedMessage {
  bool sends = false;  // else it receives
  int peer = 0;        // world rank
  int tag = 0;
  std::byte* data = nullptr;  // only read when it sends
  int64_t bytes = 0;          // the message has exactly this size
  OpInfo op;
  std::shared_ptr<const void> keep;              // keeps alive what op refers to
  std::function<void(std::exception_ptr)> done;  // called once, by any thread: null, or the error
  // Last liveness check of the peer, and seconds waited for it until then, as Patience counts them.
  std::chrono::steady_clock::time_point looked = std::chrono::steady_clock::now();
  double waited = 0;
};

// Messages between two ranks with one tag arrive in the order in which they were sent. Tags are in
// [0, kTagLimit). Only one thread of a rank may be inside a transport at a time (CommWorker ensures
// it).
class Transport {
 public:
  // In practice every MPI library supports at least this (MPI_TAG_UB is checked at start).
  static constexpr int kTagLimit = 1 << 23;

  virtual ~Transport() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual const char* name() const = 0;  // "threads", "mpi", "tcp", "single"

  // Starts all sends and receives and returns when all are complete. A send is complete when its
  // memory may be reused; the message may still be in transit. Throws Error(kLostRank) if liveness
  // reports a loss, Error on a message of the wrong size. After an error the memory of an
  // unfinished operation must not be reused.
  virtual void exchange(std::span<const SendPart> sends, std::span<const RecvPart> recvs,
                        const OpInfo& op, Liveness& liveness) = 0;

  // Accepts a message and returns without waiting for the peer. Any thread, at any time.
  virtual void post(std::shared_ptr<PostedMessage> message) = 0;
  // Progresses posted messages without waiting, and fails them if a rank is lost. Called only by
  // the thread inside the transport; exchange() does the same while it waits. Returns the delay
  // until the next call while a thread waits for one of them; zero: none in progress. Throws
  // nothing.
  virtual std::chrono::microseconds progress(Liveness& liveness) = 0;

  // True if each rank is a process, which may die or be stopped alone.
  virtual bool ranks_are_processes() const { return true; }
  // Descriptors of a connection to every rank for heartbeats only (PeerLinks); -1: none to that
  // rank. Empty: this transport has no such connections.
  virtual std::vector<int> life_lines() const { return {}; }
  // Called when this rank fails: wakes peers that liveness does not reach.
  virtual void broadcast_loss() noexcept {}
  // Normal end, after the last barrier of the run (OpInfo::goodbye). Not called after a loss.
  virtual void finish() {}
};

// Ranks as threads of this process. hub: shared by all `size` of them.
class ThreadHub;
std::shared_ptr<ThreadHub> make_thread_hub(int size);
std::unique_ptr<Transport> make_thread_transport(std::shared_ptr<ThreadHub> hub, int rank);

// One rank, no peers.
std::unique_ptr<Transport> make_single_transport();

// Initializes MPI (once per process; MPI_THREAD_SERIALIZED: only the thread inside a transport call
// uses MPI) and finalizes it in finish(). After a loss MPI is not finalized: the launcher sees the
// process end without MPI_Finalize and stops the other ranks. InputError in a program built without
// MPI; check has_mpi() before.
std::unique_ptr<Transport> make_mpi_transport();
bool has_mpi();
inline constexpr const char* kWithoutMpi =
    "this program was built without MPI (-DTRIREME_MPI=OFF): start each rank with WORLD_SIZE, "
    "RANK, MASTER_ADDR and MASTER_PORT, as torchrun does, and they connect over TCP";

// TCP sockets between all pairs of ranks (rank_rendezvous.h). Rank 0 listens at
// master_address:master_port; the others connect to it and receive the addresses of all. Waits up
// to timeout_s for all ranks.
struct TcpOptions {
  std::string master_address;
  int master_port = 0;
  int rank = 0;
  int size = 1;
  double timeout_s = 600;
  std::string secret = {};          // of the run; empty: any process that reaches a port may join
  std::string listen_address = {};  // empty: as connect_ranks() chooses; "*": all interfaces
  int listener = -1;                // rank 0: socket that already listens at master_port; owned
};
std::unique_ptr<Transport> make_tcp_transport(const TcpOptions& options);

// Throws Error: world rank `from` sent a message of `got` bytes instead of `wanted`.
[[noreturn]] void fail_message_size(const OpInfo& op, int from, int64_t got, int64_t wanted);

}  // namespace trireme
