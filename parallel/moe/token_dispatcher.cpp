#include "parallel/moe/token_dispatcher.h"

#include <algorithm>
#include <numeric>

#include "engine/ops/rows/sum_rows.h"
#include "engine/ops/rows/transfer.h"
#include "parallel/comm/collectives/collectives.h"

namespace trireme {
namespace {

// Buffer size in even shares; a second round is then rarely needed.
constexpr int64_t kSlack = 2;

size_t at(int64_t i) { return static_cast<size_t>(i); }

// Part of b that overlaps a; without overlap, an empty range inside b.
RowRange overlap(const RowRange& a, const RowRange& b) {
  const int64_t begin = std::min(std::max(a.begin, b.begin), b.end);
  return {begin, std::max(begin, std::min(a.end, b.end))};
}

void copy_range(Ctx& ctx, const Tensor& to, int64_t to_row, const ConstTensor& from,
                int64_t from_row, int64_t rows) {
  transfer(ctx, to.slice(0, to_row, to_row + rows), from.slice(0, from_row, from_row + rows));
}

std::vector<int64_t> times(const std::vector<int64_t>& rows, int64_t columns) {
  std::vector<int64_t> elements(rows);
  for (int64_t& e : elements) e *= columns;
  return elements;
}

// All members' numbers, one list after the other.
std::vector<int64_t> gather(Communicator* group, std::vector<int64_t> mine) {
  if (group == nullptr) return mine;
  const int64_t n = std::ssize(mine);
  std::vector<int64_t> all(at(n * group->size()));
  group->all_gather(Tensor(all.data(), DType::kI64, {std::ssize(all)}),
                    ConstTensor(mine.data(), DType::kI64, {n}));
  return all;
}

// all_to_all_v with counts in elements.
Work swap(Ctx& ctx, Communicator* group, const Tensor& out, const std::vector<int64_t>& out_counts,
          const ConstTensor& in, const std::vector<int64_t>& in_counts, bool overlap) {
  if (group == nullptr)
    transfer(ctx, out, in);
  else if (overlap)
    return group->all_to_all_v_async(out, out_counts, in, in_counts);
  else
    group->all_to_all_v(out, out_counts, in, in_counts);
  return {};
}

int64_t total(const std::vector<int64_t>& v) {
  return std::accumulate(v.begin(), v.end(), int64_t{0});
}

}  // namespace

TokenDispatcher::TokenDispatcher(Communicator* ep, Communicator* etp, int64_t experts)
    : ep_(ep), etp_(etp), experts_(experts) {
  if (experts < size(ep))
    fail_input("expert parallel size ", size(ep), " is more than the ", experts,
               " experts of the model; use at most ", experts);
}

RowRange TokenDispatcher::held_by(int ep_index) const {
  const Piece piece = piece_of(experts_, size(ep_), ep_index);
  return {piece.begin, piece.end};
}

int64_t TokenDispatcher::default_bound(int64_t tokens, int64_t k) const {
  const int64_t sources = checked_mul(size(ep_), size(etp_));
  int64_t max_held = 0;
  for (int i = 0; i < size(ep_); ++i) max_held = std::max(max_held, held_by(i).size());
  const int64_t worst = checked_mul(checked_mul(tokens, std::min(k, max_held)), sources);
  const int64_t even = checked_mul(checked_mul(tokens, k), size(etp_));
  return std::max<int64_t>(1, std::min(worst, kSlack * even));
}

ExpertRoute TokenDispatcher::plan_dispatch(Ctx& ctx, const ConstTensor& counts,
                                           int64_t bound) const {
  check_operand("token dispatch", "counts", counts, DType::kI64, {experts_});
  TRIREME_CHECK(bound >= 1, "token dispatch: the bound is ", bound, " rows, expected at least 1");
  const int ep = size(ep_), etp = size(etp_);
  const int64_t entry = experts_ + 1;  // counts, and the bound
  ExpertRoute route;
  if (ctx.planning()) {
    route.rounds.resize(1);
    return route;
  }
  const TimeScope scope(ctx.profile, TimeCategory::kCommunication);
  // On a GPU the only host wait of a layer: the sizes below depend on these numbers.
  const std::vector<int64_t> own = to_host<int64_t>(ctx, counts);
  // They count rows sent by other ranks and are undefined after the loss of a rank.
  for (const Communicator* group : {ep_, etp_})
    if (ctx.gpu != nullptr && size(group) > 1) group->check_alive();
  std::vector<int64_t> mine = own;
  mine.push_back(bound);
  const std::vector<int64_t> plane = gather(etp_, gather(ep_, std::move(mine)));

  // all[(j * ep + s) * E + e]: rows of expert e on the rank of etp index j and ep index s.
  std::vector<int64_t> all, bounds(at(ep), bound), wanted(at(ep), 0);
  for (int64_t r = 0; r < int64_t{ep} * etp; ++r) {
    const int64_t* entry_of_r = plane.data() + r * entry;
    all.insert(all.end(), entry_of_r, entry_of_r + experts_);
    bounds[at(r % ep)] = std::min(bounds[at(r % ep)], entry_of_r[experts_]);
  }
  int64_t rounds = 1;
  for (int i = 0; i < ep; ++i) {
    const RowRange held = held_by(i);
    for (int64_t r = 0; r < int64_t{ep} * etp; ++r)
      for (int64_t e = held.begin; e < held.end; ++e) wanted[at(i)] += all[at(r * experts_ + e)];
    rounds = std::max(rounds, ceil_div(wanted[at(i)], bounds[at(i)]));
  }
  for (int64_t r = 0; r < rounds; ++r) route.rounds.push_back(make_round(all, bounds, r));
  const RowRange held = local_experts();
  for (int64_t e = 0; e < experts_; ++e) {
    const int64_t n = own[at(e)];
    route.pairs += n;
    if (e < held.begin || e >= held.end) route.remote += n;
  }
  return route;
}

// Walks the rows for each ep index in their numbering and keeps those in the round's range.
ExpertRound TokenDispatcher::make_round(std::span<const int64_t> counts,
                                        std::span<const int64_t> bounds, int64_t round) const {
  const int ep = size(ep_), etp = size(etp_);
  const int my_ep = rank(ep_), my_etp = rank(etp_);
  ExpertRound out;
  out.send_rows.assign(at(ep), 0);
  out.receive_rows.assign(at(ep), 0);
  out.piece_rows.assign(at(etp), 0);
  out.offsets.push_back(0);
  const RowRange held = local_experts();
  std::vector<int64_t> arriving(at(int64_t{etp} * ep * held.size()), 0);  // (etp, ep, expert)
  const int64_t* own_counts = counts.data() + (my_etp * ep + my_ep) * experts_;
  int64_t own_place = 0;  // of expert e's first row among this rank's rows
  for (int i = 0; i < ep; ++i) {
    const RowRange here = held_by(i);
    const RowRange window{round * bounds[at(i)], (round + 1) * bounds[at(i)]};
    int64_t number = 0;
    for (int64_t e = here.begin; e < here.end; ++e) {
      for (int j = 0; j < etp; ++j)
        for (int s = 0; s < ep; ++s) {
          const int64_t n = counts[at((j * ep + s) * experts_ + e)];
          const RowRange part = overlap({number, number + n}, window);
          if (i == my_ep)
            arriving[at((int64_t{j} * ep + s) * held.size() + e - held.begin)] = part.size();
          if (j == my_etp && s == my_ep && part.size() > 0) {
            const int64_t first = own_place + part.begin - number;
            if (!out.sent.empty() && out.sent.back().end == first)
              out.sent.back().end = first + part.size();
            else
              out.sent.push_back({first, first + part.size()});
            out.send_rows[at(i)] += part.size();
          }
          number += n;
        }
      own_place += own_counts[e];
    }
  }
  // Arrival is (etp, ep, expert); the sorted order is (expert, etp, ep).
  std::vector<int64_t> from(arriving.size());
  std::exclusive_scan(arriving.begin(), arriving.end(), from.begin(), int64_t{0});
  int64_t to = 0;
  for (int64_t e = 0; e < held.size(); ++e) {
    for (int64_t r = 0; r < int64_t{etp} * ep; ++r) {
      const size_t k = at(r * held.size() + e);
      const int64_t n = arriving[k];
      out.piece_rows[at(r / ep)] += n;
      if (r / ep == my_etp) out.receive_rows[at(r % ep)] += n;
      if (n > 0) out.moves.push_back({from[k], to, n});
      to += n;
    }
    out.offsets.push_back(to);
  }
  return out;
}

namespace {

RowRange piece_range(const ExpertRound& round, int etp_index) {
  const auto first = round.piece_rows.begin();
  const int64_t begin = std::accumulate(first, first + etp_index, int64_t{0});
  return {begin, begin + round.piece_rows[at(etp_index)]};
}

}  // namespace

// Each rank sends its piece to all its etp peers.
void TokenDispatcher::gather_pieces(const Tensor& arrived, const ExpertRound& round) const {
  const int n = size(etp_), self = rank(etp_);
  const RowRange own = piece_range(round, self);
  for (int step = 1; step < n; ++step) {
    const int to = (self + step) % n, from = (self - step + n) % n;
    const RowRange theirs = piece_range(round, from);
    etp_->send_recv(arrived.slice(0, own.begin, own.end), to,
                    arrived.slice(0, theirs.begin, theirs.end), from);
  }
}

// Each rank's piece becomes the sum over its etp peers, in the order of their indices. Block by
// block, so that the peers' parts of a block need no more memory than the rows themselves.
void TokenDispatcher::sum_pieces(Ctx& ctx, const Tensor& arrived, const ExpertRound& round) const {
  const int n = size(etp_), self = rank(etp_);
  if (n == 1) return;
  const int64_t block = ceil_div(arrived.size(0), n), columns = arrived.size(1);
  const Activation parts =
      ctx.allocate("exchange.partial_sums", arrived.dtype(), {int64_t{n} * block, columns});
  if (ctx.planning()) return;
  const int64_t longest = *std::ranges::max_element(round.piece_rows);
  for (int64_t begin = 0; begin < longest; begin += block) {
    const auto part_of = [&](int index) {
      const RowRange piece = piece_range(round, index);
      return overlap({piece.begin + begin, piece.begin + begin + block}, piece);
    };
    const RowRange own = part_of(self);
    std::vector<ConstTensor> terms(at(n));
    for (int step = 0; step < n; ++step) {
      const int to = (self + step) % n, from = (self - step + n) % n;
      const Tensor got = parts->slice(0, from * block, from * block + own.size());
      terms[at(from)] = got;
      const RowRange theirs = part_of(to);
      if (step == 0)
        copy_range(ctx, got, 0, arrived, own.begin, own.size());
      else
        etp_->send_recv(arrived.slice(0, theirs.begin, theirs.end), to, got, from);
    }
    sum_rows(ctx, arrived.slice(0, own.begin, own.end), terms);
  }
}

void TokenDispatcher::dispatch(Ctx& ctx, const Tensor& received, const ConstTensor& rows,
                               const ExpertRoute& route, size_t round) const {
  finish_dispatch(ctx, received, post_dispatch(ctx, received, rows, route, round, false), route,
                  round);
}

TokenDispatcher::InFlight TokenDispatcher::post_dispatch(Ctx& ctx, const Tensor& received,
                                                         const ConstTensor& rows,
                                                         const ExpertRoute& route, size_t round,
                                                         bool overlap) const {
  const int64_t columns = rows.size(1);
  if (alone()) {
    if (ctx.planning()) return {};
    const ExpertRound& r = route.rounds[round];
    if (r.rows() > 0) copy_range(ctx, received, 0, rows, r.sent[0].begin, r.rows());
    return {};
  }
  InFlight out;
  out.arrived = ctx.allocate("exchange.arrived", rows.dtype(), received.shape());
  out.packed = ctx.allocate("exchange.packed", rows.dtype(), rows.shape());
  if (ctx.planning()) return out;
  const ExpertRound& r = route.rounds[round];
  TRIREME_CHECK(received.size(1) == columns && received.dtype() == rows.dtype() &&
                    r.rows() <= received.size(0) && route.pairs <= rows.size(0),
                "token dispatch: received is ", received.shape(), ", expected room for ", r.rows(),
                " rows; rows is ", rows.shape(), ", expected at least ", route.pairs,
                " rows of equal type and width");
  const TimeScope scope(ctx.profile, TimeCategory::kCommunication);
  // A single range is sent in place, without packing.
  ConstTensor sent = rows.slice(0, 0, 0);
  if (r.sent.size() == 1) sent = rows.slice(0, r.sent[0].begin, r.sent[0].end);
  if (r.sent.size() > 1) {
    int64_t n = 0;
    for (const RowRange& range : r.sent) {
      copy_range(ctx, out.packed, n, rows, range.begin, range.size());
      n += range.size();
    }
    sent = out.packed->slice(0, 0, n);
  }
  const RowRange own = piece_range(r, rank(etp_));
  out.work = swap(ctx, ep_, out.arrived->slice(0, own.begin, own.end),
                  times(r.receive_rows, columns), sent, times(r.send_rows, columns), overlap);
  return out;
}

void TokenDispatcher::finish_dispatch(Ctx& ctx, const Tensor& received, const InFlight& in_flight,
                                      const ExpertRoute& route, size_t round) const {
  if (alone() || ctx.planning()) return;
  const ExpertRound& r = route.rounds[round];
  const TimeScope scope(ctx.profile, TimeCategory::kCommunication);
  in_flight.work.wait();
  gather_pieces(in_flight.arrived, r);
  for (const ExpertRound::Move& m : r.moves)
    copy_range(ctx, received, m.to, in_flight.arrived, m.from, m.rows);
}

void TokenDispatcher::combine(Ctx& ctx, const Tensor& rows, const ConstTensor& results,
                              const ExpertRoute& route, size_t round) const {
  finish_combine(ctx, rows, post_combine(ctx, rows, results, route, round, false), route, round);
}

TokenDispatcher::InFlight TokenDispatcher::post_combine(Ctx& ctx, const Tensor& rows,
                                                        const ConstTensor& results,
                                                        const ExpertRoute& route, size_t round,
                                                        bool overlap) const {
  const int64_t columns = rows.size(1);
  if (alone()) {
    if (ctx.planning()) return {};
    const ExpertRound& r = route.rounds[round];
    if (r.rows() > 0) copy_range(ctx, rows, r.sent[0].begin, results, 0, r.rows());
    return {};
  }
  InFlight out;
  out.arrived = ctx.allocate("exchange.arrived", rows.dtype(), results.shape());
  out.packed = ctx.allocate("exchange.packed", rows.dtype(), rows.shape());
  if (ctx.planning()) {
    sum_pieces(ctx, out.arrived, {});
    return out;
  }
  const ExpertRound& r = route.rounds[round];
  const TimeScope scope(ctx.profile, TimeCategory::kCommunication);
  for (const ExpertRound::Move& m : r.moves)
    copy_range(ctx, out.arrived, m.from, results, m.to, m.rows);
  sum_pieces(ctx, out.arrived, r);
  out.home = r.sent.size() == 1 ? rows.slice(0, r.sent[0].begin, r.sent[0].end)
                                : out.packed->slice(0, 0, total(r.send_rows));
  const RowRange own = piece_range(r, rank(etp_));
  out.work =
      swap(ctx, ep_, out.home, times(r.send_rows, columns),
           out.arrived->slice(0, own.begin, own.end), times(r.receive_rows, columns), overlap);
  return out;
}

void TokenDispatcher::finish_combine(Ctx& ctx, const Tensor& rows, const InFlight& in_flight,
                                     const ExpertRoute& route, size_t round) const {
  if (alone() || ctx.planning()) return;
  const ExpertRound& r = route.rounds[round];
  const TimeScope scope(ctx.profile, TimeCategory::kCommunication);
  in_flight.work.wait();
  if (r.sent.size() == 1) return;  // received in place
  int64_t n = 0;
  for (const RowRange& range : r.sent) {
    copy_range(ctx, rows, range.begin, in_flight.home, n, range.size());
    n += range.size();
  }
}

}  // namespace trireme
