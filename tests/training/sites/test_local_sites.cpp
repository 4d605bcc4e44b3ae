// Keys in which the sites of one machine differ.
#include <gtest/gtest.h>

#include "engine/core/cpu.h"
#include "training/sites/local_sites.h"

namespace trireme {
namespace {

TEST(LocalSites, KeysDifferByIndexAndDirectory) {
  const LocalSites sites{
      .sites = 3, .ranks = 2, .command = {}, .output_dir = "runs/a", .divides_cores = false};
  EXPECT_EQ(keys_of_local_site(sites, 2, "127.0.0.1:5", "runs/a/sites.secret"),
            (std::vector<std::string>{
                "outer.sites=3", "outer.site=2", "outer.rendezvous=127.0.0.1:5",
                "outer.secret_file=runs/a/sites.secret", "output_dir=runs/a/site-2"}));
}

TEST(LocalSites, RanksShareTheCores) {
  LocalSites sites{.sites = 2, .ranks = 1, .command = {}, .output_dir = "a"};
  const auto threads = [&] { return keys_of_local_site(sites, 0, "127.0.0.1:5", "s").back(); };
  EXPECT_EQ(threads(), concat("cpu.threads_per_rank=", std::max(1, available_cores() / 2)));
  sites.ranks = 1 << 20;
  EXPECT_EQ(threads(), "cpu.threads_per_rank=1");
}

}  // namespace
}  // namespace trireme
