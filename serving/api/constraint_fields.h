// Constraint fields of a request (structured outputs), under the names of OpenAI, vLLM, llama.cpp
// and SGLang. Unknown members are rejected by name, so that no request is served without a
// constraint that it contains. For .cpp files only (includes the JSON library).
#pragma once

#include <span>

#include "serving/api/field_table.h"
#include "serving/api/requests.h"

namespace trireme {

inline constexpr size_t kMaxConstraintBytes = 64 << 10;  // of a schema, expression or grammar
inline constexpr size_t kMaxConstraintChoices = 1024;

// Reads {"type": T, ...}. T is "text"; "json_object", with an optional schema in `schema` or
// `json_schema.schema`; "json_schema", with either; "grammar" with `grammar`; "regex" with
// `pattern`.
void read_response_format(GenerationRequest& request, const ApiJson& value, const Field& field);
// Reads an object with exactly one of json, json_object, regex, choice and grammar.
void read_structured_outputs(GenerationRequest& request, const ApiJson& value, const Field& field);
// Reads a field that is one constraint by itself. member: the same constraint's name within
// structured_outputs.
void read_constraint(GenerationRequest& request, const char* member, const ApiJson& value,
                     const Field& field);

// Throws ApiError 400 for an unknown field that looks like a constraint, or like a misspelling of
// one.
void refuse_unknown_constraints(const ApiJson& object, std::span<const Field> fields);

template <class Request>
void add_constraint_fields(FieldTable<Request>& t) {
  t.other("response_format", FieldKind::kObject, "", R"({"required":["type"]})",
          "Constraint on the completion: {\"type\": \"text\", \"json_object\", \"json_schema\", "
          "\"grammar\" or \"regex\"}.",
          read_response_format);
  t.other("structured_outputs", FieldKind::kObject, "", "",
          "Constraint on the completion: one of json, json_object, regex, choice, grammar.",
          read_structured_outputs);
  struct Alias {
    const char *name, *member, *shape, *help;
  };
  constexpr char kSchema[] = R"({"type":["object","boolean","string","null"]})";
  constexpr char kText[] = R"({"type":["string","null"]})";
  constexpr char kTexts[] = R"({"type":["array","null"],"items":{"type":"string"}})";
  for (const Alias& alias :
       {Alias{"json_schema", "json", kSchema, "llama.cpp's name of structured_outputs.json."},
        Alias{"grammar", "grammar", kText, "llama.cpp's name of structured_outputs.grammar."},
        Alias{"regex", "regex", kText, "SGLang's name of structured_outputs.regex."},
        Alias{"ebnf", "grammar", kText, "SGLang's name of structured_outputs.grammar."},
        Alias{"guided_json", "json", kSchema, "vLLM's older name of structured_outputs.json."},
        Alias{"guided_regex", "regex", kText, "vLLM's older name of structured_outputs.regex."},
        Alias{"guided_choice", "choice", kTexts, "vLLM's older name of structured_outputs.choice."},
        Alias{"guided_grammar", "grammar", kText,
              "vLLM's older name of structured_outputs.grammar."}})
    t.other(alias.name, FieldKind::kOther, "", alias.shape, alias.help,
            [member = alias.member](Request& r, const ApiJson& v, const Field& f) {
              read_constraint(r, member, v, f);
            });
}

}  // namespace trireme
