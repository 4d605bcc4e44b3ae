#include <mpi.h>

#include <algorithm>

#include "parallel/comm/transport/posted_messages.h"

namespace trireme {
namespace {

// Between polls of posted messages while a thread waits for one.
constexpr auto kMpiNap = std::chrono::microseconds(50);

// MPI counts are int: longer messages are sent as several pieces with one tag, which stay in order.
constexpr int64_t kPiece = int64_t{1} << 30;

void check_mpi(int code, const char* call) {
  if (code == MPI_SUCCESS) return;
  char message[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(code, message, &length);
  throw Error(concat(call, ": ", static_cast<const char*>(message)));
}

class MpiTransport final : public Transport {
 public:
  MpiTransport() {
    int initialized = 0;
    MPI_Initialized(&initialized);
    TRIREME_CHECK(initialized == 0, "MPI can be started once per process");
    int provided = 0;
    check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided),
              "MPI_Init_thread");
    if (provided < MPI_THREAD_SERIALIZED)
      throw Error(concat("this MPI library offers thread level ", provided,
                         "; MPI_THREAD_SERIALIZED is needed"));
    check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &comm_), "MPI_Comm_dup");
    check_mpi(MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
    MPI_Comm_rank(comm_, &rank_);
    MPI_Comm_size(comm_, &size_);
    int* tag_limit = nullptr;
    int found = 0;
    MPI_Comm_get_attr(comm_, MPI_TAG_UB, static_cast<void*>(&tag_limit), &found);
    if (found != 0 && *tag_limit < kTagLimit - 1)
      throw Error(concat("this MPI library allows tags up to ", *tag_limit, "; ", kTagLimit - 1,
                         " is needed"));
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  const char* name() const override { return "mpi"; }

  void exchange(std::span<const SendPart> sends, std::span<const RecvPart> recvs, const OpInfo& op,
                Liveness& liveness) override {
    requests_.clear();
    pending_.clear();
    for (const RecvPart& r : recvs)
      for_pieces(r.bytes, [&](int64_t offset, int bytes) {
        start_receive(r, offset, bytes, add({r.from, true, bytes}));
      });
    for (const SendPart& s : sends)
      for_pieces(s.bytes, [&](int64_t offset, int bytes) {
        start_send(s, offset, bytes, add({s.to, false, bytes}));
      });
    wait_all(op, liveness);
  }

  void post(PostedPointer message) override { posted_.add(std::move(message)); }

  std::chrono::microseconds progress(Liveness& liveness) override {
    for (const PostedPointer& message : posted_.take()) launch(message);
    if (flights_.empty()) return {};
    std::exception_ptr loss;
    if (watch_.due())
      for (const Flight& flight : flights_)
        if (!loss) loss = watch_.look(liveness, *flight.message);
    std::erase_if(flights_, [&](Flight& flight) {
      if (!loss) return advance(flight, liveness);
      flight.message->done(loss);
      return true;
    });
    return flights_.empty() ? std::chrono::microseconds() : kMpiNap;
  }

  void finish() override {
    MPI_Comm_free(&comm_);
    MPI_Finalize();
  }

 private:
  struct Pending {
    int peer;
    bool receives;
    int bytes;
  };

  // A posted message whose pieces are in transfer; those before `next` have arrived.
  struct Flight {
    PostedPointer message;
    std::vector<MPI_Request> requests;
    std::vector<Pending> pending;
    size_t next = 0;
  };

  void start_receive(const RecvPart& r, int64_t offset, int bytes, MPI_Request* request) {
    check_mpi(MPI_Irecv(static_cast<std::byte*>(r.data) + offset, bytes, MPI_BYTE, r.from, r.tag,
                        comm_, request),
              "MPI_Irecv");
  }

  void start_send(const SendPart& s, int64_t offset, int bytes, MPI_Request* request) {
    check_mpi(MPI_Isend(static_cast<const std::byte*>(s.data) + offset, bytes, MPI_BYTE, s.to,
                        s.tag, comm_, request),
              "MPI_Isend");
  }

  void launch(const PostedPointer& message) {
    const PostedMessage& m = *message;
    Flight flight{message, {}, {}};
    try {
      for_pieces(m.bytes, [&](int64_t offset, int bytes) {
        flight.pending.push_back({m.peer, !m.sends, bytes});
        MPI_Request* request = &flight.requests.emplace_back(MPI_REQUEST_NULL);
        if (m.sends)
          start_send({m.peer, m.tag, m.data, m.bytes}, offset, bytes, request);
        else
          start_receive({m.peer, m.tag, m.data, m.bytes}, offset, bytes, request);
      });
      flights_.push_back(std::move(flight));
    } catch (...) {
      message->done(std::current_exception());
    }
  }

  // Returns true when the message has ended, with or without an error.
  static bool advance(Flight& flight, Liveness& liveness) {
    std::exception_ptr error;
    try {
      while (flight.next < flight.requests.size()) {
        if (!test(flight.message->op, liveness, flight.pending[flight.next],
                  &flight.requests[flight.next]))
          return false;
        ++flight.next;
      }
    } catch (...) {
      error = std::current_exception();
    }
    flight.message->done(error);
    return true;
  }

  template <class F>
  static void for_pieces(int64_t bytes, F&& f) {
    int64_t offset = 0;
    do {
      const int64_t piece = std::min(kPiece, bytes - offset);
      f(offset, static_cast<int>(piece));
      offset += piece;
    } while (offset < bytes);
  }

  MPI_Request* add(const Pending& pending) {
    pending_.push_back(pending);
    requests_.push_back(MPI_REQUEST_NULL);
    return &requests_.back();
  }

  // Polls instead of waiting: a blocking MPI call could not notice a lost peer.
  void wait_all(const OpInfo& op, Liveness& liveness) {
    Patience patience(liveness, op);
    for (size_t i = 0; i < requests_.size(); ++i)
      while (!test(op, liveness, pending_[i], &requests_[i])) {
        progress(liveness);
        patience.step(pending_[i].peer);
      }
  }

  // True if the request is complete; throws if it failed.
  static bool test(const OpInfo& op, Liveness& liveness, const Pending& pending,
                   MPI_Request* request) {
    MPI_Status status;
    int done = 0;
    const int code = MPI_Test(request, &done, &status);
    if (code != MPI_SUCCESS) fail_request(op, liveness, pending, code);
    if (done == 0) return false;
    int got = pending.bytes;
    if (pending.receives) MPI_Get_count(&status, MPI_BYTE, &got);
    if (got != pending.bytes) fail_message_size(op, pending.peer, got, pending.bytes);
    return true;
  }

  [[noreturn]] static void fail_request(const OpInfo& op, Liveness& liveness,
                                        const Pending& pending, int code) {
    int error_class = MPI_SUCCESS;
    MPI_Error_class(code, &error_class);
    if (error_class == MPI_ERR_TRUNCATE)
      throw Error(concat(op, " got a message of more than the expected ", pending.bytes,
                         " bytes from world rank ", pending.peer,
                         ": the ranks call different operations"));
    // Most likely the peer has died, and another rank is about to report it.
    char message[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    MPI_Error_string(code, message, &length);
    liveness.fail_after_grace(
        op, concat(pending.receives ? "MPI_Irecv from" : "MPI_Isend to", " rank ", pending.peer,
                   ": ", static_cast<const char*>(message)));
  }

  MPI_Comm comm_ = MPI_COMM_NULL;
  int rank_ = 0, size_ = 1;
  std::vector<MPI_Request> requests_;  // kept between calls: no allocation in a step
  std::vector<Pending> pending_;
  PostedQueue posted_;
  std::vector<Flight> flights_;
  PostedWatch watch_;
};

}  // namespace

bool has_mpi() { return true; }

std::unique_ptr<Transport> make_mpi_transport() { return std::make_unique<MpiTransport>(); }

}  // namespace trireme
