#include <gtest/gtest.h>

#include <filesystem>

#include "engine/io/atomic_file.h"
#include "engine/io/safetensors.h"
#include "engine/io/sharded_checkpoint.h"
#include "tests/engine/io/checkpoint_fixture.h"
#include "tests/engine/io/small_disk.h"
#include "tests/support/scratch_directory.h"

namespace trireme::test_sharded_checkpoint {
namespace {

namespace fs = std::filesystem;
using namespace test;  // NOLINT: the fixture's words are this file's vocabulary

std::vector<std::string> none(int ranks) {
  return std::vector<std::string>(static_cast<size_t>(ranks));
}

std::vector<std::string> listing(const std::string& directory) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(directory)) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

TEST(ShardedCheckpoint, AnyLayoutLoadsAnyOtherBitForBit) {
  const auto model = fake_model();
  const std::vector<std::pair<int, int>> layouts = {{1, 1}, {1, 2}, {2, 1}, {2, 2}, {3, 1}, {1, 5}};
  uint32_t seed = 1;
  for (const auto& [tp, dp] : layouts) {
    const ScratchDirectory dir;
    ASSERT_EQ(save_model(model, {dir.path(), 100, 0}, tp, dp, seed), none(tp * dp));
    const CheckpointReader reader(dir.path());
    EXPECT_EQ(reader.verify(), std::vector<std::string>{});
    EXPECT_EQ(reader.step(), 100);
    EXPECT_EQ(reader.state().dump(), R"({"step":100,"lr":0.1,"a":{"b":"c"}})");
    for (const auto& [load_tp, load_dp] : layouts) {
      EXPECT_EQ(load_and_compare(model, dir.path(), load_tp, load_dp, ++seed), "")
          << tp << "x" << dp << " -> " << load_tp << "x" << load_dp;
    }
  }
}

TEST(ShardedCheckpoint, ShardsAreOrdinarySafetensorsFiles) {
  const ScratchDirectory dir;
  const auto model = fake_model();
  ASSERT_EQ(save_model(model, {dir.path(), 7, 0}, 1, 1, 3), none(1));
  EXPECT_EQ(listing(dir.path()), (std::vector<std::string>{"latest", "step-00000007"}));
  EXPECT_EQ(listing(dir / "step-00000007"),
            (std::vector<std::string>{"manifest.json", "shard-00000-of-00001.safetensors"}));
  const SafetensorsReader reader(dir / "step-00000007/shard-00000-of-00001.safetensors");
  for (const FakeTensor& tensor : model) {
    const ConstTensor stored = reader.tensor(tensor.kind + ":" + tensor.name);
    EXPECT_EQ(compare_exact(stored, *tensor.values), "") << tensor.name;
  }
}

TEST(ShardedCheckpoint, RanksWithNothingToWriteMakeNoShard) {
  const ScratchDirectory dir;
  const auto model = fake_model();
  const auto layout = random_layout(model, 1, 1, 1);
  SimulatedRanks ranks(3);
  const auto errors = ranks.run([&](const CheckpointRanks& r) {
    const auto parts = r.rank == 1 ? layout[0].parts : std::vector<CheckpointPart>{};
    const SavedCheckpoint saved = save_checkpoint({dir.path(), 5, 0}, parts, {{"rank", r.rank}}, r);
    EXPECT_EQ(saved.directory, dir / "step-00000005");
  });
  EXPECT_EQ(errors, none(3));
  EXPECT_EQ(CheckpointReader(dir.path()).manifest().shards.size(), 1u);
  EXPECT_EQ(CheckpointReader(dir.path()).state()["rank"], 0);
}

TEST(ShardedCheckpoint, KeepsTheLastAndNeverWhatLatestNames) {
  const ScratchDirectory dir;
  const auto model = fake_model();
  for (const int64_t step : {10, 20, 30, 40}) {
    ASSERT_EQ(save_model(model, {dir.path(), step, 2}, 1, 2, 1), none(2));
  }
  EXPECT_EQ(listing(dir.path()),
            (std::vector<std::string>{"latest", "step-00000030", "step-00000040"}));
  // Saving an older step (after going back) removes neither itself nor the higher steps, which do
  // not count; a broken checkpoint is left alone and does not count.
  make_directories(dir / "step-00000050");
  for (const int64_t step : {5, 6, 7}) {
    ASSERT_EQ(save_model(model, {dir.path(), step, 2}, 1, 1, 1), none(1));
  }
  EXPECT_EQ(listing(dir.path()),
            (std::vector<std::string>{"latest", "step-00000006", "step-00000007", "step-00000030",
                                      "step-00000040", "step-00000050"}));
  EXPECT_EQ(read_small_file(dir / "latest"), "step-00000007\n");
}

TEST(ShardedCheckpoint, WhatKeepLastDoesNotCountPushesNothingOut) {
  const ScratchDirectory dir;
  const auto model = fake_model();
  const auto even = [](const CheckpointReader& reader) { return reader.step() % 2 == 0; };
  for (const int64_t step : {2, 4, 5, 7, 9})
    ASSERT_EQ(save_model(model, {.root = dir.path(), .step = step, .keep_last = 2, .counts = even},
                         1, 1, 1),
              none(1));
  EXPECT_EQ(listing(dir.path()),
            (std::vector<std::string>{"latest", "step-00000002", "step-00000004", "step-00000005",
                                      "step-00000007", "step-00000009"}));
  ASSERT_EQ(
      save_model(model, {.root = dir.path(), .step = 10, .keep_last = 2, .counts = even}, 1, 1, 1),
      none(1));
  EXPECT_EQ(listing(dir.path()),
            (std::vector<std::string>{"latest", "step-00000004", "step-00000005", "step-00000007",
                                      "step-00000009", "step-00000010"}));
  const NewestCheckpoint newest = find_newest_whole(
      dir.path(), true, [](const CheckpointReader& r) { return r.step() > 7 ? "late" : ""; });
  EXPECT_EQ(newest.directory, dir / "step-00000007");
  EXPECT_EQ(newest.skipped, (std::vector<std::string>{"late", "late"}));
}

TEST(ShardedCheckpoint, TheSameStepCanBeSavedAgain) {
  const ScratchDirectory dir;
  ASSERT_EQ(save_model(fake_model("old"), {dir.path(), 10, 0}, 1, 3, 1), none(3));
  const auto model = fake_model("new");
  ASSERT_EQ(save_model(model, {dir.path(), 10, 0}, 1, 2, 1), none(2));
  EXPECT_EQ(load_and_compare(model, dir.path(), 1, 1, 9), "");
  EXPECT_EQ(listing(dir.path()), (std::vector<std::string>{"latest", "step-00000010"}));
}

TEST(ShardedCheckpoint, WhatAKillLeavesIsPassedOverAndSwept) {
  const ScratchDirectory dir;
  const auto model = fake_model();
  EXPECT_EQ(find_newest_whole(dir / "absent").directory, "");
  ASSERT_EQ(save_model(model, {dir.path(), 10, 0}, 2, 1, 1), none(2));
  const std::string whole = dir / "step-00000010";
  // Stage by stage: an empty directory, part of a shard, all shards, all shards and the manifest.
  const std::string partial = dir / "step-00000020.tmp";
  make_directories(partial);
  EXPECT_EQ(find_newest_whole(dir.path()).directory, whole);
  write_file_atomically(partial + "/shard-00000-of-00002.safetensors.tmp", "torn");
  EXPECT_EQ(find_newest_whole(dir.path()).directory, whole);
  fs::copy(whole, partial, fs::copy_options::recursive);
  EXPECT_EQ(find_newest_whole(dir.path()).directory, whole);
  // Killed between the rename and the update of `latest`: the newer checkpoint is whole and counts.
  fs::remove(partial + "/shard-00000-of-00002.safetensors.tmp");
  fs::rename(partial, dir / "step-00000020");
  EXPECT_EQ(find_newest_whole(dir.path()).directory, dir / "step-00000020");
  EXPECT_EQ(read_small_file(dir / "latest"), "step-00000010\n");
  // Killed while pruning.
  fs::rename(whole, whole + ".deleting");
  make_directories(dir / "step-00000099.tmp");
  EXPECT_EQ(find_newest_whole(dir.path()).directory, dir / "step-00000020");
  ASSERT_EQ(save_model(model, {dir.path(), 30, 0}, 1, 1, 1), none(1));
  EXPECT_EQ(listing(dir.path()),
            (std::vector<std::string>{"latest", "step-00000020", "step-00000030"}));
}

TEST(ShardedCheckpoint, AFailureOfOneRankIsTheFailureOfAllAndLeavesNothing) {
  const ScratchDirectory dir;
  const auto model = fake_model();
  ASSERT_EQ(save_model(model, {dir.path(), 10, 0}, 1, 3, 1), none(3));
  const auto layout = random_layout(model, 1, 3, 1);
  SimulatedRanks ranks(3);
  const auto errors = ranks.run([&](const CheckpointRanks& r) {
    auto parts = layout[static_cast<size_t>(r.rank)].parts;
    // Rank 2 claims a range outside its box.
    if (r.rank == 2) parts[0].begin = parts[0].box.numel();
    save_checkpoint({dir.path(), 20, 0}, parts, {}, r);
  });
  for (const std::string& error : errors) {
    EXPECT_NE(error.find("rank 2: "), std::string::npos) << error;
  }
  EXPECT_EQ(listing(dir.path()), (std::vector<std::string>{"latest", "step-00000010"}));
  // Ranks that save the same elements are detected before anything is published.
  const auto twice = ranks.run([&](const CheckpointRanks& r) {
    save_checkpoint({dir.path(), 20, 0}, random_layout(model, 1, 1, 1)[0].parts, {}, r);
  });
  for (const std::string& error : twice) {
    EXPECT_NE(error.find("stored twice"), std::string::npos) << error;
  }
  EXPECT_EQ(listing(dir.path()), (std::vector<std::string>{"latest", "step-00000010"}));
}

TEST(ShardedCheckpoint, AFullDiskKeepsTheOldCheckpoint) {
  const ScratchDirectory dir;
  const SmallDisk disk(dir / "disk", 256 << 10);
  if (!disk.mounted()) GTEST_SKIP() << "mounting a tmpfs needs root";
  const std::string root = disk / "checkpoints";
  const auto model = fake_model();
  ASSERT_EQ(save_model(model, {root, 10, 0}, 1, 2, 1), none(2));
  // Detected in advance: the sum over ranks exceeds the free space.
  const TestTensor large(DType::kF32, Shape{100000});
  const CheckpointPart part{"param", "large", {100000}, {}, 0, *large};
  EXPECT_THROW(
      {
        try {
          save_checkpoint({root, 20, 0}, {part}, {});
        } catch (const InputError& error) {
          EXPECT_NE(std::string(error.what()).find("400000 more bytes"), std::string::npos)
              << error.what();
          throw;
        }
      },
      InputError);
  // Detected while writing: another program takes the space in between.
  SimulatedRanks ranks(2);
  const auto layout = random_layout(model, 1, 2, 1);
  std::string filler(static_cast<size_t>(free_bytes_at(root).value()) - 8192, 'x');
  const auto errors = ranks.run([&](const CheckpointRanks& r) {
    CheckpointRanks slow = r;
    slow.broadcast = [&](const std::string& value) {
      if (r.rank == 0 && !fs::exists(disk / "filler"))
        write_file_atomically(disk / "filler", filler);
      return r.broadcast(value);
    };
    save_checkpoint({root, 20, 0}, layout[static_cast<size_t>(r.rank)].parts, {}, slow);
  });
  for (const std::string& error : errors) {
    EXPECT_NE(error.find("space"), std::string::npos) << error;
  }
  EXPECT_EQ(listing(root), (std::vector<std::string>{"latest", "step-00000010"}));
  EXPECT_EQ(load_and_compare(model, root, 1, 1, 5), "");
  fs::remove(disk / "filler");
  EXPECT_EQ(save_model(model, {root, 20, 0}, 1, 2, 1), none(2));
}

// Tensors of the writer take the place of those that all share.
TEST(ShardedCheckpoint, FindsTheTensorsOfAWriter) {
  const ScratchDirectory dir;
  std::vector<FakeTensor> model = fake_model();
  for (FakeTensor& tensor : fake_model("other"))
    if (tensor.kind == kKindExpAvg && tensor.name == "embed.weight") {
      tensor.kind += ".b";
      model.push_back(std::move(tensor));
    }
  ASSERT_EQ(save_model(model, {dir.path(), 1, 0}, 1, 1, 1), none(1));
  const auto kind_of = [&](const std::string& variant, const char* kind, const char* name) {
    return CheckpointReader(CheckpointReader(dir.path()), variant).find(kind, name)->kind;
  };
  EXPECT_EQ(kind_of(".b", kKindExpAvg, "embed.weight"), "exp_avg.b");
  EXPECT_EQ(kind_of("", kKindExpAvg, "embed.weight"), "exp_avg");
  EXPECT_EQ(kind_of(".c", kKindExpAvg, "embed.weight"), "exp_avg");
  EXPECT_EQ(kind_of(".b", kKindExpAvg, "layers.0.scale"), "exp_avg");
  EXPECT_EQ(kind_of(".b", kKindParam, "embed.weight"), "param");
}

TEST(ShardedCheckpoint, WantsWhatTheConfigWants) {
  const ScratchDirectory dir;
  ASSERT_EQ(save_model(fake_model(), {dir.path(), 1, 0}, 1, 1, 1), none(1));
  const CheckpointReader reader(dir.path());
  EXPECT_NO_THROW(reader.require("param", "embed.weight", DType::kBF16, {33, 8}));
  EXPECT_THROW(reader.require("param", "embed.weight", DType::kF32, {33, 8}), InputError);
  EXPECT_THROW(reader.require("param", "embed.weight", DType::kBF16, {32, 8}), InputError);
  EXPECT_THROW(reader.require("param", "lm_head.weight", DType::kBF16, {33, 8}), InputError);
  EXPECT_THROW(CheckpointReader(dir / "step-00000002"), InputError);
  EXPECT_THROW(CheckpointReader("/proc/self/fd"), InputError);
  write_file_atomically(dir / "latest", "../../etc\n");
  EXPECT_THROW(CheckpointReader(dir.path()), InputError);
}

}  // namespace
}  // namespace trireme::test_sharded_checkpoint
