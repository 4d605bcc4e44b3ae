#include "transformer/formats/file_tensor.h"

#include <sys/stat.h>

#include <algorithm>
#include <map>

#include "engine/io/checksum.h"

namespace trireme {
namespace {

constexpr int64_t kPieceBytes = int64_t{16} << 20;
constexpr int kPieces = 4;

int64_t rows_of(const ModelParameter& p) { return p.shape[0]; }
int64_t columns_of(const ModelParameter& p) { return p.shape.size() == 1 ? 1 : p.shape[1]; }

// Box of rows [row, row + count) and columns [column, column + width) of a parameter.
TensorBox box_of(const ModelParameter& p, int64_t row, int64_t count, int64_t column,
                 int64_t width) {
  if (p.shape.size() == 1) return {{row}, {count}};
  return {{row, column}, {count, width}};
}

void add(const Tensor& y, double added) {
  if (added == 0) return;
  dispatch_float("add", y.dtype(), [&]<class T>() {
    T* const values = y.as<T>();
    for (int64_t i = 0; i < y.numel(); ++i)
      values[i] = T(static_cast<compute_t<T>>(static_cast<compute_t<T>>(values[i]) +
                                              static_cast<compute_t<T>>(added)));
  });
}

// Rows [first, first + count) of a part, in file order.
void read_part(const ModelSource& source, const ModelConfig& config, const FileTensor::Part& part,
               int64_t first, int64_t count, const Tensor& out) {
  const ModelParameter& p = part.parameter;
  const int64_t width = columns_of(p), group = part.place.rotary_width;
  if (group == 0) {
    source.read(config, p, box_of(p, first, count, 0, width), 0, out);
  } else {
    for (int64_t r = 0; r < count; ++r) {
      const int64_t in_group = (first + r) % group;
      const int64_t row = first + r - in_group + in_group % 2 * (group / 2) + in_group / 2;
      source.read(config, p, box_of(p, row, 1, 0, width), 0,
                  out.slice(0, r * width, (r + 1) * width));
    }
  }
  add(out, part.place.added);
}

void read_rows(const ModelSource& source, const ModelConfig& config, const FileTensor& tensor,
               int64_t first, int64_t count, const Tensor& out) {
  const int64_t width = tensor.columns();
  const int64_t rows_of_matrix = tensor.shape.size() > 2 ? tensor.shape[1] : 0;
  for (const FileTensor::Part& part : tensor.parts) {
    const int64_t own = part.place.matrix * rows_of_matrix + part.place.first_row;
    const int64_t begin = std::max(first, own);
    const int64_t end = std::min(first + count, own + rows_of(part.parameter));
    if (begin < end)
      read_part(source, config, part, begin - own, end - begin,
                out.slice(0, (begin - first) * width, (end - first) * width));
  }
}

// Transposed tensors: rows of the file are columns of the parameters.
void read_columns(const ModelSource& source, const ModelConfig& config, const FileTensor& tensor,
                  int64_t first, int64_t count, const Tensor& out) {
  const int64_t width = tensor.columns();
  for (const FileTensor::Part& part : tensor.parts) {
    const ModelParameter& p = part.parameter;
    const int64_t n = rows_of(p), of_matrix = part.place.matrix * columns_of(p);
    const int64_t begin = std::max(first, of_matrix);
    const int64_t end = std::min(first + count, of_matrix + columns_of(p)), some = end - begin;
    if (some <= 0) continue;
    const Buffer block("columns", n * some * dtype_size(out.dtype()));
    const Tensor columns = block.tensor(out.dtype(), Shape{n * some});
    source.read(config, p, box_of(p, 0, n, begin - of_matrix, some), 0, columns);
    dispatch_float("read_columns", out.dtype(), [&]<class T>() {
      const T* from = columns.as<T>();
      T* const to = out.as<T>() + (begin - first) * width + part.place.first_row;
      for (int64_t r = 0; r < n; ++r)
        for (int64_t c = 0; c < some; ++c) to[c * width + r * part.place.row_step] = *from++;
    });
  }
}

// Shape of a stack of matrices, or of vectors.
std::vector<int64_t> stacked_shape(const FileTensor& tensor) {
  const int64_t matrices = tensor.parts.front().place.matrices;
  const ModelParameter& first = tensor.parts.front().parameter;
  int64_t rows = 0, all = 0;
  for (const auto& [p, place] : tensor.parts) {
    TRIREME_CHECK(place.matrices == matrices && (place.transposed || place.row_step == 1),
                  tensor.name, " of ", p.name);
    rows = std::max(rows, place.first_row + (rows_of(p) - 1) * place.row_step + 1);
    all += rows_of(p);
  }
  TRIREME_CHECK(all == matrices * rows, tensor.name, ": its parts have ", all, " rows, expected ",
                matrices, " x ", rows);
  if (first.shape.size() == 1) return {matrices, rows};
  if (!tensor.transposed) return {matrices, rows, columns_of(first)};
  return {matrices, columns_of(first), rows};
}

// Smallest type that represents the values of both.
DType wider(DType a, DType b) {
  if (a == b) return a;
  if (dtype_size(a) == dtype_size(b)) return DType::kF32;  // bfloat16 and float16
  return dtype_size(a) > dtype_size(b) ? a : b;
}

}  // namespace

int64_t FileTensor::rows() const {
  if (shape.size() == 1) return shape[0];
  int64_t n = 1;
  for (size_t d = 0; d + 1 < shape.size(); ++d) n *= shape[d];
  return n;
}

int64_t FileTensor::columns() const { return shape.size() == 1 ? 1 : shape.back(); }

std::vector<FileTensor> file_tensors(const ModelConfig& config, const MappingOf& place) {
  std::vector<FileTensor> out;
  std::map<std::string, size_t> numbers;
  for (const ModelParameter& p : model_parameters(config)) {
    const ParameterMapping at = place(p.name);
    const auto [found, fresh] = numbers.try_emplace(at.tensor, out.size());
    if (fresh) {
      FileTensor tensor;
      tensor.name = at.tensor;
      tensor.transposed = at.transposed;
      tensor.selection_bias = p.selection_bias;
      out.push_back(std::move(tensor));
    }
    out[found->second].parts.push_back({p, at});
  }
  for (FileTensor& t : out) {
    if (t.parts.front().place.matrices > 0) {
      t.shape = stacked_shape(t);
      continue;
    }
    std::ranges::stable_sort(t.parts, {}, [](const auto& part) { return part.place.first_row; });
    int64_t rows = 0;
    for (const FileTensor::Part& part : t.parts) {
      TRIREME_CHECK(part.place.first_row == rows, t.name, " has a hole before ",
                    part.parameter.name);
      rows += rows_of(part.parameter);
    }
    const ModelParameter& first = t.parts.front().parameter;
    if (first.shape.size() == 1)
      t.shape = {rows};
    else if (t.transposed)
      t.shape = {columns_of(first), rows};
    else
      t.shape = {rows, columns_of(first)};
  }
  return out;
}

DType file_dtype(const ModelSource& source, const FileTensor& tensor) {
  DType dtype = source.parameter_dtype(source.config(), tensor.parts.front().parameter.name);
  for (const FileTensor::Part& part : tensor.parts)
    dtype = wider(dtype, source.parameter_dtype(source.config(), part.parameter.name));
  return dtype;
}

PieceStream::PieceStream(const ModelSource& source, const ModelConfig& config)
    : source_(source), config_(config), behind_(kPieces) {}

void PieceStream::add(const FileTensor& tensor, DType dtype, int64_t first, const Use& use) {
  try {
    read(tensor, dtype, first, use);
  } catch (...) {
    behind_.abandon();
    throw;
  }
}

void PieceStream::read(const FileTensor& tensor, DType dtype, int64_t first, const Use& use) {
  const int64_t rows = tensor.rows(), width = tensor.columns(), size = dtype_size(dtype);
  const int64_t most = std::clamp<int64_t>(kPieceBytes / (width * size), 1, rows);
  int64_t passed_over = first % width;  // of the first row
  for (int64_t row = first / width; row < rows; row += most) {
    const int64_t count = std::min(most, rows - row);
    const Tensor piece(behind_.block(count * width * size).data(), dtype, Shape{count * width});
    if (tensor.transposed)
      read_columns(source_, config_, tensor, row, count, piece);
    else
      read_rows(source_, config_, tensor, row, count, piece);
    behind_.push([piece, passed_over, use](std::span<std::byte>) {
      use(piece.slice(0, passed_over, piece.numel()));
    });
    passed_over = 0;
  }
}

std::string fingerprint(const ModelSource& source) {
  ChecksumStream sum;
  const auto add_text = [&](const std::string& words) {
    sum.update(std::as_bytes(std::span(words)));
  };
  for (const std::string& file : source.tensors().files()) {
    add_text(file);
    struct stat info {};
    if (::stat(file.c_str(), &info) != 0) continue;
    const int64_t facts[] = {info.st_size, info.st_mtim.tv_sec, info.st_mtim.tv_nsec};
    sum.update(std::as_bytes(std::span(facts)));
  }
  for (const SourceTensor& t : source.tensors().tensors())
    add_text(concat(t.name, t.dtype_name, shape_text(t.shape)));
  add_text(source.settings());
  return checksum_text(sum.value());
}

}  // namespace trireme
