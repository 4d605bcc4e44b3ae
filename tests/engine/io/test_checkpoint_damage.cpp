// Damage of every kind is detected and named: truncation, flipped bits, hostile manifests.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "engine/io/atomic_file.h"
#include "engine/io/strict_json.h"
#include "tests/engine/io/checkpoint_fixture.h"
#include "tests/support/scratch_directory.h"

namespace trireme::test_checkpoint_damage {
namespace {

namespace fs = std::filesystem;
using namespace test;  // NOLINT: the fixture's words are this file's vocabulary

void overwrite(const std::string& path, const std::string& contents) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << contents;
}

// Problem with the newest of two checkpoints; "": not detected.
std::string problem_with_newest(const std::string& root) {
  const NewestCheckpoint newest = find_newest_whole(root);
  EXPECT_LE(newest.skipped.size(), 1u);
  if (newest.skipped.empty()) return "";
  EXPECT_EQ(newest.directory, root + "/step-00000010");
  return newest.skipped[0];
}

class CheckpointDamage : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(save_model(model_, {dir_.path(), 10, 0}, 1, 1, 1), std::vector<std::string>(1));
    ASSERT_EQ(save_model(model_, {dir_.path(), 20, 0}, 2, 1, 1), std::vector<std::string>(2));
    ASSERT_EQ(problem_with_newest(dir_.path()), "");
  }
  std::string newest(const std::string& file) const { return dir_ / ("step-00000020/" + file); }
  const std::vector<FakeTensor> model_ = fake_model();
  const ScratchDirectory dir_;
};

TEST_F(CheckpointDamage, EveryFlippedBitOfAShardIsFoundAndNamed) {
  const std::string path = newest("shard-00001-of-00002.safetensors");
  const std::string whole = read_small_file(path);
  for (size_t byte = 0; byte < whole.size(); byte += 1 + byte / 40) {
    std::string damaged = whole;
    damaged[byte] = static_cast<char>(damaged[byte] ^ (1 << (byte % 8)));
    overwrite(path, damaged);
    const std::string problem = problem_with_newest(dir_.path());
    EXPECT_NE(problem.find("shard-00001-of-00002.safetensors"), std::string::npos) << byte;
  }
  // The last byte belongs to the file's last tensor, which has the narrowest elements.
  std::string damaged = whole;
  damaged.back() = static_cast<char>(damaged.back() ^ 1);
  overwrite(path, damaged);
  EXPECT_NE(problem_with_newest(dir_.path()).find("param \"layers.0.experts\""), std::string::npos)
      << problem_with_newest(dir_.path());
}

TEST_F(CheckpointDamage, EveryTruncationOfAShardIsFoundAndNamed) {
  const std::string path = newest("shard-00000-of-00002.safetensors");
  const auto size = static_cast<int64_t>(fs::file_size(path));
  for (int64_t bytes :
       {size - 1, size - 8, size / 2, int64_t{9}, int64_t{8}, int64_t{1}, int64_t{0}}) {
    fs::resize_file(path, static_cast<uintmax_t>(bytes));
    const std::string problem = problem_with_newest(dir_.path());
    EXPECT_NE(problem.find("shard-00000-of-00002.safetensors"), std::string::npos) << bytes;
    EXPECT_NE(problem.find(concat(bytes, " bytes, expected from the manifest: ", size)),
              std::string::npos)
        << problem;
    EXPECT_NE(problem.find("first in"), std::string::npos) << problem;
  }
  fs::remove(path);
  EXPECT_NE(problem_with_newest(dir_.path()).find("shard-00000"), std::string::npos);
}

TEST_F(CheckpointDamage, EveryTruncationAndFlippedBitOfTheManifestIsFound) {
  const std::string path = newest("manifest.json");
  const std::string whole = read_small_file(path);
  for (size_t bytes = 0; bytes < whole.size(); ++bytes) {
    EXPECT_THROW(manifest_from_text(whole.substr(0, bytes), path), InputError) << bytes;
  }
  for (size_t byte = 0; byte < whole.size(); ++byte) {
    std::string damaged = whole;
    damaged[byte] = static_cast<char>(damaged[byte] ^ (1 << (byte % 8)));
    EXPECT_THROW(manifest_from_text(damaged, path), InputError) << byte;
  }
  EXPECT_THROW(manifest_from_text(whole + "x", path), InputError);
  overwrite(path, whole.substr(0, whole.size() / 2));
  EXPECT_NE(problem_with_newest(dir_.path()).find("manifest.json"), std::string::npos);
  fs::remove(path);
  EXPECT_NE(problem_with_newest(dir_.path()).find("manifest.json"), std::string::npos);
}

// A temporary read error is not damage: an older checkpoint must not replace a whole one.
TEST_F(CheckpointDamage, WhatCannotBeReadIsNotDamaged) {
  const auto expect_refused = [&](const std::string& file, const std::string& reason) {
    try {
      find_newest_whole(dir_.path());
      FAIL() << "taken: " << file;
    } catch (const InputError& e) {
      EXPECT_NE(std::string(e.what()).find(reason), std::string::npos) << e.what();
      EXPECT_NE(std::string(e.what()).find("may be complete"), std::string::npos) << e.what();
    }
  };
  for (const char* file : {"shard-00000-of-00002.safetensors", "manifest.json"}) {
    const std::string path = newest(file);
    fs::rename(path, dir_ / "kept");
    fs::create_symlink(dir_ / "not-mounted", path);  // a dangling link
    expect_refused(file, path + ": No such file or directory");
    fs::remove(path);
    fs::create_symlink(path, path);  // errno ELOOP, in place of any other system error
    expect_refused(file, path + ": Too many levels");
    fs::remove(path);
    fs::rename(dir_ / "kept", path);
  }
  EXPECT_EQ(problem_with_newest(dir_.path()), "");
  const std::string step = dir_ / "step-00000020";
  fs::rename(step, dir_ / "kept");
  fs::create_directory_symlink(dir_ / "not-mounted", step);
  expect_refused("step-00000020", step);
}

// A manifest with a correct seal and forged contents.
std::string problem_of_manifest(const std::function<void(nlohmann::ordered_json&)>& change) {
  CheckpointManifest manifest;
  manifest.engine_version = "1.0";
  manifest.step = 3;
  manifest.shards = {{"a.safetensors", 1000, 1}, {"b.safetensors", 1000, 2}};
  CheckpointTensor tensor{"param", "w", DType::kF32, {4, 6}, {}};
  tensor.slices = {{{{{0, 0}, {4, 3}}, 0, 12}, 0, 100, 48, 1},
                   {{{{0, 3}, {4, 3}}, 0, 5}, 1, 100, 20, 2},
                   {{{{0, 3}, {4, 3}}, 5, 12}, 1, 120, 28, 3}};
  manifest.tensors = {tensor};
  const std::string good = manifest_to_text(manifest);
  auto json = parse_json_text<nlohmann::ordered_json>(good);
  json.erase("manifest_checksum");
  change(json);
  std::string body = json.dump();
  body.pop_back();
  const uint64_t seal = checksum(std::as_bytes(std::span(body)));
  body += ",\n\"manifest_checksum\": \"" + checksum_text(seal) + "\"\n}\n";
  try {
    manifest_from_text(body, "some/manifest.json");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kBadInput) << error.what();
    return error.what();
  }
  return "";
}

TEST(HostileManifest, IsRefusedByName) {
  using Json = nlohmann::ordered_json;
  const auto slice = [](Json& j, size_t i) -> Json& { return j["tensors"][0]["slices"][i]; };
  const int64_t huge = INT64_MAX;
  const std::vector<std::pair<std::string, std::function<void(Json&)>>> cases = {
      {"format", [](Json& j) { j["format"] = "other"; }},
      {"version 2", [](Json& j) { j["version"] = 2; }},
      {"has no \"step\"", [](Json& j) { j.erase("step"); }},
      {"\"step\"", [](Json& j) { j["step"] = -1; }},
      {"\"state\"", [](Json& j) { j["state"] = 3; }},
      {"not a list", [](Json& j) { j["tensors"] = Json::object(); }},
      {"plain file name", [](Json& j) { j["shards"][0]["file"] = "../../etc/passwd"; }},
      {"plain file name", [](Json& j) { j["shards"][0]["file"] = ".."; }},
      {"plain file name", [](Json& j) { j["shards"][0]["file"] = ""; }},
      {"listed twice", [](Json& j) { j["shards"][1]["file"] = "a.safetensors"; }},
      {"hex digits", [](Json& j) { j["shards"][1]["checksum"] = "1"; }},
      {"exceed the", [](Json& j) { j["shards"][0]["bytes"] = 147; }},
      {"unknown dtype", [](Json& j) { j["tensors"][0]["dtype"] = "float31"; }},
      {"dimension",
       [](Json& j) {
         j["tensors"][0]["shape"] = {0, 6};
       }},
      {"dimension",
       [=](Json& j) {
         j["tensors"][0]["shape"] = {huge, huge};
       }},
      {"dimension", [](Json& j) { j["tensors"][0]["shape"] = {4}; }},
      {"exceeds 63 bits", [=](Json& j) { j["tensors"][0]["shape"] = {huge}; }},
      {"stored nowhere", [](Json& j) { j["tensors"][0]["slices"] = Json::array(); }},
      {"stored nowhere", [](Json& j) { j["tensors"][0]["slices"].erase(1); }},
      {"stored twice", [=](Json& j) { slice(j, 1)["end"] = 6, slice(j, 1)["bytes"] = 24; }},
      {"overlap",
       [=](Json& j) {
         slice(j, 0)["box_extent"] = {4, 4};
       }},
      {"are outside dimension",
       [=](Json& j) {
         slice(j, 0)["box_start"] = {1, 0};
       }},
      {"are outside dimension",
       [=](Json& j) {
         slice(j, 0)["box_extent"] = {4, huge};
       }},
      {"a box of", [=](Json& j) { slice(j, 0)["box_start"] = {0}; }},
      {"whole number",
       [=](Json& j) {
         slice(j, 0)["box_start"] = {-1, 0};
       }},
      {"box_extent", [=](Json& j) { slice(j, 0).erase("box_extent"); }},
      {"are outside the box", [=](Json& j) { slice(j, 0)["end"] = 13; }},
      {"are outside the box", [=](Json& j) { slice(j, 0)["begin"] = 12; }},
      {"are outside the box", [=](Json& j) { slice(j, 0)["end"] = huge; }},
      {"shard 2 of 2", [=](Json& j) { slice(j, 0)["shard"] = 2; }},
      {"bytes for", [=](Json& j) { slice(j, 0)["bytes"] = 47; }},
      {"bytes for", [=](Json& j) { slice(j, 0)["bytes"] = huge; }},
      {"exceed the", [=](Json& j) { slice(j, 0)["offset"] = 953; }},
      {"exceed the", [=](Json& j) { slice(j, 0)["offset"] = huge; }},
      {"not an object", [](Json& j) { j["tensors"][0] = 1; }},
      {"listed twice", [](Json& j) { j["tensors"].push_back(j["tensors"][0]); }},
  };
  EXPECT_EQ(problem_of_manifest([](Json&) {}), "");
  for (size_t i = 0; i < cases.size(); ++i) {
    const std::string problem = problem_of_manifest(cases[i].second);
    EXPECT_NE(problem.find(cases[i].first), std::string::npos)
        << "case " << i << " (" << cases[i].first << "): " << problem;
  }
}

}  // namespace
}  // namespace trireme::test_checkpoint_damage
