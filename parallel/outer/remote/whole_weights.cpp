#include "parallel/outer/remote/whole_weights.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <numeric>

#include "engine/ops/rows/transfer.h"

namespace trireme {
namespace {

using Json = nlohmann::json;

TensorBox box_of(const ParameterSpec& spec) {
  const std::vector<int64_t> shape{spec.shape.dims().begin(), spec.shape.dims().end()};
  return spec.box.extent.empty() ? whole_box(shape) : spec.box;
}

}  // namespace

WholeWeights::WholeWeights(Communicator& site, OuterState& pieces, const ParameterStore& store,
                           WholeModel* whole, Ctx& ctx)
    : site_(site),
      store_(store),
      whole_(whole),
      ctx_(ctx),
      dtype_(store.gradient_dtype()),
      fragments_(pieces.open.size()) {
  for (const auto& unit : pieces.units()) {
    Fragment& fragment = fragments_[static_cast<size_t>(unit->fragment)];
    for (ParamHandle h = 0; h < std::ssize(store.specs()); ++h) {
      const FlatRange range = store.range(h);
      const int64_t begin = std::max(range.begin, unit->piece.begin);
      const int64_t end = std::min(range.end, unit->piece.end);
      if (begin >= end || !store.trained(h)) continue;
      fragment.spans.push_back(
          {unit.get(), h, begin - unit->piece.begin, end - begin, begin - range.begin});
      fragment.elements += end - begin;
    }
  }
  int64_t most = 0, most_of_all = 0;
  for (Fragment& fragment : fragments_) {
    const std::vector<std::string> all = site.all_gather_strings(describe(fragment));
    most = std::max(most, fragment.elements);
    if (whole == nullptr) continue;
    int64_t at = 0;
    for (const std::string& description : all) {
      const int64_t before = at;
      add_runs(fragment, description, at);
      fragment.counts.push_back(at - before);
    }
    most_of_all = std::max(most_of_all, at);
  }
  message_bytes_ = most * dtype_size(dtype_);
  all_messages_bytes_ = most_of_all * dtype_size(dtype_);
  pieces.message_bytes = message_bytes_ + all_messages_bytes_;
}

void WholeWeights::allocate() {
  if (message_.bytes() < message_bytes_) message_ = Buffer("weights of a rank", message_bytes_);
  if (all_messages_.bytes() < all_messages_bytes_)
    all_messages_ = Buffer("weights of a site", all_messages_bytes_);
}

std::string WholeWeights::describe(const Fragment& fragment) const {
  Json spans = Json::array();
  for (const Span& span : fragment.spans) {
    const ParameterSpec& spec = store_.specs()[static_cast<size_t>(span.parameter)];
    const TensorBox box = box_of(spec);
    spans.push_back({spec.name, box.start, box.extent, span.first, span.elements});
  }
  return spans.dump();
}

// Appends the runs of one rank's message, which begins at element `at` of all messages.
void WholeWeights::add_runs(Fragment& fragment, const std::string& description, int64_t& at) const {
  const ParameterStore& store = whole_->store();
  const auto unit_of = [&](int64_t flat) {
    const auto& units = whole_->state().units();
    const auto found = std::ranges::find_if(units, [&](const auto& unit) {
      return unit->range.begin <= flat && flat < unit->range.end;
    });
    TRIREME_CHECK(found != units.end(), "element ", flat, " is in no unit");
    return found->get();
  };
  for (const Json& span : Json::parse(description)) {
    const auto name = span[0].get<std::string>();
    const auto spec = std::ranges::find(store.specs(), name, &ParameterSpec::name);
    TRIREME_CHECK(spec != store.specs().end(), name, " is not in the whole model");
    const FlatRange range = store.range(static_cast<ParamHandle>(spec - store.specs().begin()));
    const std::vector<int64_t> shape{spec->shape.dims().begin(), spec->shape.dims().end()};
    const TensorBox box{span[1].get<std::vector<int64_t>>(), span[2].get<std::vector<int64_t>>()};
    const auto first = span[3].get<int64_t>(), elements = span[4].get<int64_t>();
    const OuterState::Unit* const unit = unit_of(range.begin);
    for_each_common_run(
        shape, {box, first, first + elements}, {whole_box(shape), 0, range.size()},
        [&](const CommonRun& run) {
          fragment.runs.push_back({unit, range.begin + run.second_offset - unit->range.begin,
                                   at + run.first_offset, run.length});
        });
    at += elements;
  }
}

Tensor WholeWeights::message(const Fragment& fragment) const {
  return message_.tensor(dtype_, Shape{fragment.elements});
}

Tensor WholeWeights::all_messages(const Fragment& fragment) const {
  const int64_t all = std::accumulate(fragment.counts.begin(), fragment.counts.end(), int64_t{0});
  return all_messages_.tensor(dtype_, Shape{all});
}

void WholeWeights::exchange(const Fragment& fragment, bool to_first) {
  const auto ranks = static_cast<size_t>(site_.size());
  std::vector<int64_t> own(ranks), none(ranks);
  own[0] = fragment.elements;
  const std::vector<int64_t>& all = whole_ != nullptr ? fragment.counts : none;
  if (to_first)
    site_.all_to_all_v(all_messages(fragment), all, message(fragment), own);
  else
    site_.all_to_all_v(message(fragment), own, all_messages(fragment), all);
}

void WholeWeights::gather(int fragment, Tensor OuterState::Unit::*to,
                          Tensor OuterState::Unit::*from) {
  allocate();
  const Fragment& its = fragments_[static_cast<size_t>(fragment)];
  int64_t at = 0;
  for (const Span& span : its.spans) {
    transfer(ctx_, message(its).slice(0, at, at + span.elements),
             (span.unit->*from).slice(0, span.begin, span.begin + span.elements));
    at += span.elements;
  }
  exchange(its, true);
  const Tensor all = all_messages(its);
  for (const Run& run : its.runs)
    transfer(whole_->host(), (run.unit->*to).slice(0, run.in_unit, run.in_unit + run.elements),
             all.slice(0, run.in_message, run.in_message + run.elements));
}

void WholeWeights::scatter(int fragment, Tensor OuterState::Unit::*from,
                           Tensor OuterState::Unit::*to) {
  allocate();
  const Fragment& its = fragments_[static_cast<size_t>(fragment)];
  const Tensor all = all_messages(its);
  for (const Run& run : its.runs)
    transfer(whole_->host(), all.slice(0, run.in_message, run.in_message + run.elements),
             (run.unit->*from).slice(0, run.in_unit, run.in_unit + run.elements));
  exchange(its, false);
  int64_t at = 0;
  for (const Span& span : its.spans) {
    transfer(ctx_, (span.unit->*to).slice(0, span.begin, span.begin + span.elements),
             message(its).slice(0, at, at + span.elements));
    at += span.elements;
  }
}

}  // namespace trireme
