#include "transformer/formats/model_source.h"

#include <cmath>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "engine/io/hub_cache.h"
#include "engine/ops/rows/transfer.h"
#include "transformer/families/config_json.h"
#include "transformer/families/family.h"
#include "transformer/formats/gguf/gguf_model.h"
#include "transformer/formats/hf/hf_model.h"
#include "transformer/formats/load_config.h"

namespace trireme {
namespace {

constexpr size_t kMaxListed = 20;
// Rows of a transposed matrix that are read together, so that whole cache lines are used.
constexpr int64_t kTileRows = 64;

std::vector<int64_t> dims_of(const Shape& shape) {
  return {shape.dims().begin(), shape.dims().end()};
}

// Shape of a parameter, or of a file's tensor, as a matrix; a vector is a column.
struct Matrix {
  int64_t rows = 1, columns = 1;
};
Matrix matrix_of(const std::vector<int64_t>& shape) {
  Matrix m;
  if (shape.size() == 1) return {shape[0], 1};
  for (size_t d = 0; d < shape.size(); ++d) {
    int64_t& size = d + 1 == shape.size() ? m.columns : m.rows;
    size = checked_mul(size, shape[d]);
  }
  return m;
}

// Row of a matrix of the file, of the parameter's row.
int64_t file_row(const ParameterMapping& place, int64_t row) {
  if (place.rotary_width == 0) return place.first_row + row * place.row_step;
  const int64_t width = place.rotary_width, half = width / 2, in_group = row % width;
  return place.first_row + row - in_group + 2 * (in_group % half) + in_group / half;
}

// Elements of one matrix of a stack; 0: the tensor is not stacked.
int64_t matrix_elements(const SourceTensor& tensor, const ParameterMapping& place) {
  return place.matrices == 0 ? 0 : tensor.numel() / place.matrices;
}

// Range of a box's flattened elements and its destination.
struct Wanted {
  TensorBox box;  // two-dimensional
  int64_t begin;
  Tensor destination;
  int64_t width() const { return box.extent[1]; }
};

void read_rows(const TensorSource& source, const SourceTensor& tensor,
               const ParameterMapping& place, const Matrix& parameter, const Wanted& wanted) {
  const int64_t width = wanted.width(), count = wanted.destination.numel();
  const bool in_one = place.rotary_width == 0 && place.row_step == 1 && width == parameter.columns;
  const int64_t before = place.matrix * matrix_elements(tensor, place);
  for (int64_t done = 0; done < count;) {
    const int64_t at = wanted.begin + done, row = at / width, column = at % width;
    const int64_t length = in_one ? count - done : std::min(width - column, count - done);
    const int64_t first = before + file_row(place, wanted.box.start[0] + row) * parameter.columns +
                          wanted.box.start[1] + column;
    source.read(tensor, first, wanted.destination.slice(0, done, done + length));
    done += length;
  }
}

// The file's matrix is (columns of the parameter, rows of all parameters in it).
void read_transposed(const TensorSource& source, const SourceTensor& tensor,
                     const ParameterMapping& place, const Wanted& wanted) {
  const int64_t width = wanted.width(), count = wanted.destination.numel();
  const int64_t stride = matrix_of(tensor.shape).columns, step = place.row_step;
  const int64_t before = place.matrix * matrix_elements(tensor, place);
  dispatch_float("read_transposed", wanted.destination.dtype(), [&]<class T>() {
    std::vector<T> tile(static_cast<size_t>(kTileRows * step));
    T* const out = wanted.destination.template as<T>();
    for (int64_t done = 0; done < count;) {
      const int64_t at = wanted.begin + done, row = at / width, column = at % width;
      const bool whole_rows = column == 0 && count - done >= width;
      const int64_t rows = whole_rows ? std::min((count - done) / width, kTileRows) : 1;
      const int64_t columns = whole_rows ? width : std::min(width - column, count - done);
      for (int64_t c = 0; c < columns; ++c) {
        const int64_t first = before + (wanted.box.start[1] + column + c) * stride +
                              file_row(place, wanted.box.start[0] + row);
        source.read(tensor, first, Tensor(tile.data(), dtype_of<T>, Shape{(rows - 1) * step + 1}));
        for (int64_t r = 0; r < rows; ++r)
          out[done + r * width + c] = tile[static_cast<size_t>(r * step)];
      }
      done += rows * columns;
    }
  });
}

void subtract(const Tensor& y, double added) {
  if (added == 0) return;
  dispatch_float("subtract", y.dtype(), [&]<class T>() {
    T* const values = y.as<T>();
    for (int64_t i = 0; i < y.numel(); ++i)
      values[i] = T(static_cast<compute_t<T>>(static_cast<compute_t<T>>(values[i]) -
                                              static_cast<compute_t<T>>(added)));
  });
}

std::string listed(const char* what, const std::vector<std::string>& lines) {
  if (lines.empty()) return "";
  std::string out = concat("\n  ", what, " (", lines.size(), "):");
  for (size_t i = 0; i < std::min(lines.size(), kMaxListed); ++i) out += "\n    " + lines[i];
  if (lines.size() > kMaxListed) out += concat("\n    ... ", lines.size() - kMaxListed, " more");
  return out;
}

// "I32 in 2 tensors (a.weight, ...); " for each type.
std::string types_of(const std::map<std::string, std::vector<std::string>>& unread) {
  std::string out;
  for (const auto& [type, names] : unread)
    out += concat(type, " in ", names.size(), names.size() == 1 ? " tensor (" : " tensors (",
                  names.front(), names.size() == 1 ? "" : ", ...", ") is not supported; ");
  return out;
}

std::string tensor_advice(const std::vector<std::string>& missing,
                          const std::vector<std::string>& left_over) {
  const auto only = [](const std::vector<std::string>& names, std::string_view end) {
    return names.size() == 1 && names[0].ends_with(end);
  };
  const auto only_head = [&](const auto& names) { return only(names, "lm_head.weight"); };
  if (only_head(missing))
    return "\n  a model without its head: set tie_word_embeddings to true in config.json if the "
           "head is the embedding's";
  if (left_over.empty() && (only(missing, "embed_tokens.weight") || only(missing, "wte.weight")))
    return "\n  a model without its embedding: set tie_word_embeddings to true in config.json if "
           "the "
           "embedding is the head's";
  if (missing.empty() && only_head(left_over))
    return "\n  a model with a head of its own: set tie_word_embeddings to false to keep it";
  return "\n  the configuration and the weights may be of different downloads: use both from one";
}

// Expectation of a file's tensor, derived from the parameters in it.
struct ExpectedTensor {
  Matrix matrix;
  bool transposed = false, vector = false;
  int64_t matrices = 0;        // HfSource
  std::vector<int64_t> shape;  // of its only parameter, for messages; empty: several parameters
  bool vocabulary = false;
};

std::map<std::string, ExpectedTensor> expected_tensors(const ModelSource& source,
                                                       const ModelConfig& config) {
  std::map<std::string, ExpectedTensor> expected;
  for (const ModelParameter& p : model_parameters(config)) {
    const ParameterMapping place = source.place(config, p.name);
    const Matrix m = matrix_of(p.shape);
    const auto [found, fresh] = expected.try_emplace(place.tensor);
    ExpectedTensor& e = found->second;
    e.transposed = place.transposed;
    e.matrix.columns = m.columns;
    e.vector = p.shape.size() == 1;
    e.matrices = place.matrices;
    e.matrix.rows =
        std::max(fresh ? 0 : e.matrix.rows, place.first_row + (m.rows - 1) * place.row_step + 1);
    e.shape = fresh ? p.shape : std::vector<int64_t>{};
    e.vocabulary = p.shape.size() == 2 && p.shape[0] == config.vocab_size;
  }
  return expected;
}

// "" or the mismatch of the file's tensor.
std::string shape_problem(const SourceTensor& tensor, const ExpectedTensor& expected,
                          const ModelConfig& config) {
  Matrix wanted = expected.matrix, found = matrix_of(tensor.shape);
  if (expected.transposed) std::swap(wanted.rows, wanted.columns);
  if (expected.matrices > 0) {
    std::vector<int64_t> shape = {expected.matrices, wanted.rows, wanted.columns};
    if (expected.vector) shape.erase(shape.begin() + 1);
    return tensor.shape == shape ? ""
                                 : concat(tensor.name, " is ", shape_text(tensor.shape),
                                          ", expected from the config: ", shape_text(shape));
  }
  // (n) and (1, n) are the same elements in the same order.
  const bool flat = (wanted.rows == 1 || wanted.columns == 1) &&
                    (found.rows == 1 || found.columns == 1) &&
                    wanted.rows * wanted.columns == found.rows * found.columns;
  if (flat || (wanted.rows == found.rows && wanted.columns == found.columns)) return "";
  const std::string shape = expected.shape.empty() || expected.transposed
                                ? shape_text({wanted.rows, wanted.columns})
                                : shape_text(expected.shape);
  std::string why =
      concat(tensor.name, " is ", shape_text(tensor.shape), ", expected from the config: ", shape);
  if (expected.vocabulary && found.columns == wanted.columns)
    why += concat(found.rows > wanted.rows ? ": a padded table; vocab_size " : ": vocab_size ",
                  config.vocab_size, " -> ", found.rows, " in config.json would match its rows");
  return why;
}

}  // namespace

std::vector<ModelParameter> model_parameters(const ModelConfig& config) {
  const Model model(config, DType::kF32);
  std::vector<ModelParameter> out;
  std::set<std::string> names;  // a tied table counts once
  for (const ParameterSpec& spec : model.parameters().specs())
    if (names.insert(spec.name).second) out.push_back({spec.name, dims_of(spec.shape), false});
  if (model.routers() == nullptr) return out;
  for (const RouterState::Named& t : model.routers()->saved())
    if (t.name.ends_with("e_score_correction_bias"))
      out.push_back({t.name, dims_of(t.tensor.shape()), true});
  return out;
}

DType ModelSource::dtype() const {
  if (dtype_.has_value()) return *dtype_;
  std::map<DType, int64_t> elements;
  for (const SourceTensor& t : tensors_->tensors()) {
    if (!t.dtype.has_value() || !is_float(*t.dtype)) continue;
    elements[t.quantized ? DType::kBF16 : *t.dtype] += t.numel();
  }
  DType most = DType::kF32;
  for (const auto& [dtype, n] : elements)
    if (n > elements[most]) most = dtype;
  return *(dtype_ = most);
}

DType ModelSource::parameter_dtype(const ModelConfig& config, const std::string& parameter) const {
  const std::string name = place(config, parameter).tensor;
  const SourceTensor* tensor = tensors_->find(name);
  if (tensor == nullptr || !tensor->dtype.has_value())
    fail_input(path_, ": has no float values \"", name, "\"");
  return tensor->quantized ? dtype() : *tensor->dtype;
}

std::string ModelSource::settings() const { return model_config_to_json(config_).dump(); }

std::string ModelSource::types_read() const {
  return "supported: floating-point weights (quantized ones need their quantization_config in "
         "config.json)";
}

void ModelSource::check(const ModelConfig& config) const {
  const std::map<std::string, ExpectedTensor> expected = expected_tensors(*this, config);
  std::vector<std::string> missing, left_over, wrong;
  std::map<std::string, std::vector<std::string>> unread;  // names by type
  for (const auto& [name, e] : expected) {
    const SourceTensor* tensor = tensors_->find(name);
    if (tensor == nullptr) {
      missing.push_back(name);
      continue;
    }
    if (const std::string why = shape_problem(*tensor, e, config); !why.empty())
      wrong.push_back(why);
    else if (!tensor->dtype.has_value() || !is_float(*tensor->dtype))
      unread[tensor->dtype_name].push_back(name);
  }
  for (const SourceTensor& tensor : tensors_->tensors())
    if (!expected.contains(tensor.name) && !is_ignored(config, tensor.name))
      left_over.push_back(tensor.name);
  const std::string types = unread.empty() ? "" : concat(types_of(unread), types_read());
  if (missing.empty() && left_over.empty() && wrong.empty()) {
    if (!unread.empty()) fail_input(path_, ": ", types);
    return;
  }
  fail_input(path_, ": its tensors do not match its configuration (model_type \"",
             family_of(config.family).model_type, "\")", listed("missing", missing),
             listed("left over", left_over), listed("wrong", wrong),
             types.empty() ? "" : "\n  " + types, tensor_advice(missing, left_over));
}

void ModelSource::read(const ModelConfig& config, const ModelParameter& parameter,
                       const TensorBox& box, int64_t begin, const Tensor& destination) const {
  const ParameterMapping at = place(config, parameter.name);
  const SourceTensor* tensor = tensors_->find(at.tensor);
  if (tensor == nullptr) fail_input(path_, ": has no tensor \"", at.tensor, "\"");
  TRIREME_CHECK(parameter.shape.size() <= 2 && box.start.size() == parameter.shape.size(),
                parameter.name, ": shape ", shape_text(parameter.shape),
                ", expected at most 2 dimensions and a box of as many");
  Wanted wanted{box, begin, destination};
  if (box.start.size() == 1) {
    wanted.box.start.push_back(0);
    wanted.box.extent.push_back(1);
  }
  if (at.transposed)
    read_transposed(*tensors_, *tensor, at, wanted);
  else
    read_rows(*tensors_, *tensor, at, matrix_of(parameter.shape), wanted);
  subtract(destination, at.added);
}

void ModelSource::fill(Ctx& ctx, ParameterStore& store,
                       const std::function<bool(const ParameterSpec&)>& chosen,
                       const ReadPart& part_of) {
  const Tensor values = store.flat_values();
  for (ParamHandle h = 0; h < std::ssize(store.specs()); ++h) {
    const ParameterSpec& spec = store.specs()[static_cast<size_t>(h)];
    if (!chosen(spec)) continue;
    if (spec.packed) {
      store.pack(ctx, h, [&](const TensorBox& box, int64_t begin, const Tensor& piece) {
        part_of(spec, box, begin, piece);
      });
      continue;
    }
    const TensorBox box = spec.box.extent.empty() ? whole_box(dims_of(spec.shape)) : spec.box;
    store.value_map().for_each(store.range(h), [&](const FlatRange& part, int64_t at) {
      const int64_t begin = part.begin - store.range(h).begin;
      fill_from_host(
          ctx, values.slice(0, at, at + part.size()),
          [&](const Tensor& piece, int64_t first) { part_of(spec, box, begin + first, piece); });
    });
  }
}

void ModelSource::load_parameters(Ctx& ctx, const Model& model, ParameterStore& store,
                                  bool adapters) const {
  fill(
      ctx, store, [&](const ParameterSpec& spec) { return spec.adapter == adapters; },
      [&](const ParameterSpec& spec, const TensorBox& box, int64_t begin, const Tensor& piece) {
        read(model.config(), {spec.name, dims_of(spec.shape), false}, box, begin, piece);
      });
}

void ModelSource::load_row_norms(Ctx& ctx, const Model& model, ParameterStore& store) const {
  constexpr std::string_view kSuffix = kMagnitudeSuffix;
  std::map<std::string, std::vector<int64_t>> shapes;  // of the weights
  for (const ParameterSpec& spec : store.specs())
    if (!spec.adapter) shapes.emplace(spec.name, dims_of(spec.shape));
  fill(
      ctx, store, [&](const ParameterSpec& spec) { return spec.name.ends_with(kSuffix); },
      [&](const ParameterSpec& spec, const TensorBox& box, int64_t begin, const Tensor& piece) {
        const std::string layer = spec.name.substr(0, spec.name.size() - kSuffix.size());
        const ModelParameter weight{layer + ".weight", shapes.at(layer + ".weight"), false};
        const int64_t inputs = weight.shape[1], rows = piece.numel();
        std::vector<double> tile(static_cast<size_t>(std::min(rows, kTileRows) * inputs));
        std::vector<double> norms(static_cast<size_t>(rows));
        for (int64_t first = 0; first < rows; first += kTileRows) {
          const int64_t n = std::min(rows - first, kTileRows);
          read(model.config(), weight,
               {.start = {box.start[0] + begin + first, 0}, .extent = {n, inputs}}, 0,
               Tensor(tile.data(), DType::kF64, Shape{n * inputs}));
          for (int64_t r = 0; r < n; ++r) {
            double squares = 0;
            for (int64_t i = 0; i < inputs; ++i) {
              const double w = tile[static_cast<size_t>(r * inputs + i)];
              squares += w * w;
            }
            norms[static_cast<size_t>(first + r)] = std::sqrt(squares);
          }
        }
        convert_elements(piece, DType::kF64, std::as_bytes(std::span<const double>(norms)));
      });
}

void ModelSource::load_adapters(Ctx& ctx, const Model& model, ParameterStore& store) const {
  load_parameters(ctx, model, store, true);
}

void ModelSource::load(Ctx& ctx, const Model& model, ParameterStore& store) const {
  load_parameters(ctx, model, store, false);
  if (model.routers() == nullptr) return;
  for (const RouterState::Named& t : model.routers()->saved()) {
    const std::vector<int64_t> shape = dims_of(t.tensor.shape());
    if (t.name.ends_with("e_score_correction_bias"))
      read(model.config(), {t.name, shape, true}, whole_box(shape), 0, t.tensor);
  }
  model.routers()->place(ctx);
}

bool is_model_source(const std::string& path) { return is_hf_model(path) || is_gguf(path); }

std::unique_ptr<ModelSource> open_model_source(const std::string& path) {
  if (is_hf_model(path)) return std::make_unique<HfModel>(path);
  if (is_gguf(path)) return std::make_unique<GgufModel>(path);
  fail_input(path, " is neither a HuggingFace directory (config.json and safetensors) nor a .gguf",
             model_advice(path));
}

std::string hub_advice(const std::string& path) {
  std::error_code ignored;
  const size_t slash = path.find('/');
  const bool name = slash != std::string::npos && slash > 0 && slash + 1 < path.size() &&
                    path.find('/', slash + 1) == std::string::npos && path[0] != '.' &&
                    path[0] != '~' && path.find(' ') == std::string::npos;
  if (!name || std::filesystem::exists(path, ignored)) return "";
  return concat("; the hub's cache ", hub_cache(), " has no such model either: hf download ", path);
}

}  // namespace trireme
