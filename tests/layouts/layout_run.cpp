#include "tests/layouts/layout_run.h"

#include <cmath>
#include <mutex>

#include "engine/ops/loss/cross_entropy.h"
#include "engine/ops/rows/transfer.h"
#include "parallel/outer/peer_exchange.h"
#include "parallel/outer/sites.h"
#include "tests/layouts/routing_margin.h"
#include "tests/support/compare.h"

namespace trireme::test {
namespace {

// Makes the sequence a pair of responses of unequal length.
void make_pair(int64_t length, MicroBatch& b) {
  const int64_t cut = length / 2 + 2;
  const auto response = [&](int64_t begin, int64_t end, double reference) {
    const auto at = b.targets.begin() + begin;
    for (int64_t i = begin; i < end; ++i)
      b.positions[static_cast<size_t>(i)] = static_cast<int32_t>(i - begin);
    const int64_t ignored = std::count(at, at + (end - begin), kIgnoredTarget);
    return PreferenceResponse{begin, end, end - begin - ignored, reference};
  };
  b.pairs = {{response(0, cut, -40.0), response(cut, length, -38.0)}};
  b.cu_seqlens = {0, static_cast<int32_t>(cut), static_cast<int32_t>(length)};
}

// Sample number n: tokens that follow a rule with exceptions, some targets masked; if packed,
// documents of different lengths, some of one token.
MicroBatch sample(const RunConfig& config, bool packed, int64_t n) {
  const int64_t length = config.sequence_length;
  const auto vocab = static_cast<int32_t>(config.model.vocab_size);
  MicroBatch b = shape_of_micro_batch(1, length);
  const RandomKey key{99, static_cast<uint64_t>(n)};
  auto token = static_cast<int32_t>(philox_word(key, 0) % static_cast<uint64_t>(vocab));
  if (packed) b.cu_seqlens = {0};
  int32_t position = 0;
  for (int64_t t = 0; t < length; ++t) {
    const auto at = static_cast<size_t>(t);
    const uint64_t word = philox_word(key, static_cast<uint64_t>(t) + 1);
    b.tokens[at] = token;
    token = (token * 7 + 3) % vocab;
    b.targets[at] = word % 5 == 0 ? kIgnoredTarget : token;
    b.valid_targets += b.targets[at] >= 0 ? 1 : 0;
    b.positions[at] = position++;
    b.global_index[at] = n * length + t;
    if (packed && t + 1 < length && word % 4 == 0) {
      b.cu_seqlens.push_back(static_cast<int32_t>(t) + 1);
      position = 0;
    }
  }
  if (packed) b.cu_seqlens.push_back(static_cast<int32_t>(length));
  if (learns_from_pairs(config.finetune)) make_pair(length, b);
  return b;
}

// Calls f(offset from `begin`, offset in the logical tensor, length) for each contiguous run of
// elements [begin, begin + count) of a box.
template <class F>
void for_each_run(const ParameterSpec& spec, int64_t begin, int64_t count, F&& f) {
  const std::vector<int64_t> shape(spec.shape.dims().begin(), spec.shape.dims().end());
  const TensorBox box = spec.box.extent.empty() ? whole_box(shape) : spec.box;
  const TensorPart from{box, begin, begin + count}, to{whole_box(shape), 0, spec.shape.numel()};
  for_each_common_run(shape, from, to, [&](const CommonRun& run) {
    f(run.first_offset, run.second_offset, run.length);
  });
}

bool config_has_experts(const TrainState& state) { return state.model.routers() != nullptr; }

// A tensor in host memory, copied from any device.
struct HostCopy {
  HostCopy(Ctx& ctx, const ConstTensor& t) : memory("host copy", t.bytes()), view(t) {
    if (t.device() == DeviceType::kCpu) return;
    const Tensor copy = memory.tensor(t.dtype(), t.shape());
    transfer(ctx, copy, t);
    view = copy;
  }
  Buffer memory;
  ConstTensor view;
};

class Gathered {
 public:
  explicit Gathered(LayoutResult& result) : result_(result) {}

  void add_step(Ctx& ctx, const TrainState& state, const Groups& groups, size_t step,
                const StepResult& outcome) {
    const HostCopy gradients(ctx, state.store.flat_gradients());
    const std::lock_guard lock(mutex_);
    result_.gradients.resize(std::max(result_.gradients.size(), step + 1));
    place_owned(state.store, gradients.view, state.store.gradient_map(), result_.gradients[step]);
    if (groups.world.rank() != 0) return;
    result_.losses.push_back(outcome.loss);
    result_.norms.push_back(outcome.grad_norm);
  }

  void add_end(const LayoutRank& rank) {
    const TrainState& state = rank.state;
    const Groups& groups = rank.groups;
    const HostCopy values(rank.ctx, state.store.flat_values());
    if (state.site.index == 0) {
      const std::lock_guard lock(mutex_);
      place_owned(state.store, values.view, state.store.value_map(), result_.parameters);
    }
    rank.world.barrier();  // all owners have copied theirs
    const std::lock_guard lock(mutex_);
    const std::string replica =
        replica_difference(state.store, values.view, state.store.value_map(), result_.parameters);
    if (!replica.empty()) result_.replica = concat(replica, " on rank ", rank.world.rank());
    const auto count = [&](const char* name, const Communicator& group) {
      if (group.size() == 1) return;
      const Traffic::Counter total = group.traffic().total();
      result_.traffic[name] += total.sent_bytes + total.window_bytes;
    };
    count("tp", *groups.tp);
    if (groups.context != nullptr) {
      count("cp ring", groups.context->ring());
      if (groups.context->ulysses() > 1) count("cp heads", groups.context->ulysses_group());
    }
    count("pp", *groups.pp);
    count("dp x cp", *groups.data);
    count("ep", *groups.ep);
    count("etp", *groups.etp);
    if (config_has_experts(state)) count("edp", *groups.edp);
    count("kv copies", *groups.kv);
    if (state.model.config().tie_word_embeddings) count("tied embedding", *groups.tied);
    const Traffic mine = groups.data->traffic();
    for (size_t k = 0; k < kCommKinds; ++k)
      result_.data_traffic.counters[k].sent_bytes += mine.counters[k].sent_bytes;
    result_.stored.resize(static_cast<size_t>(rank.world.size()));
    LayoutResult::Stored& stored = result_.stored[static_cast<size_t>(rank.world.rank())];
    stored.values = state.store.flat_values().bytes();
    stored.gradients = state.store.flat_gradients().bytes();
    for (const FlatOptimizer::State& s : state.optimizer.states()) stored.states += s.flat.bytes();
  }

 private:
  LayoutResult& result_;
  std::mutex mutex_;
};

double norm_of(const std::vector<double>& v) {
  double sum = 0;
  for (const double x : v) sum += x * x;
  return std::sqrt(sum);
}

using Tensors = std::map<std::string, std::vector<double>>;

// Largest relative difference of a tensor; `worst` receives its name.
double tensors_error(const Tensors& got, const Tensors& want, double floor, std::string& worst,
                     std::string& mismatch) {
  double largest = 0;
  if (got.size() != want.size()) mismatch = concat(got.size(), " tensors, expected ", want.size());
  for (const auto& [name, expected] : want) {
    const auto found = got.find(name);
    if (found == got.end() || found->second.size() != expected.size()) {
      mismatch = concat(name, " is missing or has another size");
      continue;
    }
    std::vector<double> difference = found->second;
    for (size_t i = 0; i < difference.size(); ++i) difference[i] -= expected[i];
    const double error = norm_of(difference) / (norm_of(expected) + floor);
    if (error <= largest) continue;  // false for NaN
    largest = error;
    worst = name;
  }
  return largest;
}

double relative(double got, double want) { return std::abs(got - want) / std::abs(want); }

// Not std::max: NaN must win.
void raise(double& largest, double value) {
  if (!(value <= largest)) largest = value;
}

}  // namespace

void place_owned(const ParameterStore& store, const ConstTensor& array, const ShardMap& map,
                 std::map<std::string, std::vector<double>>& into) {
  for (ParamHandle h = 0; h < std::ssize(store.specs()); ++h) {
    const ParameterSpec& spec = store.specs()[static_cast<size_t>(h)];
    if (spec.copy != 0) continue;
    if (!store.trained(h) && &map != &store.value_map()) continue;  // frozen ones have no gradients
    store.owned().for_each(store.range(h), [&](const FlatRange& part, int64_t) {
      const int64_t at = map.offset(part.begin);
      const std::vector<double> values = to_doubles(array.slice(0, at, at + part.size()));
      std::vector<double>& whole = into[spec.name];
      whole.resize(static_cast<size_t>(spec.shape.numel()));
      for_each_run(spec, part.begin - store.range(h).begin, part.size(),
                   [&](int64_t from, int64_t to, int64_t length) {
                     std::copy_n(values.begin() + from, length, whole.begin() + to);
                   });
    });
  }
}

std::string replica_difference(const ParameterStore& store, const ConstTensor& array,
                               const ShardMap& map,
                               const std::map<std::string, std::vector<double>>& whole) {
  std::string different;
  for (ParamHandle h = 0; h < std::ssize(store.specs()); ++h) {
    const ParameterSpec& spec = store.specs()[static_cast<size_t>(h)];
    map.for_each(store.range(h), [&](const FlatRange& part, int64_t at) {
      const std::vector<double> mine = to_doubles(array.slice(0, at, at + part.size()));
      const auto owners = whole.find(spec.name);
      bool same = owners != whole.end();
      if (same)
        for_each_run(spec, part.begin - store.range(h).begin, part.size(),
                     [&](int64_t from, int64_t to, int64_t length) {
                       same = same && std::equal(mine.begin() + from, mine.begin() + from + length,
                                                 owners->second.begin() + to);
                     });
      if (!same && different.empty()) different = spec.name;
    });
  }
  return different;
}

std::vector<MicroBatch> LayoutRank::batches(int64_t step_number, bool packed) const {
  const GroupCoord &dp = groups.layout.dp, &site = state.data_site;
  const int64_t first =
      step_number * config.train_batch_size + config.train_batch_size / site.size * site.index;
  std::vector<MicroBatch> batches;
  for (int64_t i = 0; i < config.gradient_accumulation_steps; ++i)
    batches.push_back(sample(config, packed, first + i * dp.size + dp.index));
  return batches;
}

StepResult LayoutRank::train(int64_t step_number, bool packed) {
  StepResult result = step.run(step_number, batches(step_number, packed), plan);
  if (outer == nullptr) return result;
  outer->after_step(step_number + 1, config.train_steps);
  return result;
}

void on_ranks(const RunConfig& config, const LayoutRunOptions& options,
              const std::function<void(LayoutRank&)>& body) {
  options.start(
      config.outer.sites_in_job() * world_size(config.parallel),
      [&](Communicator& world) {
        std::unique_ptr<cuda::Context> gpu;
        DeviceAttachment attachment;
        if (options.gpu) gpu = cuda::open(world.rank() % cuda::device_status().devices);
        if (options.gpu) attachment = world.attach(*gpu, options.backend);
        const Sites sites(world, config.outer.sites_in_job());
        Groups groups(sites.ranks(), config.parallel,
                      kv_head_copies(config.model, config.parallel.tp));
        if (options.change) options.change(groups);
        Ctx ctx(1, "test", gpu.get());
        ctx.seed = config.seed;
        TrainState state = make_train_state(config, world);
        if (options.before_step) options.before_step(state, groups);
        TrainStep step(config, state, groups, ctx);
        if (options.after_step) options.after_step(state, groups);
        const ArenaPlan plan = start_fresh(state, step, ctx);
        std::unique_ptr<OuterSync> outer;
        ArenaPlan outer_plan;
        if (state.outer != nullptr) {
          const bool is_remote = config.outer.is_remote();
          outer = std::make_unique<OuterSync>(
              groups,
              is_remote ? options.exchange(world, state, ctx)
                        : std::make_unique<PeerExchange>(sites, state.store, *state.outer, ctx),
              state.store, *state.outer, ctx);
          outer_plan = outer->plan();
          ctx.arena.reserve(outer_plan.capacity);
          if (!is_remote) outer->begin(state.weights(), outer_plan);
        }
        LayoutRank rank{config, world, groups, ctx, state, step, plan, outer.get(), outer_plan};
        body(rank);
      },
      options.comm);
}

LayoutResult run_layout(const LayoutCase& c, const LayoutRunOptions& options) {
  return run_training(config_of(c), c.packed, options);
}

LayoutResult run_training(const RunConfig& config, bool packed, const LayoutRunOptions& options) {
  LayoutResult result;
  Gathered gathered(result);
  RoutingMargin margin(config.model.moe);
  on_ranks(config, options, [&](LayoutRank& rank) {
    const bool readable = rank.ctx.gpu == nullptr && rank.groups.world.size() == 1;
    if (config_has_experts(rank.state) && readable) margin.watch(rank.ctx);
    for (int64_t s = 0; s < config.train_steps; ++s) {
      const StepResult outcome = rank.train(s, packed);
      if (rank.state.site.index == 0)
        gathered.add_step(rank.ctx, rank.state, rank.groups, static_cast<size_t>(s), outcome);
      rank.world.barrier();  // no rank may overwrite gradients not collected yet
    }
    gathered.add_end(rank);
  });
  result.routing_margin = margin.least();
  return result;
}

namespace {

// Share of the global norm that counts as zero: rounding of terms of that size that cancel, in
// bfloat16 four roundings of one.
double cancelled_share(DType dtype) {
  switch (dtype) {
    case DType::kF64: return 1e-6;
    case DType::kF32: return 1e-3;
    default: return 4.0 / 256;
  }
}

}  // namespace

LayoutError compare_layouts(const LayoutResult& got, const LayoutResult& want, DType dtype) {
  LayoutError error;
  error.replica = got.replica;
  const double floor = cancelled_share(dtype);
  if (got.losses.size() != want.losses.size()) {
    error.mismatch = concat(got.losses.size(), " steps, expected ", want.losses.size());
    return error;
  }
  std::string name;
  for (size_t s = 0; s < want.losses.size(); ++s) {
    raise(error.loss, relative(got.losses[s], want.losses[s]));
    raise(error.norm, relative(got.norms[s], want.norms[s]));
    const double gradient = tensors_error(got.gradients[s], want.gradients[s],
                                          floor * want.norms[s], name, error.mismatch);
    if (s == 0) error.first_gradient = gradient;
    if (gradient <= error.gradient) continue;
    error.gradient = gradient;
    error.worst_gradient = concat("step ", s, ": ", name);
  }
  double squares = 0;
  for (const auto& [tensor, values] : want.parameters) squares += norm_of(values) * norm_of(values);
  // Adam divides by the size of the gradient, and so amplifies rounding errors of small ones.
  error.value = tensors_error(got.parameters, want.parameters, 1e-3 * std::sqrt(squares), name,
                              error.mismatch);
  return error;
}

LayoutError allowed_error(DType dtype) {
  switch (dtype) {
    case DType::kF64: return {1e-9, 1e-9, 1e-9, 1e-9, 1e-9, "", ""};
    case DType::kF32: return {1e-6, 1e-5, 3e-5, 1e-5, 3e-5, "", ""};
    // 2^-8 per rounding; a gradient passes through about eight layers of four rounded products, in
    // both compared runs.
    default: return {4.0 / 256, 16.0 / 256, 64.0 / 256, 16.0 / 256, 64.0 / 256, "", ""};
  }
}

LayoutError allowed_error(DType dtype, const LayoutResult& one_rank,
                          const LayoutResult& in_float64) {
  // Several ranks round in another order: three times the difference by chance, plus that of one
  // rank.
  constexpr double kOtherOrder = 4;
  LayoutError allowed = allowed_error(dtype);
  const LayoutError rounding = compare_layouts(one_rank, in_float64, dtype);
  raise(allowed.norm, kOtherOrder * rounding.norm);
  raise(allowed.gradient, std::min(1.0, kOtherOrder * rounding.gradient));
  raise(allowed.value, kOtherOrder * rounding.value);
  return allowed;
}

std::string layout_difference(const LayoutResult& got, const LayoutResult& want, DType dtype) {
  return layout_difference(got, want, dtype, allowed_error(dtype));
}

std::string layout_difference(const LayoutResult& got, const LayoutResult& want, DType dtype,
                              const LayoutError& allowed) {
  const LayoutError error = compare_layouts(got, want, dtype);
  if (!error.mismatch.empty()) return error.mismatch;
  const auto above = [](double value, double limit) { return !(value <= limit); };
  if (above(error.loss, allowed.loss))
    return concat("loss off by ", error.loss, ", gradient by ", error.gradient, " at ",
                  error.worst_gradient);
  if (above(error.norm, allowed.norm))
    return concat("gradient norm off by ", error.norm, ", gradient by ", error.gradient, " at ",
                  error.worst_gradient);
  if (above(error.first_gradient, allowed.first_gradient))
    return concat("first gradient off by ", error.first_gradient);
  if (above(error.gradient, allowed.gradient))
    return concat("gradient off by ", error.gradient, " at ", error.worst_gradient);
  if (above(error.value, allowed.value)) return concat("final values off by ", error.value);
  if (!error.replica.empty()) return concat("ranks store different values of ", error.replica);
  return "";
}

}  // namespace trireme::test
