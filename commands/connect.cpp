#include "commands/connect.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>

#include "commands/build_info.h"
#include "engine/core/error.h"
#include "engine/observe/log.h"
#include "parallel/agree.h"

namespace trireme {

RankFacts facts_of_command(const CLI::App& command) {
  constexpr std::array kOfARank = {"--threads", "--rank-address", "--config", "--set",
                                   // Only rank 0 listens.
                                   "--host", "--port", "--ssl-certfile", "--ssl-keyfile",
                                   "--metrics-access", "--allowed-origins", "--insecure"};
  RankFacts facts = {
      {"program", concat(build::kVersion, " (commit ", build::kCommit, "), ", build::kCompiler)},
      {"command", command.get_name()}};
  for (const CLI::Option* option : command.get_options()) {
    const std::string name = option->get_name();
    const bool secret = name.find("api-key") != std::string::npos;  // and only rank 0's concern
    const bool own = secret || std::ranges::find(kOfARank, name) != kOfARank.end();
    if (own || option->count() == 0) continue;
    std::string& value = facts[name];
    for (const std::string& result : option->results())
      value += (value.empty() ? "" : " ") + result;
  }
  return facts;
}

std::unique_ptr<World> connect_ranks(const WorldOptions& options, const RankFacts& facts) {
  std::unique_ptr<World> world;
  before_connecting([&] { world = make_world(options); });
  set_log_rank(world->rank());
  require_same_on_ranks(world->world(), facts);
  return world;
}

}  // namespace trireme
