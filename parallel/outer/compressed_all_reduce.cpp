#include "parallel/outer/compressed_all_reduce.h"

#include <chrono>
#include <utility>

#include "engine/ops/rows/transfer.h"

namespace trireme {

CompressedAllReduce::CompressedAllReduce(Communicator& group, CompressionState& state, Ctx& ctx)
    : group_(group), state_(state), ctx_(ctx) {
  const GroupCoord rank{group.size(), group.rank()};
  TRIREME_CHECK(state.rank() == rank, "the compression state of rank ", state.rank().index, " of ",
                state.rank().size, " is used by rank ", rank.index, " of ", rank.size);
}

CompressedAllReduce::~CompressedAllReduce() {
  try {
    work_.wait();
  } catch (...) {  // NOLINT: this object has been given up, and the group knows of a lost rank
  }
}

template <class AnyTensor>
AnyTensor CompressedAllReduce::part_of(const AnyTensor& data, const CompressedPart& part) const {
  const int64_t at = part.offset - state_.data_range().begin;
  return data.slice(0, at, at + part.elements()).reshape({part.rows, part.columns});
}

void CompressedAllReduce::encode(const CompressionState::Piece& piece, const Tensor& wire,
                                 const ConstTensor& data) {
  int64_t begin = 0;
  for (const CompressionState::Encoder& e : piece) {
    const ConstTensor x = part_of(data, e.part);
    EncodingKey key = e.part.key;
    key.round = round_;
    state_.compressor(e.part).encode(ctx_, wire.slice(0, begin, begin + e.wire_bytes), x,
                                     state_.residual_of(e), state_.state_of(e), key);
    begin += e.wire_bytes;
  }
}

void CompressedAllReduce::decode(const CompressionState::Piece& piece, const ConstTensor& wire,
                                 const Tensor& data, bool add) {
  int64_t begin = 0;
  for (const CompressionState::Encoder& e : piece) {
    const Tensor y = part_of(data, e.part);
    EncodingKey key = e.part.key;
    key.round = round_;
    state_.compressor(e.part).decode(ctx_, y, wire.slice(0, begin, begin + e.wire_bytes), key, add);
    begin += e.wire_bytes;
  }
}

void CompressedAllReduce::check(const ConstTensor& data) const {
  check_operand("compressed all-reduce", "data", data, state_.dtype(), {data.numel()});
  TRIREME_CHECK(data.numel() >= state_.data_range().size(), "compressed all-reduce: data has ",
                data.numel(), " elements, expected at least ", state_.data_range().size());
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
    encode(state_.pieces()[r], wire.slice(0, begin, end), data);
    begin = end;
  }
  if (!ctx_.planning())
    work_ = group_.all_to_all_v_async(state_.own_wires(), state_.own_bytes(), wire,
                                      state_.piece_bytes());
}

template <class Wait>
void CompressedAllReduce::timed(const Wait& wait) {
  const auto begin = std::chrono::steady_clock::now();
  {
    const TimeScope scope(ctx_.profile, TimeCategory::kCommunication);
    wait();
  }
  waiting_seconds_ +=
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

void CompressedAllReduce::proceed(const Tensor& data) {
  check(data);
  TRIREME_CHECK(started_, "compressed all-reduce: proceed() without start()");
  if (std::exchange(proceeded_, true)) return;
  timed([&] { work_.wait(); });
  const Tensor own_wires = state_.own_wires(), wire = state_.pieces_wire();
  const int64_t bytes = state_.own_bytes().front();
  const auto own_wire = [&](int r) { return own_wires.slice(0, r * bytes, (r + 1) * bytes); };
  for (int r = 0; r < group_.size(); ++r) decode(state_.own_piece(), own_wire(r), data, r > 0);
  encode(state_.own_piece(), own_wire(0), data);
  for (int r = 1; r < group_.size(); ++r) transfer(ctx_, own_wire(r), own_wire(0));
  if (!ctx_.planning())
    work_ = group_.all_to_all_v_async(wire, state_.piece_bytes(), own_wires, state_.own_bytes());
}

void CompressedAllReduce::finish(const Tensor& data) {
  check(data);
  TRIREME_CHECK(started_, "compressed all-reduce: finish() without start()");
  proceed(data);
  timed([&] { work_.wait(); });
  started_ = proceeded_ = false;
  const Tensor wire = state_.pieces_wire();
  int64_t begin = 0;
  for (size_t r = 0; r < state_.pieces().size(); ++r) {
    const int64_t end = begin + state_.piece_bytes()[r];
    decode(state_.pieces()[r], wire.slice(0, begin, end), data, false);
    begin = end;
  }
}

}  // namespace trireme
