// Sources of a model's chat templates, by name.
//
// A model has one template as a rule, which is "default" here; some have others beside it: one for
// conversations with tools ("tool_use"), one for documents ("rag"). They are found where
// transformers 5 and llama.cpp find them:
//
//   chat_template.jinja, additional_chat_templates/NAME.jinja   beside the tokenizer
//   "chat_template" of tokenizer_config.json   without such files: a string, a list of {"name",
//                                              "template"}, or an object of them by name
//   tokenizer.chat_template, tokenizer.chat_template.NAME   of a .gguf, which precede both
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace trireme {

using ChatTemplateSources = std::map<std::string, std::string>;
inline constexpr const char* kDefaultChatTemplate = "default";
inline constexpr const char* kToolUseChatTemplate = "tool_use";
inline constexpr const char* kGgufChatTemplate = "tokenizer.chat_template";
inline constexpr size_t kMaxChatTemplateBytes = 1 << 20;

// Templates of a tokenizer as load_tokenizer() takes it; none for "byte" and for "".
ChatTemplateSources find_chat_templates(const std::string& tokenizer);
ChatTemplateSources chat_templates_of(const std::string& tokenizer);  // InputError without one

ChatTemplateSources gguf_chat_templates(const std::string& path);  // in a file, alone

// Template that a user gives: the name of one of `own`, which is then the only one, a file
// that is one, or a tokenizer's directory that has some. InputError if it is none of these.
ChatTemplateSources read_chat_templates(const std::string& given, const ChatTemplateSources& own);

// Name of the template of these that renders a conversation, as get_chat_template() of transformers
// 5 chooses: the one that is asked for ("": none), else "tool_use" where tools are given, else
// "default". InputError with the names where there is no such template.
std::string chosen_chat_template(const ChatTemplateSources& sources, bool has_tools,
                                 const std::string& asked = "");
std::string chat_template_names(const ChatTemplateSources& sources);  // "default", "tool_use"

// The names of message members that a template's code reads, as .name, ['name'], .get('name') or
// 'name' in ...: every string and every attribute in it. InputError where it is not understood.
std::vector<std::string> members_read(const std::string& source);

// As checkpoints keep them: the string where "default" is the only one, else an object by name.
// Reading: anything else is none.
nlohmann::ordered_json chat_templates_to_json(const ChatTemplateSources& sources);
ChatTemplateSources chat_templates_from_json(const nlohmann::ordered_json& json);

// Writes the files above into a directory, in place of those that are there. Where a template's
// name is no name of a file ("a/b"), all go as a list to "chat_template" of tokenizer_config.json
// instead. Nothing changes where there are no sources.
void write_chat_template_files(const ChatTemplateSources& sources, const std::string& directory);
bool are_names_of_files(const ChatTemplateSources& sources);
nlohmann::ordered_json chat_templates_to_list(const ChatTemplateSources& sources);
// The file of the template of this name, and the files that are there, relative to the directory.
std::string chat_template_file(const std::string& name);
std::vector<std::string> chat_template_files(const std::string& directory);

}  // namespace trireme
