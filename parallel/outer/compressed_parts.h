// Parts of logical tensors that a compressed all-reduce exchanges.
#pragma once

#include <vector>

#include "parallel/outer/compressors/compressor.h"
#include "parallel/parameter_store.h"

namespace trireme {

// Matrix in a flat range, row after row, or a part of one.
struct CompressedPart {
  int64_t offset = 0;  // of its first element in the flat range
  int64_t rows = 0, columns = 0;
  EncodingKey key = {};  // its round is that of the all-reduce
  bool exact = false;    // sent as it is
  int64_t elements() const { return rows * columns; }
  FlatRange range() const { return {offset, offset + elements()}; }
};

// Compressor of a part: `compressor`, or the one of exact parts.
const Compressor& compressor_of(const CompressedPart& part, const Compressor& compressor);

// Cuts parts into `pieces` consecutive pieces of about as many elements. A part is cut between
// rows, one of a single row between blocks, and not at all if it is compressed and the compressor
// cannot divide it.
std::vector<std::vector<CompressedPart>> cut_parts(const std::vector<CompressedPart>& parts,
                                                   int pieces, const Compressor& compressor);

// Parts of this rank's box of a parameter, which begins at `offset` of the flat range: the box as a
// matrix whose columns are the last dimension, in as few parts as its blocks allow, so that ranks
// with other boxes of the parameter encode the same blocks. seed: of their random choices.
//
// InputError if the compressor cannot encode the box: it is cut inside of a block (then the message
// names the largest block that fits this box, if the method has one), or inside of a matrix that
// cannot be divided.
std::vector<CompressedPart> compressed_parts(const ParameterSpec& spec, int64_t offset,
                                             const Compressor& compressor, uint64_t seed);
// The box as one part that is sent as it is.
CompressedPart exact_part(const ParameterSpec& spec, int64_t offset);

// Choice of the logical tensors that are compressed; the others are sent as they are.
struct CompressedTensors {
  const Compressor* compressor = nullptr;  // nullptr: no tensor is compressed
  int64_t min_bytes = 0;                   // smaller tensors are not, in elements of element_bytes
  int64_t element_bytes = 4;
  // Tensors whose code is not smaller than they are in 16 bits are not either. This depends on the
  // logical shape only, not on the dtype or the layout.
  bool only_smaller = false;
};

// Parts of all parameters of a region that are in the store's flat range, in the order of their
// offsets. seed: of random choices. InputError as for compressed_parts().
std::vector<CompressedPart> region_parts(const ParameterStore& store, Region region,
                                         const CompressedTensors& tensors, uint64_t seed);

}  // namespace trireme
