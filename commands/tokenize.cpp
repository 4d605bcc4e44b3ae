#include "commands/tokenize.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "commands/model_option.h"
#include "engine/io/strict_json.h"
#include "engine/observe/log.h"
#include "engine/text/conversation.h"
#include "engine/text/tokenizer.h"

namespace trireme {
namespace {

struct TokenizeArguments {
  std::string tokenizer;
  std::string chat_template;
  bool no_special = false, parse_special = false, json = false, jsonl = false;
  bool chat = false, render = false;
};

std::string standard_input() {
  return {std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>()};
}

void print_tokenize(const std::string& text) { std::fwrite(text.data(), 1, text.size(), stdout); }

// Value of a JSON line: a string, or an object's member `key`.
nlohmann::json value_of(const std::string& line, const char* key, size_t number) {
  const std::string what = concat("line ", number, " of the input");
  auto value = parse_strict_json<nlohmann::json>(line, what);
  if (!value.is_object()) return value;
  if (!value.contains(key)) fail_input(what, " has no \"", key, "\"");
  return value[key];
}

// Calls use(value, number) for each line that is not empty.
template <class Use>
void for_each_line(const char* key, Use&& use) {
  std::string line;
  for (size_t number = 1; std::getline(std::cin, line); ++number)
    if (line.find_first_not_of(" \t\r") != std::string::npos)
      use(value_of(line, key, number), number);
}

std::vector<int32_t> ids_of(const nlohmann::json& value, const Tokenizer& tokenizer,
                            const std::string& what) {
  if (!value.is_array())
    fail_input(what, ": expected a list of ids, such as [1, 2], or {\"ids\": [1, 2]}");
  std::vector<int32_t> ids;
  for (const auto& item : value) {
    const int64_t id = item.is_number_integer() ? item.get<int64_t>() : -1;
    if (id < 0 || id >= tokenizer.vocab_size())
      fail_input(what, ": ", item.dump().substr(0, 40), " is not a token id from 0 to ",
                 tokenizer.vocab_size() - 1);
    ids.push_back(static_cast<int32_t>(id));
  }
  return ids;
}

// Parses a list of messages, or an object with messages and the template's other variables.
nlohmann::ordered_json conversation_of(const std::string& input, const std::string& what) {
  auto given = parse_strict_json<nlohmann::ordered_json>(
      input, what, {.keys_per_object = 4096, .long_integers = true});
  if (given.is_array()) given = {{"messages", given}};
  if (!given.is_object() || !given.contains("messages"))
    fail_input(what, ": expected a list of messages, or an object with \"messages\"");
  nlohmann::ordered_json variables = {{"add_generation_prompt", false}};
  variables.update(given);
  return variables;
}

void tokenize_chat(const TokenizeArguments& a) {
  const auto tokenizer = load_tokenizer(a.tokenizer);
  const ChatTemplate chat(
      a.chat_template.empty() ? chat_templates_of(a.tokenizer)
      : std::filesystem::exists(a.chat_template)
          ? read_chat_templates(a.chat_template, {})
          : read_chat_templates(a.chat_template, find_chat_templates(a.tokenizer)));
  const ConversationWriter writer(chat, *tokenizer, a.parse_special);
  std::set<std::string> unread;  // members of messages
  const auto show = [&](const std::string& input, const std::string& what) {
    const nlohmann::ordered_json conversation = conversation_of(input, what);
    WrittenConversation written;
    try {
      written = writer.write(conversation);
      check_all_read(written);
    } catch (const InputError& e) {
      fail_input(what, ": ", e.what());
    }
    for (const std::string& name : written.unread_members)
      if (unread.insert(name).second)
        log_warning(what, ": a message has text in \"", name.substr(0, 64),
                    "\", which the chat template does not read");
    if (a.render)
      return print_tokenize(a.jsonl ? nlohmann::json{{"text", written.text}}.dump() + "\n"
                                    : written.text);
    // The template has written the special tokens as text.
    const std::vector<int32_t> ids =
        tokenizer->encode(written.text, {.parse_special = true, .breaks = written.breaks});
    print_tokenize(nlohmann::json{{"ids", ids}}.dump() + "\n");
  };
  if (!a.jsonl) return show(standard_input(), "the input");
  std::string line;
  for (size_t number = 1; std::getline(std::cin, line); ++number)
    if (line.find_first_not_of(" \t\r") != std::string::npos)
      show(line, concat("line ", number, " of the input"));
}

void tokenize(const TokenizeArguments& a) {
  if (a.chat) return tokenize_chat(a);
  if (a.render || !a.chat_template.empty())
    fail_input("--render and --chat-template require --chat");
  const auto tokenizer = load_tokenizer(a.tokenizer);
  const EncodeOptions options{.add_special = !a.no_special, .parse_special = a.parse_special};
  const auto show = [&](const std::string& text) {
    const std::vector<int32_t> ids = tokenizer->encode(text, options);
    if (a.json || a.jsonl) return print_tokenize(nlohmann::json{{"ids", ids}}.dump() + "\n");
    for (const int32_t id : ids)
      std::printf("%7d  %s\n", id,
                  nlohmann::json(tokenizer->token(id))
                      .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)
                      .c_str());
  };
  if (!a.jsonl) return show(standard_input());
  for_each_line("text", [&](const nlohmann::json& text, size_t number) {
    if (!text.is_string()) fail_input("line ", number, " of the input: expected a string");
    show(text.get<std::string>());
  });
}

void detokenize(const TokenizeArguments& a) {
  const auto tokenizer = load_tokenizer(a.tokenizer);
  const auto show = [&](const nlohmann::json& ids, const std::string& what) {
    const std::string text = tokenizer->decode(ids_of(ids, *tokenizer, what), !a.no_special);
    if (!a.json && !a.jsonl) return print_tokenize(text);
    print_tokenize(nlohmann::json{{"text", text}}.dump() + "\n");
  };
  if (a.jsonl)
    return for_each_line("ids", [&](const nlohmann::json& ids, size_t number) {
      show(ids, concat("line ", number, " of the input"));
    });
  std::string input = standard_input();
  if (input.find_first_of("[{") == std::string::npos) {  // numbers separated by spaces or commas
    for (char& c : input)
      if (c == ',' || c == '\n' || c == '\t' || c == '\r') c = ' ';
    std::string list;
    for (const char c : input)
      if (c != ' ')
        list += c;
      else if (!list.empty() && list.back() != ',')
        list += ',';
    while (list.ends_with(',')) list.pop_back();
    input = concat('[', list, ']');
  }
  nlohmann::json value = parse_strict_json<nlohmann::json>(input, "the input");
  if (value.is_object() && value.contains("ids")) value = nlohmann::json(value["ids"]);
  show(value, "the input");
}

CLI::App* add(CLI::App& parent, const char* name, const char* description,
              const std::shared_ptr<TokenizeArguments>& a) {
  CLI::App* command = parent.add_subcommand(name, description);
  add_tokenizer_option(*command, a->tokenizer);
  command->add_flag("--jsonl", a->jsonl, "One value per line, in input and output");
  return command;
}

}  // namespace

void add_tokenize_commands(CLI::App& parent) {
  const auto forth = std::make_shared<TokenizeArguments>();
  CLI::App* command =
      add(parent, "tokenize", "Show the tokens of the text on standard input", forth);
  command->add_flag("--no-special", forth->no_special,
                    "Omit the special tokens that the model expects around a text (BOS)");
  command->add_flag("--parse-special", forth->parse_special,
                    "Parse special tokens such as </s> in the text (with --chat: in a message) "
                    "instead of encoding them as text");
  command->add_flag("--json", forth->json, "Print JSON: {\"ids\": [...]}");
  command->add_flag("--chat", forth->chat,
                    "The input is JSON: a list of messages, or an object with \"messages\", "
                    "\"tools\", \"add_generation_prompt\", \"continue_final_message\" ...; "
                    "rendered with the model's chat template");
  command
      ->add_option("--chat-template", forth->chat_template,
                   "Chat template for --chat: a file, a tokenizer directory that has one, or the "
                   "name of one of the model's templates (default: the model's)")
      ->type_name("PATH");
  command->add_flag("--render", forth->render,
                    "With --chat: print the rendered text instead of its tokens");
  command->footer(
      "With --jsonl, each input line is a JSON string or an object with a \"text\"; with --chat it "
      "is a conversation.");
  command->callback([forth] { tokenize(*forth); });

  const auto back = std::make_shared<TokenizeArguments>();
  command = add(parent, "detokenize", "Show the text of the token ids on standard input", back);
  command->add_flag("--no-special", back->no_special, "Omit special tokens from the text");
  command->add_flag("--json", back->json, "Print JSON: {\"text\": ...}");
  command->footer(
      "Token ids are numbers separated by spaces or commas, a JSON list, or {\"ids\": [...]}; with "
      "--jsonl one of the latter two per line.");
  command->callback([back] { detokenize(*back); });
}

}  // namespace trireme
