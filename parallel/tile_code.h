// Lossy code in which the ranks of a tile gather its values (parallel/parameter_store.h).
//
// Every rank has a message, all of the same length, and decodes the messages of all. The decoded
// values are the same on all ranks, the one that stores them included.
#pragma once

#include <memory>
#include <vector>

#include "engine/ops/context.h"
#include "parallel/layout.h"

namespace trireme {

class TileCode {
 public:
  virtual ~TileCode() = default;

  int64_t message_bytes() const { return message_bytes_; }
  // Memory (buffer_bytes) uint8 of a gather: the messages by rank, then scratch.
  int64_t buffer_bytes() const { return scratch_begin() + scratch_bytes_; }
  Tensor messages(const Tensor& buffer) const { return buffer.slice(0, 0, scratch_begin()); }
  Tensor own_message(const Tensor& buffer) const { return message(buffer, rank_.index); }

  // Writes this rank's message from the values that it stores.
  virtual void encode(Ctx& ctx, const Tensor& buffer) const = 0;
  // values (n): the tile's range, padding left as it is, from the messages of all ranks.
  virtual void decode(Ctx& ctx, const Tensor& values, const Tensor& buffer) const = 0;

 protected:
  explicit TileCode(const GroupCoord& rank) : rank_(rank) {}
  Tensor message(const Tensor& buffer, int rank) const {
    return buffer.slice(0, rank * message_bytes_, (rank + 1) * message_bytes_);
  }
  int64_t scratch_begin() const { return rank_.size * message_bytes_; }
  GroupCoord rank_;
  int64_t message_bytes_ = 0, scratch_bytes_ = 0;
};

// Codes of all tiles of a store, in their order; empty: values are gathered exactly.
using TileCodes = std::vector<std::unique_ptr<TileCode>>;

}  // namespace trireme
