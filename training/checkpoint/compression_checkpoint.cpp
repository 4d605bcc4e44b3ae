#include "training/checkpoint/compression_checkpoint.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

#include "engine/observe/log.h"
#include "engine/ops/optimizer/optimizer_step.h"
#include "engine/ops/rows/elementwise.h"
#include "engine/ops/rows/transfer.h"
#include "transformer/checkpoint/checkpoint_parameters.h"

namespace trireme {
namespace {

// After the prefix of the kinds, before the number of a rank of the exchange, or kOfSum.
constexpr const char *kResidual = "residual.", *kCompressor = "compressor.", *kOfSum = "sum";

// Calls use(state) for each region whose gradients are compressed.
template <class Use>
void for_each_state(const TrainState& state, const Use& use) {
  for (const Region region : kTrainedRegions)
    if (state.compression != nullptr && state.compression->region(region) != nullptr)
      use(std::as_const(*state.compression).region(region)->state);
}

// Calls use(parameter, state tensor, of the sum) for the encoders of all pieces and of this rank's
// piece of the sum that have a state.
template <class Use>
void for_each_compressor_state(const ParameterStore& store, const CompressionState& state,
                               const Use& use) {
  std::map<int64_t, const ParameterSpec*> by_offset;
  for (ParamHandle h = 0; h < std::ssize(store.specs()); ++h)
    if (store.trained(h)) by_offset[store.range(h).begin] = &store.specs()[static_cast<size_t>(h)];
  const auto use_piece = [&](const CompressionState::Piece& piece) {
    for (const CompressionState::Encoder& e : piece)
      if (e.state_shape.numel() > 0)
        use(*std::prev(by_offset.upper_bound(e.part.offset))->second, state.state_of(e), e.of_sum);
  };
  for (const CompressionState::Piece& piece : state.pieces()) use_piece(piece);
  use_piece(state.own_piece());
}

// Ranks of the exchange whose tensors of a parameter the checkpoint holds, ascending: one alone, or
// all from 0. A missing one is included, so that it cannot be read. kind: without the number.
std::vector<int> saved_ranks(const CheckpointReader& reader, const std::string& name,
                             const std::string& kind) {
  std::set<int> found;
  for (const CheckpointTensor& tensor : reader.manifest().tensors) {
    if (tensor.name != name || !tensor.kind.starts_with(kind)) continue;
    const std::string number = tensor.kind.substr(kind.size());
    const bool digits = !number.empty() && number.size() < 9 &&
                        number.find_first_not_of("0123456789") == std::string::npos;
    if (digits) found.insert(std::stoi(number));
  }
  if (found.size() < 2) return {found.begin(), found.end()};
  size_t count = 0;
  while (found.contains(static_cast<int>(count))) ++count;
  std::vector<int> ranks(count == found.size() ? count : count + 1);
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

// Name of the first parameter that has elements in `map`; empty: none.
std::string first_name(const ParameterStore& store, const ShardMap& map) {
  std::string name;
  for (ParamHandle h = 0; h < std::ssize(store.specs()) && name.empty(); ++h)
    map.for_each(store.range(h), [&](const FlatRange&, int64_t) {
      name = store.specs()[static_cast<size_t>(h)].name;
    });
  return name;
}

// sum += factor * x, on the host; float32 or float64.
void add_on_host(const Tensor& sum, const ConstTensor& x, double factor) {
  const auto add_all = [&]<class T>(T* into, const T* from) {
    for (int64_t i = 0; i < sum.numel(); ++i) into[i] += static_cast<T>(factor) * from[i];
  };
  if (sum.dtype() == DType::kF64)
    add_all(sum.as<double>(), x.as<double>());
  else
    add_all(sum.as<float>(), x.as<float>());
}

// Saved residual that this rank continues, multiplied by a factor.
struct ResidualTerm {
  std::string kind;
  double factor = 1;
};

// Terms of this rank's residual, so that the sum over all ranks is that of the saved ones.
std::vector<ResidualTerm> residual_terms(const std::string& kind, const std::vector<int>& saved,
                                         const ExchangeRank& rank) {
  const auto& [size, index] = rank.coord;
  const bool alone = saved.size() == 1;
  // Each rank has a checkpoint of its own, and what another has not sent stays with that one.
  if (alone && rank.has_hub && saved.front() != index) return {};
  const double share = 1.0 / size;
  std::vector<ResidualTerm> terms;
  if (std::ssize(saved) == size || (alone && rank.has_hub))
    terms.push_back({concat(kind, index), 1});
  else
    for (const int other : saved) terms.push_back({concat(kind, other), share});
  if (rank.has_hub && !alone) terms.push_back({kind + kOfSum, share});
  return terms;
}

// Residual = sum of the terms. Reads a bounded part at a time, because no plan has memory for a
// second residual.
void load_terms(Ctx& ctx, const CheckpointReader& reader, const ParameterStore& store,
                const Tensor& residual, const ShardMap& map,
                const std::vector<ResidualTerm>& terms) {
  constexpr int64_t kElements = 1 << 20;
  const Buffer one("residual of one rank", kElements * dtype_size(residual.dtype()));
  for (ParamHandle h = 0; h < std::ssize(store.specs()); ++h) {
    const ParameterSpec& spec = store.specs()[static_cast<size_t>(h)];
    const std::vector<int64_t> shape = dims_of(spec.shape);
    const TensorBox box = spec.box.extent.empty() ? whole_box(shape) : spec.box;
    const auto add_all = [&](const Tensor& sum, int64_t begin) {
      const Tensor part = one.tensor(sum.dtype(), sum.shape());
      for (const auto& [kind, factor] : terms) {
        reader.read(reader.require(kind, spec.name, sum.dtype(), shape), box, begin, part);
        add_on_host(sum, part, factor);
      }
    };
    map.for_each(store.range(h), [&](const FlatRange& part, int64_t at) {
      for (int64_t i = 0; i < part.size(); i += kElements) {
        const int64_t n = std::min(kElements, part.size() - i);
        const int64_t begin = part.begin - store.range(h).begin + i;
        fill_from_host(ctx, residual.slice(0, at + i, at + i + n),
                       [&](const Tensor& piece, int64_t first) {
                         std::memset(piece.raw(), 0, static_cast<size_t>(piece.bytes()));
                         add_all(piece, begin + first);
                       });
      }
    });
  }
}

void check_finite(Ctx& ctx, const CheckpointReader& reader, const Tensor& residual) {
  const Buffer sum("squares of a residual", dtype_size(DType::kF64), ctx.memory());
  fill_zero(ctx, sum.tensor(DType::kF64, {1}));
  sum_of_squares(ctx, sum.tensor(DType::kF64, {1}), residual);
  if (!std::isfinite(to_host<double>(ctx, sum.tensor(DType::kF64, {1})).front()))
    fail_input("checkpoint ", reader.directory(), ": residuals of compressed gradients or ",
               "updates are not finite, so that every step would be skipped");
}

void load_residuals(Ctx& ctx, const CheckpointReader& reader, const ParameterStore& store,
                    const CompressionState& state, const std::string& kind,
                    const ExchangeRank& rank) {
  const ShardMap map = state.residual_map(), sum_map = state.sum_residual_map();
  const std::string name = first_name(store, map);
  if (!state.residual().present() || name.empty()) return;
  const std::vector<int> saved = saved_ranks(reader, name, kind);
  if (saved.empty()) return;
  const std::vector<ResidualTerm> terms = residual_terms(kind, saved, rank);
  if (terms.size() == 1 && terms.front().factor == 1)
    read_stored(ctx, reader, store, {terms.front().kind, state.residual(), map});
  else if (!terms.empty())
    load_terms(ctx, reader, store, state.residual(), map, terms);
  if (saved.size() > 1 || reader.find(kind + kOfSum, name) != nullptr)  // else a hub has it
    read_stored(ctx, reader, store, {kind + kOfSum, state.sum_residual(), sum_map});
  check_finite(ctx, reader, state.residual());
  check_finite(ctx, reader, state.sum_residual());
}

void load_compressors(Ctx& ctx, const CheckpointReader& reader, const ParameterStore& store,
                      const CompressionState& state, const std::string& kind, int index) {
  const auto read = [&](const std::string& from, const std::string& name, const Tensor& to) {
    const std::vector<int64_t> shape = dims_of(to.shape());
    const CheckpointTensor& stored = reader.require(from, name, to.dtype(), shape);
    fill_from_host(ctx, to.reshape({to.numel()}), [&](const Tensor& part, int64_t first) {
      reader.read(stored, whole_box(shape), first, part);
    });
  };
  std::optional<std::vector<int>> saved;  // of the first parameter, as of all
  for_each_compressor_state(store, state,
                            [&](const ParameterSpec& spec, const Tensor& to, bool of_sum) {
                              if (of_sum) {
                                if (reader.find(kind + kOfSum, spec.name) != nullptr)
                                  read(kind + kOfSum, spec.name, to);
                                return;
                              }
                              if (!saved) saved = saved_ranks(reader, spec.name, kind);
                              if (saved->empty()) return;
                              const int from = (*saved)[static_cast<size_t>(index) % saved->size()];
                              read(concat(kind, from), spec.name, to);
                            });
}

}  // namespace

void add_exchange_parts(const ParameterStore& store, const CompressionState& state,
                        const std::string& prefix, int rank, std::vector<CheckpointPart>& parts) {
  if (state.residual().present()) {
    const ShardMap residual_map = state.residual_map(), sum_map = state.sum_residual_map();
    const std::string kind = prefix + kResidual;
    add_parts(store, {concat(kind, rank), state.residual(), residual_map}, residual_map, parts);
    add_parts(store, {kind + kOfSum, state.sum_residual(), sum_map}, sum_map, parts);
  }
  for_each_compressor_state(
      store, state, [&](const ParameterSpec& spec, const Tensor& tensor, bool of_sum) {
        if (spec.copy != 0) return;
        const std::string kind =
            concat(prefix, kCompressor, of_sum ? kOfSum : std::to_string(rank));
        parts.push_back({kind, spec.name, dims_of(tensor.shape()), {}, 0, tensor});
      });
}

void load_exchange(Ctx& ctx, const CheckpointReader& reader, const ParameterStore& store,
                   const CompressionState& state, const std::string& prefix,
                   const ExchangeRank& rank) {
  load_residuals(ctx, reader, store, state, prefix + kResidual, rank);
  load_compressors(ctx, reader, store, state, prefix + kCompressor, rank.coord.index);
}

void add_compression_parts(const TrainState& state, std::vector<CheckpointPart>& parts) {
  for_each_state(state, [&](const CompressionState& s) {
    add_exchange_parts(state.store, s, "", s.rank().index, parts);
  });
}

void load_compression(Ctx& ctx, const CheckpointReader& reader, TrainState& state) {
  for_each_state(state, [&](const CompressionState& s) {
    load_exchange(ctx, reader, state.store, s, "", {s.rank()});
  });
  if (state.compression != nullptr || !state.is_first_rank) return;
  const auto is_residual = [](const CheckpointTensor& t) { return t.kind.starts_with(kResidual); };
  if (std::ranges::any_of(reader.manifest().tensors, is_residual))
    log_warning("this run compresses no gradients, so the residuals in ", reader.directory(),
                " are dropped: what its replicas had not yet sent is lost");
}

}  // namespace trireme
