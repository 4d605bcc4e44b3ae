#include "training/checkpoint/compression_checkpoint.h"

#include "engine/ops/rows/elementwise.h"
#include "engine/ops/rows/transfer.h"
#include "transformer/checkpoint/checkpoint_parameters.h"

namespace trireme {
namespace {

std::string residual_kind(int replica) { return concat("residual.", replica); }
std::string compressor_kind(int replica) { return concat("compressor.", replica); }
constexpr const char* kResidualSum = "residual.sum";
constexpr const char* kCompressorSum = "compressor.sum";

// Calls use(state) for each region whose gradients are compressed.
template <class Use>
void for_each_state(const TrainState& state, const Use& use) {
  for (const Region region : kTrainedRegions)
    if (state.compression != nullptr && state.compression->region(region) != nullptr)
      use(state.compression->region(region)->state);
}

// Parameter of which `part` is a part.
const ParameterSpec& spec_of(const ParameterStore& store, const CompressedPart& part) {
  for (ParamHandle h = 0; h < std::ssize(store.specs()); ++h)
    if (part.offset >= store.range(h).begin && part.offset < store.range(h).end)
      return store.specs()[static_cast<size_t>(h)];
  TRIREME_UNREACHABLE("part outside of the parameters");
}

// Parts of an array that holds the elements of `map` in the parameters' flat range.
void add_stored(const ParameterStore& store, const StoredArray& stored,
                std::vector<CheckpointPart>& parts) {
  for (ParamHandle h = 0; h < std::ssize(store.specs()); ++h) {
    const ParameterSpec& spec = store.specs()[static_cast<size_t>(h)];
    if (spec.copy != 0 || !store.trained(h)) continue;
    stored.map.for_each(store.range(h), [&](const FlatRange& part, int64_t at) {
      parts.push_back({stored.kind, spec.name, dims_of(spec.shape), spec.box,
                       part.begin - store.range(h).begin,
                       stored.array.slice(0, at, at + part.size())});
    });
  }
}

// Calls use(name, state tensor) for the encoders of a piece that have a state.
template <class Use>
void for_each_compressor_state(const ParameterStore& store, const CompressionState& state,
                               const CompressionState::Piece& piece, const Use& use) {
  for (const CompressionState::Encoder& e : piece)
    if (e.state_shape.numel() > 0) use(spec_of(store, e.part), state.state_of(e));
}

// Number of replicas whose states the checkpoint holds.
int saved_replicas(const CheckpointReader& reader, const std::string& name,
                   std::string (*kind)(int replica)) {
  int replicas = 0;
  while (reader.find(kind(replicas), name) != nullptr) ++replicas;
  return replicas;
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

// Sum of the residuals of all replicas that saved them, divided by the number of this run's.
void load_divided_residual(Ctx& ctx, const CheckpointReader& reader, const ParameterStore& store,
                           const CompressionState& state, const ShardMap& map, int replicas) {
  const Tensor residual = state.residual();
  const Buffer one("residual of one replica", residual.bytes(), ctx.memory());
  const Tensor part = one.tensor(residual.dtype(), residual.shape());
  for (int replica = 0; replica < replicas; ++replica) {
    read_stored(ctx, reader, store, {residual_kind(replica), part, map});
    add(ctx, residual, residual, part);
  }
  scale(ctx, residual, residual, 1.0 / state.rank().size, FactorRounding::kProduct);
}

void load_residuals(Ctx& ctx, const CheckpointReader& reader, const ParameterStore& store,
                    const CompressionState& state) {
  const ShardMap map = state.residual_map(), sum_map = state.sum_residual_map();
  const std::string name = first_name(store, map);
  if (!state.residual().present() || name.empty()) return;
  const int replicas = saved_replicas(reader, name, residual_kind);
  if (replicas == 0) return;
  if (replicas == state.rank().size)
    read_stored(ctx, reader, store, {residual_kind(state.rank().index), state.residual(), map});
  else
    load_divided_residual(ctx, reader, store, state, map, replicas);
  read_stored(ctx, reader, store, {kResidualSum, state.sum_residual(), sum_map});
}

void load_compressors(Ctx& ctx, const CheckpointReader& reader, const ParameterStore& store,
                      const CompressionState& state) {
  const auto read = [&](const std::string& kind, const std::string& name, const Tensor& to) {
    const std::vector<int64_t> shape = dims_of(to.shape());
    const CheckpointTensor& stored = reader.require(kind, name, to.dtype(), shape);
    fill_from_host(ctx, to.reshape({to.numel()}), [&](const Tensor& part, int64_t first) {
      reader.read(stored, whole_box(shape), first, part);
    });
  };
  for (const CompressionState::Piece& piece : state.pieces())
    for_each_compressor_state(
        store, state, piece, [&](const ParameterSpec& spec, const Tensor& to) {
          const int replicas = saved_replicas(reader, spec.name, compressor_kind);
          if (replicas > 0) read(compressor_kind(state.rank().index % replicas), spec.name, to);
        });
  for_each_compressor_state(store, state, state.own_piece(),
                            [&](const ParameterSpec& spec, const Tensor& to) {
                              if (reader.find(kCompressorSum, spec.name) != nullptr)
                                read(kCompressorSum, spec.name, to);
                            });
}

}  // namespace

void add_compression_parts(const TrainState& state, std::vector<CheckpointPart>& parts) {
  for_each_state(state, [&](const CompressionState& s) {
    const int replica = s.rank().index;
    if (s.residual().present()) {
      add_stored(state.store, {residual_kind(replica), s.residual(), s.residual_map()}, parts);
      add_stored(state.store, {kResidualSum, s.sum_residual(), s.sum_residual_map()}, parts);
    }
    const auto add = [&](const CompressionState::Piece& piece, const std::string& kind) {
      for_each_compressor_state(
          state.store, s, piece, [&](const ParameterSpec& spec, const Tensor& tensor) {
            if (spec.copy == 0)
              parts.push_back({kind, spec.name, dims_of(tensor.shape()), {}, 0, tensor});
          });
    };
    for (const CompressionState::Piece& piece : s.pieces()) add(piece, compressor_kind(replica));
    add(s.own_piece(), kCompressorSum);
  });
}

void load_compression(Ctx& ctx, const CheckpointReader& reader, TrainState& state) {
  for_each_state(state, [&](const CompressionState& s) {
    load_residuals(ctx, reader, state.store, s);
    load_compressors(ctx, reader, state.store, s);
  });
}

}  // namespace trireme
