#include "parallel/outer/piece_codec.h"

namespace trireme {
namespace {

// Calls use(encoder, its part of the wire, its part of the data, key) for all parts.
template <class Wire, class Data, class Use>
void for_each_part(const CompressionState& state, const CompressionState::Piece& piece,
                   const Wire& wire, const Data& data, int64_t round, const Use& use) {
  int64_t begin = 0;
  for (const CompressionState::Encoder& e : piece) {
    const int64_t at = e.part.offset - state.data_range().begin;
    EncodingKey key = e.part.key;
    key.round = round;
    use(e, wire.slice(0, begin, begin + e.wire_bytes),
        data.slice(0, at, at + e.part.elements()).reshape({e.part.rows, e.part.columns}), key);
    begin += e.wire_bytes;
  }
}

}  // namespace

void encode_piece(Ctx& ctx, const CompressionState& state, const CompressionState::Piece& piece,
                  const Tensor& wire, const ConstTensor& data, int64_t round) {
  for_each_part(state, piece, wire, data, round,
                [&](const CompressionState::Encoder& e, const Tensor& code, const ConstTensor& x,
                    const EncodingKey& key) {
                  state.compressor(e.part).encode(ctx, code, x, state.residual_of(e),
                                                  state.state_of(e), key);
                });
}

void decode_piece(Ctx& ctx, const CompressionState& state, const CompressionState::Piece& piece,
                  const ConstTensor& wire, const Tensor& data, int64_t round, bool add) {
  for_each_part(
      state, piece, wire, data, round,
      [&](const CompressionState::Encoder& e, const ConstTensor& code, const Tensor& y,
          const EncodingKey& key) { state.compressor(e.part).decode(ctx, y, code, key, add); });
}

void decode_part(Ctx& ctx, const CompressionState& state, const CompressionState::Encoder& e,
                 const ConstTensor& code, const Tensor& y, int64_t round) {
  EncodingKey key = e.part.key;
  key.round = round;
  state.compressor(e.part).decode(ctx, y, code, key, false);
}

}  // namespace trireme
