#include "parallel/outer/compressed_all_reduce.h"

#include <utility>

#include "engine/ops/rows/transfer.h"
#include "parallel/outer/piece_codec.h"
#include "parallel/wait_scope.h"

namespace trireme {

CompressedAllReduce::CompressedAllReduce(Communicator& group, CompressionState& state, Ctx& ctx,
                                         Messages messages)
    : group_(group), state_(state), ctx_(ctx), messages_(messages) {
  const GroupCoord rank{group.size(), group.rank()};
  TRIREME_CHECK(state.rank() == rank, "the compression state of rank ", state.rank().index, " of ",
                state.rank().size, " is used by rank ", rank.index, " of ", rank.size);
}

CompressedAllReduce::~CompressedAllReduce() {
  for (const Work& work : work_) try {
      work.wait();
    } catch (...) {  // NOLINT: this object has been given up, and the group knows of a lost rank
    }
}

void CompressedAllReduce::check(const ConstTensor& data) const {
  check_operand("compressed all-reduce", "data", data, state_.dtype(), {data.numel()});
  TRIREME_CHECK(data.numel() >= state_.data_range().size(), "compressed all-reduce: data has ",
                data.numel(), " elements, expected at least ", state_.data_range().size());
}

// Starts an exchange in which rank r gets the r-th part of `in`.
void CompressedAllReduce::exchange(const Tensor& out, std::span<const int64_t> out_bytes,
                                   const ConstTensor& in, std::span<const int64_t> in_bytes) {
  work_.clear();
  if (ctx_.planning()) return;
  if (messages_ == kInOrder) {
    work_.push_back(group_.all_to_all_v_async(out, out_bytes, in, in_bytes));
    return;
  }
  int64_t to = 0, from = 0;
  for (int rank = 0; rank < group_.size(); ++rank) {
    const int64_t to_end = to + out_bytes[static_cast<size_t>(rank)];
    const int64_t from_end = from + in_bytes[static_cast<size_t>(rank)];
    const Tensor received = out.slice(0, std::exchange(to, to_end), to_end);
    const ConstTensor sent = in.slice(0, std::exchange(from, from_end), from_end);
    if (rank == group_.rank()) {
      transfer(ctx_, received, sent);
      continue;
    }
    if (received.numel() > 0) work_.push_back(group_.post_recv(received, rank));
    if (sent.numel() > 0) work_.push_back(group_.post_send(sent, rank));
  }
}

void CompressedAllReduce::wait() {
  const WaitScope waiting(ctx_.profile, waiting_seconds_);
  for (const Work& work : work_) work.wait();
}

void CompressedAllReduce::start(const ConstTensor& data, int64_t round) {
  check(data);
  TRIREME_CHECK(
      !started_ && (ctx_.planning() || round > round_), "compressed all-reduce: round ", round,
      started_ ? " starts before the last one has finished" : " is not larger than the last one");
  if (!ctx_.planning()) round_ = round;
  started_ = true;
  waiting_seconds_ = 0;
  const Tensor wire = state_.pieces_wire();
  int64_t begin = 0;
  for (size_t r = 0; r < state_.pieces().size(); ++r) {
    const int64_t end = begin + state_.piece_bytes()[r];
    encode_piece(ctx_, state_, state_.pieces()[r], wire.slice(0, begin, end), data, round_);
    begin = end;
  }
  exchange(state_.own_wires(), state_.own_bytes(), wire, state_.piece_bytes());
}

Tensor CompressedAllReduce::own_wire(int rank) const {
  const int64_t bytes = state_.own_bytes().front();
  return state_.own_wires().slice(0, rank * bytes, (rank + 1) * bytes);
}

void CompressedAllReduce::sum_codes(const Tensor& data) {
  for (int r = 0; r < group_.size(); ++r)
    decode_piece(ctx_, state_, state_.own_piece(), own_wire(r), data, round_, r > 0);
}

void CompressedAllReduce::start_second_phase(const Tensor& data,
                                             const std::function<void()>& combine) {
  check(data);
  TRIREME_CHECK(started_, "compressed all-reduce: start_second_phase() without start()");
  if (std::exchange(in_second_phase_, true)) return;
  wait();
  if (combine)
    combine();
  else
    sum_codes(data);
  encode_piece(ctx_, state_, state_.own_piece(), own_wire(0), data, round_);
  for (int r = 1; r < group_.size(); ++r) transfer(ctx_, own_wire(r), own_wire(0));
  exchange(state_.pieces_wire(), state_.piece_bytes(), state_.own_wires(), state_.own_bytes());
}

void CompressedAllReduce::finish(const Tensor& data) {
  check(data);
  TRIREME_CHECK(started_, "compressed all-reduce: finish() without start()");
  start_second_phase(data);
  wait();
  started_ = in_second_phase_ = false;
  const Tensor wire = state_.pieces_wire();
  int64_t begin = 0;
  for (size_t r = 0; r < state_.pieces().size(); ++r) {
    const int64_t end = begin + state_.piece_bytes()[r];
    decode_piece(ctx_, state_, state_.pieces()[r], wire.slice(0, begin, end), data, round_, false);
    begin = end;
  }
}

}  // namespace trireme
