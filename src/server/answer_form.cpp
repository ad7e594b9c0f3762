#include "server/answer_form.h"

#include <algorithm>
#include <boost/json.hpp>
#include <functional>
#include <mutex>
#include <set>

#include "base/json_number.h"
#include "chat/tool_types.h"
#include "constrain/gbnf.h"
#include "constrain/json_schema.h"
#include "constrain/time_limit.h"

namespace strata::server {

namespace json = boost::json;

namespace {

// Line breaks stand in front, so that a value is any text without "\n</parameter>".
constexpr constrain::FieldMarks kMarks = {"\n<parameter=", ">\n", "\n</parameter>"};
constexpr std::size_t kMaxChoices = 4096;

// A literal of a grammar.
std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    switch (c) {
      case '"':
      case '\\':
        out += '\\';
        out += c;
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      default:
        out += c;
    }
  }
  return out + '"';
}

std::string json_text(std::string_view text) {
  return json::serialize(json::string(text));
}

// Schemas may take a while to look at. One is looked at here at a time, and not for long, so that
// other requests keep a thread; what is not looked at to the end, the engine refuses in the same
// words before it reads the prompt. This is here to name the field, and nothing else may depend on
// it.
Status unless_busy(const std::function<Status()>& check) {
  constexpr double kSeconds = 0.1;
  static std::mutex looking;
  const std::unique_lock lock(looking, std::try_to_lock);
  if (!lock) return {};
  const constrain::TimeLimit time(kSeconds);
  Status status = check();
  return time.passed() ? Status() : status;
}

Answer<void> read_schema(const json::value& schema, std::string_view field, Generation& request) {
  const Status status = unless_busy([&]() -> Status {
    constrain::Grammar grammar;
    STRATA_TRY(constrain::json_schema(grammar, schema));
    return grammar.status();
  });
  if (!status) return refuse(400, field, "'{}': {}", field, status.error().message);
  request.form = "%json " + write_json(schema);
  return {};
}

Answer<void> read_grammar(const json::value& text, std::string_view field, Generation& request) {
  if (!text.is_string()) return refuse(400, field, "'{}' must be a string", field);
  const std::string_view grammar = view(text.get_string());
  if (grammar.empty()) return {};
  const Status status = unless_busy([&]() -> Status {
    // Whether a literal names a token of the model is the engine's to say.
    STRATA_TRY(
        constrain::parse_gbnf(grammar, [](std::string_view) { return std::optional<TokenId>(0); }));
    return {};
  });
  if (!status) return refuse(400, field, "'{}': {}", field, status.error().message);
  request.form = "%grammar " + json_text(grammar);
  return {};
}

Answer<void> read_regex(const json::value& text, std::string_view field, Generation& request) {
  if (!text.is_string()) return refuse(400, field, "'{}' must be a string", field);
  const Status status = unless_busy([&]() -> Status {
    STRATA_ASSIGN(const auto language,
                  constrain::regex(view(text.get_string()), constrain::Match::whole));
    if (language.is_nothing())
      return fail(ErrorCode::invalid_argument, "the pattern matches no text at all");
    return {};
  });
  if (!status) return refuse(400, field, "'{}': {}", field, status.error().message);
  request.form = "%regex " + json_text(view(text.get_string()));
  return {};
}

Answer<void> read_choices_of_text(const json::value& value, std::string_view field,
                                  Generation& request) {
  const auto* list = value.if_array();
  if (list == nullptr || list->empty() || list->size() > kMaxChoices)
    return refuse(400, field, "'{}' must be an array of 1 to {} strings", field, kMaxChoices);
  for (const json::value& one : *list) {
    if (!one.is_string() || one.get_string().empty())
      return refuse(400, field, "'{}' must hold strings that are not empty", field);
    request.form += (request.form.empty() ? "(" : " | ") + quoted(view(one.get_string()));
  }
  request.form += ")";
  return {};
}

const json::object& function_of(const json::value& tool) {
  return tool.as_object().at("function").as_object();
}

std::string_view name_of(const json::value& tool) {
  return view(function_of(tool).at("name").as_string());
}

json::value schema_of(const json::value& tool) {
  const json::value* parameters = given(function_of(tool), "parameters");
  return parameters == nullptr ? json::object{{"type", "object"}} : *parameters;
}

bool is_strict(const json::value& tool) {
  const json::value* strict = given(function_of(tool), "strict");
  return strict != nullptr && strict->is_bool() && strict->get_bool();
}

// How the arguments of its calls are read (chat::argument_value()), for constrain::FieldReader.
json::object reader_of(const json::value& tool) {
  const auto types_of = [](const chat::ParameterType& type) {
    json::array names;
    for (const auto& [name, has] :
         {std::pair{"any", type.any}, std::pair{"string", type.string},
          std::pair{"number", type.number || type.integer}, std::pair{"boolean", type.boolean},
          std::pair{"null", type.null}, std::pair{"list", type.array || type.object}})
      if (has) names.emplace_back(name);
    return names;
  };
  json::object named, words, reader;
  chat::ToolTypes(json::array{tool})
      .each(
          name_of(tool),
          [&](const std::string& name, const chat::ParameterType& type) {
            named[name] = types_of(type);
            if (type.string && !type.words.empty())
              words[name] = json::array(type.words.begin(), type.words.end());
          },
          [&](const chat::ParameterType& type) { reader["others"] = types_of(type); });
  reader["named"] = std::move(named);
  reader["words"] = std::move(words);
  return reader;
}

Status enforceable(const json::value& tool) {
  constrain::Grammar grammar;
  STRATA_ASSIGN(const auto reader, constrain::FieldReader::of(reader_of(tool)));
  const auto built = constrain::json_fields(grammar, schema_of(tool), kMarks, reader);
  return built ? grammar.status() : Status(tl::unexpected(built.error()));
}

bool has_tool(const ChatRequest& request, std::string_view name) {
  const auto& tools = request.conversation.tools;
  return std::any_of(tools.begin(), tools.end(),
                     [&](const json::value& tool) { return name_of(tool) == name; });
}

// The rules of calls.
class CallRules {
 public:
  CallRules(const ChatRequest& request, const Tokenizer& tokenizer)
      : request_(request),
        open_(mark(tokenizer, "<tool_call>")),
        close_(mark(tokenizer, "</tool_call>")) {}

  // "call ::= ..." for what may be called.
  std::string rules() const {
    std::string heads, bodies;
    std::size_t index = 0;
    for (const json::value& tool : request_.conversation.tools) {
      const auto& callable = request_.callable;
      const bool may = callable.empty() ||
                       std::find(callable.begin(), callable.end(), name_of(tool)) != callable.end();
      if (!may) continue;
      const std::string rule = fmt::format("tool-{}", index++);
      heads += (heads.empty() ? "" : " | ") + rule;
      bodies += fmt::format("{} ::= {} {} \"\\n</function>\\n\"\n", rule,
                            quoted(fmt::format("<function={}>", name_of(tool))), fields(tool));
    }
    return fmt::format("call ::= {} \"\\n\" ({}) {}\n{}", open_, heads, close_, bodies);
  }
  const std::string& open() const { return open_; }

 private:
  static std::string mark(const Tokenizer& tokenizer, std::string_view literal) {
    const auto id = tokenizer.special(literal);
    return id ? fmt::format("<[{}]>", *id) : quoted(literal);
  }
  // Arguments by the schema; those of a tool that is not strict, and whose schema cannot be
  // enforced, by their form alone.
  static std::string fields(const json::value& tool) {
    return fmt::format("{} {} {} {} {} {}", is_strict(tool) ? "%fields" : "%fields-if-able",
                       json_text(kMarks.open), json_text(kMarks.middle), json_text(kMarks.close),
                       write_json(schema_of(tool)), json::serialize(reader_of(tool)));
  }

  const ChatRequest& request_;
  std::string open_, close_;
};

}  // namespace

Answer<void> read_format(const json::value& format, std::string_view field, bool flat,
                         Generation& request) {
  const auto* object = object_of(format);
  const json::value* type = object == nullptr ? nullptr : given(*object, "type");
  if (type == nullptr || !type->is_string())
    return refuse(400, field, "'{}' must be an object with a 'type'", field);
  const std::string_view word = view(type->get_string());
  const auto member = [&](const char* key) { return given(*object, key); };
  if (word == "text") return {};
  if (word == "json_object") {
    const json::value* schema = member("schema");  // as llama.cpp has it
    if (schema != nullptr) return read_schema(*schema, fmt::format("{}.schema", field), request);
    request.form = "%object";
    return {};
  }
  if (word == "json_schema") {
    const json::value* holder = flat ? &format : member("json_schema");
    const json::value* schema =
        holder == nullptr || !object_of(*holder) ? nullptr : given(holder->get_object(), "schema");
    const std::string place = fmt::format("{}{}.schema", field, flat ? "" : ".json_schema");
    if (schema == nullptr) return refuse(400, place, "'{}' is missing", place);
    return read_schema(*schema, place, request);
  }
  for (const auto& [name, read] :
       {std::pair{"grammar", &read_grammar}, std::pair{"regex", &read_regex}}) {
    if (word != name) continue;
    const json::value* value = member(name);
    const std::string place = fmt::format("{}.{}", field, name);
    if (value == nullptr) return refuse(400, place, "'{}' is missing", place);
    return read(*value, place, request);
  }
  return refuse(400, field,
                "'{}.type' is '{}'; known are text, json_object, json_schema, grammar and regex",
                field, word);
}

Answer<void> read_form(const json::object& body, Generation& request) {
  std::string_view first;
  for (const Field& field : kFormFields) {
    const json::value* value = given(body, field.name);
    if (value == nullptr) continue;
    const std::string before = std::exchange(request.form, {});
    Answer<void> done;
    if (field.name == "response_format") {
      done = read_format(*value, field.name, false, request);
    } else if (field.name == "grammar" || field.name == "guided_grammar") {
      done = read_grammar(*value, field.name, request);
    } else if (field.name == "guided_regex") {
      done = read_regex(*value, field.name, request);
    } else if (field.name == "guided_choice") {
      done = read_choices_of_text(*value, field.name, request);
    } else {
      done = read_schema(*value, field.name, request);
    }
    if (!done) return done;
    if (!before.empty() && !request.form.empty()) {
      return refuse(400, field.name, "'{}' and '{}' both say what the answer must be; send one",
                    first, field.name);
    }
    if (request.form.empty()) {
      request.form = before;
    } else {
      first = field.name;
    }
  }
  return {};
}

Answer<void> force_call(ChatRequest& request, std::string_view name) {
  constexpr std::string_view kField = "tool_choice";
  if (request.conversation.tools.empty())
    return refuse(400, kField, "'tool_choice' asks for a call, but there are no 'tools'");
  if (!name.empty()) {
    if (!has_tool(request, name))
      return refuse(400, kField, "'tool_choice' names '{}', which is none of the 'tools'", name);
    request.callable = {std::string(name)};
    request.one_call = true;
  }
  if (!request.form.empty()) {
    return refuse(400, kField,
                  "'tool_choice' asks for a call and another field for text of a form; send one");
  }
  request.must_call = true;
  return {};
}

Answer<void> read_tool_choice(const json::value& choice, ChatRequest& request) {
  constexpr std::string_view kField = "tool_choice";
  if (choice.is_string()) {
    const std::string_view word = view(choice.get_string());
    if (word == "auto") return {};
    if (word == "required") return force_call(request);
    if (word == "none") {
      request.conversation.tools.clear();
      return {};
    }
  }
  const auto* object = object_of(choice);
  const json::value* type = object == nullptr ? nullptr : given(*object, "type");
  const std::string_view word =
      type != nullptr && type->is_string() ? view(type->get_string()) : std::string_view();
  const auto name_in = [&](const json::object& holder) {
    const json::value* nested = given(holder, "function");
    const json::object* place = nested != nullptr ? object_of(*nested) : &holder;
    const json::value* name = place == nullptr ? nullptr : given(*place, "name");
    return name != nullptr && name->is_string() ? view(name->get_string()) : std::string_view();
  };
  if (word == "function" || word == "custom") {
    const std::string_view name = name_in(*object);
    if (name.empty()) return refuse(400, kField, "'tool_choice' of a function needs its 'name'");
    return force_call(request, name);
  }
  if (word == "allowed_tools") {
    const json::value* nested = given(*object, "allowed_tools");
    const json::object& inner =
        nested != nullptr && object_of(*nested) ? nested->get_object() : *object;
    const json::value* tools = given(inner, "tools");
    const json::value* mode = given(inner, "mode");
    if (tools == nullptr || !tools->is_array() || tools->get_array().empty())
      return refuse(400, kField, "'tool_choice' of allowed tools needs 'tools'");
    for (const json::value& tool : tools->get_array()) {
      const std::string_view name =
          object_of(tool) ? name_in(tool.get_object()) : std::string_view();
      if (!has_tool(request, name))
        return refuse(400, kField, "'tool_choice' allows '{}', which is none of the 'tools'", name);
      request.callable.emplace_back(name);
    }
    if (mode != nullptr && mode->is_string() && mode->get_string() == "required")
      return force_call(request);
    return {};
  }
  return refuse(400, kField,
                "'tool_choice' is \"auto\", \"none\", \"required\", or an object of the type "
                "function or allowed_tools");
}

Answer<void> check_tools(const ChatRequest& request) {
  std::set<std::string_view> names;
  for (std::size_t i = 0; i < request.conversation.tools.size(); ++i) {
    const std::string_view name = name_of(request.conversation.tools[i]);
    if (!names.insert(name).second) {
      return refuse(400, "tools",
                    "'tools' has two tools of the name '{}'; a call could not say which is meant",
                    name);
    }
  }
  const json::array& tools = request.conversation.tools;
  std::size_t at = 0;
  const Status status = unless_busy([&]() -> Status {
    for (; at < tools.size(); ++at)
      if (is_strict(tools[at])) STRATA_TRY(enforceable(tools[at]));
    return {};
  });
  if (status) return {};
  const std::string place = fmt::format("tools[{}]", at);
  return refuse(400, place, "'{}' ('{}') is strict, but its schema cannot be enforced: {}", place,
                name_of(tools[at]), status.error().message);
}

std::string answer_grammar(const Generation& request) {
  return request.form.empty() ? "" : "root ::= " + request.form + "\n";
}

std::string answer_grammar(const ChatRequest& request, PromptEnd end, const Tokenizer& tokenizer) {
  const json::array& tools = request.conversation.tools;
  const bool strict =
      !request.callable.empty() || std::any_of(tools.begin(), tools.end(), is_strict);
  if (request.form.empty() && !request.must_call && !strict) return {};
  const auto think_open = tokenizer.special("<think>"), think_close = tokenizer.special("</think>");
  std::string root = "root ::= ";
  std::string rules;
  if (think_open && think_close && end != PromptEnd::thought) {
    // Text of a form may begin with line breaks itself: those before it must be a known number,
    // which is what templates write and OutputParser takes off.
    rules += fmt::format("thought ::= !<[{0}]>* <[{0}]> \"\\n\"{{{1},2}}\n", *think_close,
                         request.form.empty() ? 0 : 2);
    root +=
        end == PromptEnd::in_thinking ? "thought " : fmt::format("(<[{}]> thought)? ", *think_open);
  }
  const std::string_view more = request.one_call ? "" : " (\"\\n\"? call)*";
  if (tools.empty()) {
    root += request.form;
  } else {
    const CallRules calls(request, tokenizer);
    rules += calls.rules();
    if (request.must_call) {
      root += fmt::format("call{} \"\\n\"?", more);
    } else if (!request.form.empty()) {
      root += fmt::format("({} | call{})", request.form, more);
    } else {
      // Free text, in which a call is one of those.
      const auto mark = tokenizer.special("<tool_call>");
      rules += mark ? fmt::format("free ::= !<[{}]>*\n", *mark)
                    : std::string("free ::= %until \"<tool_call>\"\n");
      root += request.one_call ? "free call?" : "free (call free)*";
    }
  }
  return root + "\n" + rules;
}

}  // namespace strata::server
