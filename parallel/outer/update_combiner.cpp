#include "parallel/outer/update_combiner.h"

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>

#include "engine/ops/moe/expert_rows.h"
#include "engine/ops/rows/elementwise.h"
#include "engine/ops/rows/transfer.h"
#include "parallel/outer/adasum.h"
#include "parallel/outer/piece_codec.h"

namespace trireme {
namespace {

using Json = nlohmann::json;

// Elements of an update that are float64 at a time: rows with a dot product each.
constexpr int64_t kRowElements = 1 << 10, kMaxRows = 1 << 8;

bool is_in(const ParameterStore& store, ParamHandle h, const OuterState::Unit& unit) {
  const FlatRange range = store.range(h);
  return store.trained(h) && range.begin >= unit.range.begin && range.end <= unit.range.end;
}

// Names of the tensors of a fragment that this rank has a part of.
std::set<std::string> tensors_of_fragment(const ParameterStore& store, const OuterState& state,
                                          int fragment) {
  std::set<std::string> names;
  for (const auto& unit : state.units())
    for (ParamHandle h = 0; unit->fragment == fragment && h < std::ssize(store.specs()); ++h)
      if (is_in(store, h, *unit)) names.insert(store.specs()[static_cast<size_t>(h)].name);
  return names;
}

std::set<std::string> names_on_all(const std::set<std::string>& names, Communicator* ranks) {
  if (ranks == nullptr) return names;
  std::set<std::string> all;
  for (const std::string& theirs : ranks->all_gather_strings(Json(names).dump()))
    all.merge(Json::parse(theirs).get<std::set<std::string>>());
  return all;
}

// Calls use(encoder, first byte of its code) for the parts of a piece.
template <class Use>
void for_each_code(const CompressionState::Piece& piece, const Use& use) {
  int64_t at = 0;
  for (const CompressionState::Encoder& e : piece) use(e, std::exchange(at, at + e.wire_bytes));
}

}  // namespace

UpdateCombiner::UpdateCombiner(const ParameterStore& store, const OuterState& state, int sites,
                               Communicator* ranks, Ctx& ctx)
    : ctx_(ctx), sites_(static_cast<size_t>(sites)) {
  for (int fragment = 0; fragment < state.config().fragments; ++fragment) {
    const std::set<std::string> names =
        names_on_all(tensors_of_fragment(store, state, fragment), ranks);
    tensors_.push_back(names.size());
    for (const auto& unit : state.units())
      for (ParamHandle h = 0; unit->fragment == fragment && h < std::ssize(store.specs()); ++h) {
        if (!is_in(store, h, *unit)) continue;
        const ParameterSpec& spec = store.specs()[static_cast<size_t>(h)];
        const auto number = std::distance(names.begin(), names.find(spec.name));
        parameters_[store.range(h).begin] = {static_cast<size_t>(number), spec.copy == 0};
      }
  }
}

const UpdateCombiner::Parameter& UpdateCombiner::parameter_of(const CompressedPart& part) const {
  const auto after = parameters_.upper_bound(part.offset);
  TRIREME_CHECK(after != parameters_.begin(), "a part at ", part.offset, " is in no parameter");
  return std::prev(after)->second;
}

int64_t UpdateCombiner::product_bytes(int fragment) const {
  return static_cast<int64_t>(tensors_[static_cast<size_t>(fragment)] * pairs() * sizeof(double));
}

void UpdateCombiner::begin(int fragment, const std::vector<bool>& counts, int64_t round) {
  TRIREME_CHECK(counts.size() == sites_, counts.size(), " of ", sites_, " sites");
  const size_t tensors = tensors_[static_cast<size_t>(fragment)];
  counts_ = counts;
  round_ = round;
  products_.assign(tensors * pairs(), 0.0);
  coefficients_.resize(tensors);
}

void UpdateCombiner::add_products(const OuterState::Unit& unit, const CodeOf& code_of) {
  for_each_code(unit.exchange.own_piece(), [&](const CompressionState::Encoder& e, int64_t at) {
    const Parameter& parameter = parameter_of(e.part);
    if (!parameter.counts && !ctx_.planning()) return;
    add_part_products(unit.exchange, e, at, code_of,
                      std::span(products_).subspan(parameter.tensor * pairs(), pairs()));
  });
}

void UpdateCombiner::add_part_products(const CompressionState& exchange,
                                       const CompressionState::Encoder& e, int64_t at,
                                       const CodeOf& code_of, std::span<double> products) {
  const auto sites = static_cast<int64_t>(sites_);
  const int64_t elements = e.part.elements();
  const Activation updates = ctx_.allocate("outer.updates", exchange.dtype(), {sites, elements});
  for (int s = 0; s < sites; ++s)
    if (counts_[static_cast<size_t>(s)])
      decode_part(ctx_, exchange, e, code_of(s).slice(0, at, at + e.wire_bytes),
                  updates->slice(0, s, s + 1).reshape({e.part.rows, e.part.columns}), round_);
  const int64_t rows = std::min(ceil_div(elements, kRowElements), kMaxRows);
  const Activation wide = ctx_.allocate("outer.wide", DType::kF64, {sites, rows, kRowElements});
  const Activation dots =
      ctx_.allocate("outer.dots", DType::kF64, {static_cast<int64_t>(pairs()), rows});
  for (int64_t begin = 0; begin < elements; begin += rows * kRowElements) {
    const int64_t end = std::min(begin + rows * kRowElements, elements);
    add_dots(*updates, begin, end, *wide, *dots, products);
  }
}

// Adds the products of elements [begin, end) of the updates (S, n).
void UpdateCombiner::add_dots(const Tensor& updates, int64_t begin, int64_t end, const Tensor& wide,
                              const Tensor& dots, std::span<double> products) {
  const int64_t rows = dots.size(1), elements = end - begin;
  const auto wide_of = [&](size_t site) {
    const auto s = static_cast<int64_t>(site);
    return wide.slice(0, s, s + 1).reshape({rows, kRowElements});
  };
  if (elements < rows * kRowElements) fill_zero(ctx_, wide);
  for (size_t s = 0; s < sites_; ++s) {
    if (!counts_[s]) continue;
    const auto site = static_cast<int64_t>(s);
    cast(ctx_, wide_of(s).reshape({rows * kRowElements}).slice(0, 0, elements),
         updates.slice(0, site, site + 1).reshape({updates.size(1)}).slice(0, begin, end));
  }
  const auto for_each_pair = [&](const auto& use) {
    int64_t pair = 0;
    for (size_t s = 0; s < sites_; ++s)
      for (size_t t = 0; t <= s; ++t, ++pair)
        if (counts_[s] && counts_[t]) use(s, t, pair);
  };
  for_each_pair([&](size_t s, size_t t, int64_t pair) {
    dot_rows(ctx_, dots.slice(0, pair, pair + 1).reshape({rows}), wide_of(s), wide_of(t));
  });
  if (ctx_.planning()) return;
  const std::vector<double> sums = to_host<double>(ctx_, dots);
  for_each_pair([&](size_t, size_t, int64_t pair) {
    const auto first = sums.begin() + pair * rows;
    products[static_cast<size_t>(pair)] += std::accumulate(first, first + rows, 0.0);
  });
}

std::vector<double> UpdateCombiner::gram_of(size_t tensor) const {
  std::vector<double> gram(sites_ * sites_);
  size_t pair = tensor * pairs();
  for (size_t s = 0; s < sites_; ++s)
    for (size_t t = 0; t <= s; ++t) gram[s * sites_ + t] = gram[t * sites_ + s] = products_[pair++];
  return gram;
}

void UpdateCombiner::weigh_by_products() {
  squares_ = 0;
  const auto n = static_cast<double>(std::ranges::count(counts_, true));
  for (size_t tensor = 0; tensor < coefficients_.size(); ++tensor) {
    const std::vector<double> gram = gram_of(tensor);
    std::vector<double>& c = coefficients_[tensor] = adasum_coefficients(gram, counts_);
    for (size_t s = 0; s < sites_; ++s)
      for (size_t t = 0; t < sites_; ++t)
        squares_ += 2 * (n * c[s] - (counts_[s] ? 1 : 0)) * c[t] * gram[s * sites_ + t];
  }
}

void UpdateCombiner::weigh_equally() {
  const auto n = static_cast<double>(std::ranges::count(counts_, true));
  std::vector<double> mean(sites_);
  for (size_t s = 0; s < sites_; ++s) mean[s] = counts_[s] ? 1 / n : 0;
  std::ranges::fill(coefficients_, mean);
  squares_ = 0;
}

void UpdateCombiner::combine(const OuterState::Unit& unit, const CodeOf& code_of) const {
  const Tensor update = unit.update_or_shape();
  for_each_code(unit.exchange.own_piece(), [&](const CompressionState::Encoder& e, int64_t at) {
    const int64_t begin = e.part.offset - unit.exchange.data_range().begin;
    const Tensor out = update.slice(0, begin, begin + e.part.elements());
    combine_part(unit.exchange, e, at, code_of, out.reshape({e.part.rows, e.part.columns}));
  });
}

void UpdateCombiner::combine_part(const CompressionState& exchange,
                                  const CompressionState::Encoder& e, int64_t at,
                                  const CodeOf& code_of, const Tensor& out) const {
  const std::vector<double>& coefficients = coefficients_[parameter_of(e.part).tensor];
  const Activation update = ctx_.allocate("outer.update", exchange.dtype(), out.shape());
  bool add_to_others = false;
  for (int s = 0; s < static_cast<int>(sites_); ++s) {
    const auto site = static_cast<size_t>(s);
    if (!counts_[site]) continue;
    decode_part(ctx_, exchange, e, code_of(s).slice(0, at, at + e.wire_bytes), *update, round_);
    const Tensor weighted = add_to_others ? *update : out;
    const double c = ctx_.planning() ? 0 : coefficients[site];
    scale(ctx_, weighted, *update, c, FactorRounding::kProduct);
    if (std::exchange(add_to_others, true)) add(ctx_, out, out, weighted);
  }
  if (!add_to_others) fill_zero(ctx_, out);
}

}  // namespace trireme
