// Each allocation of a reader fails once, alone or with all later ones: the reader refuses, and the
// grammar keeps working for others.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <new>
#include <thread>

#include "serving/structured/mask_worker.h"
#include "tests/serving/structured/vocabulary.h"

namespace {

// Remaining allocations of this thread until one fails; negative: none fails.
thread_local int64_t allocations_left = -1;
thread_local bool all_that_follow = false, has_failed = false;

bool fails() {
  if (has_failed && all_that_follow) return true;
  if (allocations_left < 0 || allocations_left-- > 0) return false;
  return has_failed = true;
}

// During its lifetime the n-th allocation fails.
struct WantOfMemory {
  WantOfMemory(int64_t n, bool lasts) {
    has_failed = false;
    all_that_follow = lasts;
    allocations_left = n;
  }
  ~WantOfMemory() {
    allocations_left = -1;
    all_that_follow = false;
  }
  WantOfMemory(const WantOfMemory&) = delete;
  WantOfMemory& operator=(const WantOfMemory&) = delete;
};

}  // namespace

// Not inline: a compiler would see memory of malloc() where it expects that of `new`.
[[gnu::noinline]] void* operator new(size_t bytes) {
  void* const memory = fails() ? nullptr : std::malloc(bytes != 0 ? bytes : 1);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace trireme::test_want_of_memory {
namespace {

using namespace test;

constexpr const char* kGrammar =
    "root ::= \"{\" item (\",\" item){0,3} \"}\"\nitem ::= root | [a-z]{1,40} | \"x\" root \"y\"";
constexpr std::string_view kText = "{ab,{x{{c,d},e}y,fgh},{i,{j}}}";

int32_t id_of(char c) { return 1 + static_cast<uint8_t>(c); }

std::shared_ptr<const CompiledGrammar> make_grammar(std::shared_ptr<MaskWorker> worker = {}) {
  return CompiledGrammar::compile({GrammarSource::Kind::kGrammar, kGrammar}, trie_of(byte_tokens()),
                                  {}, {.worker = worker});
}

using Masks = std::vector<std::vector<uint32_t>>;

// Masks before each character of the text, up to where the reader refuses.
Masks masks_of(RuleReader& reader) {
  Masks masks;
  for (const char c : kText) {
    if (reader.state() != RuleReader::State::kOpen) break;
    masks.emplace_back(reader.mask().begin(), reader.mask().end());
    reader.accept(id_of(c));
  }
  return masks;
}

// The same, with the n-th allocation within accept() failing. Returns whether it failed.
bool fails_at(RuleReader& reader, int64_t n, bool lasts, Masks& masks) {
  for (const char c : kText) {
    if (reader.state() != RuleReader::State::kOpen) break;
    masks.emplace_back(reader.mask().begin(), reader.mask().end());
    const WantOfMemory want(n, lasts);
    reader.accept(id_of(c));
    n = allocations_left;
    if (has_failed) return true;
  }
  return false;
}

void expect_begins_as(const Masks& masks, const Masks& golden) {
  ASSERT_LE(masks.size(), golden.size());
  for (size_t i = 0; i < masks.size(); ++i) EXPECT_EQ(masks[i], golden[i]) << i;
}

Masks all_masks() { return masks_of(*make_grammar()->begin({kEnd}, kManyTokens)); }

// lasts: later allocations fail, too.
class Reader : public testing::TestWithParam<bool> {};

TEST_P(Reader, RefusesAndNoOtherDoes) {
  const Masks golden = all_masks();
  ASSERT_EQ(golden.size(), kText.size());
  int64_t failures = 0;
  for (;; ++failures) {
    const auto grammar = make_grammar();
    const auto reader = grammar->begin({kEnd}, kManyTokens);
    Masks masks;
    if (!fails_at(*reader, failures, GetParam(), masks)) break;
    expect_begins_as(masks, golden);
    EXPECT_EQ(reader->state(), RuleReader::State::kRefused) << failures;
    EXPECT_EQ(masks_of(*grammar->begin({kEnd}, kManyTokens)), golden) << failures;
  }
  EXPECT_GT(failures, 100);
}

// With a pace: where an allocation fails on the reader's thread, the worker computes the mask.
TEST_P(Reader, LeavesItsMaskToTheWorker) {
  const Masks golden = all_masks();
  const auto worker = std::make_shared<MaskWorker>();
  const auto pace = std::make_shared<MaskPace>([] {});
  int64_t failures = 0, refused = 0;
  for (;; ++failures) {
    const auto grammar = make_grammar(worker);
    pace->left = int64_t{1} << 40;
    const auto reader = grammar->begin({kEnd}, kManyTokens, pace);
    Masks masks;
    if (!fails_at(*reader, failures, GetParam(), masks)) break;
    while (reader->state() == RuleReader::State::kPending) std::this_thread::yield();
    expect_begins_as(masks, golden);
    if (reader->state() == RuleReader::State::kRefused) {
      ++refused;
    } else if (masks.size() < golden.size()) {
      ASSERT_EQ(reader->state(), RuleReader::State::kOpen) << failures;
      EXPECT_TRUE(std::ranges::equal(reader->mask(), golden[masks.size()])) << failures;
    } else {
      EXPECT_EQ(reader->state(), RuleReader::State::kEnded) << failures;
    }
    EXPECT_EQ(masks_of(*grammar->begin({kEnd}, kManyTokens)), golden) << failures;
  }
  EXPECT_GT(failures, 100);
  if (GetParam())
    EXPECT_EQ(refused, failures);
  else
    EXPECT_LT(refused, failures / 2);
}

TEST_P(Reader, LooksLessFarAhead) {
  std::vector<int32_t> ids;
  for (const char c : kText) ids.push_back(id_of(c));
  std::vector<uint32_t> golden;
  ASSERT_EQ(make_grammar()->begin({kEnd}, kManyTokens)->look_ahead(ids, golden), ids.size() - 1);
  const size_t words = golden.size() / (ids.size() - 1);
  for (int64_t failures = 0;; ++failures) {
    const auto grammar = make_grammar();
    const auto reader = grammar->begin({kEnd}, kManyTokens);
    std::vector<uint32_t> masks, again;
    const size_t count = [&] {
      const WantOfMemory want(failures, GetParam());
      return reader->look_ahead(ids, masks);
    }();
    if (!has_failed) break;
    ASSERT_EQ(masks.size(), count * words);
    EXPECT_TRUE(std::ranges::equal(masks, std::span(golden).first(masks.size())));
    EXPECT_EQ(reader->look_ahead(ids, again), ids.size() - 1);
    EXPECT_EQ(again, golden);
  }
}

INSTANTIATE_TEST_SUITE_P(WantOfMemory, Reader, testing::Bool(), [](const auto& made) {
  return made.param ? "AllThatFollow" : "OneAllocation";
});

}  // namespace
}  // namespace trireme::test_want_of_memory
