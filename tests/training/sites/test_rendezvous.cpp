// Address of a rendezvous, and the keys in which the runs of sites may differ.
#include <gtest/gtest.h>

#include <fstream>

#include "tests/support/scratch_directory.h"
#include "tests/training/config/small_run.h"
#include "training/sites/rendezvous.h"

namespace trireme::test_site_rendezvous {
using test::joined;
using test::read;

namespace {

RunConfig site(int index, const std::vector<std::string>& more = {}, int ranks = 1) {
  return read(joined({"outer.sites=2", concat("outer.site=", index), "outer.rendezvous=host:29400",
                      "outer.secret_file=secret"},
                     more),
              ranks);
}

std::string difference(const std::vector<std::string>& more, int ranks = 1) {
  return site_difference(site(0), site(1, more, ranks));
}

TEST(SiteDifference, LayoutFilesAndEvaluationMayDiffer) {
  EXPECT_EQ(difference({}), "");
  EXPECT_EQ(difference({}, 3), "");
  EXPECT_EQ(difference({"parallel.tensor_model_parallel_size=2"}, 2), "");
  EXPECT_EQ(difference({"output_dir=elsewhere", "outer.rendezvous=10.0.0.1:5",
                        "outer.secret_file=other", "outer.timeout_s=9"}),
            "");
  EXPECT_EQ(difference({"data.data_path=elsewhere"}), "");
  EXPECT_EQ(difference({"evaluation.eval_interval=7", "checkpoint.save_interval=7",
                        "logging.log_interval=7", "cpu.threads_per_rank=1"}),
            "");
}

TEST(SiteDifference, NamesKeysWithBothValues) {
  EXPECT_EQ(difference({"outer.period=7"}), "outer.period is 7, not 100");
  EXPECT_EQ(difference({"model.intermediate_size=96"}), "model.intermediate_size is 96, not 128");
  EXPECT_EQ(difference({"seed=3", "outer.lr=0.5"}),
            "seed is 3, not 1234; outer.lr is 0.5, not 0.7");
  EXPECT_EQ(difference({"outer.sites=3"}), "outer.sites is 3, not 2");
  EXPECT_EQ(difference({"train_batch_size=24"}), "train_batch_size is 24, not 12");
  EXPECT_NE(difference({"train_steps=50"}).find("train_steps is 50, not 100"), std::string::npos);
  EXPECT_NE(difference({"outer.compression.method=quantize"}).find("outer.compression.method is "),
            std::string::npos);
}

TEST(SiteNote, NamesBothTimeouts) {
  EXPECT_EQ(site_note(site(0).outer, site(1).outer), "");
  EXPECT_EQ(site_note(site(0).outer, site(1, {"outer.timeout_s=9"}).outer),
            "outer.timeout_s is 9, not 60; rounds wait 60 s for a site");
}

TEST(HubAddress, HasTheSecret) {
  const test::ScratchDirectory folder;
  const std::string secret = folder / "secret";
  std::ofstream(secret) << "0123456789abcdef\n";
  const HubAddress address = hub_address(
      site(1, {"outer.rendezvous=[::1]:29400", "outer.timeout_s=9", "outer.secret_file=" + secret})
          .outer);
  EXPECT_EQ(address.host, "::1");
  EXPECT_EQ(address.port, 29400);
  EXPECT_EQ(address.secret, "0123456789abcdef");
  EXPECT_EQ(address.timeout_s, 9);
}

}  // namespace
}  // namespace trireme::test_site_rendezvous
