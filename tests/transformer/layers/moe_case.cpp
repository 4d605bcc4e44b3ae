#include "tests/transformer/layers/moe_case.h"

#include <mutex>

#include "engine/ops/loss/cross_entropy.h"
#include "tests/support/compare.h"

namespace trireme::test {
namespace {

constexpr int64_t kWidth = 6;
constexpr double kScale = 0.125;  // of the loss

size_t moe_at(int64_t i) { return static_cast<size_t>(i); }

MoeCase made(const std::string& name, ModelFamily family, const MoeConfig& moe) {
  MoeCase c;
  c.name = name;
  c.config.family = family;
  c.config.hidden_size = kWidth;
  c.config.num_layers = 1;
  c.config.num_heads = c.config.num_kv_heads = 1;
  c.config.initializer_range = 0.5;
  c.config.moe = moe;
  return c;
}

// The logical micro-batch, and the part of it that one rank works on.
struct Batch {
  std::vector<int64_t> index;  // of each local token in the micro-batch; -1: padding of the layout
  std::vector<int64_t> rows;
  std::vector<int32_t> targets;
  Tokens tokens;
};

Batch batch_of(const MoeCase& c, const Layout& layout, int64_t micro_batch) {
  Batch b;
  // Zigzag over cp, and a number of tokens that tp divides where required.
  const int64_t cp = layout.cp.size, pieces = cp == 1 ? 1 : 2 * cp, length = c.tokens / pieces;
  TRIREME_CHECK(c.tokens % pieces == 0, c.tokens, " tokens over ", cp, " context ranks");
  for (int64_t piece : {int64_t{layout.cp.index}, pieces - 1 - layout.cp.index}) {
    for (int64_t t = 0; t < length; ++t) b.index.push_back(piece * length + t);
    if (pieces == 1) break;
  }
  while (layout.sequence_parallel && std::ssize(b.index) % layout.tp.size != 0)
    b.index.push_back(-1);
  for (int64_t i : b.index) {
    const bool real = i >= 0 && i < c.tokens - c.padding;
    b.rows.push_back(real ? (micro_batch + 3) * c.tokens + i : -1);
    b.targets.push_back(real && i % 4 != 3 ? 1 : kIgnoredTarget);
  }
  b.tokens.count = std::ssize(b.rows);
  b.tokens.global_index = ConstTensor(b.rows.data(), DType::kI64, {b.tokens.count});
  b.tokens.targets = ConstTensor(b.targets.data(), DType::kI32, {b.tokens.count});
  b.tokens.sequence_length = c.tokens / 2;
  return b;
}

// Rows of a logical (tokens, C) array in this rank's residual stream.
TestTensor local_rows(const MoeCase& c, const Batch& b, const GroupCoord& split,
                      const std::vector<double>& whole, double padding) {
  const int64_t rows = b.tokens.count / split.size;
  std::vector<double> values;
  for (int64_t t = split.index * rows; t < (split.index + 1) * rows; ++t)
    for (int64_t k = 0; k < kWidth; ++k) {
      const int64_t i = b.index[moe_at(t)];
      values.push_back(i < 0 ? padding : whole[moe_at(i * c.config.hidden_size + k)]);
    }
  return TestTensor(DType::kF64, {rows, kWidth}, values);
}

void place_rows(const Batch& b, const GroupCoord& split, const ConstTensor& local, double* whole) {
  const std::vector<double> values = to_doubles(local);
  const int64_t rows = local.size(0);
  for (int64_t t = 0; t < rows; ++t) {
    const int64_t i = b.index[moe_at(split.index * rows + t)];
    for (int64_t k = 0; i >= 0 && k < kWidth; ++k)
      whole[i * kWidth + k] = values[moe_at(t * kWidth + k)];
  }
}

std::vector<int64_t> moe_dims_of(const Shape& shape) {
  return {shape.dims().begin(), shape.dims().end()};
}

TensorPart moe_part_of(const ParameterSpec& spec) {
  const TensorBox box = spec.box.extent.empty() ? whole_box(moe_dims_of(spec.shape)) : spec.box;
  return {box, 0, box.numel()};
}

// One rank's work; results are accumulated under the lock.
class MoeRank {
 public:
  MoeRank(const MoeCase& c, const MoeLayout& layout, Communicator& world)
      : case_(c),
        groups_(world, layout.sizes),
        moe_(c.config, groups_.layout, list_, "model.layers.0", 0, 0),
        store_(list_, DType::kF64),
        routers_(c.config, DType::kF64) {
    moe_.set_bound(layout.bound);
    store_.allocate(ctx_, true);
    for (size_t e = 0; e < c.bias.size(); ++e) routers_.bias(0).as<double>()[e] = c.bias[e];
    ctx_.seed = 11;
  }

  void run(const std::map<std::string, std::vector<double>>& offsets, MoeResult& result,
           std::mutex& lock) {
    for (size_t h = 0; h < list_.specs().size(); ++h) set_parameter(static_cast<int>(h), offsets);
    store_.begin_gradients();
    std::vector<double> losses(4, 0.0);
    const GroupCoord& dp = groups_.layout.dp;
    groups_.ep->reset_traffic();
    for (int64_t m = dp.index; m < kMoeMicroBatches; m += dp.size)
      micro_batch(m, offsets, losses, result, lock);
    const std::lock_guard guard(lock);
    result.dispatched_bytes += groups_.ep->traffic()[CommKind::kAllToAll].sent_bytes;
    // Sums over dp x cp; all tp ranks have the same values.
    if (groups_.layout.tp.index == 0)
      for (size_t i = 0; i < 4; ++i) result.losses[i] += losses[i];
    for (size_t h = 0; h < list_.specs().size(); ++h) add_gradient(static_cast<int>(h), result);
  }

 private:
  void micro_batch(int64_t m, const std::map<std::string, std::vector<double>>& offsets,
                   std::vector<double>& losses, MoeResult& result, std::mutex& lock) {
    const Batch b = batch_of(case_, groups_.layout, m);
    const GroupCoord split = groups_.layout.token_split();
    const int64_t size = case_.tokens * kWidth;
    const auto logical = [&](const char* name) {
      std::vector<double> all = moe_value(case_, name, kMoeMicroBatches * size);
      if (const auto more = offsets.find(name); more != offsets.end())
        for (size_t i = 0; i < all.size(); ++i) all[i] += more->second[i];
      return std::vector<double>(all.begin() + m * size, all.begin() + (m + 1) * size);
    };
    // The content of padding must not matter; no gradient reaches it.
    const TestTensor x = local_rows(case_, b, split, logical("x"), 7.0);
    const TestTensor dy = local_rows(case_, b, split, logical("dy"), 0.0);
    TestTensor y(DType::kF64, x->shape()), dx(DType::kF64, x->shape());
    const TestTensor scale(DType::kF64, {1}, {kScale}), values(DType::kF64, {4});
    Pass pass{ctx_, store_, b.tokens, &groups_, nullptr, &routers_, *scale, *values};
    Moe::Saved saved;
    moe_.forward(pass, y, x, &saved, m == 0);
    const size_t rounds = saved.route.rounds.size();
    const int64_t remote = saved.route.remote;
    const Moe::Deferred deferred = moe_.backward_input(pass, dx, dy, x, saved);
    moe_.backward_weight(pass, dy, x, saved, deferred);
    const std::lock_guard guard(lock);
    place_rows(b, split, *y, result.y.data() + m * size);
    place_rows(b, split, *dx, result.dx.data() + m * size);
    for (size_t i = 0; i < 4; ++i) losses[i] += to_doubles(*values)[i];
    result.rounds = std::max(result.rounds, rounds);
    result.remote_pairs += remote;
  }

  void set_parameter(ParamHandle h, const std::map<std::string, std::vector<double>>& offsets) {
    const ParameterSpec& spec = list_.specs()[moe_at(h)];
    std::vector<double> whole = moe_value(case_, spec.name, spec.shape.numel());
    if (const auto more = offsets.find(spec.name); more != offsets.end())
      for (size_t i = 0; i < whole.size(); ++i) whole[i] += more->second[i];
    auto* local = store_.value(h).as<double>();
    const TensorPart all{whole_box(moe_dims_of(spec.shape)), 0, spec.shape.numel()};
    for_each_common_run(moe_dims_of(spec.shape), moe_part_of(spec), all, [&](const CommonRun& run) {
      std::copy_n(whole.data() + run.second_offset, run.length, local + run.first_offset);
    });
  }

  void add_gradient(ParamHandle h, MoeResult& result) {
    const ParameterSpec& spec = list_.specs()[moe_at(h)];
    std::vector<double>& whole = result.grads[spec.name];
    whole.resize(moe_at(spec.shape.numel()), 0.0);
    if (spec.partial == PartialSum::kNone && spec.copy != 0) return;
    const Tensor view = store_.view_in(store_.flat_gradients(), h);
    const auto* local = view.as<double>();
    const TensorPart all{whole_box(moe_dims_of(spec.shape)), 0, spec.shape.numel()};
    for_each_common_run(moe_dims_of(spec.shape), moe_part_of(spec), all, [&](const CommonRun& run) {
      for (int64_t i = 0; i < run.length; ++i)
        whole[moe_at(run.second_offset + i)] += local[run.first_offset + i];
    });
  }

  const MoeCase& case_;
  Groups groups_;
  ParameterList list_;
  Moe moe_;
  ParameterStore store_;
  RouterState routers_;
  Ctx ctx_{1, "test"};
};

}  // namespace

std::vector<MoeCase> moe_cases() {
  MoeConfig mixtral;
  mixtral.experts = 6;
  mixtral.experts_per_token = 2;
  mixtral.intermediate_size = 5;
  mixtral.balance_coef = 0.3;
  mixtral.z_coef = 0.2;
  MoeConfig qwen = mixtral;
  qwen.normalize_weights = false;
  qwen.shared_intermediate_size = 4;
  qwen.shared_gate = true;
  qwen.balance_scope = BalanceScope::kSequence;
  MoeConfig deepseek = mixtral;
  deepseek.experts = 8;
  deepseek.experts_per_token = 3;
  deepseek.sigmoid_scores = true;
  deepseek.weight_scale = 1.5;
  deepseek.groups = 4;
  deepseek.kept_groups = 2;
  deepseek.selection_bias = true;
  deepseek.shared_intermediate_size = 6;
  MoeConfig noisy = mixtral;
  noisy.noisy = true;
  noisy.balance_coef = 0;
  noisy.importance_coef = 0.4;
  noisy.load_coef = 0.3;
  MoeConfig capacity = mixtral;
  capacity.capacity_factor = 0.75;
  std::vector<MoeCase> out{made("mixtral", ModelFamily::kMixtral, mixtral),
                           made("qwen2_moe", ModelFamily::kQwen2Moe, qwen),
                           made("deepseek", ModelFamily::kDeepseek, deepseek),
                           made("noisy", ModelFamily::kMixtral, noisy),
                           made("capacity", ModelFamily::kMixtral, capacity)};
  for (MoeCase& c : out)
    if (c.config.moe.selection_bias) c.bias = {0.01, -0.02, 0.03, 0, 0, -0.01, 0.02, 0};
  out[1].padding = 2;
  return out;
}

MoeCase moe_case(const std::string& name) {
  for (const MoeCase& c : moe_cases())
    if (c.name == name) return c;
  TRIREME_UNREACHABLE("no case ", name);
}

std::vector<double> moe_value(const MoeCase& c, const std::string& name, int64_t size) {
  const bool operand = name == "x" || name == "dy";
  return normals(operand ? c.name + name : name, size, operand ? 1.0 : 0.4);
}

MoeResult run_moe(const MoeCase& c, const MoeLayout& layout,
                  const std::map<std::string, std::vector<double>>& offsets) {
  MoeResult result;
  result.y.assign(moe_at(kMoeMicroBatches * c.tokens * kWidth), 0.0);
  result.dx = result.y;
  result.losses.assign(4, 0.0);
  std::mutex lock;
  run_threads(world_size(layout.sizes), [&](Communicator& world) {
    MoeRank rank(c, layout, world);
    rank.run(offsets, result, lock);
  });
  return result;
}

}  // namespace trireme::test
