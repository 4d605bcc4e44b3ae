// Exports, imports and GGUF files that are killed at several points and repeated: no partial result
// looks complete, the final bytes equal those without an interruption, and complete parts are
// neither written nor read again. Work is counted in bytes.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/support/scratch_directory.h"
#include "tests/transformer/formats/hf_directory.h"
#include "training/run/run_directory.h"
#include "transformer/checkpoint/import_model.h"
#include "transformer/formats/gguf/gguf_model.h"
#include "transformer/formats/hf/hf_model.h"
#include "transformer/formats/hf/hf_writer.h"

namespace trireme::test::test_unfinished_copy {
namespace {

namespace fs = std::filesystem;

// About 8 MiB of float32 in both tables of a small llama.
HfFiles files_of_model() {
  HfFiles files("llama", DType::kF32);
  const int64_t vocabulary = 40'000;
  files.config()["vocab_size"] = vocabulary;
  for (const char* name : {"model.embed_tokens.weight", "lm_head.weight"}) {
    FileTensor& table = files.tensors.at(name);
    table.shape[0] = vocabulary;
    table.values.resize(static_cast<size_t>(vocabulary * table.shape[1]));
    for (size_t i = 0; i < table.values.size(); ++i)
      table.values[i] = static_cast<double>(i * 7919 % 1000) / 1000 + (name[0] == 'l' ? 2 : 0);
  }
  return files;
}

class CountedModel : public HfModel {
 public:
  using HfModel::HfModel;
  void read(const ModelConfig& config, const ModelParameter& parameter, const TensorBox& box,
            int64_t begin, const Tensor& destination) const override {
    bytes_read += destination.bytes();
    HfModel::read(config, parameter, box, begin, destination);
  }
  mutable int64_t bytes_read = 0;
};

struct Copied {
  int64_t bytes, kept;
};
// One way to write a model, and the file that makes it look complete.
struct Way {
  const char* name;
  Copied (*copy)(const ModelSource& source, const std::string& to, const CopyProgress& progress);
  bool (*looks_finished)(const std::string& to);
};

const Way kWays[] = {
    {"hf",
     [](const ModelSource& source, const std::string& to, const CopyProgress& progress) {
       const HfWritten w = write_hf_directory(source, to, {.progress = progress});
       return Copied{w.bytes, w.kept_bytes};
     },
     [](const std::string& to) {
       return is_hf_model(to) || fs::exists(to + "/model.safetensors");
     }},
    {"hf in shards",
     [](const ModelSource& source, const std::string& to, const CopyProgress& progress) {
       const HfWritten w =
           write_hf_directory(source, to, {.max_shard_bytes = 2'500'000, .progress = progress});
       return Copied{w.bytes, w.kept_bytes};
     },
     [](const std::string& to) {
       return is_hf_model(to) || fs::exists(to + "/model.safetensors.index.json");
     }},
    {"checkpoint",
     [](const ModelSource& source, const std::string& to, const CopyProgress& progress) {
       const SavedCheckpoint s = import_model(source, to, {.progress = progress});
       return Copied{s.bytes, s.kept};
     },
     [](const std::string& to) { return !find_newest_whole(to).directory.empty(); }},
    {"gguf",
     [](const ModelSource& source, const std::string& to, const CopyProgress& progress) {
       const GgufWritten w = write_gguf(source, to, {.type = "F16", .progress = progress});
       return Copied{w.bytes, w.kept};
     },
     [](const std::string& to) { return fs::exists(to); }},
};

// Runs a copy in a process that a signal ends once `share` of the bytes are written.
void copy_until(const Way& way, const std::string& from, const std::string& to, double share,
                int signal) {
  const pid_t child = ::fork();
  if (child == 0) {
    const HfModel source(from);
    way.copy(source, to, [&](int64_t done, int64_t total) {
      if (static_cast<double>(done) >= share * static_cast<double>(total))
        ::kill(::getpid(), signal);
    });
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == signal) << status;
}

// Every file below a path, with its content.
std::map<std::string, std::string> contents(const std::string& path) {
  if (!fs::is_directory(path)) return {{"", read_small_file(path)}};
  std::map<std::string, std::string> all;
  for (const auto& entry : fs::recursive_directory_iterator(path))
    if (entry.is_regular_file())
      all[fs::relative(entry.path(), path).string()] = read_small_file(entry.path().string());
  return all;
}

TEST(InterruptedCopies, GoOnFromAnyPointToTheSameBytes) {
  const ScratchDirectory dir;
  files_of_model().write(dir / "model");
  for (const Way& way : kWays) {
    const std::string once = concat(dir.path(), "/once ", way.name);
    const CountedModel all(dir / "model");
    way.copy(all, once, {});
    for (const double share : {0.0, 0.3, 0.6, 0.95})
      for (const int signal : {SIGKILL, SIGTERM, SIGINT}) {
        if (signal != SIGKILL && share != 0.6) continue;
        SCOPED_TRACE(concat(way.name, ": signal ", signal, " at ", share));
        const std::string to = dir / "copy";
        copy_until(way, dir / "model", to, share, signal);
        EXPECT_FALSE(way.looks_finished(to));
        const CountedModel source(dir / "model");
        const Copied again = way.copy(source, to, {});
        EXPECT_EQ(contents(to), contents(once));
        // Data is kept in units of a MiB; rows are read whole.
        const auto written = static_cast<double>(again.bytes);
        EXPECT_GE(static_cast<double>(again.kept), share * written - (2 << 20));
        const double read =
            static_cast<double>(source.bytes_read) / static_cast<double>(all.bytes_read);
        EXPECT_LE(read, 1 - static_cast<double>(again.kept) / written + 0.01);
        fs::remove_all(to);
      }
  }
}

// Killed repeatedly, as by an impatient job scheduler.
TEST(InterruptedCopies, EveryAttemptComesFurther) {
  const ScratchDirectory dir;
  files_of_model().write(dir / "model");
  for (const Way& way : kWays) {
    SCOPED_TRACE(way.name);
    const std::string once = concat(dir.path(), "/once ", way.name), to = dir / "copy";
    for (const double share : {0.25, 0.5, 0.75}) copy_until(way, dir / "model", to, share, SIGKILL);
    const HfModel source(dir / "model");
    const Copied last = way.copy(source, to, {});
    EXPECT_GT(last.kept, last.bytes / 2);
    way.copy(source, once, {});
    EXPECT_EQ(contents(to), contents(once));
    fs::remove_all(to);
  }
}

TEST(InterruptedCopies, AChangedSourceIsBegunAnewAndSaysSo) {
  for (const Way& way : kWays) {
    SCOPED_TRACE(way.name);
    const ScratchDirectory dir;
    HfFiles files = files_of_model();
    files.write(dir / "model");
    copy_until(way, dir / "model", dir / "copy", 0.6, SIGKILL);
    files.tensors.at("model.embed_tokens.weight").values[5] = 77;
    files.write(dir / "model");
    const HfModel source(dir / "model");
    ::testing::internal::CaptureStderr();
    const Copied copied = way.copy(source, dir / "copy", {});
    const std::string log = ::testing::internal::GetCapturedStderr();
    EXPECT_NE(log.find("starting over"), std::string::npos) << log;
    EXPECT_EQ(copied.kept, 0);
    way.copy(source, dir / "once", {});
    EXPECT_EQ(contents(dir / "copy"), contents(dir / "once"));
  }
}

TEST(InterruptedCopies, AnotherRequestIsRefused) {
  const ScratchDirectory dir;
  files_of_model().write(dir / "model");
  copy_until(kWays[2], dir / "model", dir / "copy", 0.6, SIGKILL);
  const auto before = contents(dir / "copy");
  const HfModel source(dir / "model");
  try {
    import_model(source, dir / "copy", {.dtype = DType::kBF16});
    FAIL() << "not refused";
  } catch (const InputError& error) {
    const std::string why = error.what();
    for (const char* part : {"unfinished copy of", "a checkpoint of the types that there are",
                             "bfloat16", "remove it"})
      EXPECT_NE(why.find(part), std::string::npos) << why;
  }
  EXPECT_EQ(contents(dir / "copy"), before);
}

}  // namespace
}  // namespace trireme::test::test_unfinished_copy
