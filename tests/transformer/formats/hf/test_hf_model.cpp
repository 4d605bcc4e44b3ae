// HuggingFace directories: every value in its place, with any layout and dtype, and a clear error
// for every kind of damage.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "engine/core/convert_float.h"
#include "engine/core/error.h"
#include "engine/io/atomic_file.h"
#include "engine/io/safetensors.h"
#include "tests/support/compare.h"
#include "tests/support/golden_models.h"
#include "tests/support/json_file.h"
#include "tests/support/scratch_directory.h"
#include "tests/training/step/golden_case.h"
#include "tests/transformer/formats/hf/refusals.h"
#include "tests/transformer/formats/hf_directory.h"
#include "transformer/checkpoint/import_model.h"
#include "transformer/checkpoint/loaded_model.h"
#include "transformer/checkpoint/open_model.h"
#include "transformer/formats/gguf/gguf_model.h"
#include "transformer/formats/hf/hf_model.h"
#include "transformer/formats/hf/hf_writer.h"
#include "transformer/formats/load_config.h"

namespace trireme::test::test_hf_model {
namespace {

const char* const kCases[] = {"gpt2", "llama", "llama_variant", "mixtral"};

struct Loaded {
  Loaded(const HfModel& source, DType dtype, const Layout& layout)
      : ctx(1, "test"),
        model(source.config(), dtype, layout,
              chunks_of(split_layers(source.config().num_layers, layout.pp.size, {}), layout.pp)),
        store(model.parameters(), dtype) {
    source.check(source.config());
    store.allocate(ctx, false);
    source.load(ctx, model, store);
  }
  Ctx ctx;
  Model model;
  ParameterStore store;
};

// The reference is read by separate code (golden_case.cpp).
void expect_values(const GoldenCase& golden, const Loaded& loaded, DType in_file) {
  const SafetensorsReader weights = golden.open("weights");
  for (size_t h = 0; h < loaded.store.specs().size(); ++h) {
    const ParameterSpec& spec = loaded.store.specs()[h];
    const std::vector<double> whole = golden.reference(weights, "", spec);
    const std::vector<double> found = to_doubles(loaded.store.value(static_cast<ParamHandle>(h)));
    const ElementIndex index = spec.element_index();
    ASSERT_EQ(std::ssize(found), spec.local_shape().numel());
    for (size_t i = 0; i < found.size(); ++i) {
      double expected = whole[static_cast<size_t>(index.of(static_cast<int64_t>(i)))];
      for (const DType dtype : {in_file, loaded.store.dtype()})
        dispatch_float("test", dtype, [&]<class T>() {
          expected = static_cast<double>(static_cast<compute_t<T>>(convert_float<T>(expected)));
        });
      ASSERT_EQ(found[i], expected) << spec.name << "[" << i << "]";
    }
  }
}

TEST(HfModel, EveryValueUnderAnyLayout) {
  for (const char* name : kCases)
    for (const auto& [tp, pp, ep] : {std::tuple{1, 1, 1}, {2, 1, 1}, {1, 2, 1}, {2, 2, 2}}) {
      if (ep > 1 && std::string(name) != "mixtral") continue;
      SCOPED_TRACE(concat(name, " tp ", tp, " pp ", pp, " ep ", ep));
      const ScratchDirectory dir;
      HfFiles(name, DType::kF64).write(dir.path(), 3);
      const HfModel source(dir.path());
      EXPECT_EQ(source.dtype(), DType::kF64);
      for (int rank = 0; rank < tp * pp; ++rank) {
        const Layout layout = layout_of({.tp = tp, .pp = pp, .ep = ep}, rank);
        const Loaded loaded(source, DType::kF64, layout);
        expect_values(GoldenCase(name, DType::kF64), loaded, DType::kF64);
      }
    }
}

TEST(HfModel, EveryDtypeToEveryOther) {
  for (const DType in_file : {DType::kF64, DType::kF32, DType::kBF16, DType::kF16})
    for (const DType dtype : {DType::kF64, DType::kF32, DType::kBF16, DType::kF16}) {
      SCOPED_TRACE(concat(in_file, " to ", dtype));
      const ScratchDirectory dir;
      HfFiles("gpt2", in_file).write(dir.path());
      const HfModel source(dir.path());
      EXPECT_EQ(source.dtype(), in_file);
      expect_values(GoldenCase("gpt2", dtype), Loaded(source, dtype, Layout{}), in_file);
    }
}

TEST(HfModel, NamesWithoutPrefixAndTensorsNobodyNeeds) {
  for (const auto& [name, prefix, extra] :
       {std::tuple{"gpt2", "transformer.", "h.0.attn.bias"},
        {"llama", "model.", "layers.1.self_attn.rotary_emb.inv_freq"}}) {
    SCOPED_TRACE(name);
    const ScratchDirectory dir;
    HfFiles files(name, DType::kF32);
    files.drop_prefix(prefix);
    files.tensors[extra] = {DType::kF32, {2, 2}, {1, 2, 3, 4}};
    files.write(dir.path());
    const HfModel source(dir.path());
    expect_values(GoldenCase(name, DType::kF32), Loaded(source, DType::kF32, Layout{}),
                  DType::kF32);
  }
}

// The language model of a multimodal one, with the older names and with the later ones.
TEST(HfModel, TheLanguageModelOfALargerOne) {
  const std::string golden = golden_folder("gemma3");
  const SafetensorsReader weights(golden + "/model.safetensors");
  const std::string ours = "model.";
  for (const std::string prefix : {"language_model.model.", "model.language_model."}) {
    SCOPED_TRACE(prefix);
    const ScratchDirectory dir;
    std::map<std::string, FileTensor> tensors;
    for (const SafetensorsEntry& entry : weights.entries()) {
      const ConstTensor t = weights.tensor(entry.name);
      tensors[prefix + entry.name.substr(ours.size())] = {
          DType::kF32, {t.shape().dims().begin(), t.shape().dims().end()}, to_doubles(t)};
    }
    for (const char* part : {"vision_tower", "vision_model"})
      tensors[concat(part, ".patch.weight")] = {DType::kF32, {2}, {1, 2}};
    // A second copy of the tied head, under each of its names.
    const bool older = prefix.starts_with("language_model.");
    tensors[older ? "language_model.lm_head.weight" : "lm_head.weight"] =
        tensors[prefix + "embed_tokens.weight"];
    tensors["multi_modal_projector.mm_input_projection_weight"] = {DType::kF32, {1}, {1}};
    write_safetensors(dir / "model.safetensors", tensors);
    std::ofstream(dir / "config.json")
        << Json{{"model_type", "gemma3"},
                {"text_config", read_json_file<Json>(golden + "/config.json")},
                {"vision_config", Json::object()}};
    const HfModel source(dir.path());
    const Loaded loaded(source, DType::kF32, Layout{});
    const auto& specs = loaded.store.specs();
    for (size_t h = 0; h < specs.size(); ++h)
      EXPECT_EQ(to_doubles(loaded.store.value(static_cast<ParamHandle>(h))),
                to_doubles(weights.tensor(specs[h].name)))
          << specs[h].name;
    tensors["audio_tower.weight"] = {DType::kF32, {1}, {1}};
    write_safetensors(dir / "model.safetensors", tensors);
    expect_says(open_refusal(dir.path()), {"left over (1)", "audio_tower.weight"});
  }
}

TEST(HfModel, ATiedHeadMayBeThere) {
  const ScratchDirectory dir;
  HfFiles files("gpt2", DType::kF32);
  files.tensors["lm_head.weight"] = files.tensors["transformer.wte.weight"];
  files.write(dir.path());
  EXPECT_EQ(open_refusal(dir.path()), "");
  EXPECT_TRUE(HfModel(dir.path()).config().tie_word_embeddings);
}

// Either tensor of a tied pair, because programs drop one of two equal tensors: the same model, on
// every rank and in every export.
TEST(HfModel, ATiedModelMayHaveItsHeadOnly) {
  for (const auto& [name, table] : {std::pair{"gpt2", "transformer.wte.weight"},
                                    {"llama_variant", "model.embed_tokens.weight"}}) {
    SCOPED_TRACE(name);
    const ScratchDirectory dir;
    HfFiles files(name, DType::kF32);
    files.write(dir / "table");
    files.tensors["lm_head.weight"] = files.tensors[table];
    files.tensors.erase(table);
    files.metadata = {{"format", "pt"}, {table, "lm_head.weight"}};  // of save_model()
    files.write(dir / "head", 2);
    const HfModel source(dir / "head");
    EXPECT_TRUE(source.config().tie_word_embeddings);
    for (const auto& [tp, pp] : {std::pair{1, 1}, {2, 1}, {1, 2}})
      for (int rank = 0; rank < tp * pp; ++rank)
        expect_values(GoldenCase(name, DType::kF32),
                      Loaded(source, DType::kF32, layout_of({.tp = tp, .pp = pp}, rank)),
                      DType::kF32);
    for (const char* from : {"table", "head"}) {
      write_hf_directory(HfModel(dir / from), dir / concat("hf ", from), {});
      if (name == std::string("gpt2"))
        write_gguf(HfModel(dir / from), dir / concat(from, ".gguf"), {.type = "F32"});
    }
    for (const char* type : {"hf table/model.safetensors", "table.gguf"}) {
      std::string other = type;
      if (!std::filesystem::exists(dir / type)) continue;
      other.replace(other.find("table"), 5, "head");
      EXPECT_EQ(read_small_file(dir / other), read_small_file(dir / type)) << type;
    }
    files.config()["tie_word_embeddings"] = false;
    files.write(dir / "untied");
    expect_says(open_refusal(dir / "untied"),
                {"missing (1)", table, "tie_word_embeddings to true"});
  }
}

// transformers' save_pretrained(DIR, save_original_format=False).
TEST(HfModel, ExpertsInTwoTensors) {
  const ScratchDirectory dir;
  HfFiles files("mixtral", DType::kF64);
  const std::string kOurs = ".block_sparse_moe.", kTheirs = ".mlp.";
  std::map<std::string, FileTensor> fused;
  const auto add = [&](const std::string& name, const FileTensor& expert) {
    const auto [found, fresh] = fused.try_emplace(name, expert);
    FileTensor& all = found->second;
    if (fresh) all.shape.insert(all.shape.begin(), 0);
    if (!fresh) all.values.insert(all.values.end(), expert.values.begin(), expert.values.end());
    ++all.shape[0];
  };
  for (const auto& [name, tensor] : files.tensors) {
    const size_t at = name.find(kOurs), expert = name.find("experts.");
    const std::string before = concat(name.substr(0, at), kTheirs);
    if (at == std::string::npos) {
      fused[name] = tensor;
    } else if (expert == std::string::npos) {
      fused[before + name.substr(at + kOurs.size())] = tensor;
    } else if (name.ends_with(".w2.weight")) {
      add(before + "experts.down_proj", tensor);
    } else if (name.ends_with(".w1.weight")) {
      std::string up_name = name;
      FileTensor both = tensor;
      const FileTensor& up = files.tensors.at(up_name.replace(name.size() - 9, 2, "w3"));
      both.shape[0] *= 2;
      both.values.insert(both.values.end(), up.values.begin(), up.values.end());
      add(before + "experts.gate_up_proj", both);
    }
  }
  ASSERT_TRUE(fused.contains("model.layers.0.mlp.experts.gate_up_proj"));
  files.tensors = fused;
  files.write(dir.path(), 2);
  const HfModel source(dir.path());
  for (const auto& [tp, pp, ep] : {std::tuple{1, 1, 1}, {2, 1, 1}, {2, 2, 2}})
    for (int rank = 0; rank < tp * pp; ++rank) {
      SCOPED_TRACE(concat("tp ", tp, " pp ", pp, " ep ", ep, " rank ", rank));
      expect_values(GoldenCase("mixtral", DType::kF64),
                    Loaded(source, DType::kF64, layout_of({.tp = tp, .pp = pp, .ep = ep}, rank)),
                    DType::kF64);
    }
  FileTensor& down = files.tensors.at("model.layers.1.mlp.experts.down_proj");
  std::swap(down.shape[1], down.shape[2]);
  files.write(dir.path(), 2);
  expect_says(open_refusal(dir.path()), {"wrong (1)", "model.layers.1.mlp.experts.down_proj is ("});
}

// transformers 5 keeps it. So do the logits, exports, and a run that uses its sizes.
TEST(HfModel, AHeadOfOtherValuesIsNotTied) {
  for (const char* name : {"gpt2", "llama_variant"}) {
    SCOPED_TRACE(name);
    const ScratchDirectory dir;
    HfFiles files(name, DType::kF32);
    const std::string table = files.tensors.contains("model.embed_tokens.weight")
                                  ? "model.embed_tokens.weight"
                                  : "transformer.wte.weight";
    files.tensors["lm_head.weight"] = files.tensors[table];
    files.tensors["lm_head.weight"].values.back() += 0.5;
    std::vector<double> head = files.tensors["lm_head.weight"].values;
    for (double& value : head) value = static_cast<float>(value);
    files.write(dir / "hf");
    const HfModel source(dir / "hf");
    EXPECT_FALSE(source.config().tie_word_embeddings);
    const Loaded loaded(source, DType::kF32, Layout{});
    bool found = false;
    for (size_t h = 0; h < loaded.store.specs().size(); ++h)
      if (loaded.store.specs()[h].name == "lm_head.weight") {
        found = true;
        EXPECT_EQ(to_doubles(loaded.store.value(static_cast<ParamHandle>(h))), head);
      }
    EXPECT_TRUE(found);
    std::vector<std::string> notes;
    EXPECT_FALSE(load_model_config(dir / "hf", notes).tie_word_embeddings);
    ASSERT_EQ(notes.size(), 1U);
    expect_says(notes[0], {"tie_word_embeddings is true", "lm_head.weight", "not tied"});
    // Through a Trireme checkpoint and back into a directory.
    import_model(source, dir / "ours", {.dtype = DType::kF32});
    write_hf_directory(*open_any_model(dir / "ours"), dir / "back", {});
    EXPECT_FALSE(read_json_file<Json>(dir / "back/config.json")["tie_word_embeddings"].get<bool>());
    const SafetensorsReader written(dir / "back/model.safetensors");
    EXPECT_EQ(to_doubles(written.tensor("lm_head.weight")), head);
    // A configuration that ties it nevertheless gets an error; the head is not lost silently.
    ModelConfig tied = source.config();
    tied.tie_word_embeddings = true;
    expect_says(refusal([&] { source.check(tied); }),
                {"left over (1)", "lm_head.weight", "tie_word_embeddings to false"});
  }
}

TEST(HfModel, ListsAllThatIsMissingLeftOverAndWrong) {
  const ScratchDirectory dir;
  HfFiles files("llama", DType::kF32);
  files.tensors.erase("model.norm.weight");
  files.tensors.erase("model.layers.1.mlp.up_proj.weight");
  files.tensors["model.layers.9.what"] = {DType::kF32, {1}, {0}};
  files.tensors["model.layers.0.mlp.gate_proj.weight"].shape = {24, 40};
  files.tensors["model.layers.0.input_layernorm.weight"].dtype = DType::kI32;
  files.write(dir.path());
  expect_says(open_refusal(dir.path()),
              {"missing (2)", "model.norm.weight", "model.layers.1.mlp.up_proj.weight",
               "left over (1)", "model.layers.9.what", "wrong (1)",
               "gate_proj.weight is (24, 40), expected from the config: (40, 24)",
               "I32 in 1 tensor (model.layers.0.input_layernorm.weight) is not supported",
               "supported: floating-point weights", "quantization_config", "use both from one"});
}

// Python's json.dump writes infinite bounds and NaN without quotes.
TEST(HfModel, PythonsNumbersInItsConfiguration) {
  const ScratchDirectory dir;
  const HfFiles files("llama", DType::kF32);
  const auto said = [&](const std::string& member) {
    files.write(dir.path());
    std::string json = read_small_file(dir / "config.json");
    std::ofstream(dir / "config.json") << json.replace(json.find('{'), 1, concat("{", member, ","));
    return open_refusal(dir.path());
  };
  EXPECT_EQ(said(R"("temperature": Infinity, "length_penalty": -Infinity, "top_p": NaN)"), "");
  expect_says(said(R"("logit_scale": Infinity)"), {"logit_scale", "Infinity"});
  expect_says(said(R"("router_jitter_noise": NaN)"), {"router_jitter_noise", "NaN"});
  expect_says(said(R"("initializer_range": Infinity)"), {"initializer_range", "Infinity"});
  expect_says(said(R"("my_key": NaN)"), {"my_key", "NaN", "unknown key"});
}

TEST(HfModel, PaddedVocabularyAndMissingHead) {
  const ScratchDirectory dir;
  HfFiles files("llama", DType::kF32);
  for (const char* table : {"model.embed_tokens.weight", "lm_head.weight"}) {
    FileTensor& t = files.tensors[table];
    t.shape[0] += 3;
    t.values.resize(t.values.size() + static_cast<size_t>(3 * t.shape[1]));
  }
  files.write(dir.path());
  expect_says(open_refusal(dir.path()), {"embed_tokens.weight is (64, 24)", "(61, 24)",
                                         "vocab_size 61 -> 64 in config.json"});
  HfFiles headless("llama", DType::kF32);
  headless.tensors.erase("lm_head.weight");
  headless.write(dir.path());
  expect_says(open_refusal(dir.path()), {"lm_head.weight", "tie_word_embeddings"});
}

TEST(HfModel, MissingTruncatedAndDisagreeingShards) {
  const ScratchDirectory dir;
  const HfFiles files("llama", DType::kF32);
  files.write(dir.path(), 3);
  std::filesystem::rename(dir / "model-1.safetensors", dir / "away");
  expect_says(open_refusal(dir.path()), {"1 of 3 shards", "model-1.safetensors"});
  std::filesystem::rename(dir / "away", dir / "model-1.safetensors");
  std::filesystem::resize_file(dir / "model-2.safetensors",
                               std::filesystem::file_size(dir / "model-2.safetensors") - 5);
  std::filesystem::remove(dir / "model-0.safetensors");
  expect_says(open_refusal(dir.path()), {"1 of 3 shards", "missing: model-0.safetensors",
                                         "model-2.safetensors", "truncated"});
  files.write(dir.path(), 3);
  std::filesystem::copy_file(dir / "model-0.safetensors", dir / "model-1.safetensors",
                             std::filesystem::copy_options::overwrite_existing);
  EXPECT_NE(open_refusal(dir.path()), "");
  files.write(dir.path(), 3);
  std::map<std::string, FileTensor> other = {{"stray", {DType::kF32, {1}, {0}}}};
  write_safetensors(dir / "model-1.safetensors", other);
  expect_says(open_refusal(dir.path()), {"does not agree", "not in the shard that it names",
                                         "missing from the index: stray"});
}

TEST(HfModel, AnIndexThatLeadsElsewhereIsRefused) {
  const ScratchDirectory dir;
  HfFiles("llama", DType::kF32).write(dir.path(), 2);
  std::ofstream(dir / "model.safetensors.index.json")
      << R"({"weight_map": {"a": "../model-0.safetensors"}})";
  expect_says(open_refusal(dir.path()), {"not a plain file name"});
}

TEST(HfModel, PickledWeightsAndNoWeights) {
  const ScratchDirectory dir;
  HfFiles("llama", DType::kF32).write(dir.path());
  std::filesystem::rename(dir / "model.safetensors", dir / "pytorch_model.bin");
  expect_says(open_refusal(dir.path()), {"pytorch_model.bin", "safe_serialization=True"});
  std::filesystem::remove(dir / "pytorch_model.bin");
  expect_says(open_refusal(dir.path()), {"neither model.safetensors nor"});
}

}  // namespace
}  // namespace trireme::test::test_hf_model
