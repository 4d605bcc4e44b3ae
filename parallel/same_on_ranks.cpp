#include "parallel/same_on_ranks.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "engine/core/error.h"
#include "engine/io/checksum.h"
#include "parallel/agree.h"

namespace trireme {
namespace {

constexpr size_t kShownFacts = 20, kShownRanks = 8, kShownValue = 80;  // shown in a message

std::string rank_list(const std::vector<size_t>& ranks) {
  std::string out = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < std::min(ranks.size(), kShownRanks); ++i)
    out += concat(i == 0 ? "" : ", ", ranks[i]);
  if (ranks.size() > kShownRanks) out += concat(" and ", ranks.size() - kShownRanks, " more");
  return out;
}

// "lr: 0.001 on ranks 0, 2; 0.1 on rank 1", or "" if all ranks have the same value.
std::string difference(const std::string& name, const std::vector<RankFacts>& of_ranks) {
  std::vector<std::pair<std::string, std::vector<size_t>>> values;  // in the order of the ranks
  for (size_t rank = 0; rank < of_ranks.size(); ++rank) {
    const auto found = of_ranks[rank].find(name);
    const std::string value = found == of_ranks[rank].end() ? "not given" : found->second;
    const auto known = std::ranges::find(values, value, [](const auto& v) { return v.first; });
    if (known == values.end())
      values.push_back({value, {rank}});
    else
      known->second.push_back(rank);
  }
  if (values.size() == 1) return "";
  std::string out = name;
  for (size_t i = 0; i < values.size(); ++i) {
    const std::string& value = values[i].first;
    out += concat(i == 0 ? ": " : "; ", value.substr(0, kShownValue),
                  value.size() > kShownValue ? "..." : "", " on ", rank_list(values[i].second));
  }
  return out;
}

}  // namespace

std::string differing_facts(const std::vector<RankFacts>& of_ranks) {
  std::set<std::string> names;
  for (const RankFacts& facts : of_ranks)
    for (const auto& [name, value] : facts) names.insert(name);
  std::string out;
  size_t count = 0;
  for (const std::string& name : names)
    if (const std::string line = difference(name, of_ranks);
        !line.empty() && ++count <= kShownFacts)
      out += "\n  " + line;
  if (count > kShownFacts) out += concat("\n  ... ", count - kShownFacts, " more");
  return out;
}

void require_same_on_ranks(Communicator& world, const RankFacts& mine) {
  if (world.size() == 1) return;
  const std::string text =
      nlohmann::json(mine).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  const std::vector<std::string> sums =
      world.all_gather_strings(checksum_text(checksum(std::as_bytes(std::span(text)))));
  if (std::ranges::all_of(sums, [&](const std::string& sum) { return sum == sums.front(); }))
    return;
  std::vector<RankFacts> of_ranks;
  for (const std::string& other : world.all_gather_strings(text))
    of_ranks.push_back(nlohmann::json::parse(other).get<RankFacts>());
  agreed(world, [&] {
    fail_input("the ranks were started with different settings or files:",
               differing_facts(of_ranks), "\n  start all of them with the same ones");
  });
}

}  // namespace trireme
