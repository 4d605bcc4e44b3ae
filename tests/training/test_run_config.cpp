#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "engine/config/parse.h"
#include "engine/core/error.h"
#include "training/run_config.h"

namespace trireme {
namespace {

// A small whole configuration; tests change one thing of it.
Json small() {
  return parse_json(R"({
    "model": {"model_type": "llama", "vocab_size": 257, "hidden_size": 64, "intermediate_size": 128,
              "num_hidden_layers": 2, "num_attention_heads": 4, "max_position_embeddings": 64},
    "output_dir": "runs/test", "train_batch_size": 12, "train_steps": 100,
    "data": {"data_path": "data/test", "tokenizer": "byte"}
  })",
                    "small");
}

TEST(RunConfig, ResolvedRoundTrips) {
  const RunConfig config = read_run_config(small(), 2);
  EXPECT_EQ(config.micro_batch_size, 6);
  EXPECT_EQ(config.gradient_accumulation_steps, 1);
  EXPECT_EQ(config.sequence_length, 64);
  EXPECT_EQ(config.scheduler.decay_steps, 100);
  const Json json = run_config_to_json(config);
  EXPECT_EQ(run_config_to_json(read_run_config(json, 2)), json);
}

}  // namespace
}  // namespace trireme
