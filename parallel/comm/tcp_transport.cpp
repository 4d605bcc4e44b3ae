// Messages over one TCP connection per pair of ranks: a header (tag, bytes), then the bytes.
//
// A message nobody asked for yet is stored when it is short or when a wanted one waits behind it;
// a long one is left in the network until its receive is posted, so that it is not copied twice.
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <list>

#include "parallel/comm/tcp_socket.h"

namespace trireme {
namespace {

constexpr int64_t kStored = 1 << 16;            // longest message that is always taken in
constexpr int64_t kLongest = int64_t{1} << 40;  // a longer one is not ours

struct Header {
  int64_t tag = 0;
  int64_t bytes = 0;
};

struct Stored {
  int tag;
  std::vector<std::byte> bytes;
};

// The stream from one peer: at most one message is being read.
struct Inbox {
  Header header;
  size_t header_bytes = 0;    // of the header, so far
  std::byte* into = nullptr;  // the caller's memory or `store`; null: not decided
  int64_t read = 0;           // of the message's bytes
  bool finished = false;      // the peer has closed its side
  std::vector<std::byte> store;
  std::list<Stored> stored;
};

struct Outgoing {
  Header header;
  const SendPart* part;
  int64_t written = 0;  // header included
  int64_t total() const { return static_cast<int64_t>(sizeof header) + part->bytes; }
};

struct Incoming {
  const RecvPart* part;
  bool started = false;
  bool done = false;
};

class TcpTransport final : public Transport {
 public:
  explicit TcpTransport(const TcpOptions& options)
      : rank_(options.rank), sockets_(meet_ranks(options)), inboxes_(sockets_.size()) {}
  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(sockets_.size()); }
  const char* name() const override { return "tcp"; }

  void exchange(std::span<const SendPart> sends, std::span<const RecvPart> recvs, const OpInfo& op,
                Liveness& liveness) override {
    std::vector<Outgoing> out;
    std::vector<Incoming> in;
    for (const SendPart& s : sends) out.push_back({{s.tag, s.bytes}, &s});
    for (const RecvPart& r : recvs) in.push_back({&r});
    Patience patience(liveness, op);
    for (;;) {
      for (Incoming& i : in) take_stored(i, op);
      for (size_t peer = 0; peer < sockets_.size(); ++peer)
        if (sockets_[peer].open()) read_from(static_cast<int>(peer), in, op);
      for (Outgoing& o : out) write_to(o, op, liveness);
      const auto waiting = std::ranges::find_if(in, [](const Incoming& i) { return !i.done; });
      const auto sending =
          std::ranges::find_if(out, [](const Outgoing& o) { return o.written < o.total(); });
      if (waiting == in.end() && sending == out.end()) return;
      const int awaited = waiting != in.end() ? waiting->part->from : sending->part->to;
      if (waiting != in.end()) check_open(*waiting, op, liveness);
      patience.check(awaited);
      sleep_until_ready(in, out);
    }
  }

  void tell_lost() noexcept override {
    for (const Socket& socket : sockets_) socket.shut_down();
  }

 private:
  static void take_stored(Incoming& in, const OpInfo& op, std::list<Stored>& stored) {
    const auto it =
        std::ranges::find_if(stored, [&](const Stored& s) { return s.tag == in.part->tag; });
    if (it == stored.end()) return;
    const auto got = static_cast<int64_t>(it->bytes.size());
    if (got != in.part->bytes) fail_message_size(op, in.part->from, got, in.part->bytes);
    if (got > 0) std::memcpy(in.part->data, it->bytes.data(), it->bytes.size());
    in.started = in.done = true;
    stored.erase(it);
  }
  void take_stored(Incoming& in, const OpInfo& op) {
    if (!in.started) take_stored(in, op, inbox(in.part->from).stored);
  }

  Inbox& inbox(int peer) { return inboxes_[static_cast<size_t>(peer)]; }
  int fd(int peer) const { return sockets_[static_cast<size_t>(peer)].fd(); }

  // Bytes read; 0 when nothing is there now or the peer has closed.
  int64_t read_some(int peer, void* into, int64_t bytes) {
    const ssize_t got = recv(fd(peer), into, static_cast<size_t>(bytes), 0);
    if (got > 0) return got;
    const bool later = got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR);
    if (!later) inbox(peer).finished = true;
    return 0;
  }

  // Reads all that is there and wanted.
  void read_from(int peer, std::vector<Incoming>& in, const OpInfo& op) {
    Inbox& box = inbox(peer);
    while (!box.finished) {
      if (box.header_bytes < sizeof(Header)) {
        const int64_t got =
            read_some(peer, reinterpret_cast<std::byte*>(&box.header) + box.header_bytes,
                      static_cast<int64_t>(sizeof(Header) - box.header_bytes));
        if (got == 0) return;
        box.header_bytes += static_cast<size_t>(got);
        if (box.header_bytes < sizeof(Header)) continue;
        if (box.header.bytes < 0 || box.header.bytes > kLongest)
          throw Error(concat(op, ": world rank ", peer, " sent a damaged message header"));
      }
      if (box.into == nullptr && !choose_memory(peer, in, op)) return;
      while (box.read < box.header.bytes) {
        const int64_t got = read_some(peer, box.into + box.read, box.header.bytes - box.read);
        if (got == 0) return;
        box.read += got;
      }
      finish_message(peer, in, op);
    }
  }

  // Decides where the message whose header has come goes; false: it waits in the network.
  bool choose_memory(int peer, std::vector<Incoming>& in, const OpInfo& op) {
    Inbox& box = inbox(peer);
    bool blocks_another = false;
    for (Incoming& i : in) {
      if (i.started || i.part->from != peer) continue;
      if (i.part->tag != box.header.tag) {
        blocks_another = true;
        continue;
      }
      if (box.header.bytes != i.part->bytes)
        fail_message_size(op, peer, box.header.bytes, i.part->bytes);
      i.started = true;
      box.into = static_cast<std::byte*>(i.part->data);
      if (box.into == nullptr) box.into = nowhere_;
      return true;
    }
    if (box.header.bytes > kStored && !blocks_another) return false;
    box.store.resize(static_cast<size_t>(std::max<int64_t>(1, box.header.bytes)));
    box.into = box.store.data();
    return true;
  }

  void finish_message(int peer, std::vector<Incoming>& in, const OpInfo& op) {
    Inbox& box = inbox(peer);
    const auto tag = static_cast<int>(box.header.tag);
    if (!box.store.empty()) {
      box.store.resize(static_cast<size_t>(box.header.bytes));
      box.stored.push_back({tag, std::move(box.store)});
      box.store = {};
    } else {
      for (Incoming& i : in)
        if (i.started && i.part->from == peer && i.part->tag == tag) i.done = true;
    }
    box.header_bytes = 0;
    box.into = nullptr;
    box.read = 0;
    for (Incoming& i : in)
      if (i.part->from == peer) take_stored(i, op);
  }

  void write_to(Outgoing& out, const OpInfo& op, Liveness& liveness) {
    constexpr auto kHeader = static_cast<int64_t>(sizeof(Header));
    while (out.written < out.total()) {
      const std::byte* at = reinterpret_cast<const std::byte*>(&out.header) + out.written;
      int64_t bytes = kHeader - out.written;
      if (bytes <= 0) {
        at = static_cast<const std::byte*>(out.part->data) + (out.written - kHeader);
        bytes = out.total() - out.written;
      }
      const ssize_t sent = send(fd(out.part->to), at, static_cast<size_t>(bytes), MSG_NOSIGNAL);
      if (sent > 0) {
        out.written += sent;
        continue;
      }
      if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) return;
      liveness.throw_if_lost(op);
      liveness.fail(op, concat("rank ", out.part->to, " closed its connection"));
    }
  }

  void check_open(const Incoming& waiting, const OpInfo& op, Liveness& liveness) {
    if (!inbox(waiting.part->from).finished) return;
    liveness.throw_if_lost(op);
    liveness.fail(op, concat("rank ", waiting.part->from, " closed its connection"));
  }

  void sleep_until_ready(const std::vector<Incoming>& in, const std::vector<Outgoing>& out) {
    std::vector<pollfd> ready;
    for (const Incoming& i : in)
      if (!i.done) ready.push_back({fd(i.part->from), POLLIN, 0});
    for (const Outgoing& o : out)
      if (o.written < o.total()) ready.push_back({fd(o.part->to), POLLOUT, 0});
    poll(ready.data(), ready.size(), 20);
  }

  int rank_;
  std::vector<Socket> sockets_;
  std::vector<Inbox> inboxes_;
  std::byte nowhere_[1] = {};
};

}  // namespace

std::unique_ptr<Transport> make_tcp_transport(const TcpOptions& options) {
  TRIREME_CHECK(options.size >= 1 && options.rank >= 0 && options.rank < options.size, "tcp rank ",
                options.rank, " of ", options.size);
  return std::make_unique<TcpTransport>(options);
}

}  // namespace trireme
