#include "parallel/outer/compressed_parts.h"

#include <algorithm>
#include <numeric>

#include "parallel/outer/compressors/exact.h"

namespace trireme {
namespace {

int64_t elements_of(const std::vector<CompressedPart>& parts) {
  int64_t total = 0;
  for (const CompressedPart& part : parts) total += part.elements();
  return total;
}

// Smallest units of a part that may be in different pieces: rows, or blocks of a single row.
struct Units {
  int64_t count = 0, width = 0;  // width: columns, or columns of all blocks but the last
  bool rows = false;
};
Units units_of(const CompressedPart& part, const Compressor& compressor) {
  if (part.elements() == 0) return {};
  if (!compressor.can_divide()) return {1, part.elements(), true};
  if (part.rows > 1) return {part.rows, part.columns, true};
  return {ceil_div(part.columns, compressor.block()), compressor.block(), false};
}

// Units [first, end) of a part.
CompressedPart cut(const CompressedPart& part, const Units& units, int64_t first, int64_t end,
                   int64_t block) {
  if (end - first == units.count) return part;
  CompressedPart piece = part;
  piece.offset += first * units.width;
  if (units.rows) {
    const int64_t stride =
        part.key.block_stride != 0 ? part.key.block_stride : ceil_div(part.columns, block);
    piece.rows = end - first;
    piece.key.first_block += first * stride;
    piece.key.block_stride = stride;
  } else {
    piece.columns = std::min(end * units.width, part.columns) - first * units.width;
    piece.key.first_block += first;
  }
  return piece;
}

// True if the code of a whole tensor has fewer bytes than its elements in 16 bits.
bool code_is_smaller(const Compressor& compressor, const Shape& shape) {
  const int64_t elements = shape.numel(), columns = shape[shape.rank() - 1];
  return elements > 0 && compressor.wire_bytes(DType::kBF16, elements / columns, columns) <
                             elements * dtype_size(DType::kBF16);
}

}  // namespace

const Compressor& compressor_of(const CompressedPart& part, const Compressor& compressor) {
  static const ExactCompressor exact;
  return part.exact ? exact : compressor;
}

std::vector<std::vector<CompressedPart>> cut_parts(const std::vector<CompressedPart>& parts,
                                                   int pieces, const Compressor& compressor) {
  std::vector<std::vector<CompressedPart>> cuts(static_cast<size_t>(pieces));
  const int64_t total = elements_of(parts);
  int64_t before = 0;  // elements of earlier parts
  for (const CompressedPart& part : parts) {
    const Compressor& its = compressor_of(part, compressor);
    const Units units = units_of(part, its);
    // A unit belongs to the piece that its first element would be in if elements were cut evenly.
    const auto piece_of_unit = [&](int64_t unit) {
      return static_cast<size_t>((before + unit * units.width) * pieces / total);
    };
    for (int64_t first = 0; first < units.count;) {
      const size_t piece = piece_of_unit(first);
      int64_t end = first + 1;
      while (end < units.count && piece_of_unit(end) == piece) ++end;
      cuts[piece].push_back(cut(part, units, first, end, its.block()));
      first = end;
    }
    before += part.elements();
  }
  return cuts;
}

std::vector<CompressedPart> region_parts(const ParameterStore& store, Region region,
                                         const CompressedTensors& tensors, uint64_t seed) {
  std::vector<CompressedPart> all;
  for (ParamHandle h = 0; h < std::ssize(store.specs()); ++h) {
    const ParameterSpec& spec = store.specs()[static_cast<size_t>(h)];
    if (spec.region != region || spec.packed) continue;
    const int64_t offset = store.range(h).begin;
    const int64_t bytes = spec.shape.numel() * tensors.element_bytes;
    const Compressor* const compressor = tensors.compressor;
    if (compressor == nullptr || bytes < tensors.min_bytes ||
        (tensors.only_smaller && !code_is_smaller(*compressor, spec.shape))) {
      all.push_back(exact_part(spec, offset));
      continue;
    }
    try {
      for (const CompressedPart& part : compressed_parts(spec, offset, *compressor, seed))
        all.push_back(part);
    } catch (const InputError& e) {
      fail_input(e.what(), ", or set min_bytes above ", bytes, ", so that it is sent exactly");
    }
  }
  return all;
}

CompressedPart exact_part(const ParameterSpec& spec, int64_t offset) {
  return {.offset = offset, .rows = 1, .columns = spec.local_shape().numel(), .exact = true};
}

std::vector<CompressedPart> compressed_parts(const ParameterSpec& spec, int64_t offset,
                                             const Compressor& compressor, uint64_t seed) {
  const Shape local = spec.local_shape();
  const int last = local.rank() - 1;
  const int64_t elements = local.numel(), columns = spec.shape[last], width = local[last];
  const EncodingKey key{.seed = seed, .stream = stream_id(spec.name)};
  if (elements == 0) return {};
  if (!compressor.can_divide()) {
    if (local != spec.shape)
      fail_input(spec.name, " ", spec.shape, " is divided into parts of ", local,
                 ", which this method cannot encode: use another method, or do not divide it");
    return {{offset, elements / columns, columns, key}};
  }
  const int64_t block = compressor.block(), blocks = ceil_div(columns, block);
  const ElementIndex index = spec.element_index();
  const int64_t begin = index.first % columns;  // first column of the box
  const bool ends_inside = width % block != 0 && begin + width != columns;
  if (width != columns && (begin % block != 0 || ends_inside)) {
    const int64_t fits = std::gcd(std::gcd(width, begin), columns);
    const bool any = fits % compressor.block_multiple() == 0;
    fail_input(spec.name, " ", spec.shape, " is divided into parts of ", width,
               " columns, which cuts blocks of ", block,
               any ? concat(": use a block that divides ", fits) : ": use another method");
  }
  // Rows of the box that follow one another in the logical tensor, at equal distances.
  const int64_t run = index.width == 0 || width != columns ? elements : index.width;
  std::vector<CompressedPart> parts;
  for (int64_t at = 0; at < elements; at += run) {
    CompressedPart part{offset + at, run / width, width, key};
    const int64_t first = index.of(at);
    part.key.first_block = first / columns * blocks + begin / block;
    part.key.block_stride = blocks;
    parts.push_back(part);
  }
  return parts;
}

}  // namespace trireme
