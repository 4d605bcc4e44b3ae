#include "parallel/comm/transport/rank_acceptor.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "engine/observe/log.h"

namespace trireme {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kAcceptorNap{200};
constexpr milliseconds kNoDescriptorNap{100};  // until the next accept() after a failed one
constexpr milliseconds kNotice{10'000};
constexpr int kMaxAcceptorWarnings = 10;  // unknown peers must not fill a log

const char* reason_of(RankRefusal refusal) {
  switch (refusal) {
    case RankRefusal::kSecret: return "it does not know the secret of this run";
    case RankRefusal::kSize: return "it has another WORLD_SIZE";
    case RankRefusal::kRank: return "its RANK is not expected here";
    case RankRefusal::kTaken: return "its RANK is taken by another process";
    case RankRefusal::kNone: break;
  }
  return "";
}

}  // namespace

RankAcceptor::RankAcceptor(const Socket& listener, const TcpOptions& options, int first,
                           RankLines& lines)
    : listener_(listener),
      options_(options),
      first_(first),
      lines_(lines),
      processes_(static_cast<size_t>(options.size)) {
  for (int r = first; r < options.size; ++r)
    if (r != options.rank) missing_ += kRankLines;
}

RankAcceptor::Clock::time_point RankAcceptor::notice_before(Clock::time_point end) {
  const auto now = Clock::now();
  return now + std::min<Clock::duration>(kNotice, (end - now) / 4);
}

void RankAcceptor::accept_all(Clock::time_point end, const Joined& joined) {
  const auto notice = notice_before(end);
  bool noticed = false;
  while (missing_ > 0) {
    const auto now = Clock::now();
    if (now >= end)
      throw Error(concat("rank ", options_.rank, " timed out: ", ceil_div(missing_, kRankLines),
                         " of ", options_.size, " ranks have not connected (", missing_ranks(),
                         ") within ", options_.timeout_s, " s (comm.timeout); start all with one ",
                         "MASTER_ADDR, MASTER_PORT and WORLD_SIZE, or unset RANK and WORLD_SIZE ",
                         "for a single process"),
                  ExitCode::kLostRank);
    if (!noticed && now >= notice) {
      noticed = true;
      log_warning("waiting at ", local_address(listener_).text(), " for ",
                  ceil_div(missing_, kRankLines), " of ", options_.size, " ranks (",
                  missing_ranks(), "); giving up after ", options_.timeout_s, " s (comm.timeout)");
    }
    read_greetings(wait(), joined);
    drop_silent();
    accept_one();
  }
}

// "rank 1, 3, ..."
std::string RankAcceptor::missing_ranks() const {
  constexpr int kShown = 16;
  std::string list;
  int count = 0;
  for (int r = first_; r < options_.size; ++r) {
    const auto open = [&](const std::vector<Socket>& line) {
      return line[static_cast<size_t>(r)].open();
    };
    if (r == options_.rank || std::ranges::all_of(lines_, open)) continue;
    if (count++ < kShown) list += concat(list.empty() ? "rank " : ", ", r);
  }
  return concat(list, count > kShown ? ", ..." : "");
}

// Waits until a peer connects or sends, or other work is due. Returns which strangers have sent.
std::vector<bool> RankAcceptor::wait() const {
  const auto now = Clock::now();
  milliseconds nap = kAcceptorNap;
  if (now < accepts_again_)
    nap = std::min(nap, std::chrono::ceil<milliseconds>(accepts_again_ - now));
  std::vector<pollfd> ready{{now < accepts_again_ ? -1 : listener_.fd(), POLLIN, 0}};
  for (const PendingConnection& pending : pending_)
    ready.push_back({pending.socket.fd(), POLLIN, 0});
  ::poll(ready.data(), ready.size(), static_cast<int>(nap.count()));
  std::vector<bool> sent;
  for (size_t i = 1; i < ready.size(); ++i) sent.push_back(ready[i].revents != 0);
  return sent;
}

void RankAcceptor::read_greetings(const std::vector<bool>& ready, const Joined& joined) {
  auto pending = pending_.begin();
  for (const bool sent : ready) {
    const ReadResult result = sent ? read_greeting(*pending) : ReadResult::kIncomplete;
    if (result == ReadResult::kIncomplete) {
      ++pending;
      continue;
    }
    if (result == ReadResult::kGreeting)
      admit_or_refuse(*pending, joined);
    else
      turn_away(*pending, "it is not a rank of this program");
    pending = pending_.erase(pending);
  }
}

RankAcceptor::ReadResult RankAcceptor::read_greeting(PendingConnection& pending) {
  const ssize_t got = recv(pending.socket.fd(), pending.bytes.data() + pending.got,
                           pending.bytes.size() - pending.got, 0);
  if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
    return ReadResult::kIncomplete;
  if (got <= 0) return ReadResult::kEnd;
  pending.got += static_cast<size_t>(got);
  uint32_t magic = 0;
  std::memcpy(&magic, pending.bytes.data(), sizeof magic);
  if (pending.got >= sizeof magic && magic != kRankMagic) return ReadResult::kEnd;
  return pending.got == pending.bytes.size() ? ReadResult::kGreeting : ReadResult::kIncomplete;
}

std::optional<RankRefusal> RankAcceptor::refusal_of(const PendingConnection& pending,
                                                    const RankGreeting& hello) const {
  const RankProof wanted = greeting_proof(options_.secret, pending.challenge, hello);
  if (!equal_in_constant_time({wanted.data(), wanted.size()},
                              {hello.proof.data(), hello.proof.size()}))
    return RankRefusal::kSecret;
  if (hello.size != options_.size) return RankRefusal::kSize;
  const bool expected = hello.peer == options_.rank && hello.rank >= first_ &&
                        hello.rank < options_.size && hello.rank != options_.rank &&
                        hello.port > 0 && hello.port < 65536 && hello.line >= 0 &&
                        hello.line < kRankLines;
  if (!expected) return RankRefusal::kRank;
  const auto rank = static_cast<size_t>(hello.rank);
  const bool taken = lines_[static_cast<size_t>(hello.line)][rank].open() ||
                     processes_[rank].value_or(hello.process) != hello.process;
  if (taken) return RankRefusal::kTaken;
  return {};
}

void RankAcceptor::admit_or_refuse(PendingConnection& pending, const Joined& joined) {
  RankGreeting hello;
  std::memcpy(&hello, pending.bytes.data(), sizeof hello);
  const RankRefusal refusal = refusal_of(pending, hello).value_or(RankRefusal::kNone);
  RankVerdict verdict{.refusal = refusal};
  if (refusal == RankRefusal::kNone)
    verdict.proof = verdict_proof(options_.secret, pending.challenge, hello);
  const ssize_t sent = send(pending.socket.fd(), &verdict, sizeof verdict, MSG_NOSIGNAL);
  if (refusal != RankRefusal::kNone) return turn_away(pending, reason_of(refusal));
  if (sent != sizeof verdict) return turn_away(pending, "it has closed its connection");
  const auto rank = static_cast<size_t>(hello.rank);
  processes_[rank] = hello.process;
  joined(hello, pending.from);
  lines_[static_cast<size_t>(hello.line)][rank] = std::move(pending.socket);
  --missing_;
}

void RankAcceptor::drop_silent() {
  while (!pending_.empty() && Clock::now() >= pending_.front().since + kIntroduction) {
    turn_away(pending_.front(), "it sent no greeting");
    pending_.erase(pending_.begin());
  }
}

// Accepts one pending connection. If kMaxPending are open, closes the oldest one once it is
// kMinIntroduction old. A rank sends its greeting within that time, so that many silent connections
// do not keep ranks out.
void RankAcceptor::accept_one() {
  const auto now = Clock::now();
  if (now < accepts_again_) return;
  const bool full = pending_.size() == kMaxPending;
  if (full) accepts_again_ = pending_.front().since + kMinIntroduction;
  if (now < accepts_again_) return;
  PendingConnection pending;
  pending.socket = Socket(accept4(listener_.fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!pending.socket.open()) {
    const bool nobody =
        errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR || errno == ECONNABORTED;
    if (!nobody) accepts_again_ = now + kNoDescriptorNap;  // out of descriptors: do not spin
    return;
  }
  if (full) {
    turn_away(pending_.front(), "it sent no greeting, and other connections wait");
    pending_.erase(pending_.begin());
  }
  pending.since = now;
  pending.from = peer_address(pending.socket);
  const std::string nonce = random_bytes(pending.challenge.nonce.size());
  std::ranges::copy(nonce, pending.challenge.nonce.begin());
  const ssize_t sent =
      send(pending.socket.fd(), &pending.challenge, sizeof pending.challenge, MSG_NOSIGNAL);
  if (sent == sizeof pending.challenge) pending_.push_back(std::move(pending));
}

void RankAcceptor::turn_away(const PendingConnection& pending, const char* why) {
  if (++turned_away_ > kMaxAcceptorWarnings) return;
  log_warning("closed a connection of ", pending.from.text(), " to the ranks: ", why,
              turned_away_ == kMaxAcceptorWarnings ? "; further ones are not reported" : "");
}

}  // namespace trireme
