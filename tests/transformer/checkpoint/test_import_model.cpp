// Models between formats: import followed by export gives the same bytes, and an interrupted export
// resumes.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "engine/core/error.h"
#include "engine/io/safetensors_directory.h"
#include "engine/text/gguf_tokenizer.h"
#include "parallel/comm/world.h"
#include "tests/support/compare.h"
#include "tests/support/golden_models.h"
#include "tests/support/json_file.h"
#include "tests/support/scratch_directory.h"
#include "tests/support/source_folder.h"
#include "tests/transformer/formats/hf_directory.h"
#include "transformer/checkpoint/checkpoint_model.h"
#include "transformer/checkpoint/import_model.h"
#include "transformer/checkpoint/loaded_model.h"
#include "transformer/checkpoint/model_diff.h"
#include "transformer/checkpoint/open_model.h"
#include "transformer/formats/gguf/gguf_model.h"
#include "transformer/formats/hf/hf_model.h"
#include "transformer/formats/hf/hf_writer.h"
#include "transformer/formats/stop_token_ids.h"

namespace trireme::test::test_import_model {
namespace {

namespace fs = std::filesystem;

const char* const kCases[] = {"gpt2", "llama", "llama_variant", "mixtral"};

TEST(ModelCopies, ImportThenExportIsByteIdentical) {
  for (const char* name : kCases)
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
      SCOPED_TRACE(concat(name, " ", dtype));
      const ScratchDirectory dir;
      HfFiles(name, dtype).write(dir / "hf", 2);
      const HfModel source(dir / "hf");
      import_model(source, dir / "ours", {.dtype = source.dtype()});
      const CheckpointModel imported(dir / "ours/step-00000000");
      EXPECT_TRUE(imported.config() == source.config());
      EXPECT_EQ(imported.bundle().dtype, dtype);
      EXPECT_EQ(imported.dtype(), dtype);
      write_hf_directory(imported, dir / "out", {.dtype = dtype, .max_shard_bytes = 5000});
      EXPECT_FALSE(fs::exists(dir / "out/model.safetensors"));
      expect_same_bytes(dir / "hf", dir / "out");
      EXPECT_TRUE(HfModel(dir / "out").config() == source.config());
      EXPECT_TRUE(diff_models(dir / "hf", dir / "ours").differences.empty());
    }
}

// Models of every family, from transformers and back.
TEST(ModelCopies, ModelsOfTransformersComeBack) {
  for (const std::string& name : golden_models()) {
    SCOPED_TRACE(name);
    const std::string golden = golden_folder(name);
    const ScratchDirectory dir;
    const HfModel source(golden);
    import_model(source, dir / "ours", {});
    write_hf_directory(CheckpointModel(dir / "ours/step-00000000"), dir / "out", {});
    expect_same_bytes(golden, dir / "out");
    EXPECT_TRUE(HfModel(dir / "out").config() == source.config());
  }
}

// As published: most weights in bfloat16, some in another dtype.
TEST(ModelCopies, EachTensorKeepsItsType) {
  const ScratchDirectory dir;
  HfFiles files("mixtral", DType::kBF16);
  for (auto& [name, t] : files.tensors) {
    if (name.ends_with("norm.weight")) t.dtype = DType::kF32;
    if (name.ends_with(".gate.weight")) t.dtype = DType::kF16;
  }
  files.write(dir / "hf", 3);
  const HfModel source(dir / "hf");
  EXPECT_EQ(source.dtype(), DType::kBF16);
  import_model(source, dir / "ours", {});
  const CheckpointModel imported(dir / "ours/step-00000000");
  EXPECT_EQ(imported.bundle().dtype, DType::kBF16);
  EXPECT_TRUE(diff_models(dir / "hf", dir / "ours").differences.empty());
  write_hf_directory(imported, dir / "out", {.max_shard_bytes = 5000});
  expect_same_bytes(dir / "hf", dir / "out");
  write_hf_directory(source, dir / "direct", {});
  expect_same_bytes(dir / "hf", dir / "direct");
  // The compute dtype is that of most weights.
  const auto world = make_world({});
  Ctx ctx(1, "test");
  LoadedModel loaded(dir / "ours", world->world());
  loaded.load(ctx, Layout{}, 8);
  EXPECT_EQ(loaded.parameters().value(0).dtype(), DType::kBF16);
  // A given dtype applies to all weights.
  write_hf_directory(imported, dir / "one", {.dtype = DType::kF32});
  const SafetensorsDirectory written_files(dir / "one");
  for (const SourceTensor& t : written_files.tensors()) EXPECT_EQ(t.dtype, DType::kF32) << t.name;
}

// The selection biases of DeepSeek-V3 are float32 in every file.
TEST(ModelCopies, TheBiasOfARouterStaysFloat32) {
  const std::string golden = golden_folder("deepseek_v3");
  const ScratchDirectory dir;
  write_hf_directory(HfModel(golden), dir / "half", {.dtype = DType::kBF16});
  import_model(HfModel(dir / "half"), dir / "ours", {});
  write_hf_directory(CheckpointModel(dir / "ours/step-00000000"), dir / "out", {});
  expect_same_bytes(dir / "half", dir / "out");
  int64_t biases = 0;
  const SafetensorsDirectory written_files(dir / "out");
  for (const SourceTensor& t : written_files.tensors()) {
    const bool bias = t.name.ends_with("e_score_correction_bias");
    EXPECT_EQ(t.dtype, bias ? DType::kF32 : DType::kBF16) << t.name;
    biases += bias ? 1 : 0;
  }
  EXPECT_GT(biases, 0);
}

TEST(ModelCopies, AnImportedCheckpointLoads) {
  const ScratchDirectory dir;
  HfFiles("gpt2", DType::kF32).write(dir / "hf");
  const HfModel source(dir / "hf");
  import_model(source, dir / "ours", {.dtype = DType::kF32});
  const auto world = make_world({});
  Ctx ctx(1, "test");
  LoadedModel a(dir / "hf", world->world()), b(dir / "ours", world->world());
  EXPECT_TRUE(b.wants_special_tokens());
  a.load(ctx, Layout{}, 8);
  b.load(ctx, Layout{}, 8);
  for (ParamHandle h = 0; h < std::ssize(a.parameters().specs()); ++h)
    EXPECT_EQ(to_doubles(a.parameters().value(h)), to_doubles(b.parameters().value(h)));
  EXPECT_THROW(import_model(source, dir / "ours", {.dtype = DType::kF32}), InputError);
}

// Further files are added to a directory before it looks complete.
TEST(ModelCopies, TheConfigurationIsWrittenLast) {
  const ScratchDirectory dir;
  HfFiles("llama", DType::kF32).write(dir / "hf");
  const HfModel source(dir / "hf");
  const auto stop = [&](const std::string& directory) {
    EXPECT_TRUE(fs::exists(directory + "/generation_config.json"));
    throw InputError("interrupted");
  };
  EXPECT_THROW(write_hf_directory(source, dir / "out", {.before_config = stop}), InputError);
  EXPECT_FALSE(fs::exists(dir / "out/config.json"));
  write_hf_directory(source, dir / "out", {});
  EXPECT_TRUE(fs::exists(dir / "out/config.json"));
}

TEST(ModelCopies, AnInterruptedExportGoesOn) {
  const ScratchDirectory dir;
  HfFiles("llama", DType::kF32).write(dir / "hf");
  const HfModel source(dir / "hf");
  HfWriteOptions options{.dtype = DType::kF32, .max_shard_bytes = 10000};
  options.progress = [](int64_t done, int64_t total) {
    if (done > total / 2) throw InputError("interrupted");
  };
  EXPECT_THROW(write_hf_directory(source, dir / "out", options), InputError);
  EXPECT_FALSE(fs::exists(dir / "out/config.json"));
  std::map<std::string, fs::file_time_type> whole;
  for (const auto& entry : fs::directory_iterator(dir / "out"))
    if (entry.path().extension() == ".safetensors")
      whole[entry.path().string()] = fs::last_write_time(entry);
  ASSERT_FALSE(whole.empty());
  EXPECT_THROW(write_hf_directory(source, dir / "out", {.dtype = DType::kBF16}), InputError);
  options.progress = {};
  const HfWritten written = write_hf_directory(source, dir / "out", options);
  EXPECT_EQ(written.kept, std::ssize(whole));
  EXPECT_GT(written.files, written.kept);
  for (const auto& [path, time] : whole) EXPECT_EQ(fs::last_write_time(path), time) << path;
  expect_same_bytes(dir / "hf", dir / "out");
  EXPECT_THROW(write_hf_directory(source, dir / "out", options), InputError) << "it is done";
}

TEST(ModelCopies, EndsOfTextsStayAList) {
  const ScratchDirectory dir;
  HfFiles files("llama", DType::kF32);
  files.config()["eos_token_id"] = {3, 5};
  files.config()["pad_token_id"] = 2;
  files.write(dir / "hf");
  std::ofstream(dir / "hf/generation_config.json") << R"({"eos_token_id": [3, 5, 7], "top_k": 4})";
  write_hf_directory(HfModel(dir / "hf"), dir / "out", {.dtype = DType::kF32});
  const auto json = [&](const char* name) { return read_json_file<Json>(dir / name); };
  EXPECT_EQ(json("out/config.json")["eos_token_id"], (Json{3, 5, 7}));
  EXPECT_EQ(json("out/config.json")["pad_token_id"], 2);
  EXPECT_EQ(json("out/generation_config.json"), json("hf/generation_config.json"))
      << "there is no tokenizer, and yet it is copied";
}

// Writes a directory of a model with a tokenizer and several stop token ids.
void write_with_tokenizer(const std::string& directory) {
  Json config = HfFiles("llama", DType::kF32).config();
  config["vocab_size"] = 700;
  config["eos_token_id"] = {3, 5};
  config["pad_token_id"] = 600;
  HfFiles::random(config, DType::kF32).write(directory);
  std::ifstream in(test::source_folder() + "/tests/golden/tokenizers/qwen2.json");
  const Json golden = Json::parse(in);
  std::ofstream(directory + "/tokenizer.json")
      << (golden["tokenizer"].is_string() ? golden["tokenizer"].get<std::string>()
                                          : golden["tokenizer"].dump());
}

TEST(ModelCopies, EndsOfTextsStayAListThroughACheckpoint) {
  const ScratchDirectory dir;
  write_with_tokenizer(dir / "hf");
  import_model(HfModel(dir / "hf"), dir / "ours", {.dtype = DType::kF32});
  write_hf_directory(*open_any_model(dir / "ours"), dir / "out", {.dtype = DType::kF32});
  const Json config = read_json_file<Json>(dir / "out/config.json");
  EXPECT_EQ(config["eos_token_id"], (Json{3, 5}));
  EXPECT_TRUE(config["pad_token_id"].is_null());  // an id there has no gradient in transformers
  EXPECT_EQ(read_json_file<Json>(dir / "out/generation_config.json")["pad_token_id"], 600);
}

// llama.cpp has keys for three stop tokens, and none for a bos that only config.json has.
TEST(ModelCopies, AllIdsOfAConfigurationStayThroughGguf) {
  const ScratchDirectory dir;
  write_with_tokenizer(dir / "hf");
  std::ofstream(dir / "hf/tokenizer_config.json") << R"({"bos_token": null, "eos_token": "!"})";
  std::ofstream(dir / "hf/generation_config.json") << R"({"eos_token_id": [5, 9, 7, 8, 690]})";
  {
    Json config = read_json_file<Json>(dir / "hf/config.json");
    config["bos_token_id"] = 11;
    std::ofstream(dir / "hf/config.json") << config;
  }
  const HfModel source(dir / "hf");
  const GgufMetadata words = gguf_tokenizer_metadata(source.tokenizer(), 700);
  testing::internal::CaptureStderr();
  write_gguf(source, dir / "x.gguf", {.type = "F32", .tokenizer = words});
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_NE(log.find("the ids 9, 7, 8, 690 are kept"), std::string::npos) << log;
  const GgufModel model(dir / "x.gguf");
  EXPECT_EQ(model.config().bos_token_id, 11);
  const int32_t eos = load_tokenizer(dir / "x.gguf")->eod_id();
  EXPECT_EQ(eos, load_tokenizer(dir / "hf")->eod_id());
  std::vector<int32_t> ends = tokenizer_stop_token_ids(dir / "x.gguf", 700);
  EXPECT_EQ(ends, (std::vector<int32_t>{eos, 3, 5, 9, 7, 8, 690}));
  write_hf_directory(model, dir / "out", {});
  EXPECT_EQ(stop_token_ids(dir / "out", 700), ends);
  EXPECT_EQ(HfModel(dir / "out").config().bos_token_id, 11);
  import_model(model, dir / "ours", {.dtype = DType::kF32});
  EXPECT_EQ(tokenizer_stop_token_ids(open_any_model(dir / "ours")->tokenizer(), 700), ends);
  // And into another GGUF file.
  write_gguf(model, dir / "y.gguf",
             {.type = "F32", .tokenizer = gguf_tokenizer_metadata(dir / "x.gguf", 700)});
  EXPECT_EQ(tokenizer_stop_token_ids(dir / "y.gguf", 700), ends);
  EXPECT_EQ(GgufModel(dir / "y.gguf").config().bos_token_id, 11);
}

// Named templates are files of a directory and keys of a GGUF file.
TEST(ModelCopies, NamedChatTemplatesAreKept) {
  const ScratchDirectory dir;
  write_with_tokenizer(dir / "hf");
  std::ofstream(dir / "hf/chat_template.jinja") << "plain";
  fs::create_directory(dir / "hf/additional_chat_templates");
  std::ofstream(dir / "hf/additional_chat_templates/tool_use.jinja") << "tools";
  const HfModel source(dir / "hf");
  write_hf_directory(source, dir / "copy", {});
  EXPECT_EQ(read_small_file(dir / "copy/additional_chat_templates/tool_use.jinja"), "tools");
  const GgufMetadata words = gguf_tokenizer_metadata(source.tokenizer(), 700);
  write_gguf(source, dir / "x.gguf", {.type = "F32", .tokenizer = words});
  write_hf_directory(GgufModel(dir / "x.gguf"), dir / "out", {});
  const GgufMetadata again = gguf_tokenizer_metadata(dir / "out/tokenizer.json", 700);
  EXPECT_TRUE(again.at("tokenizer.chat_template") == GgufValue(std::string("plain")));
  EXPECT_TRUE(again.at("tokenizer.chat_template.tool_use") == GgufValue(std::string("tools")));
}

// The tokenizer of a GGUF file is written as HuggingFace's files, also into Trireme checkpoints.
TEST(ModelCopies, TokenizersOfGgufFilesAreWritten) {
  const ScratchDirectory dir;
  write_with_tokenizer(dir / "hf");
  const HfModel source(dir / "hf");
  GgufMetadata words = gguf_tokenizer_metadata(source.tokenizer(), 700);
  words.erase("tokenizer.huggingface.json");
  words["tokenizer.chat_template"] = std::string("{{ messages }}");
  write_gguf(source, dir / "x.gguf", {.type = "F32", .tokenizer = words});
  // The stop token of the tokenizer first, then those of the directory.
  const std::vector<int32_t> ends = tokenizer_stop_token_ids(dir / "x.gguf", 700);
  ASSERT_EQ(ends.size(), 3U);
  EXPECT_EQ((std::vector<int32_t>{ends[1], ends[2]}), (std::vector<int32_t>{3, 5}));

  const HfWritten written = write_hf_directory(GgufModel(dir / "x.gguf"), dir / "out", {});
  EXPECT_EQ(
      written.tokenizer_files,
      (std::vector<std::string>{"tokenizer.json", "tokenizer_config.json", "chat_template.jinja"}));
  const auto theirs = load_tokenizer(dir / "hf"), ours = load_tokenizer(dir / "out");
  for (const char* text : {"the sea", " Wind and oars!\n", "<|im_start|>"})
    EXPECT_EQ(ours->encode(text, {.parse_special = true}),
              theirs->encode(text, {.parse_special = true}));
  EXPECT_EQ(stop_token_ids(dir / "out", 700), ends);
  EXPECT_FALSE(fs::exists(dir / "out/tokenizer.model"));

  import_model(GgufModel(dir / "x.gguf"), dir / "ours", {.dtype = DType::kF32});
  const std::string kept = open_any_model(dir / "ours")->tokenizer();
  EXPECT_EQ(load_tokenizer(kept)->encode("the sea"), theirs->encode("the sea"));
  EXPECT_EQ(tokenizer_stop_token_ids(kept, 700), ends);

  // An unsupported tokenizer is left out, and the model is exported nevertheless.
  words["tokenizer.ggml.pre"] = std::string("another");
  write_gguf(source, dir / "y.gguf", {.type = "F32", .tokenizer = words});
  EXPECT_TRUE(
      write_hf_directory(GgufModel(dir / "y.gguf"), dir / "bare", {}).tokenizer_files.empty());
}

}  // namespace
}  // namespace trireme::test::test_import_model
