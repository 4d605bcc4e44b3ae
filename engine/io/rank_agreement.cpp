#include "engine/io/rank_agreement.h"

#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "engine/io/strict_json.h"

namespace trireme {
namespace {

using Json = nlohmann::json;

Json failure(const std::string& message, ExitCode code) {
  return {{"error", message}, {"code", static_cast<int>(code)}};
}

// {"result": ...} or a failure.
template <class Work>
Json attempt(const Work& work) {
  try {
    return {{"result", work()}};
  } catch (const Error& error) {
    return failure(error.what(), error.code());
  } catch (const std::exception& error) {
    return failure(error.what(), ExitCode::kFailure);
  }
}

std::string dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);  // paths may not be UTF-8
}

std::optional<Json> join_failures(const std::vector<Json>& reports) {
  std::string message;
  ExitCode code = ExitCode::kBadInput;
  for (size_t rank = 0; rank < reports.size(); ++rank) {
    if (!reports[rank].contains("error")) continue;
    message += concat(message.empty() ? "" : "; ", "rank ", rank, ": ",
                      reports[rank]["error"].get<std::string>());
    const auto its_code = static_cast<ExitCode>(reports[rank]["code"].get<int>());
    if (its_code != ExitCode::kBadInput) code = its_code;
  }
  if (message.empty()) return std::nullopt;
  return failure(reports.size() == 1 ? reports[0]["error"].get<std::string>() : message, code);
}

}  // namespace

Json agree(const CheckpointRanks& ranks, const std::function<Json()>& work,
           const std::function<Json(const std::vector<Json>&)>& decide,
           const std::function<void()>& undo) {
  const bool alone = ranks.size == 1;
  const std::string mine = dump(attempt(work));
  const std::vector<std::string> all = alone ? std::vector{mine} : ranks.gather(mine);
  std::string verdict_text;
  if (ranks.rank == 0) {
    std::vector<Json> reports;
    reports.reserve(all.size());
    for (const std::string& report : all) reports.push_back(parse_json_text<Json>(report));
    std::optional<Json> verdict = join_failures(reports);
    if (!verdict.has_value()) {
      for (Json& report : reports) report = Json(std::move(report["result"]));
      verdict = attempt([&] { return decide(reports); });
    }
    if (verdict->contains("error")) attempt([&] { return undo(), Json(); });
    verdict_text = dump(*verdict);
  }
  if (!alone) verdict_text = ranks.broadcast(verdict_text);
  Json verdict = parse_json_text<Json>(verdict_text);
  if (!verdict.contains("error")) return std::move(verdict["result"]);
  const std::string message = verdict["error"];
  const auto code = static_cast<ExitCode>(verdict["code"].get<int>());
  if (code == ExitCode::kBadInput) throw InputError(message);
  throw Error(message, code);
}

}  // namespace trireme
