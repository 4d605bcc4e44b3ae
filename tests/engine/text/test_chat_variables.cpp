// Changes that transformers makes to a conversation before rendering, and members that no template
// reads.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "engine/core/error.h"
#include "engine/text/conversation.h"

namespace trireme::test_chat_variables {
namespace {

using Json = nlohmann::ordered_json;
using Names = std::vector<std::string>;

WrittenConversation write(const char* source, const Json& variables) {
  const ChatTemplate chat(source);
  return ConversationWriter(chat, *make_byte_tokenizer()).write(variables);
}

Json answer(const char* members) {
  Json message = Json::parse(members);
  message["role"] = "assistant";
  return {{"messages", {message}}};
}

TEST(ChatVariables, ReasoningIsFoundUnderEachOfItsNames) {
  for (const char* given : {"reasoning_content", "thinking", "reasoning"})
    for (const char* read : {"reasoning_content", "thinking", "reasoning"}) {
      const std::string source = concat("{{ messages[0].", read, " }}|{{ messages[0].content }}");
      const Json message = {{given, "why"}, {"content", "so"}};
      const auto written = write(source.c_str(), answer(message.dump().c_str()));
      EXPECT_EQ(written.text, "why|so") << given << " " << read;
      EXPECT_EQ(written.unread_members, Names{});
    }
  // A template with two names for it writes the text once, under the one that transformers fills.
  EXPECT_EQ(write("{{ messages[0].reasoning_content }}{{ messages[0].reasoning }}",
                  answer(R"({"content": "", "reasoning_content": "why"})"))
                .text,
            "why");
  // A given name is kept.
  EXPECT_EQ(write("{{ messages[0].reasoning_content }}{{ messages[0].thinking }}",
                  answer(R"({"content": "", "reasoning_content": "a", "thinking": "b"})"))
                .text,
            "ab");
}

TEST(ChatVariables, TextThatNoLineReadsIsNamedOnce) {
  const char* source = "thinking:{% for m in messages %}{{ m.content }}{{ m['tone'] }}{% endfor %}";
  Json given = answer(R"({"content": "a", "thinking": "why", "tone": "dry", "plan": "first",
                          "role": "user", "tool_call_id": "1", "empty": "", "number": 1})");
  given["messages"].push_back(given["messages"][0]);
  EXPECT_EQ(write(source, given).unread_members, (Names{"thinking", "plan"}));
  // A message written as a whole includes all of its members.
  EXPECT_EQ(write("{{ messages | tojson }}", given).unread_members, Names{});
  EXPECT_EQ(write("{{ messages | tojson }}", answer(R"({"plan": "a \"b\"\nc"})")).unread_members,
            Names{});
  EXPECT_EQ(
      write("{% for m in messages %}x{% endfor %}", answer(R"({"content": "a"})")).unread_members,
      Names{"content"});
  // Linear in both: with a step for each of their products this would take an hour.
  given = answer("{}");
  given["messages"][0] = {{"role", "user"}, {"content", std::string(4 << 20, 'a')}};
  given["messages"][0]["plan"] = std::string(2 << 20, 'a') + "b";
  EXPECT_EQ(write("{% for m in messages %}{{ m.content }}{% endfor %}", given).unread_members,
            Names{"plan"});
}

TEST(ChatVariables, ToolsThatNobodyLooksAtAreAnError) {
  Json given = answer(R"({"content": "a"})");
  given["tools"] = R"([{"name": "f"}])";
  EXPECT_THROW(check_all_read(write("{{ messages[0].content }}", given)), InputError);
  EXPECT_NO_THROW(check_all_read(write("{{ tools | length }}", given)));
  given["tools"] = "[]";
  EXPECT_NO_THROW(check_all_read(write("x", given)));
}

TEST(ChatVariables, ArgumentsThatAreTextAreNamedWhereATemplateFailsAtThem) {
  const Json given =
      answer(R"({"tool_calls": [{"function": {"name": "f", "arguments": "{\"a"}}]})");
  const char* calls = "{% for c in messages[0].tool_calls %}";
  EXPECT_EQ(write(concat(calls, "{{ c.function.arguments }}{% endfor %}").c_str(), given).text,
            "{\"a");
  try {
    write(concat(calls, "{% for k, v in c.function.arguments.items() %}{{ k }}{% endfor %}",
                 "{% endfor %}")
              .c_str(),
          given);
    FAIL() << "a text has no items";
  } catch (const InputError& e) {
    EXPECT_NE(std::string(e.what()).find(
                  "messages[0].tool_calls[0].function.arguments is passed to the template as text"),
              std::string::npos)
        << e.what();
  }
}

constexpr const char* kTurns =
    "{% for m in messages %}<{{ m.role }}>{% generation %}{{ m.content }}{% endgeneration %}</s>"
    "{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}";

TEST(ChatVariables, TheLastMessageGoesOn) {
  const auto text = [](const char* source, Json messages, const Json& value = true) {
    return write(source, {{"messages", std::move(messages)}, {"continue_final_message", value}});
  };
  const Json talk = {{{"role", "user"}, {"content", "a"}},
                     {{"role", "assistant"}, {"content", "b <|endoftext|> "}}};
  const WrittenConversation whole = text(kTurns, talk);
  EXPECT_EQ(whole.text, "<user>a</s><assistant>b <|endoftext|> ");
  EXPECT_EQ(whole.breaks, (std::vector<size_t>{25}));
  ASSERT_EQ(whole.generated.size(), 2U);
  EXPECT_EQ(whole.generated[1].second, whole.text.size());
  // A template that strips the message also strips the message to continue.
  EXPECT_EQ(text("{% for m in messages %}{{ m.content | trim }} </s>{% endfor %}",
                 {{{"role", "user"}, {"content", " b c "}}})
                .text,
            "b c ");
  EXPECT_EQ(text("{% for m in messages %}{{ m.content | trim }}</s>{% endfor %}",
                 {{{"role", "user"}, {"content", " b c "}}})
                .text,
            "b c");
  EXPECT_EQ(text(kTurns, talk, false).text, write(kTurns, {{"messages", talk}}).text);
  // The last text of the parts, and another member by name.
  const char* parts = "{% for m in messages %}{{ m.content[1].text }}|{% endfor %}";
  EXPECT_EQ(text(parts, Json::parse(R"([{"role": "user", "content":
                 [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}])"))
                .text,
            "b");
  EXPECT_EQ(text("<think>{{ messages[0].reasoning_content }}</think>",
                 {{{"role", "assistant"}, {"thinking", "so"}}}, "thinking")
                .text,
            "<think>so");
}

TEST(ChatVariables, WhatCannotGoOnIsRefused) {
  const Json talk = {{{"role", "user"}, {"content", "a"}}};
  const auto refused = [&](const char* source, const Json& variables) {
    EXPECT_THROW(write(source, variables), InputError) << variables.dump();
  };
  refused(kTurns,
          {{"messages", talk}, {"continue_final_message", true}, {"add_generation_prompt", true}});
  refused(kTurns, {{"messages", talk}, {"continue_final_message", 1}});
  refused(kTurns, {{"messages", talk}, {"continue_final_message", "thinking"}});
  refused(kTurns, {{"messages", Json::array()}, {"continue_final_message", true}});
  refused(kTurns, {{"messages", {{{"role", "user"}, {"content", nullptr}}}},
                   {"continue_final_message", true}});
  refused("{{ messages[0].role }}", {{"messages", talk}, {"continue_final_message", true}});
}

}  // namespace
}  // namespace trireme::test_chat_variables
