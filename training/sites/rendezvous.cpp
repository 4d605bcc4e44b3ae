#include "training/sites/rendezvous.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

#include "engine/io/strict_json.h"
#include "engine/observe/log.h"
#include "engine/observe/progress.h"
#include "parallel/comm/secret_file.h"
#include "training/config/outer.h"
#include "training/step/train_step.h"

namespace trireme {
namespace {

RunConfig run_of(const std::string& text) {
  return resolved_run_config(parse_strict_json<Json>(text, "the site's configuration"));
}

HubRun open_hub_run(const std::string& text) {
  const RunConfig config = run_of(text);
  if (!config.outer.is_remote()) fail_input("outer.site is not set: it is not a site of its own");
  HubRun run{make_whole_model(config, OuterState::kHub), config.train_steps,
             config.outer.timeout_s};
  run.model->allocate();
  log_info("model of ", parameter_count(config.model), " parameters, ",
           format_bytes(run.model->bytes()), " for weights, momentum and codes; ",
           describe_outer(config.outer, config.outer.sites));
  return run;
}

std::string decimals(double value, int digits) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  return text;
}

std::string sites_text(const std::vector<int>& sites) {
  std::string text;
  for (const int site : sites) text += concat(text.empty() ? "" : ", ", site);
  return text;
}

bool may_differ(const Key& key) {
  return key.status != KeyStatus::kImplemented || !key.is_trajectory ||
         key.path.starts_with("data.") || key.path == "tokenizer" ||
         key.path == "finetune.train_file" || key.path == "finetune.valid_file" ||
         key.path == "finetune.chat_template";
}

const Json* value_at(const Json& json, std::string path) {
  std::ranges::replace(path, '.', '/');
  const Json::json_pointer place("/" + path);
  return json.contains(place) ? &json[place] : nullptr;
}

void add_difference(const std::string& path, const Json* first, const Json* other,
                    std::string& text) {
  const std::string a = first != nullptr ? first->dump() : "unset";
  const std::string b = other != nullptr ? other->dump() : "unset";
  if (a != b) text += concat(text.empty() ? "" : "; ", path, " is ", b, ", not ", a);
}

}  // namespace

HubAddress hub_address(const OuterConfig& outer) {
  const auto parts = host_and_port(outer.rendezvous);
  TRIREME_CHECK(parts.has_value(), "rendezvous ", outer.rendezvous);
  return {.host = parts->host,
          .port = parts->port,
          .secret = read_secret_file(outer.secret_file),
          .connect_s = outer.timeout_s,
          .timeout_s = outer.timeout_s};
}

std::string site_difference(const RunConfig& first, const RunConfig& other) {
  const Json a = run_config_to_json(first), b = run_config_to_json(other);
  std::string text;
  for (const Key& key : run_schema().keys())
    if (!may_differ(key) && key.path != "model")
      add_difference(key.path, value_at(a, key.path), value_at(b, key.path), text);
  const Json model_a = a["model"].flatten(), model_b = b["model"].flatten();
  Json all = model_a;
  all.update(model_b);
  for (const auto& [key, value] : all.items()) {
    std::string path = concat("model", key);
    std::ranges::replace(path, '/', '.');
    add_difference(path, model_a.contains(key) ? &model_a[key] : nullptr,
                   model_b.contains(key) ? &model_b[key] : nullptr, text);
  }
  for (const char* key : {"train_steps", "scheduler"})
    add_difference(key, value_at(a, key), value_at(b, key), text);
  add_difference("outer.sites", value_at(a, "outer.sites"), value_at(b, "outer.sites"), text);
  return text;
}

std::string site_note(const OuterConfig& first, const OuterConfig& other) {
  if (first.timeout_s == other.timeout_s) return {};
  return concat("outer.timeout_s is ", other.timeout_s, ", not ", first.timeout_s, "; rounds wait ",
                first.timeout_s, " s for a site");
}

Rendezvous::Rendezvous(const RendezvousOptions& options)
    : records_path_(options.records),
      hub_(ControlListener::on_address(options.host, options.port, options.secret, kSitePeers),
           {.open = open_hub_run,
            .difference =
                [](const std::string& first, const std::string& other) {
                  return site_difference(run_of(first), run_of(other));
                },
            .report = [this](const HubRound& round) { report(round); },
            .note =
                [](const std::string& first, const std::string& other) {
                  return site_note(run_of(first).outer, run_of(other).outer);
                }}) {
  if (records_path_.empty()) return;
  const std::ofstream file(records_path_, std::ios::app);
  if (!file) fail_input("cannot write ", records_path_, ": give another file with --records");
}

std::string Rendezvous::address() const { return hub_.address().where.substr(4); }

void Rendezvous::report(const HubRound& round) {
  std::string line = concat(
      "step ", round.step, " fragment ", round.fragment, ": ", round.arrived.size(), " sites in ",
      decimals(round.seconds, 2), " s, received ", format_bytes(round.received_bytes), ", sent ",
      format_bytes(round.sent_bytes), ", update ", decimals(round.update_norm, 4), ", drift ",
      decimals(round.drift, 4), ", computing ", decimals(100 * round.computing, 1), " %");
  if (std::isfinite(round.loss)) line += concat(", loss ", decimals(round.loss, 4));
  if (!round.absent.empty()) line += concat(", absent: ", sites_text(round.absent));
  if (!round.not_finite.empty()) line += concat(", not finite: ", sites_text(round.not_finite));
  log_info(line);
  if (records_path_.empty()) return;
  const Json record{{"step", round.step},
                    {"fragment", round.fragment},
                    {"sites", round.arrived},
                    {"absent", round.absent},
                    {"not_finite", round.not_finite},
                    {"seconds", round.seconds},
                    {"received_bytes", round.received_bytes},
                    {"sent_bytes", round.sent_bytes},
                    {"update_norm", round.update_norm},
                    {"drift", round.drift},
                    {"computing", round.computing},
                    {"loss", std::isfinite(round.loss) ? Json(round.loss) : Json()}};
  std::ofstream file(records_path_, std::ios::app);
  file << record.dump() << std::endl;
  if (!file) {
    log_warning("cannot write ", records_path_, "; the rendezvous continues without records");
    records_path_.clear();
  }
}

}  // namespace trireme
