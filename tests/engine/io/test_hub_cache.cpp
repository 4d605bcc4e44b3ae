#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "engine/core/error.h"
#include "engine/io/hub_cache.h"
#include "tests/support/scratch_directory.h"

namespace trireme::test_hub_cache {
namespace {

namespace fs = std::filesystem;

class HubCache : public ::testing::Test {
 protected:
  HubCache() : model_(fs::path(folder_.path()) / "models--org--small") {
    fs::create_directories(model_ / "refs");
    fs::create_directories(model_ / "snapshots");
  }
  void snapshot(const std::string& commit) {
    fs::create_directories(model_ / "snapshots" / commit);
  }
  void refer(const std::string& revision, const std::string& text) {
    fs::create_directories((model_ / "refs" / revision).parent_path());
    std::ofstream(model_ / "refs" / revision) << text;
  }
  std::string found() const { return local_model(model_.string()); }
  std::string at(const std::string& commit) const {
    return (model_ / "snapshots" / commit).string();
  }
  std::string refusal() const {
    try {
      return "found " + found();
    } catch (const InputError& e) {
      return e.what();
    }
  }

  test::ScratchDirectory folder_;
  fs::path model_;
};

TEST_F(HubCache, TheFolderOfAModelIsItsMainSnapshot) {
  snapshot("aaaa");
  snapshot("bbbb");
  refer("main", "bbbb\n");
  EXPECT_EQ(found(), at("bbbb"));
  EXPECT_EQ(local_model(model_.string() + "/"), at("bbbb"));
  EXPECT_EQ(local_model(at("aaaa")), at("aaaa"));  // a snapshot is an ordinary directory
}

TEST_F(HubCache, TheOnlySnapshotNeedsNoReference) {
  snapshot("aaaa");
  EXPECT_EQ(found(), at("aaaa"));
}

TEST_F(HubCache, SeveralWithoutAMainAreListed) {
  snapshot("aaaa");
  snapshot("bbbb");
  EXPECT_NE(refusal().find("it has aaaa, bbbb"), std::string::npos) << refusal();
  refer("main", "cccc");  // an incomplete download
  EXPECT_NE(refusal().find("no snapshot of its main revision"), std::string::npos) << refusal();
}

TEST_F(HubCache, AReferenceLeadsNowhereElse) {
  snapshot("aaaa");
  snapshot("bbbb");
  fs::create_directories(model_ / "elsewhere");
  for (const char* text : {"../elsewhere", "..", ".", "", "aaaa/../bbbb", "/tmp"}) {
    refer("main", text);
    EXPECT_NE(refusal().find("no snapshot"), std::string::npos) << text << ": " << refusal();
  }
  refer("main", std::string(1 << 20, 'a'));
  EXPECT_EQ(refusal().find("found"), std::string::npos);
}

TEST_F(HubCache, OtherWordsStayAsTheyAre) {
  for (const char* word : {"", "byte", "no/such", "no/such/path", "/no/such", "./a", "../a/b",
                           "~/a", "a b", "@main", "org/name@"})
    EXPECT_EQ(local_model(word), word);
  EXPECT_EQ(local_model(folder_.path()), folder_.path());
}

}  // namespace
}  // namespace trireme::test_hub_cache
