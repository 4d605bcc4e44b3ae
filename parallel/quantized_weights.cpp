#include "parallel/quantized_weights.h"

#include <algorithm>
#include <cmath>

#include "engine/core/parallel_for.h"
#include "engine/io/gguf_blocks.h"
#include "engine/ops/rows/transfer.h"

namespace trireme {
namespace {

constexpr int64_t kPieceElements = 1 << 22;  // read at a time
constexpr float kMaxNumber = 65504.0f;       // largest magnitude that a float16 scale can represent

std::vector<int64_t> dims_of(const Shape& shape) {
  return {shape.dims().begin(), shape.dims().end()};
}

const GgufType& file_type(BlockFormat format) {
  const GgufType* const type = gguf_type(format == BlockFormat::kQ4_0 ? "Q4_0" : "Q8_0");
  TRIREME_CHECK(type != nullptr && type->block == kQuantBlock &&
                    type->block_bytes == block_file_bytes(format),
                "blocks of GGUF's format have another size");
  return *type;
}

// Encodes rows first .. first + n of the matrix from w (n, columns). Returns a value that no block
// can represent, or 0.
float encode_rows(const QuantizedMatrix& matrix, const Tensor& bytes, int64_t first,
                  const Tensor& w, int threads) {
  const GgufType& type = file_type(matrix.format);
  const int64_t columns = matrix.columns, n = w.size(0);
  std::vector<float> wrong(static_cast<size_t>(n), 0.0f);
  parallel_for(threads, n, 1, [&](int64_t begin, int64_t end) {
    float numbers[kQuantBlock];
    std::byte block[kMaxGgufBlock];
    for (int64_t r = begin; r < end; ++r)
      for (int64_t c = 0; c < columns; c += kQuantBlock) {
        const int64_t width = std::min(kQuantBlock, columns - c);
        std::copy_n(w.as<float>() + r * columns + c, width, numbers);
        std::fill(numbers + width, numbers + kQuantBlock, 0.0f);
        for (const float x : numbers)
          if (!(std::abs(x) <= kMaxNumber)) wrong[static_cast<size_t>(r)] = x;
        type.encode(numbers, block);
        store_block(matrix, bytes, first + r, c / kQuantBlock, block);
      }
  });
  const auto found = std::ranges::find_if(wrong, [](float x) { return x != 0.0f; });
  return found == wrong.end() ? 0.0f : *found;
}

}  // namespace

QuantizedWeights::QuantizedWeights(const std::vector<ParameterSpec>& specs, BlockFormat format)
    : packed_(specs.size()) {
  for (size_t h = 0; h < specs.size(); ++h) {
    if (!specs[h].packed) continue;
    QuantizedParameter& parameter = packed_[h] =
        packed_parameter(specs[h], specs[h].linear ? format : BlockFormat::kQ8_0);
    parameter.begin = bytes_;
    bytes_ = checked_add(bytes_, parameter.bytes);
  }
}

QuantizedWeights::QuantizedParameter QuantizedWeights::packed_parameter(const ParameterSpec& spec,
                                                                        BlockFormat format) {
  TRIREME_CHECK(spec.shape.rank() == 2, spec.name, " of shape ", spec.shape, " cannot be packed");
  QuantizedParameter parameter{
      spec.name, spec.box.extent.empty() ? whole_box(dims_of(spec.shape)) : spec.box, format};
  const int64_t first = parameter.box.start[1], end = first + parameter.columns(),
                all = spec.shape[1];
  if (first % kQuantBlock != 0 || (end % kQuantBlock != 0 && end != all))
    fail_input(spec.name, ": ", parameter.columns(), " of its ", all,
               " inputs on a rank are not whole blocks of ", kQuantBlock,
               ", each with one scale; lower --tensor-parallel, or leave --quantization out");
  parameter.bytes = block_matrix_bytes(format, parameter.rows(), parameter.columns());
  return parameter;
}

void QuantizedWeights::allocate(Ctx& ctx) {
  block_ = Buffer("weights in blocks", bytes_, ctx.memory());
}

QuantizedMatrix QuantizedWeights::view(const QuantizedParameter& parameter, int64_t rows) const {
  QuantizedMatrix m{parameter.format, rows, parameter.columns(), {}};
  const Shape shape{block_matrix_bytes(parameter.format, rows, parameter.columns())};
  m.bytes = block_.data() == nullptr ? Tensor(nullptr, DType::kU8, shape)
                                     : block_.tensor(DType::kU8, shape, parameter.begin);
  return m;
}

QuantizedMatrix QuantizedWeights::matrix(ParamHandle h) const {
  const QuantizedParameter& parameter = packed_[static_cast<size_t>(h)];
  TRIREME_CHECK(!parameter.name.empty(), "parameter ", h, " is not packed");
  return view(parameter, parameter.rows());
}

std::vector<QuantizedMatrix> QuantizedWeights::matrices(ParamHandle first, ParamHandle last) const {
  std::vector<QuantizedMatrix> out;
  const QuantizedParameter* begin = nullptr;  // first parameter of out.back()
  for (ParamHandle h = first; h <= last; ++h) {
    const QuantizedParameter& parameter = packed_[static_cast<size_t>(h)];
    const QuantizedMatrix m = matrix(h);
    if (begin != nullptr && out.back().rows % kWeightGroup == 0 &&
        begin->format == parameter.format &&
        begin->begin + out.back().bytes.numel() == parameter.begin) {
      out.back() = view(*begin, out.back().rows + m.rows);
    } else {
      begin = &parameter;
      out.push_back(m);
    }
  }
  return out;
}

void QuantizedWeights::pack(Ctx& ctx, ParamHandle h, const ParameterStore::ReadBox& read) {
  const QuantizedParameter& parameter = packed_[static_cast<size_t>(h)];
  const QuantizedMatrix matrix = this->matrix(h);
  const Tensor there = block_.tensor(DType::kU8, {parameter.bytes}, parameter.begin);
  // On a GPU, packs in host memory first: it is zero-filled.
  const Buffer staged("blocks of a weight", ctx.gpu != nullptr ? parameter.bytes : 0);
  const Tensor bytes = ctx.gpu != nullptr ? staged.tensor(DType::kU8, there.shape()) : there;
  const int64_t rows = parameter.rows(), columns = parameter.columns();
  const int64_t at_once = std::clamp(kPieceElements / std::max<int64_t>(columns, 1), int64_t{1},
                                     std::max<int64_t>(rows, 1));
  const Buffer piece("weights to pack", at_once * columns * dtype_size(DType::kF32));
  for (int64_t row = 0; row < rows; row += at_once) {
    const int64_t n = std::min(rows - row, at_once);
    const Tensor w = piece.tensor(DType::kF32, {n, columns});
    read(parameter.box, row * columns, w.reshape({n * columns}));
    if (const float x = encode_rows(matrix, bytes, row, w, ctx.threads); x != 0.0f)
      fail_input(parameter.name, ": holds ", x,
                 ", which no float16 scale can represent; leave --quantization out");
  }
  if (ctx.gpu != nullptr) transfer(ctx, there, bytes);
}

}  // namespace trireme
