#include "tests/transformer/layers/latent_case.h"

#include <cmath>
#include <mutex>
#include <numeric>

#include "engine/ops/attention/rotary.h"
#include "parallel/comm/world.h"
#include "tests/support/compare.h"
#include "transformer/layers/latent_attention.h"

namespace trireme::test {
namespace {

using Values = std::vector<double>;

size_t at(int64_t i) { return static_cast<size_t>(i); }

LatentCase made(const std::string& name, const LatentConfig& latent) {
  LatentCase c;
  c.name = name;
  c.config.hidden_size = 10;
  c.config.num_layers = 1;
  c.config.num_heads = c.config.num_kv_heads = 4;
  c.config.latent = latent;
  c.config.head_dim = latent.nope_dim + latent.rope_dim;
  c.config.max_positions = 16;
  c.config.rope_theta = 50;
  return c;
}

// Rows of x times w^T, plus b if given; w (out, in).
Values product(const Values& x, const Values& w, const Values* b, int64_t in) {
  const int64_t out = std::ssize(w) / in, rows = std::ssize(x) / in;
  Values y;
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t o = 0; o < out; ++o) {
      double sum = b != nullptr ? (*b)[at(o)] : 0.0;
      for (int64_t i = 0; i < in; ++i) sum += x[at(r * in + i)] * w[at(o * in + i)];
      y.push_back(sum);
    }
  return y;
}

Values rms_norm(const Values& x, const Values& w) {
  const int64_t n = std::ssize(w);
  Values y = x;
  for (int64_t r = 0; r < std::ssize(x) / n; ++r) {
    double squares = 0;
    for (int64_t i = 0; i < n; ++i) squares += x[at(r * n + i)] * x[at(r * n + i)];
    const double scale = 1 / std::sqrt(squares / static_cast<double>(n) + 1e-6);
    for (int64_t i = 0; i < n; ++i) y[at(r * n + i)] *= scale * w[at(i)];
  }
  return y;
}

void rotate(double* x, int64_t width, int64_t position, const ModelConfig& config) {
  const int64_t half = width / 2;
  for (int64_t i = 0; i < half; ++i) {
    const double angle =
        static_cast<double>(position) *
        std::pow(config.rope_theta, -2.0 * static_cast<double>(i) / static_cast<double>(width));
    double& u = config.rope_interleaved ? x[2 * i] : x[i];
    double& v = config.rope_interleaved ? x[2 * i + 1] : x[half + i];
    const double first = u * std::cos(angle) - v * std::sin(angle);
    v = v * std::cos(angle) + u * std::sin(angle);
    u = first;
  }
}

// Columns [begin, end) of rows of `width`.
Values columns(const Values& x, int64_t width, int64_t begin, int64_t end) {
  Values out;
  for (int64_t r = 0; r < std::ssize(x) / width; ++r)
    for (int64_t i = begin; i < end; ++i) out.push_back(x[at(r * width + i)]);
  return out;
}

struct Document {
  int64_t begin, end;
};
std::vector<Document> documents(const LatentCase& c) {
  std::vector<Document> out;
  int64_t begin = 0;
  for (const int64_t length : c.lengths) {
    out.push_back({begin, begin + length});
    begin += length;
  }
  return out;
}

}  // namespace

int64_t LatentCase::tokens() const {
  return std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
}

std::vector<LatentCase> latent_cases() {
  const LatentConfig lite{.kv_rank = 7, .nope_dim = 4, .rope_dim = 2, .value_dim = 5};
  LatentConfig full = lite;
  full.q_rank = 9;
  full.rope_dim = 4;
  LatentConfig wide = full;
  wide.value_dim = 8;
  std::vector<LatentCase> out{made("lite", lite), made("full", full), made("wide", wide)};
  out[1].config.rope_interleaved = out[2].config.rope_interleaved = true;
  out[1].config.attention_scale = 0.6;
  out[2].config.attention_bias = out[2].config.attention_output_bias = true;
  return out;
}

LatentCase latent_case(const std::string& name) {
  for (const LatentCase& c : latent_cases())
    if (c.name == name) return c;
  TRIREME_UNREACHABLE("no case ", name);
}

NamedValues latent_values(const LatentCase& c) {
  ParameterList list;
  const LatentAttention layer(c.config, Layout{}, list, "layer", 0, 0);
  NamedValues out;
  for (const ParameterSpec& spec : list.specs()) {
    Values& values = out[spec.name] = normals(spec.name, spec.shape.numel(), 0.5);
    if (spec.init == InitKind::kOnes)
      for (double& v : values) v += 1;
  }
  out["x"] = normals("x", c.tokens() * c.config.hidden_size);
  out["dy"] = normals("dy", c.tokens() * c.config.hidden_size);
  return out;
}

Values latent_reference(const LatentCase& c, const NamedValues& values) {
  const ModelConfig& m = c.config;
  const LatentConfig& s = m.latent;
  const int64_t t = c.tokens(), heads = m.num_heads, width = m.head_dim;
  const int64_t both = s.nope_dim + s.value_dim;
  const auto weight = [&](const char* name) -> const Values& {
    return values.at(concat("layer.", name, ".weight"));
  };
  const auto bias = [&](const char* name) {
    const auto found = values.find(concat("layer.", name, ".bias"));
    return found == values.end() ? nullptr : &found->second;
  };
  const Values& x = values.at("x");
  Values q;
  if (s.q_rank > 0) {
    const Values latent = product(x, weight("q_a_proj"), bias("q_a_proj"), m.hidden_size);
    q = product(rms_norm(latent, weight("q_a_layernorm")), weight("q_b_proj"), nullptr, s.q_rank);
  } else {
    q = product(x, weight("q_proj"), nullptr, m.hidden_size);
  }
  const int64_t down = s.kv_rank + s.rope_dim;
  const Values compressed =
      product(x, weight("kv_a_proj_with_mqa"), bias("kv_a_proj_with_mqa"), m.hidden_size);
  const Values latent = columns(compressed, down, 0, s.kv_rank);
  Values rope = columns(compressed, down, s.kv_rank, down);
  const Values kv =
      product(rms_norm(latent, weight("kv_a_layernorm")), weight("kv_b_proj"), nullptr, s.kv_rank);
  for (const Document& d : documents(c))
    for (int64_t i = d.begin; i < d.end; ++i) {
      rotate(&rope[at(i * s.rope_dim)], s.rope_dim, i - d.begin, m);
      for (int64_t h = 0; h < heads; ++h)
        rotate(&q[at((i * heads + h) * width + s.nope_dim)], s.rope_dim, i - d.begin, m);
    }
  const double scale =
      m.attention_scale > 0 ? m.attention_scale : 1 / std::sqrt(static_cast<double>(width));
  Values out(at(t * heads * s.value_dim), 0.0);
  for (const Document& d : documents(c))
    for (int64_t i = d.begin; i < d.end; ++i)
      for (int64_t h = 0; h < heads; ++h) {
        Values p;
        double total = 0;
        for (int64_t j = d.begin; j <= i; ++j) {
          double score = 0;
          for (int64_t e = 0; e < width; ++e)
            score += q[at((i * heads + h) * width + e)] *
                     (e < s.nope_dim ? kv[at((j * heads + h) * both + e)]
                                     : rope[at(j * s.rope_dim + e - s.nope_dim)]);
          p.push_back(std::exp(scale * score));
          total += p.back();
        }
        for (int64_t j = d.begin; j <= i; ++j)
          for (int64_t e = 0; e < s.value_dim; ++e)
            out[at((i * heads + h) * s.value_dim + e)] +=
                p[at(j - d.begin)] / total * kv[at((j * heads + h) * both + s.nope_dim + e)];
      }
  return product(out, weight("o_proj"), bias("o_proj"), heads * s.value_dim);
}

namespace {

std::vector<int64_t> dims_of(const Shape& shape) {
  return {shape.dims().begin(), shape.dims().end()};
}

TensorPart part_of(const ParameterSpec& spec) {
  const TensorBox box = spec.box.extent.empty() ? whole_box(dims_of(spec.shape)) : spec.box;
  return {box, 0, box.numel()};
}

// One rank's work; results are accumulated under the lock.
class Rank {
 public:
  Rank(const LatentCase& c, const ParallelSizes& sizes, Communicator& world)
      : case_(c),
        groups_(world, sizes),
        layer_(c.config, groups_.layout, list_, "layer", 0, 0),
        store_(list_, DType::kF64),
        table_(DType::kF64, {c.config.max_positions, rotary_width(c.config)}) {
    store_.allocate(ctx_, true);
    rotary_table(table_, plain_rotary_frequencies(c.config.rope_theta, rotary_width(c.config)));
  }

  void run(LatentResult& result, std::mutex& lock) {
    const NamedValues values = latent_values(case_);
    for (size_t h = 0; h < list_.specs().size(); ++h) set_parameter(static_cast<int>(h), values);
    const GroupCoord split = groups_.layout.token_split();
    const int64_t c = case_.config.hidden_size, rows = case_.tokens() / split.size;
    TRIREME_CHECK(case_.tokens() % split.size == 0, case_.tokens(), " tokens over ", split.size);
    const auto share = [&](const char* name) {
      const Values& all = values.at(name);
      return TestTensor(
          DType::kF64, {rows, c},
          Values(all.begin() + split.index * rows * c, all.begin() + (split.index + 1) * rows * c));
    };
    const TestTensor x = share("x"), dy = share("dy");
    TestTensor y(DType::kF64, {rows, c}), dx(DType::kF64, {rows, c});
    set_tokens();
    Pass pass{ctx_, store_, tokens_, &groups_};
    store_.begin_gradients();
    LatentAttention::Saved saved;
    layer_.forward(pass, y, x, *table_, &saved);
    const LatentAttention::Deferred deferred = layer_.backward_input(pass, dx, dy, *table_, saved);
    layer_.backward_weight(pass, dy, x, saved, deferred);
    const std::lock_guard guard(lock);
    for (int64_t i = 0; i < rows * c; ++i) {
      result.y[at(split.index * rows * c + i)] = y->as<double>()[i];
      result.dx[at(split.index * rows * c + i)] = dx->as<double>()[i];
    }
    for (size_t h = 0; h < list_.specs().size(); ++h) add_gradient(static_cast<int>(h), result);
  }

 private:
  void set_tokens() {
    cu_ = {0};
    for (const Document& d : documents(case_)) {
      cu_.push_back(static_cast<int32_t>(d.end));
      for (int64_t i = d.begin; i < d.end; ++i)
        positions_.push_back(static_cast<int32_t>(i - d.begin));
    }
    tokens_.count = case_.tokens();
    tokens_.positions = ConstTensor(positions_.data(), DType::kI32, {tokens_.count});
    tokens_.cu_q = ConstTensor(cu_.data(), DType::kI32, {std::ssize(cu_)});
  }

  void set_parameter(ParamHandle h, const NamedValues& values) {
    const ParameterSpec& spec = list_.specs()[at(h)];
    const Values& whole = values.at(spec.name);
    auto* local = store_.value(h).as<double>();
    const TensorPart all{whole_box(dims_of(spec.shape)), 0, spec.shape.numel()};
    for_each_common_run(dims_of(spec.shape), part_of(spec), all, [&](const CommonRun& run) {
      std::copy_n(whole.data() + run.second_offset, run.length, local + run.first_offset);
    });
  }

  void add_gradient(ParamHandle h, LatentResult& result) {
    const ParameterSpec& spec = list_.specs()[at(h)];
    Values& whole = result.grads[spec.name];
    whole.resize(at(spec.shape.numel()), 0.0);
    if (spec.partial == PartialSum::kNone && spec.copy != 0) return;
    const Tensor view = store_.view_in(store_.flat_gradients(), h);
    const auto* local = view.as<double>();
    const TensorPart all{whole_box(dims_of(spec.shape)), 0, spec.shape.numel()};
    for_each_common_run(dims_of(spec.shape), part_of(spec), all, [&](const CommonRun& run) {
      for (int64_t i = 0; i < run.length; ++i)
        whole[at(run.second_offset + i)] += local[run.first_offset + i];
    });
  }

  const LatentCase& case_;
  Groups groups_;
  ParameterList list_;
  LatentAttention layer_;
  ParameterStore store_;
  TestTensor table_;
  Ctx ctx_{1, "test"};
  std::vector<int32_t> cu_, positions_;
  Tokens tokens_;
};

}  // namespace

LatentResult run_latent(const LatentCase& c, const ParallelSizes& sizes) {
  LatentResult result;
  result.y.assign(at(c.tokens() * c.config.hidden_size), 0.0);
  result.dx = result.y;
  std::mutex lock;
  run_threads(world_size(sizes), [&](Communicator& world) {
    Rank rank(c, sizes, world);
    rank.run(result, lock);
  });
  return result;
}

}  // namespace trireme::test
