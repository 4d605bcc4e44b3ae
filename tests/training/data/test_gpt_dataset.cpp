// Split and sample order of a data set, each compared with an independent implementation.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <random>

#include "engine/core/error.h"
#include "engine/io/token_file.h"
#include "tests/support/scratch_directory.h"
#include "training/data/gpt_dataset.h"
#include "training/data/shuffle.h"

namespace trireme::test_gpt_dataset {
namespace {

using test::ScratchDirectory;
using Ints = std::vector<int32_t>;

TEST(Split, DividesSequencesAsMegatron) {
  const auto bounds = [](const std::string& split, int64_t n) {
    const auto r = split_sequences(split, n);
    EXPECT_EQ(r[0].begin, 0);
    EXPECT_EQ(r[0].end, r[1].begin);
    EXPECT_EQ(r[1].end, r[2].begin);
    return std::vector<int64_t>{r[0].end, r[1].end, r[2].end};
  };
  using Bounds = std::vector<int64_t>;
  EXPECT_EQ(bounds("969,30,1", 1000), (Bounds{969, 999, 1000}));
  EXPECT_EQ(bounds("969, 30, 1", 17), (Bounds{16, 17, 17}));
  EXPECT_EQ(bounds("90,10", 10), (Bounds{9, 10, 10}));
  EXPECT_EQ(bounds("1", 7), (Bounds{7, 7, 7}));
  EXPECT_EQ(bounds("50,50,0", 5), (Bounds{2, 5, 5}));  // 2.5 rounds to even
  EXPECT_EQ(bounds("50,50,0", 7), (Bounds{4, 7, 7}));  // 3.5 too
  EXPECT_EQ(bounds("0,0,1", 7), (Bounds{0, 0, 7}));
  for (const std::string bad : {"", "a", "0,0,0", "1,2,3,4", "-1,2", "1.2.3,1", "."}) {
    EXPECT_THROW(split_sequences(bad, 10), InputError) << bad;
  }
}

// Random sequences as a token file; token t of the whole file is t, so that a sample shows its
// origin.
std::shared_ptr<const TokenFile> make_file(const std::string& prefix, const Ints& lengths) {
  TokenFileWriter writer(prefix, TokenType::kI32);
  int32_t next = 0;
  for (const int32_t length : lengths) {
    Ints tokens(static_cast<size_t>(length));
    std::iota(tokens.begin(), tokens.end(), next);
    next += length;
    writer.add_document(tokens);
  }
  writer.commit();
  return std::make_shared<TokenFile>(prefix);
}

// Megatron's procedure step by step: counts epochs one by one, stores indices, and finds each
// sample's start by walking through the documents from the previous sample.
class LiteralDataset {
 public:
  LiteralDataset(const Ints& lengths, SequenceRange range, int64_t num_samples, int64_t S,
                 uint32_t seed)
      : lengths_(lengths), S_(S) {
    int64_t per_epoch = 0;
    for (int64_t i = range.begin; i < range.end; ++i) per_epoch += lengths[static_cast<size_t>(i)];
    int64_t epochs = 1;
    while (epochs * per_epoch < num_samples * S + 1) ++epochs;
    const int64_t total = (epochs * per_epoch - 1) / S;
    const int64_t before_last = ((epochs - 1) * per_epoch - 1) / S;
    const int64_t one_epoch = (per_epoch - 1) / S;
    apart =
        epochs > 1 && num_samples - before_last < static_cast<int64_t>(0.80 * double(one_epoch));
    NumpyRandomState random(seed);
    const auto add_epochs = [&](int64_t count) {
      Ints ids;
      for (int64_t e = 0; e < count; ++e) {
        for (int64_t i = range.begin; i < range.end; ++i) ids.push_back(static_cast<int32_t>(i));
      }
      random.shuffle(std::span<int32_t>(ids));
      documents_.insert(documents_.end(), ids.begin(), ids.end());
    };
    add_epochs(apart ? epochs - 1 : epochs);
    if (apart) add_epochs(1);
    const auto add_samples = [&](int64_t begin, int64_t end) {
      std::vector<uint32_t> ids;
      for (int64_t i = begin; i < end; ++i) ids.push_back(static_cast<uint32_t>(i));
      random.shuffle(std::span<uint32_t>(ids));
      order_.insert(order_.end(), ids.begin(), ids.end());
    };
    add_samples(0, apart ? before_last : total);
    if (apart) add_samples(before_last, total);
  }

  size_t size() const { return order_.size(); }
  bool apart = false;  // the last epoch is shuffled separately

  Ints sample(size_t index) const {
    size_t slot = 0;
    int32_t offset = 0;
    const auto step = [&](Ints* out) {  // one token further
      while (offset == length(slot)) ++slot, offset = 0;
      if (out != nullptr) out->push_back(begin(slot) + offset);
      ++offset;
    };
    for (int64_t t = 0; t < int64_t{order_[index]} * S_; ++t) step(nullptr);
    Ints tokens;
    for (int64_t t = 0; t < S_ + 1; ++t) step(&tokens);
    return tokens;
  }

 private:
  int32_t length(size_t slot) const { return lengths_[static_cast<size_t>(documents_[slot])]; }
  int32_t begin(size_t slot) const {
    return std::accumulate(lengths_.begin(), lengths_.begin() + documents_[slot], 0);
  }
  Ints lengths_;
  int64_t S_;
  Ints documents_;
  std::vector<uint32_t> order_;
};

TEST(GptDataset, EqualsTheLiteralProcedure) {
  const ScratchDirectory dir;
  std::mt19937 random(5);
  int apart = 0, several_epochs = 0;
  Ints lengths;
  std::shared_ptr<const TokenFile> file;
  for (int trial = 0; trial < 60; ++trial) {
    if (trial % 6 == 0) {  // another file; some contain empty documents
      lengths.assign(3 + random() % 12, 0);
      for (int32_t& length : lengths) {
        length = static_cast<int32_t>(random() % 23 + (trial % 12 == 0 ? 0 : 1));
      }
      lengths[1] = 19;  // enough for a sample inside any range below
      file = make_file(dir / "d", lengths);
    }
    const SequenceRange range{static_cast<int64_t>(random() % 2),
                              static_cast<int64_t>(lengths.size() - random() % 2)};
    const int64_t S = 1 + static_cast<int64_t>(random() % 16);
    const int64_t wanted = 1 + static_cast<int64_t>(random() % 90);
    const auto seed = static_cast<uint32_t>(random());
    const GptDataset dataset(file, range, wanted, S, seed);
    const LiteralDataset literal(lengths, range, wanted, S, seed);
    ASSERT_EQ(dataset.num_samples(), static_cast<int64_t>(literal.size())) << trial;
    EXPECT_GE(dataset.num_samples(), wanted);
    several_epochs += dataset.num_epochs() > 1 ? 1 : 0;
    for (size_t i = 0; i < literal.size(); ++i) {
      Ints tokens(static_cast<size_t>(S) + 1, -1);
      dataset.copy_sample(static_cast<int64_t>(i), tokens.data());
      ASSERT_EQ(tokens, literal.sample(i)) << "trial " << trial << " sample " << i;
    }
    apart += literal.apart ? 1 : 0;
  }
  EXPECT_GT(several_epochs, 20);
  EXPECT_GT(apart, 10);
}

TEST(GptDataset, RefusesTooLittleTextAndLongSeeds) {
  const ScratchDirectory dir;
  const auto file = make_file(dir / "d", {4, 4});
  EXPECT_NO_THROW(GptDataset(file, {0, 2}, 1, 7, 1));
  EXPECT_THROW(GptDataset(file, {0, 2}, 1, 8, 1), InputError);
  EXPECT_THROW(GptDataset(file, {1, 1}, 1, 1, 1), InputError);
  EXPECT_THROW(GptDataset(file, {0, 2}, 1, 7, uint64_t{1} << 32), InputError);
  EXPECT_THROW(GptDataset(file, {0, 2}, int64_t{1} << 40, 7, 1), InputError);
}

}  // namespace
}  // namespace trireme::test_gpt_dataset
