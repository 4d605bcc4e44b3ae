#include "parallel/comm/control/control_rendezvous.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <thread>

#include "engine/observe/log.h"
#include "parallel/comm/control/records.h"
#include "parallel/comm/rank_state.h"
#include "parallel/comm/transport/shared_secret.h"

namespace trireme {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kNoDescriptor{100};  // before the next attempt after accept() failed
constexpr size_t kNonceBytes = 32;
constexpr int64_t kMaxWarnings = 10;  // strangers must not fill the log

enum class HandshakeKind : uint32_t { kChallenge = 1, kHello, kWelcome };

struct RankHello {
  int32_t rank = 0, process = 0;
  std::string program, nonce, proof;
};

template <class S>
auto members(S& hello) requires std::same_as<std::remove_const_t<S>, RankHello> {
  auto& [rank, process, program, nonce, proof] = hello;
  return std::tie(rank, process, program, nonce, proof);
}

std::string rank_proof(const ControlAddress& address, const std::string& challenge,
                       const RankHello& hello) {
  return secret_proof(address.secret, {"rank", challenge, text(hello.rank), text(hello.process),
                                       hello.program, hello.nonce});
}

std::string listener_proof(const ControlAddress& address, const std::string& challenge,
                           const RankHello& hello) {
  return secret_proof(address.secret, {"listener", hello.nonce, challenge, text(hello.rank)});
}

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

// Receives the next message, which must be of this kind.
std::string expect(ControlChannel& channel, HandshakeKind kind,
                   milliseconds limit = ControlListener::kHandshake) {
  const std::optional<Message> message = channel.receive(limit);
  if (!message || !message->is(kind))
    throw BadMessage(concat(channel.peer(), " did not authenticate"));
  return {reinterpret_cast<const char*>(message->payload.data()), message->payload.size()};
}

std::unique_ptr<ControlChannel> channel_of(Socket socket_, std::string peer) {
  const int yes = 1;  // no effect on a Unix socket
  setsockopt(socket_.fd(), IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
  return std::make_unique<ControlChannel>(std::move(socket_), std::move(peer));
}

// Abstract address: the name starts with a zero byte, and the socket has no file.
socklen_t fill(sockaddr_un& address, const std::string& name) {
  address = {};
  address.sun_family = AF_UNIX;
  TRIREME_CHECK(name.size() + 1 < sizeof address.sun_path, "socket name too long: ", name);
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
}

struct Found {
  explicit Found(const std::string& host, const std::string& port, int flags) {
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = flags;
    if (const int code = getaddrinfo(host.c_str(), port.c_str(), &hints, &list); code != 0)
      fail_input("cannot resolve the address \"", host,
                 "\" of the ranks' control channel: ", gai_strerror(code));
  }
  ~Found() { freeaddrinfo(list); }
  Found(const Found&) = delete;
  Found& operator=(const Found&) = delete;
  addrinfo* list = nullptr;
};

bool same_user(const Socket& socket_) {
  ucred who{};
  socklen_t length = sizeof who;
  if (getsockopt(socket_.fd(), SOL_SOCKET, SO_PEERCRED, &who, &length) != 0) return false;
  return who.uid == geteuid();
}

Socket connect_once(const std::string& where) {
  if (where.starts_with("unix:")) {
    sockaddr_un address;
    const socklen_t length = fill(address, where.substr(5));
    Socket socket_(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (connect(socket_.fd(), reinterpret_cast<sockaddr*>(&address), length) == 0) return socket_;
    return {};
  }
  const size_t colon = where.rfind(':');
  const Found found(where.substr(4, colon - 4), where.substr(colon + 1), AI_NUMERICSERV);
  for (const addrinfo* a = found.list; a != nullptr; a = a->ai_next) {
    Socket socket_(socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (connect(socket_.fd(), a->ai_addr, a->ai_addrlen) == 0) return socket_;
  }
  return {};
}

}  // namespace

std::string ControlAddress::line() const { return concat(where, " ", secret); }

ControlAddress ControlAddress::parse(const std::string& line) {
  const size_t space = line.find(' ');
  ControlAddress address;
  if (space != std::string::npos) address = {line.substr(0, space), line.substr(space + 1)};
  const bool known = address.where.starts_with("unix:") ||
                     (address.where.starts_with("tcp:") && address.where.rfind(':') > 4);
  if (!known || address.secret.size() != 2 * kNonceBytes)
    fail_input("\"", address.where,
               "\" is not a control channel: expected unix:NAME or tcp:HOST:PORT, and a secret");
  return address;
}

ControlListener::ControlListener(Socket socket, std::string where)
    : socket_(std::move(socket)), address_{std::move(where), make_secret()} {
  if (listen(socket_.fd(), SOMAXCONN) != 0)
    throw Error(concat("cannot listen on ", address_.where, ": ", std::strerror(errno)));
  socket_.set_non_blocking();
}

ControlListener ControlListener::on_this_machine() {
  const std::string name = concat("trireme-", hex_digits(random_bytes(16)));
  sockaddr_un address;
  const socklen_t length = fill(address, name);
  Socket socket_(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket_.open() || bind(socket_.fd(), reinterpret_cast<sockaddr*>(&address), length) != 0)
    throw Error(concat("cannot create a control channel: ", std::strerror(errno)));
  return ControlListener(std::move(socket_), concat("unix:", name));
}

ControlListener ControlListener::on_address(const std::string& host) {
  char name[256] = "";
  gethostname(name, sizeof name - 1);
  const std::string own = host.empty() ? name : host;
  const Found found(own, "0", AI_NUMERICSERV);
  for (const addrinfo* a = found.list; a != nullptr; a = a->ai_next) {
    Socket socket_(socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (!socket_.open() || bind(socket_.fd(), a->ai_addr, a->ai_addrlen) != 0) continue;
    sockaddr_storage bound{};
    socklen_t length = sizeof bound;
    getsockname(socket_.fd(), reinterpret_cast<sockaddr*>(&bound), &length);
    char address[NI_MAXHOST], port[NI_MAXSERV];
    getnameinfo(reinterpret_cast<sockaddr*>(&bound), length, address, sizeof address, port,
                sizeof port, NI_NUMERICHOST | NI_NUMERICSERV);
    return ControlListener(std::move(socket_), concat("tcp:", address, ":", port));
  }
  fail_input("cannot listen for ranks on \"", own, "\": ", std::strerror(errno),
             "; name an address of this machine that the others reach");
}

std::unique_ptr<ControlListener::ConnectedRank> ControlListener::accept(milliseconds limit) {
  const auto end = Clock::now() + limit;
  do {
    if (auto peer = introduced(wait_until(end))) return peer;
    turn_away_silent();
    take_stranger();
  } while (Clock::now() < end);
  return {};
}

// Waits until a peer connects or sends, or until another time limit is due. Returns which strangers
// have sent something.
std::vector<bool> ControlListener::wait_until(Clock::time_point end) const {
  const bool takes = Clock::now() >= takes_again_;
  if (!takes) end = std::min(end, takes_again_);
  if (!pending_.empty()) end = std::min(end, pending_.front().came + kHandshake);
  std::vector<pollfd> ready{{takes ? socket_.fd() : -1, POLLIN, 0}};
  for (const PendingConnection& pending : pending_)
    ready.push_back({pending.channel->fd(), POLLIN, 0});
  const auto left = std::chrono::ceil<milliseconds>(end - Clock::now());
  ::poll(ready.data(), ready.size(), static_cast<int>(std::max(left, milliseconds(0)).count()));
  std::vector<bool> said;
  for (size_t i = 1; i < ready.size(); ++i) said.push_back(ready[i].revents != 0);
  return said;
}

// First pending that proves its identity. Those that send anything else are rejected.
std::unique_ptr<ControlListener::ConnectedRank> ControlListener::introduced(
    const std::vector<bool>& said) {
  auto pending = pending_.begin();
  for (const bool something : said) {
    std::unique_ptr<ConnectedRank> peer;
    try {
      const auto message = something ? pending->channel->poll() : std::nullopt;
      if (!message) {
        ++pending;
        continue;
      }
      peer = connected_rank_of(*pending, *message);
    } catch (const Error& error) {
      turn_away(error.what());
    }
    pending = pending_.erase(pending);
    if (peer != nullptr) return peer;
  }
  return {};
}

std::unique_ptr<ControlListener::ConnectedRank> ControlListener::connected_rank_of(
    PendingConnection& pending, const Message& message) const {
  if (!message.is(HandshakeKind::kHello))
    throw BadMessage("an unknown process did not authenticate");
  RankHello hello;
  RecordReader reader(message.payload);
  reader.get(hello);
  reader.expect_end();
  if (!equal_in_constant_time(hello.proof, rank_proof(address_, pending.challenge, hello)))
    throw BadMessage("the process does not know this job's secret");
  if (hello.program != executable_build_id())
    throw BadMessage(concat("rank ", hello.rank,
                            " runs another build of the program: start the same one everywhere"));
  auto peer = std::make_unique<ConnectedRank>(
      ConnectedRank{hello.rank, hello.process, std::move(pending.channel)});
  peer->channel->send(HandshakeKind::kWelcome, 0,
                      bytes_of(listener_proof(address_, pending.challenge, hello)));
  peer->channel->name_peer(concat("rank ", hello.rank, " (process ", hello.process, ")"));
  return peer;
}

void ControlListener::turn_away_silent() {
  while (!pending_.empty() && Clock::now() >= pending_.front().came + kHandshake) {
    turn_away("an unknown process did not authenticate in time");
    pending_.erase(pending_.begin());
  }
}

// Accepts one connection, if there is one. When there are kMaxPending already, the oldest is
// rejected once it has had kMinHandshake, in which a rank would have responded: many silent
// strangers cannot keep ranks out.
void ControlListener::take_stranger() {
  const auto now = Clock::now();
  if (now < takes_again_) return;
  const bool full = pending_.size() == kMaxPending;
  if (full) takes_again_ = pending_.front().came + kMinHandshake;
  if (now < takes_again_) return;
  Socket taken(accept4(socket_.fd(), nullptr, nullptr, SOCK_CLOEXEC));
  if (!taken.open()) {
    const bool nobody = errno == EAGAIN || errno == EINTR || errno == ECONNABORTED;
    if (!nobody) takes_again_ = now + kNoDescriptor;
    return;
  }
  if (full) {
    turn_away("too many connections wait for authentication; closing the oldest");
    pending_.erase(pending_.begin());
  }
  try {
    if (address_.where.starts_with("unix:") && !same_user(taken))
      throw BadMessage("the process belongs to another user");
    PendingConnection pending{channel_of(std::move(taken), "an unknown process"),
                              random_bytes(kNonceBytes), now};
    pending.channel->send(HandshakeKind::kChallenge, 0, bytes_of(pending.challenge));
    pending_.push_back(std::move(pending));
  } catch (const Error& error) {
    turn_away(error.what());
  }
}

void ControlListener::turn_away(const char* why) {
  if (++turned_away_ > kMaxWarnings) return;
  log_warning("rejected a connection to the ranks' control channel: ", why,
              turned_away_ == kMaxWarnings ? "; further ones are not logged" : "");
}

std::unique_ptr<ControlChannel> connect_control_channel(const ControlAddress& address, int rank,
                                                        milliseconds limit) {
  const auto end = Clock::now() + limit;
  Socket socket_ = connect_once(address.where);
  while (!socket_.open()) {
    if (Clock::now() >= end)
      throw Error(concat("no process listens for ranks at ", address.where), ExitCode::kLostRank);
    std::this_thread::sleep_for(milliseconds(20));
    socket_ = connect_once(address.where);
  }
  auto channel = channel_of(std::move(socket_), "the leading process");
  // Other connections may be served first.
  const auto left = std::chrono::ceil<milliseconds>(end - Clock::now());
  const std::string challenge =
      expect(*channel, HandshakeKind::kChallenge, std::max(left, ControlListener::kHandshake));
  RankHello hello{.rank = rank,
                  .process = getpid(),
                  .program = executable_build_id(),
                  .nonce = random_bytes(kNonceBytes),
                  .proof = {}};
  hello.proof = rank_proof(address, challenge, hello);
  RecordWriter writer;
  writer.put(hello);
  channel->send(HandshakeKind::kHello, 0, writer.take());
  if (!equal_in_constant_time(expect(*channel, HandshakeKind::kWelcome),
                              listener_proof(address, challenge, hello)))
    throw BadMessage("the process that listens for ranks does not know this job's secret");
  return channel;
}

}  // namespace trireme
