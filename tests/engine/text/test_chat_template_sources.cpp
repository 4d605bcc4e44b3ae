// Chat templates by name: where they are found, which one renders, and the files that they become.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "engine/core/error.h"
#include "engine/io/gguf.h"
#include "engine/text/chat_template.h"
#include "engine/text/gguf_tokenizer.h"
#include "engine/text/tokenizer_config.h"
#include "tests/support/scratch_directory.h"

namespace trireme::test_chat_template_sources {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
using Sources = ChatTemplateSources;

std::string error_of(const std::function<void()>& what) {
  try {
    what();
  } catch (const InputError& e) {
    return e.what();
  }
  return "";
}

TEST(ChatTemplateSources, AreFoundWhereModelsKeepThem) {
  const test::ScratchDirectory dir;
  EXPECT_THROW(chat_templates_of(dir.path()), InputError);
  const auto config = [&](const char* json) {
    std::ofstream(dir / "tokenizer_config.json") << json;
    return find_chat_templates(dir.path());
  };
  EXPECT_EQ(config(R"({"chat_template": "x"})"), (Sources{{"default", "x"}}));
  EXPECT_EQ(config(R"({"chat_template": {"default": "x", "rag": "y"}})"),
            (Sources{{"default", "x"}, {"rag", "y"}}));
  EXPECT_EQ(config(R"({"chat_template": [{"name": "tool_use", "template": "b"}, {"name": 3},
                       {"name": "default", "template": "a"}]})"),
            (Sources{{"default", "a"}, {"tool_use", "b"}}));
  EXPECT_EQ(chat_templates_of(dir / "tokenizer.json").at("default"), "a");
  // Files replace all templates of the configuration.
  fs::create_directory(dir / "additional_chat_templates");
  std::ofstream(dir / "additional_chat_templates/rag.jinja") << "r";
  std::ofstream(dir / "additional_chat_templates/notes.txt") << "n";
  EXPECT_EQ(find_chat_templates(dir.path()), (Sources{{"rag", "r"}}));
  std::ofstream(dir / "chat_template.jinja") << "c";
  EXPECT_EQ(find_chat_templates(dir.path()), (Sources{{"default", "c"}, {"rag", "r"}}));
  // Templates in a GGUF file precede those next to it.
  GgufWriter(dir / "x.gguf",
             {{"tokenizer.chat_template", std::string("g")},
              {"tokenizer.chat_template.tool_use", std::string("t")},
              {"tokenizer.chat_templates", std::vector<std::string>{"tool_use"}}},
             {})
      .commit();
  EXPECT_EQ(find_chat_templates(dir / "x.gguf"), (Sources{{"default", "g"}, {"tool_use", "t"}}));
}

TEST(ChatTemplateSources, ChooseAsTransformersDo) {
  const Sources both{{"default", "d"}, {"tool_use", "t"}}, one{{"default", "d"}};
  EXPECT_EQ(chosen_chat_template(both, false), "default");
  EXPECT_EQ(chosen_chat_template(both, true), "tool_use");
  EXPECT_EQ(chosen_chat_template(one, true), "default");
  EXPECT_EQ(chosen_chat_template(both, true, "default"), "default");
  EXPECT_EQ(error_of([] {
              chosen_chat_template({{"rag", "r"}}, false);
            }),
            "the model's only chat template is not the default: name \"rag\" as chat_template");
  EXPECT_EQ(chosen_chat_template(both, false, "tool_use"), "tool_use");
  EXPECT_NE(
      error_of([&] {
        chosen_chat_template(both, true, "rag");
      }).find("\"rag\" is not a chat template of the model, which has \"default\", \"tool_use\""),
      std::string::npos);
  const Sources none{{"rag", "r"}, {"tool_use", "t"}};
  EXPECT_EQ(chosen_chat_template(none, true), "tool_use");
  EXPECT_EQ(error_of([&] { chosen_chat_template(none, false); }),
            "the model has several chat templates and none is the default: name one of \"rag\", "
            "\"tool_use\" as chat_template");
  for (const char* name : {"rag", "tool_use"})
    EXPECT_EQ(chosen_chat_template(none, false, name), name);
}

TEST(ChatTemplateSources, RenderWithTheOneThatIsChosen) {
  const ChatTemplate chat(Sources{{"default", "D{{ chat_template is defined }}"},
                                  {"tool_use", "T{{ tools | length }}"},
                                  {"broken", "{% nothing %}"}});
  const auto text = [&](const char* variables) { return chat.render(Json::parse(variables)).text; };
  EXPECT_EQ(text(R"({"messages": []})"), "DFalse");
  EXPECT_EQ(text(R"({"tools": [1, 2]})"), "T2");
  EXPECT_EQ(text(R"({"tools": []})"), "T0");  // as in transformers: they are given
  EXPECT_EQ(text(R"({"tools": null})"), "DFalse");
  EXPECT_EQ(text(R"({"tools": [1], "chat_template": "default"})"), "DFalse");
  // A template that cannot be parsed is an error only where it would render.
  EXPECT_NE(error_of([&] { text(R"({"chat_template": "broken"})"); }).find("\"broken\": "),
            std::string::npos);
  EXPECT_THROW(text(R"({"chat_template": "{{ 1 }}"})"), InputError);
  EXPECT_THROW(text(R"({"chat_template": 1})"), InputError);
  EXPECT_THROW(ChatTemplate(Sources{{"default", "{% nothing %}"}, {"rag", ""}}), InputError);
}

TEST(ChatTemplateSources, WhatATemplateDoesNotLookAtIsNamed) {
  const auto unread = [](const char* source, const char* variables) {
    return ChatTemplate(source).render(Json::parse(variables)).unread;
  };
  using Names = std::vector<std::string>;
  const char* given = R"({"tools": [{"name": "f"}], "documents": [{"text": "t"}]})";
  EXPECT_EQ(unread("{{ 'tools' }}", given), (Names{"tools", "documents"}));
  EXPECT_EQ(unread("{% if tools %}{% endif %}", given), (Names{"documents"}));
  EXPECT_EQ(unread("{% macro m(d) %}{{ d }}{% endmacro %}{{ m(documents) }}", given),
            (Names{"tools"}));
  // A variable that the template sets itself does not read the given one.
  EXPECT_EQ(unread("{% set tools = 1 %}{{ tools }}{{ documents }}", given), (Names{"tools"}));
  // Nor does a line that this conversation does not reach.
  EXPECT_EQ(unread("{% if false %}{{ tools }}{% endif %}{{ documents }}", given), (Names{"tools"}));
  EXPECT_EQ(unread("x", R"({"tools": [], "documents": null})"), Names{});
}

TEST(ChatTemplateSources, MembersThatTheCodeReads) {
  const std::vector<std::string> read = members_read(
      "thinking {{ message.a }}{{ m['b'] }}{{ m.get('c') }}{% if 'd' in m %}{{ e }}{% endif %}"
      "{# m.f #}");
  EXPECT_EQ(read, (std::vector<std::string>{"a", "b", "c", "d", "get"}));
}

TEST(ChatTemplateSources, GivenAsANameAFileOrADirectory) {
  const test::ScratchDirectory dir;
  const Sources own{{"default", "d"}, {"rag", "r"}};
  EXPECT_EQ(read_chat_templates("rag", own), (Sources{{"default", "r"}}));
  std::ofstream(dir / "chat_template.jinja") << "c";
  EXPECT_EQ(read_chat_templates(dir / "chat_template.jinja", own), (Sources{{"default", "c"}}));
  EXPECT_EQ(read_chat_templates(dir.path(), own), (Sources{{"default", "c"}}));
  EXPECT_NE(error_of([&] { read_chat_templates("tool_use", own); }).find("\"default\", \"rag\""),
            std::string::npos);
  EXPECT_THROW(read_chat_templates(dir / "absent.jinja", own), InputError);
}

TEST(ChatTemplateSources, AreWrittenAsFilesInPlaceOfOthers) {
  const test::ScratchDirectory dir;
  const Sources sources{{"default", "d"}, {"tool_use", "t"}};
  fs::create_directory(dir / "additional_chat_templates");
  std::ofstream(dir / "additional_chat_templates/rag.jinja") << "older";
  write_chat_template_files({}, dir.path());
  EXPECT_EQ(find_chat_templates(dir.path()), (Sources{{"rag", "older"}}));
  write_chat_template_files(sources, dir.path());
  EXPECT_EQ(find_chat_templates(dir.path()), sources);
  write_chat_template_files({{"default", "x"}}, dir.path());
  EXPECT_EQ(find_chat_templates(dir.path()), (Sources{{"default", "x"}}));
  // Names that cannot be file names.
  std::ofstream(dir / "tokenizer_config.json") << R"({"model_max_length": Infinity})";
  for (const char* name : {"", "..", "../x", "a/b", "a\\b", "a\nb"}) {
    const Sources odd{{"default", "d"}, {name, "x"}};
    write_chat_template_files(odd, dir.path());
    EXPECT_EQ(find_chat_templates(dir.path()), odd) << name;
    EXPECT_TRUE(chat_template_files(dir.path()).empty()) << name;
  }
  const Json config = Json::parse(std::ifstream(dir / "tokenizer_config.json"));
  EXPECT_FALSE(config.contains("model_max_length")) << config;  // not a number in other programs
  EXPECT_NO_THROW(parse_tokenizer_config(tokenizer_config_beside(dir.path()), "config"));
}

TEST(ChatTemplateSources, AreKeptAsJsonAndAsMetadata) {
  for (const Sources& sources : {Sources{}, Sources{{"default", "d"}}, Sources{{"rag", "r"}},
                                 Sources{{"default", "d"}, {"tool_use", "t"}}}) {
    EXPECT_EQ(chat_templates_from_json(chat_templates_to_json(sources)), sources);
  }
  EXPECT_EQ(chat_templates_to_json({{"default", "d"}}), "d");  // format of earlier versions
  EXPECT_TRUE(chat_templates_from_json(3).empty());
  GgufMetadata words{{"tokenizer.chat_template.rag", std::string("older")},
                     {"tokenizer.chat_templates", std::vector<std::string>{"rag"}}};
  set_gguf_chat_templates({{"default", "d"}, {"tool-use", "t"}}, words);
  EXPECT_EQ(words,
            (GgufMetadata{{"tokenizer.chat_template", std::string("d")},
                          {"tokenizer.chat_template.tool_use", std::string("t")},
                          {"tokenizer.chat_templates", std::vector<std::string>{"tool_use"}}}));
}

}  // namespace
}  // namespace trireme::test_chat_template_sources
