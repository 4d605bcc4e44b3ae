#include "training/config/outer.h"

#include <nlohmann/json.hpp>

#include "parallel/outer/outer_algorithms.h"
#include "parallel/outer/remote/site_messages.h"
#include "training/config/compressor_options.h"
#include "training/config/table_text.h"

namespace trireme {
namespace {

constexpr const char *kSites = "outer.sites", *kAlgorithm = "outer.algorithm",
                     *kPeriod = "outer.period", *kRate = "outer.lr", *kMomentum = "outer.momentum",
                     *kNesterov = "outer.nesterov", *kWarmup = "outer.warmup_steps",
                     *kFragments = "outer.fragments", *kOverlap = "outer.overlap_steps",
                     *kMixing = "outer.mixing", *kCompression = "outer.compression";
constexpr const char *kSite = "outer.site", *kRendezvous = "outer.rendezvous",
                     *kSecretFile = "outer.secret_file", *kTimeout = "outer.timeout_s";
constexpr double kMaxSites = 1 << 12, kMaxSteps = 1e12, kMaxFragments = 1 << 16,
                 kMaxTimeout = 86400;
// Defaults of algorithms that stream. Overlap and mixing are those of the paper.
constexpr int64_t kStreamedFragments = 4, kStreamedOverlap = 5;
constexpr double kStreamedMixing = 0.5;

// Divisors of n next to `near`, which is none: "2 or 4".
std::string nearest_divisors(int n, int near) {
  int below = std::min(near, n), above = near;
  while (n % below != 0) --below;
  while (above < n && n % above != 0) ++above;
  std::vector<std::string> found{std::to_string(below)};
  if (above <= n) found.push_back(std::to_string(above));
  return listed_names(found);
}

// Multiples of n next to `near`, which is none.
std::string nearest_multiples(int n, int near) {
  std::vector<std::string> found{std::to_string(near / n * n + n)};
  if (near > n) found.insert(found.begin(), std::to_string(near / n * n));
  return listed_names(found);
}

// Refuses what sites do not work with.
void check_run(const ConfigValues& values, const RunConfig& config, ConfigReport& report) {
  const auto refuse = [&](const std::string& reason) {
    report.error(values.spelled(kSites), reason);
  };
  if (dtype_size(config.dtype) == 2 && !config.optimizer.master_weights)
    refuse(
        "above 1 needs master weights, whose updates the sites exchange: set "
        "optimizer.master_weights to true");
  if (config.zero.offload_optimizer.device == OffloadDevice::kFile && dtype_size(config.dtype) == 2)
    refuse(
        "above 1 needs the master weights in memory: set "
        "zero_optimization.offload_optimizer.device to none or cpu");
}

void read_streaming(const ConfigValues& values, const OuterAlgorithm& row, RunConfig& config,
                    ConfigReport& report) {
  OuterConfig& outer = config.outer;
  const int64_t max_fragments =
      std::max<int64_t>(1, std::min(config.model.num_layers, outer.period));
  const auto given = [&](const char* key, int64_t streamed, int64_t other) {
    return !values.is_auto(key) ? values.integer(key) : row.streams ? streamed : other;
  };
  const int64_t fragments = given(kFragments, std::min(kStreamedFragments, max_fragments), 1);
  outer.overlap_steps = given(kOverlap, std::min(kStreamedOverlap, outer.period - 1), 0);
  const bool mixes = row.streams && outer.overlap_steps > 0;
  outer.mixing = !values.is_auto(kMixing) ? values.number(kMixing) : mixes ? kStreamedMixing : 0;
  if (fragments > max_fragments)
    report.error(values.spelled(kFragments),
                 concat(fragments, " is above ", max_fragments, ", the smaller of the model's ",
                        config.model.num_layers, " layers and ", kPeriod, " ", outer.period));
  outer.fragments = static_cast<int>(std::min(fragments, max_fragments));
  if (outer.overlap_steps >= outer.period)
    report.error(values.spelled(kOverlap),
                 concat(outer.overlap_steps, " is not below ", kPeriod, " ", outer.period));
  if (outer.mixing > 0 && outer.overlap_steps == 0)
    report.error(values.spelled(kMixing), concat("needs ", kOverlap, " above 0"));
}

// Keys of sites that are jobs of their own.
void read_remote(const ConfigValues& values, RunConfig& config, ConfigReport& report) {
  OuterConfig& outer = config.outer;
  outer.rendezvous = values.word(kRendezvous);
  outer.secret_file = values.word(kSecretFile);
  outer.timeout_s = values.number(kTimeout);
  for (const char* key : {kRendezvous, kSecretFile}) {
    const bool given = !values.word(key).empty();
    if (given && !outer.is_remote())
      report.error(values.spelled(key), concat("needs ", kSite, ", the index of this site"));
  }
  if (!outer.is_remote()) return;
  if (outer.rendezvous.empty())
    report.error(
        values.spelled(kRendezvous),
        concat("is required with ", kSite, ": the HOST:PORT that trireme rendezvous prints"));
  if (outer.secret_file.empty())
    report.error(values.spelled(kSecretFile),
                 concat("is required with ", kSite, ": the file that trireme rendezvous has"));
  if (outer.site >= outer.sites)
    report.error(values.spelled(kSite),
                 concat(outer.site, " is not below ", kSites, " ", outer.sites));
  const auto address = host_and_port(outer.rendezvous);
  if (!outer.rendezvous.empty() && (!address || address->port < 1 || address->port > 65535))
    report.error(values.spelled(kRendezvous),
                 concat("\"", outer.rendezvous, "\" is not HOST:PORT, a port being 1 to 65535"));
  if (const double ranks = values.number("comm.timeout"); outer.timeout_s >= ranks)
    report.error(values.spelled(kTimeout),
                 concat(outer.timeout_s, " is not below ", values.spelled("comm.timeout"), " ",
                        ranks, ", the longest wait of the site's other ranks for the first one"));
}

}  // namespace

void add_outer_keys(Schema& s) {
  const OuterConfig defaults;
  s.section("outer",
            "Training on sites: equal parts of the ranks that train apart and exchange their "
            "weights' updates in rounds, for slow links between them "
            "([design](../design/outer.md)). It changes the numbers, and they then depend on the "
            "number of sites. Each site has the layout of the section `parallel`, for its share of "
            "the ranks and of the batch.");
  s.integer(kSites, std::to_string(defaults.sites),
            "number of sites; 1: none, the section has no effect")
      .at_least(1)
      .at_most(kMaxSites)
      .off_trajectory();
  s.choice(kAlgorithm, defaults.algorithm, names_of(outer_algorithms(), &OuterAlgorithm::name),
           concat("how a round changes the weights; ",
                  summaries_of(outer_algorithms(), &OuterAlgorithm::name)));
  s.integer(kPeriod, std::to_string(defaults.period),
            "steps between two rounds; a round also ends the run")
      .at_least(1)
      .at_most(kMaxSteps);
  s.number(kRate, "\"auto\"",
           "learning rate of the round; auto: 1, diloco and streaming_diloco: 0.7")
      .or_auto()
      .above(0)
      .at_most(10);
  s.number(kMomentum, "\"auto\"",
           "momentum over rounds; auto: average and adasum: 0, block_momentum: 1 - 1 / sites, "
           "diloco and streaming_diloco: 0.9")
      .or_auto()
      .at_least(0)
      .below(1);
  s.boolean_or_auto(kNesterov, "Nesterov momentum; auto: if momentum is above 0");
  s.integer(kWarmup, std::to_string(defaults.warmup_steps),
            "first steps of the run after each of which the weights are averaged (post-local SGD)")
      .at_least(0)
      .at_most(kMaxSteps);
  s.integer(kFragments, "\"auto\"",
            "groups of layers with rounds of their own, spread over the period; auto: 1, "
            "streaming_diloco: 4, or fewer if there are fewer layers or steps in a period")
      .or_auto()
      .at_least(1)
      .at_most(kMaxFragments);
  s.integer(kOverlap, "\"auto\"",
            "steps that a site takes between the beginning and the end of a round; auto: 0, "
            "streaming_diloco: 5, or period - 1 if that is less")
      .or_auto()
      .at_least(0)
      .at_most(kMaxSteps);
  s.number(kMixing, "\"auto\"",
           "weight of a site's own weights in those that it continues from after an overlapped "
           "round; auto: 0, streaming_diloco: 0.5")
      .or_auto()
      .at_least(0)
      .below(1);
  add_compressor_keys(s, kCompression, "code of the updates that sites exchange");
  s.integer(kSite, "null",
            "index of this site, from 0, if each site is a job of its own; null: the sites are "
            "equal parts of this job's ranks")
      .or_null()
      .at_least(0)
      .at_most(kMaxSites - 1)
      .off_trajectory();
  s.string(kRendezvous, "\"\"",
           "with outer.site: \"HOST:PORT\" at which `trireme rendezvous` adds the updates")
      .off_trajectory();
  s.string(kSecretFile, "\"\"",
           "with outer.site: file with the secret of the sites, 16 to 4096 characters")
      .off_trajectory();
  s.number(kTimeout, concat(defaults.timeout_s),
           "with outer.site: longest time in seconds that a round waits for a site after the first "
           "update, that of the first site counting for all; below comm.timeout")
      .at_least(1)
      .at_most(kMaxTimeout)
      .off_trajectory();
}

int read_sites(const ConfigValues& values, int world_size, RunConfig& config,
               ConfigReport& report) {
  const auto sites = static_cast<int>(values.integer(kSites));
  if (sites <= 1) return world_size;
  if (values.given(kSite)) {
    config.outer.sites = sites;
    config.outer.site = static_cast<int>(values.integer(kSite));
    return world_size;
  }
  if (world_size % sites != 0) {
    report.error(values.spelled(kSites),
                 concat(sites, " does not divide the ", world_size, " ranks of the run; set it to ",
                        nearest_divisors(world_size, sites), ", or use ",
                        nearest_multiples(sites, world_size), " ranks"));
    return world_size;
  }
  config.outer.sites = sites;
  return world_size / sites;
}

void read_outer(const ConfigValues& values, RunConfig& config, ConfigReport& report) {
  OuterConfig& outer = config.outer;
  if (!outer.enabled()) {
    for (const Key& key : run_schema().keys())
      if (key.path.starts_with("outer.") && key.path != kSites && values.given(key.path))
        report.note(values.spelled(key.path), concat("has no effect with ", kSites, " 1"));
    return;
  }
  const OuterAlgorithm& row = *find_outer_algorithm(values.word(kAlgorithm));
  const auto number = [&](const char* key, double automatic) {
    return values.is_auto(key) ? automatic : values.number(key);
  };
  outer.algorithm = row.name;
  outer.period = values.integer(kPeriod);
  outer.lr = number(kRate, row.lr);
  outer.momentum = number(kMomentum, row.momentum(outer.sites));
  outer.nesterov =
      values.is_auto(kNesterov) ? outer.momentum > 0 && row.nesterov : values.flag(kNesterov);
  outer.warmup_steps = values.integer(kWarmup);
  if (outer.nesterov && outer.momentum == 0)
    report.error(values.spelled(kNesterov), concat("needs ", kMomentum, " above 0"));
  read_streaming(values, row, config, report);
  if (read_compressor(values, kCompression, outer.compression, report) != nullptr)
    check_compressor_layout(values, kCompression, config, outer.compression, report);
  check_run(values, config, report);
  read_remote(values, config, report);
}

bool has_default_momentum(const OuterConfig& outer) {
  return outer.momentum == find_outer_algorithm(outer.algorithm)->momentum(outer.sites);
}

std::string describe_outer(const OuterConfig& outer, int ranks) {
  const auto count = [](int64_t n, const char* noun) {
    return concat(n, " ", noun, n == 1 ? "" : "s");
  };
  std::string line = outer.is_remote() ? concat("outer: site ", outer.site, " of ", outer.sites,
                                                ", rendezvous ", outer.rendezvous)
                                       : concat("outer: ", outer.sites, " sites of ",
                                                count(ranks, "rank"), " each");
  line += concat(", algorithm ", outer.algorithm, ", period ", count(outer.period, "step"));
  if (outer.warmup_steps > 0) line += concat(", warm-up ", count(outer.warmup_steps, "step"));
  if (outer.fragments > 1) line += concat(", ", outer.fragments, " fragments");
  if (outer.overlap_steps > 0) line += concat(", overlap ", count(outer.overlap_steps, "step"));
  return line + (outer.compression.enabled
                     ? concat(", updates compressed by ", describe_compressor(outer.compression))
                     : ", updates not compressed");
}

Json outer_to_json(const OuterConfig& outer) {
  if (!outer.enabled()) return {{"sites", 1}};
  Json json = {{"sites", outer.sites},
               {"algorithm", outer.algorithm},
               {"period", outer.period},
               {"lr", outer.lr},
               {"momentum", outer.momentum},
               {"nesterov", outer.nesterov},
               {"warmup_steps", outer.warmup_steps},
               {"fragments", outer.fragments},
               {"overlap_steps", outer.overlap_steps},
               {"mixing", outer.mixing},
               {"compression", compressor_to_json(outer.compression)}};
  if (outer.is_remote()) {
    json["site"] = outer.site;
    json["rendezvous"] = outer.rendezvous;
    json["secret_file"] = outer.secret_file;
    json["timeout_s"] = outer.timeout_s;
  }
  return json;
}

}  // namespace trireme
