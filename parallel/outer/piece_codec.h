// Encoding and decoding of a piece of the exchanged data: the codes of its parts, one after the
// other.
#pragma once

#include "parallel/outer/compression_state.h"

namespace trireme {

// wire (bytes of the piece) = the code of the piece in `data` (n), whose first element is the first
// of the state's data_range(). The elements must be finite. round: EncodingKey::round.
void encode_piece(Ctx& ctx, const CompressionState& state, const CompressionState::Piece& piece,
                  const Tensor& wire, const ConstTensor& data, int64_t round);
// The piece of `data` = the decoded code; with `add`, plus the piece.
void decode_piece(Ctx& ctx, const CompressionState& state, const CompressionState::Piece& piece,
                  const ConstTensor& wire, const Tensor& data, int64_t round, bool add);
// y (rows, columns) = the decoded code of one part.
void decode_part(Ctx& ctx, const CompressionState& state, const CompressionState::Encoder& e,
                 const ConstTensor& code, const Tensor& y, int64_t round);

}  // namespace trireme
