// Constraint fields of a request (structured outputs), under the names of OpenAI, vLLM, llama.cpp
// and SGLang. Unknown members are rejected by name, so that no request is served without a
// constraint that it contains. For .cpp files only (includes the JSON library).
#pragma once

#include <span>

#include "serving/api/field_table.h"
#include "serving/api/requests.h"

namespace trireme {

// Maximum bytes of a schema, expression, grammar or choice.
inline constexpr size_t kMaxConstraintBytes = 64 << 10;
inline constexpr size_t kMaxConstraintChoices = 1024;

// These three set request.constraint. ApiError 400 for an invalid value, or when another field has
// set a constraint already.

// Reads {"type": T, ...}. T is "text" (no constraint); "json_object", with an optional schema in
// `schema` or `json_schema.schema`; "json_schema", with the schema in one of these two; "grammar"
// with `grammar`; "regex" with `pattern`.
void read_response_format(GenerationRequest& request, const ApiJson& value, const Field& field);
// Reads an object with exactly one of json, json_object, regex, choice and grammar; json_object
// false sets no constraint. Options of vLLM's backends are ignored where they change nothing, else
// ApiError 501.
void read_structured_outputs(GenerationRequest& request, const ApiJson& value, const Field& field);
// Reads a field that is one constraint by itself; "" sets none. member: the same constraint's name
// within structured_outputs.
void read_constraint(GenerationRequest& request, const char* member, const ApiJson& value,
                     const Field& field);

// Throws ApiError 400 for a field that is not in `fields`, has a value other than null, false or
// empty, and has a name like that of a constraint, or like a misspelling of one. object: the
// request's body.
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
