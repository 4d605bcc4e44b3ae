#include <mpi.h>

#include <algorithm>

#include "parallel/comm/transport.h"

namespace trireme {
namespace {

// MPI counts are int; longer messages travel as several pieces with one tag, which stay in order.
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
    int initialised = 0;
    MPI_Initialized(&initialised);
    TRIREME_CHECK(initialised == 0, "MPI can be started once per process");
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
        MPI_Request* request = add({r.from, true, bytes});
        check_mpi(MPI_Irecv(static_cast<std::byte*>(r.data) + offset, bytes, MPI_BYTE, r.from,
                            r.tag, comm_, request),
                  "MPI_Irecv");
      });
    for (const SendPart& s : sends)
      for_pieces(s.bytes, [&](int64_t offset, int bytes) {
        MPI_Request* request = add({s.to, false, bytes});
        check_mpi(MPI_Isend(static_cast<const std::byte*>(s.data) + offset, bytes, MPI_BYTE, s.to,
                            s.tag, comm_, request),
                  "MPI_Isend");
      });
    wait_all(op, liveness);
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

  // Tests instead of waiting: a blocking MPI call could not notice a lost peer.
  void wait_all(const OpInfo& op, Liveness& liveness) {
    Patience patience(liveness, op);
    for (size_t i = 0; i < requests_.size(); ++i) {
      MPI_Status status;
      for (int done = 0;;) {
        const int code = MPI_Test(&requests_[i], &done, &status);
        if (code != MPI_SUCCESS) fail_request(op, pending_[i], code);
        if (done != 0) break;
        patience.step(pending_[i].peer);
      }
      int got = pending_[i].bytes;
      if (pending_[i].receives) MPI_Get_count(&status, MPI_BYTE, &got);
      if (got != pending_[i].bytes) fail_message_size(op, pending_[i].peer, got, pending_[i].bytes);
    }
  }

  [[noreturn]] static void fail_request(const OpInfo& op, const Pending& pending, int code) {
    int error_class = MPI_SUCCESS;
    MPI_Error_class(code, &error_class);
    if (error_class == MPI_ERR_TRUNCATE)
      throw Error(concat(op, " got a message of more than the expected ", pending.bytes,
                         " bytes from world rank ", pending.peer,
                         ": the ranks call different operations"));
    check_mpi(code, pending.receives ? "MPI_Irecv" : "MPI_Isend");
    TRIREME_UNREACHABLE("MPI request failed with code ", code);
  }

  MPI_Comm comm_ = MPI_COMM_NULL;
  int rank_ = 0, size_ = 1;
  std::vector<MPI_Request> requests_;  // kept between calls: no allocation in a step
  std::vector<Pending> pending_;
};

}  // namespace

std::unique_ptr<Transport> make_mpi_transport() { return std::make_unique<MpiTransport>(); }

}  // namespace trireme
