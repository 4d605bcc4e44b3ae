#include "parallel/outer/remote/whole_model.h"

#include <algorithm>
#include <cstring>

#include "engine/ops/optimizer/optimizer_step.h"
#include "engine/ops/rows/elementwise.h"
#include "engine/ops/rows/transfer.h"
#include "parallel/outer/piece_codec.h"
#include "parallel/outer/scratch_step.h"

namespace trireme {
namespace {

constexpr int64_t kSquaresAt = 128;  // after the StepScalars in WholeModel::scalars_
constexpr int64_t kScalarsBytes = kSquaresAt + int64_t{sizeof(double)};
constexpr int kThreads = 1;

// Tensor of bytes at an address that is a multiple of 8, as codes need.
Tensor bytes_tensor(std::span<const std::byte> bytes) {
  return {const_cast<std::byte*>(bytes.data()), DType::kU8, Shape{std::ssize(bytes)}};
}

}  // namespace

template <class Use>
void WholeModel::for_each_code(int fragment, const Use& use) const {
  int64_t at = 0;
  for_each(fragment, [&](const OuterState::Unit& unit) {
    const CompressionState& exchange = unit.exchange;
    const int64_t bytes = exchange.own_bytes().front();
    use(unit, sends() ? exchange.pieces().front() : exchange.own_piece(),
        std::exchange(at, at + bytes), bytes);
  });
}

void WholeModel::plan_codes(int fragment) {
  for_each_code(fragment, [&](const OuterState::Unit& unit, const CompressionState::Piece& piece,
                              int64_t, int64_t bytes) {
    const Tensor code(nullptr, DType::kU8, Shape{bytes});
    const Tensor update = unit.update_or_shape();
    encode_piece(host_, unit.exchange, piece, code, update, 0);
    decode_piece(host_, unit.exchange, piece, code, update, 0, true);
  });
  if (!combines()) return;
  const std::span<const std::byte> none(static_cast<const std::byte*>(nullptr),
                                        static_cast<size_t>(code_bytes(fragment)));
  combine_units(fragment, config().warmup_steps + 1,
                std::vector(static_cast<size_t>(config().sites), none));
}

WholeModel::WholeModel(const OuterConfig& config, const ParameterList& parameters, DType dtype,
                       int64_t layers, uint64_t seed, OuterState::Holder holder)
    : holder_(holder),
      store_(parameters, dtype),
      state_(config, store_, layout_of({}, 0), {}, layers, false, seed, holder),
      host_(kThreads, "whole updates") {
  if (holder == OuterState::kHub && combines_updates(config))
    combiner_ = std::make_unique<UpdateCombiner>(store_, state_, config.sites, nullptr, host_);
  plan_ = plan_scratch_step(host_, [&] {
    for (int f = 0; f < fragments(); ++f) plan_codes(f);
  });
}

int64_t WholeModel::bytes() const { return state_.bytes() + kScalarsBytes + plan_.capacity; }

void WholeModel::allocate() {
  state_.allocate(host_);
  scalars_ = Buffer("scalars of rounds", kScalarsBytes, Memory::kHost);
  host_.arena.reserve(plan_.capacity);
}

int64_t WholeModel::code_bytes(int fragment) const {
  int64_t total = 0;
  for_each_code(fragment, [&](const OuterState::Unit&, const CompressionState::Piece&, int64_t,
                              int64_t bytes) { total += bytes; });
  return total;
}

void WholeModel::encode(int fragment, int64_t round, std::span<std::byte> code) {
  in_scratch_step(host_, plan_, [&] {
    for_each_code(fragment, [&](const OuterState::Unit& unit, const CompressionState::Piece& piece,
                                int64_t at, int64_t bytes) {
      encode_piece(host_, unit.exchange, piece, bytes_tensor(code).slice(0, at, at + bytes),
                   unit.update, round);
    });
  });
}

void WholeModel::decode(int fragment, int64_t round, std::span<const std::byte> code, bool add) {
  in_scratch_step(host_, plan_, [&] {
    for_each_code(fragment, [&](const OuterState::Unit& unit, const CompressionState::Piece& piece,
                                int64_t at, int64_t bytes) {
      decode_piece(host_, unit.exchange, piece, bytes_tensor(code).slice(0, at, at + bytes),
                   unit.update, round, add);
    });
  });
}

void WholeModel::combine_units(int fragment, int64_t round,
                               const std::vector<std::span<const std::byte>>& codes) {
  std::vector<bool> counts;
  for (const auto& code : codes) counts.push_back(!code.empty());
  const auto codes_at = [&](int64_t at, int64_t bytes) {
    return [&codes, at, bytes](int site) {
      return ConstTensor(bytes_tensor(codes[static_cast<size_t>(site)]).slice(0, at, at + bytes));
    };
  };
  combiner_->begin(fragment, counts, round);
  if (round <= config().warmup_steps) {
    combiner_->weigh_equally();
  } else {
    for_each_code(fragment,
                  [&](const OuterState::Unit& unit, const CompressionState::Piece&, int64_t at,
                      int64_t bytes) { combiner_->add_products(unit, codes_at(at, bytes)); });
    combiner_->weigh_by_products();
  }
  for_each_code(fragment,
                [&](const OuterState::Unit& unit, const CompressionState::Piece&, int64_t at,
                    int64_t bytes) { combiner_->combine(unit, codes_at(at, bytes)); });
}

double WholeModel::combine(int fragment, int64_t round,
                           const std::vector<std::span<const std::byte>>& codes) {
  in_scratch_step(host_, plan_, [&] { combine_units(fragment, round, codes); });
  return combiner_->squares_of_combination();
}

int64_t WholeModel::array_bytes(int fragment) const {
  int64_t total = 0;
  for_each(fragment, [&](const OuterState::Unit& unit) {
    total += unit.piece.size() * dtype_size(unit.exchange.dtype());
  });
  return total;
}

std::span<std::byte> WholeModel::copy_out(int fragment, Tensor OuterState::Unit::*array,
                                          std::span<std::byte> to) const {
  for_each(fragment, [&](const OuterState::Unit& unit) {
    const auto bytes = static_cast<size_t>((unit.*array).bytes());
    if (bytes > 0) std::memcpy(to.data(), (unit.*array).raw(), bytes);
    to = to.subspan(bytes);
  });
  return to;
}

std::span<const std::byte> WholeModel::copy_in(int fragment, Tensor OuterState::Unit::*array,
                                               std::span<const std::byte> from) {
  for_each(fragment, [&](const OuterState::Unit& unit) {
    const auto bytes = static_cast<size_t>((unit.*array).bytes());
    if (bytes > 0) std::memcpy((unit.*array).raw(), from.data(), bytes);
    from = from.subspan(bytes);
  });
  return from;
}

int64_t WholeModel::state_bytes(int fragment) const {
  return array_bytes(fragment) * (config().momentum > 0 ? 2 : 1);
}

void WholeModel::zero_updates(int fragment) {
  for_each(fragment, [&](const OuterState::Unit& unit) { fill_zero(host_, unit.update); });
}

double WholeModel::squares(int fragment) {
  const Tensor sum = scalars_.tensor(DType::kF64, {1}, kSquaresAt);
  fill_zero(host_, sum);
  in_scratch_step(host_, plan_, [&] {
    for_each(fragment, [&](const OuterState::Unit& unit) {
      for (const FlatRange& range : store_.counted_ranges())
        unit.map().for_each(range, [&](const FlatRange& part, int64_t at) {
          sum_of_squares(host_, sum, unit.update.slice(0, at, at + part.size()));
        });
    });
  });
  return *sum.as<double>();
}

void WholeModel::change_shared(int fragment, int64_t step, double factor) {
  const Tensor scalars = scalars_.tensor(DType::kU8, {kStepScalarsBytes});
  for_each(fragment, [&](const OuterState::Unit& unit) {
    trireme::change_shared(host_, config(), unit, scalars, step, factor);
  });
}

}  // namespace trireme
