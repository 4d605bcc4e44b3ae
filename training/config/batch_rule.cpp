#include "training/config/batch_rule.h"

#include "engine/core/error.h"

namespace trireme {
namespace {

// Batch sizes of the configuration.
struct Given {
  int64_t total = 0, micro = 0, passes = 0;  // 0: follows from the others
};

std::string ranks_text(int data_ranks, int sites) {
  return concat(data_ranks, data_ranks == 1 ? " data-parallel rank" : " data-parallel ranks",
                sites > 1 ? concat(" x ", sites, " sites") : "");
}

// Returns total / factor; reports an error if that is not an integer. words: the factor's terms.
int64_t quotient(const ConfigValues& values, int64_t total, int64_t factor,
                 const std::string& words, ConfigReport& report) {
  if (total % factor == 0) return total / factor;
  report.error(values.spelled("train_batch_size"),
               concat(total, " is not divisible by ", words, " = ", factor));
  return 1;
}

}  // namespace

void read_batch(const ConfigValues& values, RunConfig& config, ConfigReport& report) {
  const int data_ranks = config.parallel.dp * config.outer.sites;
  const char* const kTotal = "train_batch_size";
  const char* const kMicro = "train_micro_batch_size_per_gpu";
  const char* const kPasses = "gradient_accumulation_steps";
  for (const char* key : {kTotal, kMicro, kPasses})
    if (!values.valid(key)) return;
  const auto size = [&](const char* key) { return values.is_auto(key) ? 0 : values.integer(key); };
  Given given{size(kTotal), size(kMicro), size(kPasses)};
  const std::string ranks = ranks_text(config.parallel.dp, config.outer.sites);
  if (given.total == 0 && given.micro == 0)
    return report.error(kTotal, concat("is required, or ", kMicro));
  // If only one size is set, a step is one forward pass.
  if (given.passes == 0 && (given.total == 0 || given.micro == 0)) given.passes = 1;
  constexpr int64_t kMax = 1 << 24;  // upper bound of each size in the schema
  if (given.total == 0) {
    if (given.micro * given.passes > kMax / data_ranks)
      return report.error(
          kTotal, concat(kMicro, " ", given.micro, " x ", kPasses, " ", given.passes, " x ", ranks,
                         " is more than ", kMax, " sequences"));
    given.total = given.micro * given.passes * data_ranks;
  } else if (given.micro == 0) {
    given.micro = quotient(values, given.total, given.passes * data_ranks,
                           concat(kPasses, " ", given.passes, " x ", ranks), report);
  } else if (given.passes == 0) {
    given.passes = quotient(values, given.total, given.micro * data_ranks,
                            concat(kMicro, " ", given.micro, " x ", ranks), report);
  }
  if (given.micro * given.passes > (int64_t{1} << 40))
    return report.error(values.spelled(kTotal),
                        concat(given.total, " is not ", kMicro, " ", given.micro, " x ", kPasses,
                               " ", given.passes, " x ", ranks));
  const int64_t product = given.micro * given.passes * data_ranks;
  if (size(kTotal) != 0 && size(kMicro) != 0 && size(kPasses) != 0 && product != given.total)
    report.error(
        values.spelled(kTotal),
        concat(given.total, " is not ", kMicro, " ", given.micro, " x ", kPasses, " ", given.passes,
               " x ", ranks, " = ", product, "; leave one of the three out, or write \"auto\""));
  config.train_batch_size = given.total;
  config.micro_batch_size = given.micro;
  config.gradient_accumulation_steps = given.passes;
}

}  // namespace trireme
