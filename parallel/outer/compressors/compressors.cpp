#include "parallel/outer/compressors/compressors.h"

#include <algorithm>

#include "parallel/outer/compressors/power_sgd.h"
#include "parallel/outer/compressors/quantize.h"
#include "parallel/outer/compressors/sparsify.h"

namespace trireme {
namespace {

using Problems = std::vector<std::string>;

// 1-bit scales of 1024 elements: 31 times less than float32. 8 and 4 bits: a smaller block is more
// exact and costs 1.6 and 3.1 %.
BlockCode block_code(const CompressionOptions& o) {
  return {.bits = o.bits, .block = o.block != 0 ? o.block : o.bits == 1 ? 1024 : 256};
}
SparseCode sparse_code(const CompressionOptions& o) {
  return {.ratio = o.ratio, .block = o.block != 0 ? o.block : 4096};
}

void check_quantize(const CompressionOptions& o, Problems& problems) {
  if (o.bits != 8 && o.bits != 4 && o.bits != 1)
    problems.push_back(concat("bits is ", o.bits, ", expected 8, 4 or 1"));
  if (o.block < 0 || o.block > kMaxQuantBlock || o.block % 8 != 0)
    problems.push_back(
        concat("block is ", o.block, ", expected a multiple of 8, at most ", kMaxQuantBlock));
}

void check_sparse(const CompressionOptions& o, Problems& problems) {
  if (!(o.ratio > 0 && o.ratio <= 1))
    problems.push_back(concat("ratio is ", o.ratio, ", expected a number in (0, 1]"));
  if (o.block < 0 || o.block > kMaxSparseBlock)
    problems.push_back(concat("block is ", o.block, ", expected at most ", kMaxSparseBlock));
}

void check_rank(const CompressionOptions& o, Problems& problems) {
  if (o.rank < 1 || o.rank > kMaxPowerSgdRank)
    problems.push_back(concat("rank is ", o.rank, ", expected 1 to ", kMaxPowerSgdRank));
}

// Register a new compressor by adding a row.
constexpr CompressorRow kCompressors[] = {
    {"quantize", "bits, block", "8, 4 or 1 bits per element and a scale per block",
     [](const CompressionOptions& o) -> std::unique_ptr<Compressor> {
       return std::make_unique<QuantizeCompressor>(block_code(o));
     },
     check_quantize},
    {"top_k", "ratio, block", "the elements of largest magnitude in each block",
     [](const CompressionOptions& o) -> std::unique_ptr<Compressor> {
       return std::make_unique<TopKCompressor>(sparse_code(o));
     },
     check_sparse},
    {"random_k", "ratio, block", "random elements of each block, without their positions",
     [](const CompressionOptions& o) -> std::unique_ptr<Compressor> {
       return std::make_unique<RandomKCompressor>(sparse_code(o));
     },
     check_sparse},
    {"powersgd", "rank", "two thin factors of each matrix",
     [](const CompressionOptions& o) -> std::unique_ptr<Compressor> {
       return std::make_unique<PowerSgdCompressor>(o.rank);
     },
     check_rank},
};

const CompressorRow* find(const std::string& method) {
  const auto* const found = std::ranges::find_if(
      kCompressors, [&](const CompressorRow& row) { return method == row.method; });
  return found == std::end(kCompressors) ? nullptr : found;
}

}  // namespace

std::span<const CompressorRow> compressors() { return kCompressors; }

std::vector<std::string> compression_problems(const CompressionOptions& options) {
  Problems problems;
  if (const CompressorRow* const row = find(options.method)) {
    row->check(options, problems);
    return problems;
  }
  std::string known;
  for (const CompressorRow& row : kCompressors)
    known += concat(known.empty() ? "" : ", ", '"', row.method, '"');
  return {concat("method is \"", options.method, "\", expected one of ", known)};
}

std::unique_ptr<Compressor> make_compressor(const CompressionOptions& options) {
  std::string all;
  for (const std::string& problem : compression_problems(options))
    all += concat(all.empty() ? "compression: " : "; ", problem);
  if (!all.empty()) throw InputError(all);
  return find(options.method)->make(options);
}

}  // namespace trireme
