// Messages over one TCP connection per pair of ranks: a header (tag, bytes), then the bytes.
//
// A message without a receive is stored if it is short or if a receive waits for a later message. A
// long one stays in the network until its receive is posted, so that it is not copied twice. A peer
// cannot make this rank allocate by announcing a size: a receive has exactly its message's size,
// and storage grows as bytes arrive, up to kMaxAhead per peer.
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <list>

#include "parallel/comm/transport/posted_messages.h"
#include "parallel/comm/transport/rank_rendezvous.h"

namespace trireme {
namespace {

// Between polls of posted messages while a thread waits for one.
constexpr auto kTcpNap = std::chrono::microseconds(50);
constexpr int64_t kStored = 1 << 16;             // longest message that is always stored
constexpr int64_t kMaxAhead = int64_t{4} << 30;  // bytes of messages stored before their receives
constexpr int64_t kStoreStep = 1 << 20;          // smallest growth of the storage

struct Header {
  int64_t tag = 0;
  int64_t bytes = 0;
};

struct Stored {
  int tag;
  std::vector<std::byte> bytes;
};

// Stream from one peer: at most one message is being read.
struct Inbox {
  Header header;
  size_t header_bytes = 0;    // read so far
  std::byte* into = nullptr;  // the caller's memory or `store`; null: not decided
  int64_t read = 0;           // of the message's bytes
  bool finished = false;      // the peer has closed its side
  bool storing = false;       // reading into `store`, which may be larger than what has arrived
  std::vector<std::byte> store;
  std::list<Stored> stored;
  int64_t ahead = 0;  // bytes of stored messages, including the one being read
};

// Message being sent. Messages of exchange() have no `posted`.
struct Outgoing {
  Header header;
  int to;
  const std::byte* data;
  const OpInfo* op;
  PostedPointer posted;
  int64_t written = 0;  // header included
  int64_t total() const { return static_cast<int64_t>(sizeof header) + header.bytes; }
  bool done() const { return written == total(); }
};

struct Incoming {
  RecvPart part;
  const OpInfo* op;
  PostedPointer posted;
  bool started = false;
  bool done = false;
};

class TcpTransport final : public Transport {
 public:
  explicit TcpTransport(const TcpOptions& options)
      : TcpTransport(options.rank, connect_ranks(options)) {}
  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(sockets_.size()); }
  const char* name() const override { return "tcp"; }

  std::vector<int> life_lines() const override {
    std::vector<int> descriptors;
    descriptors.reserve(life_lines_.size());
    for (const Socket& line : life_lines_) descriptors.push_back(line.fd());
    return descriptors;
  }

  void exchange(std::span<const SendPart> sends, std::span<const RecvPart> recvs, const OpInfo& op,
                Liveness& liveness) override {
    for (const SendPart& s : sends)
      out_.push_back({{s.tag, s.bytes}, s.to, static_cast<const std::byte*>(s.data), &op, nullptr});
    for (const RecvPart& r : recvs) in_.push_back({r, &op, nullptr});
    Patience patience(liveness, op);
    try {
      for (;;) {
        start_posted();
        move(liveness);
        const auto mine = [](const auto& message) { return !message.posted; };
        const auto waiting = std::ranges::find_if(in_, mine);
        const auto sending = std::ranges::find_if(out_, mine);
        if (waiting == in_.end() && sending == out_.end()) return;
        patience.check(waiting != in_.end() ? waiting->part.from : sending->to);
        sleep_until_ready();
      }
    } catch (...) {
      std::erase_if(in_, [](const Incoming& i) { return !i.posted; });
      std::erase_if(out_, [](const Outgoing& o) { return !o.posted; });
      throw;
    }
  }

  void post(PostedPointer message) override {
    posted_.add(std::move(message));
    const uint64_t one = 1;  // wakes a thread that sleeps in exchange()
    [[maybe_unused]] const ssize_t written = write(wake_.fd(), &one, sizeof one);
  }

  std::chrono::microseconds progress(Liveness& liveness) override {
    start_posted();
    if (in_.empty() && out_.empty()) return {};
    try {
      move(liveness);
      const bool due = watch_.due();
      const auto look = [&](const auto& messages) {
        for (const auto& message : messages)
          if (due && message.posted)
            if (const auto loss = watch_.look(liveness, *message.posted))
              std::rethrow_exception(loss);
      };
      look(in_);
      look(out_);
    } catch (...) {
      fail_posted(std::current_exception());
    }
    return in_.empty() && out_.empty() ? std::chrono::microseconds() : kTcpNap;
  }

  void broadcast_loss() noexcept override {
    for (const Socket& socket : sockets_) socket.shut_down();
  }

 private:
  TcpTransport(int rank, RankSockets sockets)
      : rank_(rank),
        sockets_(std::move(sockets.messages)),
        life_lines_(std::move(sockets.life_lines)),
        inboxes_(sockets_.size()),
        wake_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
    if (!wake_.open()) throw Error(concat("eventfd: ", std::strerror(errno)));
  }

  void start_posted() {
    for (PostedPointer& m : posted_.take()) {
      if (m->sends)
        out_.push_back({{m->tag, m->bytes}, m->peer, m->data, &m->op, std::move(m)});
      else
        in_.push_back({{m->peer, m->tag, m->data, m->bytes}, &m->op, std::move(m)});
    }
  }

  // Reads and writes without blocking; removes and reports completed messages.
  void move(Liveness& liveness) {
    for (Incoming& i : in_) take_stored(i);
    for (size_t peer = 0; peer < sockets_.size(); ++peer)
      if (sockets_[peer].open()) read_from(static_cast<int>(peer));
    // One message at a time to each peer.
    blocked_.assign(sockets_.size(), false);
    for (Outgoing& o : out_) {
      const auto to = static_cast<size_t>(o.to);
      if (!blocked_[to]) write_to(o, liveness);
      blocked_[to] = blocked_[to] || !o.done();
    }
    std::vector<PostedPointer> complete;
    std::erase_if(in_, [&](const Incoming& i) {
      if (i.done && i.posted) complete.push_back(i.posted);
      return i.done;
    });
    std::erase_if(out_, [&](const Outgoing& o) {
      if (o.done() && o.posted) complete.push_back(o.posted);
      return o.done();
    });
    for (const PostedPointer& message : complete) message->done(nullptr);
    for (const Incoming& i : in_) check_open(i, liveness);
  }

  void fail_posted(const std::exception_ptr& error) {
    std::vector<PostedPointer> failed;
    const auto take = [&](auto& messages) {
      std::erase_if(messages, [&](const auto& message) {
        if (message.posted) failed.push_back(message.posted);
        return message.posted != nullptr;
      });
    };
    take(in_);
    take(out_);
    for (const PostedPointer& message : failed) message->done(error);
  }

  void take_stored(Incoming& in) {
    if (in.started) return;
    std::list<Stored>& stored = inbox(in.part.from).stored;
    const auto it =
        std::ranges::find_if(stored, [&](const Stored& s) { return s.tag == in.part.tag; });
    if (it == stored.end()) return;
    const auto got = static_cast<int64_t>(it->bytes.size());
    if (got != in.part.bytes) fail_message_size(*in.op, in.part.from, got, in.part.bytes);
    if (got > 0) std::memcpy(in.part.data, it->bytes.data(), it->bytes.size());
    in.started = in.done = true;
    inbox(in.part.from).ahead -= got;
    stored.erase(it);
  }

  Inbox& inbox(int peer) { return inboxes_[static_cast<size_t>(peer)]; }
  int fd(int peer) const { return sockets_[static_cast<size_t>(peer)].fd(); }

  // Bytes read; 0 if nothing is available or the peer has closed.
  int64_t read_some(int peer, void* into, int64_t bytes) {
    const ssize_t got = recv(fd(peer), into, static_cast<size_t>(bytes), 0);
    if (got > 0) return got;
    const bool later = got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR);
    if (!later) inbox(peer).finished = true;
    return 0;
  }

  // Reads everything that is available and wanted.
  void read_from(int peer) {
    Inbox& box = inbox(peer);
    while (!box.finished) {
      if (box.header_bytes < sizeof(Header)) {
        const int64_t got =
            read_some(peer, reinterpret_cast<std::byte*>(&box.header) + box.header_bytes,
                      static_cast<int64_t>(sizeof(Header) - box.header_bytes));
        if (got == 0) return;
        box.header_bytes += static_cast<size_t>(got);
        if (box.header_bytes < sizeof(Header)) continue;
        if (box.header.bytes < 0 || box.header.tag < 0 || box.header.tag >= kTagLimit)
          throw Error(concat("world rank ", peer, " sent a damaged message header"));
      }
      if (box.into == nullptr && !choose_memory(peer)) return;
      while (box.read < box.header.bytes) {
        const int64_t room = room_in(box);  // may move `into`
        const int64_t got = read_some(peer, box.into + box.read, room);
        if (got == 0) return;
        box.read += got;
      }
      finish_message(peer);
    }
  }

  // Chooses the memory for the message whose header was read; false: it stays in the network.
  bool choose_memory(int peer) {
    Inbox& box = inbox(peer);
    bool blocks_another = false;
    for (Incoming& i : in_) {
      if (i.started || i.part.from != peer) continue;
      if (i.part.tag != box.header.tag) {
        blocks_another = true;
        continue;
      }
      if (box.header.bytes != i.part.bytes)
        fail_message_size(*i.op, peer, box.header.bytes, i.part.bytes);
      i.started = true;
      box.into = static_cast<std::byte*>(i.part.data);
      if (box.into == nullptr) box.into = nowhere_;
      return true;
    }
    if (box.header.bytes > kStored && !blocks_another) return false;
    if (box.header.bytes > kMaxAhead - box.ahead)
      throw Error(concat("world rank ", peer, " sends ", box.header.bytes,
                         " bytes that no receive ", "expects, in addition to ", box.ahead,
                         " stored bytes; at most ", kMaxAhead, " bytes are stored"));
    box.ahead += box.header.bytes;
    box.storing = true;
    (void)room_in(box);
    return true;
  }

  // Bytes that may be read at `into + read`; grows the storage if there are none.
  static int64_t room_in(Inbox& box) {
    if (!box.storing) return box.header.bytes - box.read;
    if (box.read == std::ssize(box.store)) {
      const int64_t wanted = std::max(2 * box.read, kStoreStep);
      box.store.resize(static_cast<size_t>(std::clamp<int64_t>(box.header.bytes, 1, wanted)));
      box.into = box.store.data();
    }
    return std::ssize(box.store) - box.read;
  }

  void finish_message(int peer) {
    Inbox& box = inbox(peer);
    const auto tag = static_cast<int>(box.header.tag);
    if (box.storing) {
      box.storing = false;
      box.store.resize(static_cast<size_t>(box.header.bytes));
      box.stored.push_back({tag, std::move(box.store)});
      box.store = {};
    } else {
      for (Incoming& i : in_)
        if (i.started && i.part.from == peer && i.part.tag == tag) i.done = true;
    }
    box.header_bytes = 0;
    box.into = nullptr;
    box.read = 0;
    for (Incoming& i : in_)
      if (i.part.from == peer) take_stored(i);
  }

  void write_to(Outgoing& out, Liveness& liveness) {
    constexpr auto kHeader = static_cast<int64_t>(sizeof(Header));
    while (out.written < out.total()) {
      const std::byte* at = reinterpret_cast<const std::byte*>(&out.header) + out.written;
      int64_t bytes = kHeader - out.written;
      if (bytes <= 0) {
        at = out.data + (out.written - kHeader);
        bytes = out.total() - out.written;
      }
      const ssize_t sent = send(fd(out.to), at, static_cast<size_t>(bytes), MSG_NOSIGNAL);
      if (sent > 0) {
        out.written += sent;
        continue;
      }
      if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) return;
      fail_closed(out.to, *out.op, liveness);
    }
  }

  void check_open(const Incoming& waiting, Liveness& liveness) {
    if (inbox(waiting.part.from).finished) fail_closed(waiting.part.from, *waiting.op, liveness);
  }

  // The peer's life line, or the board, reports the cause in a moment.
  [[noreturn]] static void fail_closed(int peer, const OpInfo& op, Liveness& liveness) {
    liveness.fail_after_grace(op, concat("rank ", peer, " closed its connection"));
  }

  void sleep_until_ready() {
    ready_.assign(1, {wake_.fd(), POLLIN, 0});
    for (const Incoming& i : in_) ready_.push_back({fd(i.part.from), POLLIN, 0});
    for (const Outgoing& o : out_) ready_.push_back({fd(o.to), POLLOUT, 0});
    poll(ready_.data(), ready_.size(), 20);
    uint64_t count = 0;
    [[maybe_unused]] const ssize_t got = read(wake_.fd(), &count, sizeof count);
  }

  int rank_;
  std::vector<Socket> sockets_;
  std::vector<Socket> life_lines_;
  std::vector<Inbox> inboxes_;
  std::list<Incoming> in_;  // in the order of posting
  std::list<Outgoing> out_;
  std::vector<bool> blocked_;
  std::vector<pollfd> ready_;
  PostedQueue posted_;
  PostedWatch watch_;
  Socket wake_;  // an eventfd: written by post()
  std::byte nowhere_[1] = {};
};

}  // namespace

std::unique_ptr<Transport> make_tcp_transport(const TcpOptions& options) {
  TRIREME_CHECK(options.size >= 1 && options.rank >= 0 && options.rank < options.size, "rank ",
                options.rank, " is not one of ", options.size, " ranks");
  return std::make_unique<TcpTransport>(options);
}

}  // namespace trireme
