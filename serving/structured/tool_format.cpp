#include "serving/structured/tool_format.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <set>

#include "engine/io/strict_json.h"
#include "serving/structured/json_schema_grammar.h"

namespace trireme {
namespace {

using Node = Grammar::Node;
using Json = nlohmann::ordered_json;

struct Form {
  ToolFormat format;
  const char *name, *marker;
  const char *before, *between, *after;  // text around the calls
  const char* arguments;                 // name of the member with the arguments
};
constexpr std::array<Form, 3> kForms = {{
    {ToolFormat::kHermes, "hermes", "<tool_call>", "<tool_call>\n", "\n</tool_call>\n<tool_call>\n",
     "\n</tool_call>", "arguments"},
    {ToolFormat::kLlama3, "llama3_json", "<|python_tag|>", "", "; ", "", "parameters"},
    {ToolFormat::kMistral, "mistral", "[TOOL_CALLS]", "[", ", ", "]", "arguments"},
}};

const Form* form_of(ToolFormat format) {
  for (const Form& form : kForms)
    if (form.format == format) return &form;
  return nullptr;
}

Node one_call(JsonGrammar& json, const Form& form, const Json& tool) {
  Grammar& g = json.grammar();
  const Node name =
      g.literal(concat(R"({"name": )", tool["name"].dump(), R"(, ")", form.arguments, R"(": )"));
  Node arguments = g.literal("{}");
  if (tool.contains("parameters")) {
    Json parameters = tool["parameters"];
    if (parameters.is_object() && !parameters.contains("type") && !parameters.contains("$ref"))
      parameters["type"] = "object";
    try {
      arguments = json_schema_grammar(json, parameters.dump());
    } catch (const InputError& error) {
      fail_input("the tool ", tool["name"].get<std::string>(), ": ", error.what());
    }
  }
  return g.sequence({name, arguments, g.literal("}")});
}

// State of the search for `marker` (Knuth, Morris and Pratt 1977) after its first `found`
// characters and `c`.
size_t next_found(std::string_view marker, size_t found, char c) {
  const std::string read = concat(marker.substr(0, found), std::string(1, c));
  size_t longest = std::min(read.size(), marker.size());
  while (!read.ends_with(marker.substr(0, longest))) --longest;
  return longest;
}

// Any text without the marker, optionally followed by the marker and `calls`. no_object: the first
// character other than white space must not be a brace.
Node text_then_calls(Grammar& g, std::string_view marker, Node calls, bool no_object) {
  std::vector<int32_t> rules;  // by matched characters of the marker
  for (size_t i = 0; i < marker.size(); ++i) rules.push_back(g.add_rule());
  CharSet in_marker;
  for (const char c : marker) {
    const auto code = static_cast<uint32_t>(static_cast<unsigned char>(c));
    in_marker.push_back({code, code});
  }
  const auto other = [&](CharSet but) {
    but.insert(but.end(), in_marker.begin(), in_marker.end());
    return g.chars(complement(make_char_set(but)));
  };
  const auto ways_on = [&](size_t found, std::vector<Node>& ways) {
    for (const char c : std::set<char>(marker.begin(), marker.end())) {
      const size_t next = next_found(marker, found, c);
      const Node behind = next == marker.size() ? calls : g.call(rules[next]);
      ways.push_back(g.sequence({g.literal(std::string_view(&c, 1)), behind}));
    }
  };
  for (size_t found = 0; found < marker.size(); ++found) {
    std::vector<Node> ways = {g.literal(""), g.sequence({other({}), g.call(rules[0])})};
    ways_on(found, ways);
    g.define(rules[found], g.choice(std::move(ways)));
  }
  if (!no_object) return g.call(rules[0]);
  const CharSet spaces = {{'\t', '\n'}, {'\r', '\r'}, {' ', ' '}};
  CharSet first = spaces;
  first.push_back({'{', '{'});
  std::vector<Node> ways = {g.literal(""), g.sequence({other(first), g.call(rules[0])})};
  ways_on(0, ways);
  return g.sequence({g.repeat(g.chars(spaces), 0, -1), g.choice(std::move(ways))});
}

}  // namespace

ToolFormat tool_format_of_templates(const ChatTemplateSources& sources) {
  auto used = sources.find(kToolUseChatTemplate);
  if (used == sources.end()) used = sources.find(kDefaultChatTemplate);
  if (used == sources.end()) return ToolFormat::kNone;
  const std::string& chat_template = used->second;
  for (const Form& form : kForms)
    if (chat_template.find(form.marker) != std::string::npos) return form.format;
  // Llama 3's template has no marker, but gives tool results the role "ipython".
  const bool llama = chat_template.find("ipython") != std::string::npos;
  return llama ? ToolFormat::kLlama3 : ToolFormat::kNone;
}

ToolFormat tool_format(std::string_view name) {
  for (const Form& form : kForms)
    if (form.name == name) return form.format;
  fail_input("\"", name,
             "\" is not a supported format of tool calls; supported: hermes, llama3_json, mistral");
}

const char* text(ToolFormat format) {
  const Form* form = form_of(format);
  return form == nullptr ? "none" : form->name;
}

const char* tool_marker(ToolFormat format) {
  const Form* form = form_of(format);
  return form == nullptr ? "" : form->marker;
}

std::string_view tool_end(ToolFormat format) {
  return format == ToolFormat::kHermes ? "</tool_call>" : "";
}

Node tool_call_grammar(Grammar& g, std::string_view tools) {
  const Json source = parse_strict_json<Json>(tools, "the tools", {.depth = 256});
  const Form& form = *form_of(tool_format(source["format"].get<std::string>()));
  JsonGrammar json(g);
  std::vector<Node> ways;
  for (const Json& tool : source["tools"]) ways.push_back(one_call(json, form, tool));
  const Node call = g.named(g.choice(std::move(ways)));
  const int64_t most = source["parallel"] == true ? -1 : 1;
  const auto calls = [&](std::string_view before) {
    return g.sequence({g.literal(before), g.separated(call, g.literal(form.between), 1, most),
                       g.literal(form.after)});
  };
  if (!source.contains("free") || source["free"] != true) return calls(form.before);
  const std::string_view marker = form.marker, before = form.before;
  const Node behind = calls(before.starts_with(marker) ? before.substr(marker.size()) : before);
  const bool bare = form.format == ToolFormat::kLlama3;  // a call needs no marker
  const Node text = text_then_calls(g, marker, behind, bare);
  return bare ? g.choice({calls(before), text}) : text;
}

}  // namespace trireme
