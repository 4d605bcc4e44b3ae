// Log-likelihoods compared with the logits of HuggingFace's model, and the metrics of
// lm-evaluation-harness.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>

#include "engine/core/error.h"
#include "engine/io/safetensors.h"
#include "parallel/comm/world.h"
#include "tests/support/compare.h"
#include "tests/support/scratch_directory.h"
#include "tests/support/source_folder.h"
#include "training/eval/eval_task.h"
#include "training/eval/evaluate.h"
#include "transformer/formats/hf/hf_model.h"

namespace trireme::test::test_eval_task {
namespace {

const std::string kGolden = test::source_folder() + "/tests/golden/peft/";

// Documents with prefixes of the golden sequence, and the log-likelihoods of their learned tokens
// from its logits.
struct Known {
  std::vector<Example> documents;
  std::vector<double> log_likelihoods;
};

Known known_documents() {
  const SafetensorsReader file(kGolden + "expected.safetensors");
  const std::vector<double> ids = to_doubles(file.tensor("input_ids")),
                            logits = to_doubles(file.tensor("plain"));
  const size_t vocab = logits.size() / ids.size();
  Known known;
  for (const auto& [size, from] : std::vector<std::pair<size_t, size_t>>{
           {10, 4}, {23, 1}, {2, 1}, {15, 14}, {20, 3}, {7, 2}, {11, 10}}) {
    Example& e = known.documents.emplace_back();
    e.tokens.assign(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(size));
    double sum = 0;
    for (size_t i = 0; i < size; ++i) {
      e.loss_mask.push_back(i >= from ? 1 : 0);
      if (i < from) continue;
      const double* row = logits.data() + (i - 1) * vocab;
      double total = 0;
      for (size_t v = 0; v < vocab; ++v) total += std::exp(row[v]);
      sum += row[static_cast<size_t>(e.tokens[i])] - std::log(total);
    }
    known.log_likelihoods.push_back(sum);
  }
  return known;
}

TEST(LogLikelihoods, AreThoseOfTheLogitsInAnyLayout) {
  const Known known = known_documents();
  const HfModel base(kGolden + "base");
  const auto set = std::make_shared<const ExampleSet>(known.documents);
  for (const ParallelSizes& sizes :
       {ParallelSizes{}, ParallelSizes{.tp = 2, .sequence_parallel = true}, ParallelSizes{.pp = 2},
        ParallelSizes{.cp = 2}, ParallelSizes{.dp = 3}}) {
    SCOPED_TRACE(describe(sizes));
    run_threads(
        world_size(sizes),
        [&](Communicator& world) {
          const Groups groups(world, sizes, 1);
          Ctx ctx(1, "test");
          const Layout& layout = groups.layout;
          Model model(
              base.config(), DType::kF32, layout,
              chunks_of(split_layers(base.config().num_layers, layout.pp.size, {}), layout.pp));
          ParameterStore store(model.parameters(), DType::kF32);
          store.allocate(ctx, false);
          base.load(ctx, model, store);
          model.reserve_positions(ctx, 31);
          Evaluator evaluator(model, store, groups, ctx, 2, 31);
          const ArenaPlan plan = evaluator.plan();
          ctx.arena.reserve(plan.capacity);
          std::vector<int64_t> all(known.documents.size());
          std::iota(all.begin(), all.end(), int64_t{0});
          ExampleSource source(set, all, {.sequence_length = 31});
          const std::vector<double> got = evaluator.log_likelihoods(*set, source, plan);
          ASSERT_EQ(got.size(), known.log_likelihoods.size());
          for (size_t d = 0; d < got.size(); ++d)
            EXPECT_NEAR(got[d], known.log_likelihoods[d], 1e-4 * std::abs(known.log_likelihoods[d]))
                << d;
        },
        {});
  }
}

struct TaskFile {
  ScratchDirectory dir;
  std::unique_ptr<Tokenizer> tokenizer = make_byte_tokenizer();
  EvalTask open(const std::string& lines, int64_t length, const std::string& delimiter = " ") {
    std::ofstream(dir / "task.jsonl") << lines;
    return EvalTask(dir / "task.jsonl", *tokenizer,
                    {.sequence_length = length, .delimiter = delimiter});
  }
};

// "context|continuation", with '$' for the beginning-of-sequence token.
std::string shown(const Example& e) {
  std::string out;
  bool learned = false;
  for (size_t i = 0; i < e.tokens.size(); ++i) {
    if (e.loss_mask[i] != 0 && !learned) out += '|';
    learned = e.loss_mask[i] != 0;
    out += e.tokens[i] == 256 ? '$' : static_cast<char>(e.tokens[i]);
  }
  return out;
}

std::vector<std::string> shown(const EvalTask& task) {
  std::vector<std::string> out;
  for (const Example& e : task.documents()) out.push_back(shown(e));
  return out;
}

using Strings = std::vector<std::string>;

TEST(EvalTask, ContextsAndContinuations) {
  TaskFile file;
  EXPECT_EQ(shown(file.open(R"({"context": "ab", "choices": ["c", "de"], "label": 1})", 20)),
            (Strings{"ab| c", "ab| de"}));
  // Spaces at the end of the context move to the continuation.
  EXPECT_EQ(
      shown(file.open(R"({"context": "ab \n", "choices": ["c", "d"], "label": "d"})", 20, "")),
      (Strings{"ab| \nc", "ab| \nd"}));
  EXPECT_EQ(shown(file.open(R"({"context": "", "choices": ["c", "d"], "label": 0})", 20)),
            (Strings{"$| c", "$| d"}));
  // Keeps the end of a long context, and of a long continuation.
  EXPECT_EQ(shown(file.open(R"({"context": "abcdefgh", "choices": ["xy", "z"], "label": 0})", 4)),
            (Strings{"gh| xy", "fgh| z"}));
}

TEST(EvalTask, WhiteSpaceIsUnicodesAndCutContextsAreCounted) {
  TaskFile file;
  // No-break space, ideographic space, next line, file separator: Python's rstrip() removes all.
  for (const std::string space : {"\xC2\xA0", "\xE3\x80\x80", "\xC2\x85", "\\u001c"}) {
    const EvalTask task = file.open(
        concat(R"({"context": "ab)", space, R"(", "choices": ["c", "d"], "label": 0})"), 20, "");
    const Example& first = task.documents()[0];
    EXPECT_EQ(first.loss_mask[1], 0) << space;
    EXPECT_EQ(first.loss_mask[2], 1) << space;
  }
  // Bytes that end like such a character are not whitespace.
  const EvalTask letter =
      file.open("{\"context\": \"\xE4\xBD\xA0\", \"choices\": [\"c\", \"d\"], \"label\": 0}", 20);
  EXPECT_EQ(letter.documents()[0].loss_mask, (std::vector<uint8_t>{0, 0, 0, 1, 1}));
  EXPECT_EQ(letter.truncated(), 0);
  EXPECT_EQ(letter.longest(), 4);
  const EvalTask cut =
      file.open(R"({"context": "abcdef", "choices": ["xyz", "z"], "label": 0})", 8);
  EXPECT_EQ(cut.truncated(), 1);
  EXPECT_EQ(cut.longest(), 8);
}

TEST(EvalTask, ContextsMayBeginWithTheBeginningOfText) {
  TaskFile file;
  std::ofstream(file.dir / "task.jsonl")
      << R"({"context": "ab", "choices": ["c", "d"], "label": 1})"
      << "\n"
      << R"({"context": "", "choices": ["c", "d"], "label": 1})"
      << "\n"
      << R"({"text": "ab"})";
  const EvalTask task(file.dir / "task.jsonl", *file.tokenizer,
                      {.sequence_length = 20, .add_bos = true});
  EXPECT_EQ(shown(task), (Strings{"$ab| c", "$ab| d", "$| c", "$| d", "$|ab"}));
}

// The template writes the context; its end, including white space, is as in the harness. '$' is
// markup written by the template.
TEST(EvalTask, ContextsWrittenByAChatTemplate) {
  TaskFile file;
  const ChatTemplate chat(
      "{{ bos_token }}{% for m in messages %}{{ m.role[0] }}:{{ m.content }};{% endfor %}"
      "{% if add_generation_prompt %}a:\n{% endif %}");
  const ConversationWriter writer(chat, *file.tokenizer);
  const auto asked = [&](const std::string& context, const char* choice, bool add_bos = false) {
    std::ofstream(file.dir / "task.jsonl") << R"({"context": )" << context << R"(, "choices": [")"
                                           << choice << R"(", "no"], "label": 1})";
    return shown(
        EvalTask(file.dir / "task.jsonl", *file.tokenizer,
                 {.sequence_length = 60, .delimiter = "", .add_bos = add_bos, .chat = &writer}))[0];
  };
  EXPECT_EQ(asked(R"("two ")", "yes"), "$u:two ;a:|\nyes");
  EXPECT_EQ(asked(R"("")", "yes"), "$u:;a:|\nyes");
  EXPECT_EQ(asked(R"("two")", "yes", true), "$u:two;a:|\nyes");  // the response has already started
  EXPECT_EQ(asked(R"([{"role": "system", "content": "be"}, {"role": "user", "content": "1"},)"
                  R"({"role": "assistant", "content": "2"}, {"role": "user", "content": "3"}])",
                  "4"),
            "$s:be;u:1;a:2;u:3;a:|\n4");
  // Markup inside a context is text.
  EXPECT_EQ(asked(R"("<|endoftext|>")", "<|endoftext|>"), "$u:<|endoftext|>;a:|\n<|endoftext|>");
  for (const char* context :
       {"[]", "7", R"([{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}])"})
    EXPECT_THROW(asked(context, "yes"), InputError) << context;
  // A plain text is not a conversation.
  std::ofstream(file.dir / "task.jsonl") << R"({"text": "ab"})";
  EXPECT_EQ(shown(EvalTask(file.dir / "task.jsonl", *file.tokenizer,
                           {.sequence_length = 20, .chat = &writer})),
            (Strings{"$|ab"}));
}

TEST(EvalTask, WindowsOfLongTexts) {
  TaskFile file;
  EXPECT_EQ(shown(file.open(R"({"text": "abcdefghijk"})", 4)),
            (Strings{"$|abcd", "d|efgh", "gh|ijk"}));
  EXPECT_EQ(shown(file.open(R"({"text": "abcd"})", 4)), (Strings{"$|abcd"}));
  EXPECT_EQ(shown(file.open(R"({"text": "abcde"})", 4)), (Strings{"$|abcd", "abcd|e"}));
}

TEST(EvalTask, Metrics) {
  TaskFile file;
  const EvalTask task = file.open(
      "{\"context\": \"a\", \"choices\": [\"b\", \"cc\"], \"label\": 1}\n"
      "{\"context\": \"a\", \"choices\": [\"b\", \"\xC3\xA4\xC3\xA4\xC3\xA4\"], \"label\": 0}\n"
      "{\"context\": \"a\", \"choices\": [\"b\", \"c\"], \"label\": 0}\n"
      "{\"text\": \" one  two\\u00a0\"}\n",
      20);
  // acc: no, yes, yes (the first of equals); acc_norm: yes (-1.5 per character), no, yes; acc_bytes
  // likewise yes, no.
  const std::vector<TaskMetric> got = task.metrics({-2, -3, -2, -5.4, -1, -1, -14});
  ASSERT_EQ(got.size(), 6U);
  EXPECT_EQ(got[0].name, "acc");
  EXPECT_DOUBLE_EQ(got[0].value, 2.0 / 3);
  EXPECT_DOUBLE_EQ(*got[0].standard_error, std::sqrt((4 + 1 + 1) / 9.0 / 2 / 3));
  EXPECT_EQ(got[1].name, "acc_norm");
  EXPECT_DOUBLE_EQ(got[1].value, 2.0 / 3);
  EXPECT_EQ(got[2].name, "acc_bytes");
  EXPECT_DOUBLE_EQ(got[2].value, 2.0 / 3);
  EXPECT_EQ(got[3].name, "word_perplexity");  // four pieces, the first and the last empty
  EXPECT_DOUBLE_EQ(got[3].value, std::exp(14.0 / 4));
  EXPECT_DOUBLE_EQ(got[4].value, std::exp(14.0 / 11));
  EXPECT_DOUBLE_EQ(got[5].value, 14.0 / 11 / std::log(2.0));
}

TEST(EvalTask, SaysWhatIsWrong) {
  TaskFile file;
  for (const char* line :
       {R"({"context": "a"})", R"({"context": "a", "choices": ["b"], "label": 0})",
        R"({"context": "a", "choices": ["b", "c"], "label": 2})",
        R"({"context": "a", "choices": ["b", "c"], "label": "d"})", R"([1])",
        R"({"context": [{"role": "user", "content": "a"}], "choices": ["b", "c"], "label": 0})"})
    EXPECT_THROW(file.open(line, 8), InputError) << line;
  try {
    file.open("{\"text\": \"a\"}\n{\"context\": 1}\n", 8);
    FAIL();
  } catch (const InputError& e) {
    EXPECT_NE(std::string(e.what()).find("task.jsonl:2: "), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace trireme::test::test_eval_task
