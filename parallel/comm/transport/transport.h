// Transport: bytes from one rank to another, under every collective between processes.
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
  int from = 0;
  int tag = 0;
  void* data = nullptr;
  int64_t bytes = 0;  // the message must have exactly this size
};

// A message that travels while its rank does other things.
struct PostedMessage {
  bool sends = false;  // else it receives
  int peer = 0;        // world rank
  int tag = 0;
  std::byte* data = nullptr;  // only read when it sends
  int64_t bytes = 0;          // the message has exactly this size
  OpInfo op;
  std::shared_ptr<const void> keep;              // what op refers to
  std::function<void(std::exception_ptr)> done;  // called once, by any thread: null, or the error
  std::chrono::steady_clock::time_point looked = std::chrono::steady_clock::now();
  double waited = 0;  // seconds until then, as Patience counts them
};

// Messages between two ranks with one tag arrive in the order they were sent. Tags lie in
// [0, kTagLimit). Only one thread of a rank may be inside a transport at a time (Worker sees to
// it).
class Transport {
 public:
  // What every MPI library offers is at least this in practice (MPI_TAG_UB is checked at start).
  static constexpr int kTagLimit = 1 << 23;

  virtual ~Transport() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual const char* name() const = 0;  // "threads", "mpi", "tcp", "single"

  // Starts all sends and receives and returns when all are complete (a send is complete when its
  // memory may be reused; the message may still be under way). Throws Error(kLostRank) when
  // liveness says so, Error on a message of the wrong size. Memory of an unfinished operation must
  // not be reused after an error.
  virtual void exchange(std::span<const SendPart> sends, std::span<const RecvPart> recvs,
                        const OpInfo& op, Liveness& liveness) = 0;

  // Takes over a message and returns at once, whatever the peer does. Any thread, at any time.
  virtual void post(std::shared_ptr<PostedMessage> message) = 0;
  // Moves posted messages on without waiting, and fails them when a rank is lost; only by the
  // thread inside the transport, which exchange() does by itself while it waits. Returns after how
  // long to call again when somebody waits for one of them; zero when none is under way. Throws
  // nothing.
  virtual std::chrono::microseconds progress(Liveness& liveness) = 0;

  // Whether each rank is a process, which may die or be stopped alone.
  virtual bool ranks_are_processes() const { return true; }
  // A connection to every rank that carries nothing but signs of life (PeerLinks); -1 where there
  // is none. Empty: this transport has no such connections.
  virtual std::vector<int> life_lines() const { return {}; }
  // This rank gives up: wake peers that liveness does not reach. Throws nothing.
  virtual void tell_lost() noexcept {}
  // All ranks have said goodbye: end normally. Not called after a loss.
  virtual void finish() {}
};

// Ranks as threads of this process. hub: shared by all `size` of them.
class ThreadHub;
std::shared_ptr<ThreadHub> make_thread_hub(int size);
std::unique_ptr<Transport> make_thread_transport(std::shared_ptr<ThreadHub> hub, int rank);

// One rank, no peers.
std::unique_ptr<Transport> make_single_transport();

// Initialises MPI (once per process; MPI_THREAD_SERIALIZED: only the thread inside a transport call
// uses MPI) and finalises it in finish(). After a loss MPI is left as it is: the launcher sees the
// process end without MPI_Finalize and stops the other ranks.
// InputError in a program that was built without MPI, which has_mpi() tells beforehand.
std::unique_ptr<Transport> make_mpi_transport();
bool has_mpi();
inline constexpr const char* kWithoutMpi =
    "this program was built without MPI (-DTRIREME_MPI=OFF): start each rank with WORLD_SIZE, "
    "RANK, MASTER_ADDR and MASTER_PORT, as torchrun does, and they talk over TCP";

// Sockets between all pairs (rank_rendezvous.h). Rank 0 listens at master_address:master_port; the
// others connect to it and learn where everybody listens. Waits up to timeout_s for all ranks.
struct TcpOptions {
  std::string master_address;
  int master_port = 0;
  int rank = 0;
  int size = 1;
  double timeout_s = 600;
  std::string secret = {};          // of the run; empty: whoever reaches a port may join
  std::string listen_address = {};  // empty: where the others connect to; "*": all interfaces
  int listener = -1;  // of rank 0: a socket that listens at master_port already, taken over
};
std::unique_ptr<Transport> make_tcp_transport(const TcpOptions& options);

[[noreturn]] void fail_message_size(const OpInfo& op, int from, int64_t got, int64_t wanted);

}  // namespace trireme
