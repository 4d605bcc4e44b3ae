#include "parallel/comm/control/control_rendezvous.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <thread>

#include "engine/observe/log.h"
#include "parallel/comm/control/records.h"
#include "parallel/comm/rank_state.h"
#include "parallel/comm/secret_file.h"
#include "parallel/comm/transport/shared_secret.h"
#include "parallel/comm/transport/tcp_address.h"

namespace trireme {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kNoDescriptor{100};  // before the next attempt after accept() failed
constexpr milliseconds kConnectAttempt{10'000};
constexpr milliseconds kFirstPause{20}, kMaxPause{1000};  // between attempts to connect
constexpr size_t kNonceBytes = 32;
constexpr int64_t kMaxWarnings = 10;  // strangers must not fill the log

enum class HandshakeKind : uint32_t { kChallenge = 1, kHello, kWelcome, kRejected };

// Builds with different protocols read each other's: another layout needs another magic number of
// the channel.
struct RankHello {
  int32_t rank = 0, process = 0;
  uint32_t protocol = ControlPeers::kSameBuild;
  std::string program, nonce, proof;
};

struct Rejection {
  std::string why, proof;
};

template <class S>
auto members(S& hello) requires std::same_as<std::remove_const_t<S>, RankHello> {
  auto& [rank, process, protocol, program, nonce, proof] = hello;
  return std::tie(rank, process, protocol, program, nonce, proof);
}

template <class S>
auto members(S& rejection) requires std::same_as<std::remove_const_t<S>, Rejection> {
  auto& [why, proof] = rejection;
  return std::tie(why, proof);
}

template <class Record>
std::vector<std::byte> encode_record(const Record& record) {
  RecordWriter writer;
  writer.put(record);
  return writer.take();
}

template <class Record>
Record decode_record(const Message& message) {
  Record record;
  RecordReader reader(message.payload);
  reader.get(record);
  reader.expect_end();
  return record;
}

std::string rank_proof(const ControlAddress& address, const std::string& challenge,
                       const RankHello& hello) {
  return secret_proof(address.secret, {"rank", challenge, text(hello.rank), text(hello.process),
                                       text(hello.protocol), hello.program, hello.nonce});
}

std::string listener_proof(const ControlAddress& address, const std::string& challenge,
                           const RankHello& hello) {
  return secret_proof(address.secret, {"listener", hello.nonce, challenge, text(hello.rank)});
}

std::string rejection_proof(const ControlAddress& address, const std::string& challenge,
                            const RankHello& hello, const std::string& why) {
  return secret_proof(address.secret, {"rejection", hello.nonce, challenge, why});
}

// Reason to reject a rank that knows the secret; empty: none.
std::string mismatch(const RankHello& hello, const ControlPeers& peers) {
  if (hello.protocol != peers.protocol)
    return concat(peers.one, " ", hello.rank, " has version ", hello.protocol, " of the ",
                  peers.all, "' protocol, ", peers.listener, " has version ", peers.protocol,
                  ": start the same release of the program everywhere");
  if (peers.protocol == ControlPeers::kSameBuild && hello.program != executable_build_id())
    return concat(peers.one, " ", hello.rank,
                  " runs another build of the program: start the same one everywhere");
  return {};
}

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

std::string text_of(const Message& message) {
  return {reinterpret_cast<const char*>(message.payload.data()), message.payload.size()};
}

// Receives the next message, which must be of one of these kinds.
Message expect(ControlChannel& channel, std::initializer_list<HandshakeKind> kinds,
               milliseconds limit) {
  std::optional<Message> message = channel.receive(limit);
  if (!message || std::ranges::none_of(kinds, [&](auto kind) { return message->is(kind); }))
    throw BadMessage(concat(channel.peer(), " did not authenticate"));
  return *std::move(message);
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

[[noreturn]] void fail_to_resolve(const std::string& host, const std::string& why,
                                  const ControlPeers& peers) {
  fail_input("cannot resolve the address \"", host, "\" of the ", peers.all,
             "' control channel: ", why, "; give a numeric address, or a name that resolves here");
}

void check_port(int port, int min, const ControlPeers& peers) {
  if (port < min || port > 65535)
    fail_input("the port of the ", peers.all, "' control channel is ", port, ", expected ", min,
               " to 65535");
}

void check_secret(const std::string& secret, const ControlPeers& peers) {
  if (secret.size() < kMinSecret)
    fail_input("the secret of the ", peers.all, "' control channel has ", secret.size(),
               " characters, expected at least ", kMinSecret,
               "; give a longer one, such as the output of openssl rand -hex 32");
}

// Parts of "tcp:HOST:PORT"; absent: another form.
std::optional<HostAndPort> tcp_parts(const std::string& where) {
  return where.starts_with("tcp:") ? host_and_port(where.substr(4)) : std::nullopt;
}

bool same_user(const Socket& socket_) {
  ucred who{};
  socklen_t length = sizeof who;
  if (getsockopt(socket_.fd(), SOL_SOCKET, SO_PEERCRED, &who, &length) != 0) return false;
  return who.uid == geteuid();
}

Socket connect_once(const std::string& where, Clock::time_point end, const ControlPeers& peers) {
  if (where.starts_with("unix:")) {
    sockaddr_un address;
    const socklen_t length = fill(address, where.substr(5));
    Socket socket_(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (connect(socket_.fd(), reinterpret_cast<sockaddr*>(&address), length) == 0) return socket_;
    return {};
  }
  const std::optional<HostAndPort> parts = tcp_parts(where);
  TRIREME_CHECK(parts.has_value(), "no address of a control channel: ", where);
  std::string why;
  const std::vector<TcpAddress> found = find_tcp(parts->host, parts->port, why);
  if (found.empty()) fail_to_resolve(parts->host, why, peers);
  for (const TcpAddress& address : found) {
    Socket socket_ = connect_to(address, std::min(end, Clock::now() + kConnectAttempt));
    if (socket_.open()) return socket_;
  }
  return {};
}

Socket connect_until(const std::string& where, Clock::time_point end, const ControlPeers& peers) {
  for (milliseconds pause = kFirstPause;; pause = std::min(2 * pause, kMaxPause)) {
    Socket socket_ = connect_once(where, end, peers);
    if (socket_.open()) return socket_;
    const auto left = std::chrono::ceil<milliseconds>(end - Clock::now());
    if (left <= milliseconds(0))
      throw Error(concat("no process listens for ", peers.all, " at ", where), ExitCode::kLostRank);
    std::this_thread::sleep_for(std::min(pause, left));
  }
}

// Proves this rank's identity to the listener, and checks the listener's.
void introduce(ControlChannel& channel, const ControlAddress& address, const std::string& challenge,
               RankHello hello, const ControlPeers& peers) {
  hello.proof = rank_proof(address, challenge, hello);
  channel.send(HandshakeKind::kHello, 0, encode_record(hello));
  const Message reply = expect(channel, {HandshakeKind::kWelcome, HandshakeKind::kRejected},
                               ControlListener::kHandshake);
  const bool rejected = reply.is(HandshakeKind::kRejected);
  const Rejection rejection =
      rejected ? decode_record<Rejection>(reply) : Rejection{.why = {}, .proof = text_of(reply)};
  const std::string expected = rejected ? rejection_proof(address, challenge, hello, rejection.why)
                                        : listener_proof(address, challenge, hello);
  if (!equal_in_constant_time(rejection.proof, expected))
    throw BadMessage(
        concat("the process that listens for ", peers.all, " does not know this job's secret"));
  if (rejected) fail_input("rejected by ", channel.peer(), ": ", rejection.why);
}

}  // namespace

std::string ControlAddress::line() const { return concat(where, " ", secret); }

ControlAddress ControlAddress::parse(const std::string& line) {
  const size_t space = line.find(' ');
  ControlAddress address;
  if (space != std::string::npos) address = {line.substr(0, space), line.substr(space + 1)};
  const bool known = address.where.starts_with("unix:") || tcp_parts(address.where);
  if (!known || address.secret.size() != 2 * kNonceBytes)
    fail_input("\"", address.where,
               "\" is not a control channel: expected unix:NAME or tcp:HOST:PORT, and a secret");
  return address;
}

std::optional<HostAndPort> host_and_port(const std::string& text) {
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos || colon == 0) return {};
  HostAndPort parts{text.substr(0, colon)};
  if (parts.host.starts_with('[') && parts.host.ends_with(']'))
    parts.host = parts.host.substr(1, parts.host.size() - 2);
  const char* const end = text.data() + text.size();
  const auto [last, error] = std::from_chars(text.data() + colon + 1, end, parts.port);
  if (error != std::errc() || last != end) return {};
  return parts;
}

ControlAddress ControlAddress::tcp(const std::string& host, int port, std::string secret,
                                   const ControlPeers& peers) {
  check_port(port, 1, peers);
  check_secret(secret, peers);
  const bool bare = host.find(':') != std::string::npos && !host.starts_with('[');
  return {concat("tcp:", bare ? "[" : "", host, bare ? "]" : "", ":", port), std::move(secret)};
}

ControlListener::ControlListener(Socket socket, ControlAddress address, const ControlPeers& peers)
    : socket_(std::move(socket)), address_(std::move(address)), peers_(peers) {
  socket_.set_non_blocking();
}

ControlListener ControlListener::on_this_machine() {
  const std::string name = concat("trireme-", hex_digits(random_bytes(16)));
  sockaddr_un address;
  const socklen_t length = fill(address, name);
  Socket socket_(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket_.open() || bind(socket_.fd(), reinterpret_cast<sockaddr*>(&address), length) != 0 ||
      listen(socket_.fd(), SOMAXCONN) != 0)
    throw Error(concat("cannot create a control channel: ", std::strerror(errno)));
  return ControlListener(std::move(socket_), {concat("unix:", name), make_secret()}, {});
}

ControlListener ControlListener::on_address(const std::string& host, int port, std::string secret,
                                            const ControlPeers& peers) {
  if (secret.empty()) secret = make_secret();
  check_secret(secret, peers);
  check_port(port, 0, peers);
  char name[256] = "";
  gethostname(name, sizeof name - 1);
  const std::string own = host.empty() ? name : host;
  std::string why;
  const std::vector<TcpAddress> found = find_tcp(own, port, why);
  if (found.empty()) fail_to_resolve(own, why, peers);
  for (const TcpAddress& address : found) {
    Socket socket_ = listen_at(address);
    if (socket_.open()) {
      std::string where = concat("tcp:", local_address(socket_).text());
      return ControlListener(std::move(socket_), {std::move(where), std::move(secret)}, peers);
    }
    if (errno == EADDRINUSE) break;  // peers may try this address first
  }
  const int error_number = errno;
  const bool other_port = port != 0 && (error_number == EADDRINUSE || error_number == EACCES);
  fail_input("cannot listen for ", peers.all, " on \"", own, "\"",
             port == 0 ? "" : concat(" port ", port), ": ", std::strerror(error_number),
             other_port ? "; choose another port, or end the process that uses this one"
                        : "; name an address of this machine that the others reach");
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
  const auto hello = decode_record<RankHello>(message);
  if (!equal_in_constant_time(hello.proof, rank_proof(address_, pending.challenge, hello)))
    throw BadMessage("the process does not know this job's secret");
  if (const std::string why = mismatch(hello, peers_); !why.empty()) {
    const std::string proof = rejection_proof(address_, pending.challenge, hello, why);
    pending.channel->send(HandshakeKind::kRejected, 0, encode_record(Rejection{why, proof}));
    throw BadMessage(why);
  }
  auto peer = std::make_unique<ConnectedRank>(
      ConnectedRank{hello.rank, hello.process, std::move(pending.channel)});
  peer->channel->send(HandshakeKind::kWelcome, 0,
                      bytes_of(listener_proof(address_, pending.challenge, hello)));
  peer->channel->name_peer(concat(peers_.one, " ", hello.rank, " (process ", hello.process, ")"));
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
  log_warning("rejected a connection to the ", peers_.all, "' control channel: ", why,
              turned_away_ == kMaxWarnings ? "; further ones are not logged" : "");
}

std::unique_ptr<ControlChannel> connect_control_channel(const ControlAddress& address, int rank,
                                                        milliseconds limit,
                                                        const ControlPeers& peers) {
  const auto end = Clock::now() + limit;
  auto channel = channel_of(connect_until(address.where, end, peers), peers.listener);
  // Other connections may be served first.
  const auto left = std::chrono::ceil<milliseconds>(end - Clock::now());
  const Message challenge =
      expect(*channel, {HandshakeKind::kChallenge}, std::max(left, ControlListener::kHandshake));
  const bool same_build = peers.protocol == ControlPeers::kSameBuild;
  introduce(*channel, address, text_of(challenge),
            {.rank = rank,
             .process = getpid(),
             .protocol = peers.protocol,
             .program = same_build ? executable_build_id() : "",
             .nonce = random_bytes(kNonceBytes),
             .proof = {}},
            peers);
  return channel;
}

}  // namespace trireme
