// Instruction orders, refused sizes, and schedule files.
#include <gtest/gtest.h>

#include <fstream>

#include "engine/core/error.h"
#include "parallel/pipeline/check_schedule.h"
#include "parallel/pipeline/make_schedule.h"
#include "parallel/pipeline/schedule.h"
#include "parallel/pipeline/schedule_file.h"
#include "tests/support/scratch_directory.h"

namespace trireme::test_schedule {
namespace {

// F0 F1 B0 ..., with .chunk where there are several chunks.
std::string words(const Schedule& schedule, int rank) {
  std::string out;
  for (const Instruction& in : schedule.ranks[static_cast<size_t>(rank)]) {
    out += concat(out.empty() ? "" : " ", "FBIW"[static_cast<size_t>(in.kind)], in.micro_batch);
    if (schedule.chunks > 1) out += concat(".", in.chunk);
  }
  return out;
}

std::string refusal(const std::function<void()>& f) {
  try {
    f();
  } catch (const InputError& e) {
    return e.what();
  }
  return "accepted";
}

TEST(Schedule, OrdersAreTheLiteratures) {
  const Schedule gpipe = make_schedule(ScheduleKind::kGPipe, 2, 1, 3);
  EXPECT_EQ(words(gpipe, 0), "F0 F1 F2 B0 B1 B2");
  EXPECT_EQ(words(gpipe, 1), words(gpipe, 0));
  const Schedule one = make_schedule(ScheduleKind::k1F1B, 3, 1, 4);
  EXPECT_EQ(words(one, 0), "F0 F1 F2 B0 F3 B1 B2 B3");
  EXPECT_EQ(words(one, 2), "F0 B0 F1 B1 F2 B2 F3 B3");
  const Schedule interleaved = make_schedule(ScheduleKind::kInterleaved, 2, 2, 4);
  EXPECT_EQ(words(interleaved, 0),
            "F0.0 F1.0 F0.1 F1.1 F2.0 B0.1 F3.0 B1.1 F2.1 B0.0 F3.1 B1.0 B2.1 B3.1 B2.0 B3.0");
  EXPECT_EQ(words(interleaved, 1),
            "F0.0 F1.0 F0.1 B0.1 F1.1 B1.1 F2.0 B0.0 F3.0 B1.0 F2.1 B2.1 F3.1 B3.1 B2.0 B3.0");
  const Schedule h1 = make_schedule(ScheduleKind::kZbH1, 2, 1, 4);
  EXPECT_EQ(words(h1, 0), "F0 F1 I0 W0 F2 I1 W1 F3 I2 W2 I3 W3");
  EXPECT_EQ(words(h1, 1), "F0 I0 F1 I1 W0 F2 I2 W1 F3 I3 W2 W3");
  const Schedule h2 = make_schedule(ScheduleKind::kZbH2, 2, 1, 4);
  EXPECT_EQ(words(h2, 0), "F0 F1 F2 I0 W0 F3 I1 W1 I2 W2 I3 W3");
  EXPECT_EQ(words(h2, 1), "F0 I0 F1 I1 F2 I2 W0 F3 I3 W1 W2 W3");
  const Schedule forward = make_schedule(ScheduleKind::kForwardOnly, 2, 2, 3);
  EXPECT_EQ(words(forward, 1), "F0.0 F1.0 F0.1 F1.1 F2.0 F2.1");
}

void expect_legal(ScheduleKind kind, int stages, int chunks, int micro_batches) {
  const Schedule schedule = make_schedule(kind, stages, chunks, micro_batches);
  check_schedule(schedule, concat(schedule.name, " ", stages, " ", chunks, " ", micro_batches));
  // Weight gradients are summed in the order of the micro-batches: the same bits in every schedule.
  for (const auto& order : schedule.ranks) {
    std::vector<int> last(static_cast<size_t>(chunks), -1);
    for (const Instruction& in : order) {
      if (in.kind != InstructionKind::kBackward && in.kind != InstructionKind::kBackwardWeight)
        continue;
      int& previous = last[static_cast<size_t>(in.chunk)];
      EXPECT_EQ(in.micro_batch, previous + 1);
      previous = in.micro_batch;
    }
  }
}

TEST(Schedule, EverySizeIsLegal) {
  for (int p = 1; p <= 6; ++p)
    for (int m = 1; m <= 13; ++m) {
      for (const ScheduleKind kind :
           {ScheduleKind::kGPipe, ScheduleKind::k1F1B, ScheduleKind::kZbH1, ScheduleKind::kZbH2})
        expect_legal(kind, p, 1, m);
      for (int v = 1; v <= 3; ++v) {
        expect_legal(ScheduleKind::kForwardOnly, p, v, m);
        if (m % p == 0) expect_legal(ScheduleKind::kInterleaved, p, v, m);
      }
    }
}

TEST(Schedule, RefusalsNameTheKeys) {
  const auto make = [](ScheduleKind kind, int p, int v, int m) {
    return refusal([&] { make_schedule(kind, p, v, m); });
  };
  EXPECT_EQ(make(ScheduleKind::kInterleaved, 4, 2, 6),
            "parallel.pipeline_schedule \"interleaved_1f1b\" needs gradient_accumulation_steps (6) "
            "to be a multiple of parallel.pipeline_model_parallel_size (4); change one of the two, "
            "or use \"1f1b\" and parallel.virtual_pipeline_stages 1");
  EXPECT_TRUE(make(ScheduleKind::kInterleaved, 4, 1, 6).ends_with("or use \"1f1b\""));
  EXPECT_EQ(make(ScheduleKind::kZbH1, 4, 2, 8),
            "parallel.pipeline_schedule \"zb_h1\" has one chunk of layers per rank, but "
            "parallel.virtual_pipeline_stages is 2; use \"interleaved_1f1b\", or "
            "parallel.virtual_pipeline_stages 1");
  EXPECT_EQ(make(ScheduleKind::kGPipe, 4, 1, 0),
            "gradient_accumulation_steps is 0; it must be at least 1");
  EXPECT_NE(make(ScheduleKind::kGPipe, 1 << 20, 1, 1 << 20).find("largest schedule"),
            std::string::npos);
  EXPECT_NE(refusal([] { load_schedule("zb-h1", 2, 1, 4); }).find("zb_h1, zb_h2, and the path"),
            std::string::npos);
}

TEST(Schedule, FilesReadBack) {
  const test::ScratchDirectory directory;
  for (const ScheduleKind kind : {ScheduleKind::kZbH2, ScheduleKind::kInterleaved}) {
    const int chunks = kind == ScheduleKind::kInterleaved ? 3 : 1;
    const Schedule written = make_schedule(kind, 2, chunks, 4);
    const std::string path = directory.path() + "/schedule.json";
    std::ofstream(path) << schedule_json(written);
    const Schedule read = load_schedule(path, 2, chunks, 4);
    EXPECT_EQ(read.kind, ScheduleKind::kCustom);
    EXPECT_EQ(read.name, path);
    EXPECT_TRUE(read.trains());
    EXPECT_EQ(read.chunks, chunks);
    EXPECT_EQ(read.ranks, written.ranks);
    EXPECT_EQ(refusal([&] { load_schedule(path, 2, chunks, 8); }),
              concat(path,
                     ": \"micro_batches\" is 4, but gradient_accumulation_steps is 8; change "
                     "one of the two"));
  }
  EXPECT_NE(
      refusal([&] { load_schedule(directory.path() + "/none.json", 2, 1, 4); }).find("none.json"),
      std::string::npos);
}

// Refusal of a file with two stages, one micro-batch and these members.
std::string file_refusal(const std::string& members) {
  return refusal([&] { parse_schedule("{" + members + "}", "f"); });
}
std::string ranks_refusal(const std::string& ranks) {
  return file_refusal(
      concat(R"("version": 1, "stages": 2, "micro_batches": 2, "ranks": [)", ranks, "]"));
}

TEST(Schedule, FilesAreCheckedMemberByMember) {
  EXPECT_EQ(file_refusal(""), "f: \"version\" is missing; expected 1");
  EXPECT_EQ(file_refusal(R"("version": 2)"), "f: \"version\" is 2; this program reads version 1");
  EXPECT_EQ(file_refusal(R"("version": 1, "stages": 0)"),
            "f: \"stages\" is 0, expected 1 to 4194304");
  EXPECT_EQ(file_refusal(R"("version": 1, "stages": 2)"), "f: \"micro_batches\" is missing");
  EXPECT_NE(file_refusal(R"("version": 1, "stages": -2)").find("\"stages\" is -2, not a whole"),
            std::string::npos);
  EXPECT_NE(file_refusal(R"("version": 1, "virtual": 2)").find("unknown member \"virtual\""),
            std::string::npos);
  EXPECT_NE(file_refusal(R"("version": 1, "version": 1)").find("twice"), std::string::npos);
  EXPECT_NE(file_refusal(R"("version": 1, "comment": [[[[[1]]]]])").find("nested"),
            std::string::npos);
  EXPECT_EQ(file_refusal(
                R"("version": 1, "stages": 4194304, "chunks": 4194304, "micro_batches": 4194304)"),
            "f: stages x chunks x micro_batches is more than 4194304");
  EXPECT_NE(refusal([] { parse_schedule("[", "f"); }).find("f: not valid JSON"), std::string::npos);
  EXPECT_EQ(refusal([] { parse_schedule("[]", "f"); }), "f: expected a JSON object");
  EXPECT_EQ(ranks_refusal(R"(["F0"])"), "f: \"ranks\" has 1 lists for 2 stages");
  EXPECT_EQ(ranks_refusal(R"(7, 8)"), "f: rank 0 is not a list of instructions");
}

TEST(Schedule, FilesAreCheckedInstructionByInstruction) {
  const std::string good = R"(["F0", "F1", "B0", "B1"])";
  EXPECT_EQ(ranks_refusal(concat(good, ",", good)), "accepted");
  for (const char* word : {"\"X0\"", "\"\"", "\"F\"", "\"F-1\"", "\"F0.\"", "\"F0.0.0\"", "\"F0 \"",
                           "\"F99999999999\"", "3", "\"F+1\""})
    EXPECT_NE(ranks_refusal(concat("[", word, "],", good)).find("is not an instruction"),
              std::string::npos)
        << word;
  const auto first = [&](const std::string& list) {
    return ranks_refusal(concat("[", list, "], ", good));
  };
  EXPECT_EQ(first(R"("F0", "F2", "B0", "B1")"),
            "f: rank 0, instruction 1 (forward of chunk 0, micro-batch 2): expected a micro-batch "
            "from 0 to 1");
  EXPECT_EQ(
      first(R"("F0", "F1.1")"),
      "f: rank 0, instruction 1 (forward of chunk 1, micro-batch 1): expected a chunk from 0 to 0");
  EXPECT_EQ(first(R"("F0", "F0")"),
            "f: rank 0, instruction 1 (forward of chunk 0, micro-batch 0): it is a duplicate");
  EXPECT_EQ(
      first(R"("F0", "B0", "W0")"),
      "f: rank 0, instruction 2 (backward_weight of chunk 0, micro-batch 0): it is a duplicate");
  EXPECT_EQ(
      first(R"("B0", "F0")"),
      "f: rank 0, instruction 0 (backward of chunk 0, micro-batch 0): its forward comes later");
  EXPECT_EQ(first(R"("F0", "W0", "I0")"),
            "f: rank 0, instruction 1 (backward_weight of chunk 0, micro-batch 0): its "
            "backward_input comes later");
  EXPECT_EQ(first(R"("F0", "B0")"), "f: rank 0 never runs forward of chunk 0, micro-batch 1");
  EXPECT_EQ(first(R"("F0", "B0", "F1")"),
            "f: rank 0 never runs backward of chunk 0, micro-batch 1");
  EXPECT_EQ(first(R"("F0", "B0", "F1", "I1")"),
            "f: rank 0 never runs backward_weight of chunk 0, micro-batch 1");
}

TEST(Schedule, FilesWhoseRanksWaitForEverAreRefused) {
  // Rank 0 needs the gradient of 0 before it sends 1; rank 1 needs 1 first.
  EXPECT_EQ(ranks_refusal(R"(["F0", "B0", "F1", "B1"], ["F1", "B1", "F0", "B0"])"),
            "f: the ranks wait for each other forever (rank 0 at instruction 1, backward of chunk "
            "0, micro-batch 0; rank 1 at instruction 0, forward of chunk 0, micro-batch 1)");
}

}  // namespace
}  // namespace trireme::test_schedule
