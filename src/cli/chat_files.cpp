// Conversations of `strata chat` in files. What is saved is
//
//   {"strata_chat": 1, "model": "...", "settings": {...}, "messages": [...]}
//
// with the messages in OpenAI's form, so that other programs can read them.
#include <fmt/format.h>

#include <boost/json.hpp>
#include <span>

#include "base/file.h"
#include "base/json_number.h"
#include "cli/chat_session.h"
#include "server/openai_messages.h"

namespace strata {
namespace {

namespace json = boost::json;

constexpr std::uint64_t kMostBytes = std::uint64_t{256} << 20;  // of a saved conversation
constexpr int kVersion = 1;

// For its owner only, and there under its name once it is whole.
Status write_private(const std::string& path, const std::string& text) {
  FileSystem& files = real_files();
  const std::string partial = path + ".partial";
  if (files.exists(partial)) STRATA_TRY(files.remove(partial));
  STRATA_ASSIGN(const auto file, files.create_private(partial));
  STRATA_TRY(file->write(std::as_bytes(std::span(text))));
  STRATA_TRY(file->finish());
  const Status renamed = files.rename(partial, path);
  if (!renamed) (void)files.remove(partial);
  return renamed;
}

json::object message_json(const chat::Message& m) {
  json::object out = {{"role", m.role}, {"content", m.content}};
  if (!m.reasoning_content.empty()) out["reasoning_content"] = m.reasoning_content;
  json::array calls;
  for (const chat::ToolCall& call : m.tool_calls) {
    // The arguments are text in OpenAI's form.
    const json::string* text = call.arguments.if_string();
    calls.push_back({{"id", call.id},
                     {"type", "function"},
                     {"function",
                      {{"name", call.name},
                       {"arguments", text ? std::string(*text) : write_json(call.arguments)}}}});
  }
  if (!calls.empty()) out["tool_calls"] = std::move(calls);
  return out;
}

}  // namespace

Status save_chat(const Talk& talk, const std::string& path) {
  json::array messages;
  for (const chat::Message& m : talk.messages()) messages.push_back(message_json(m));
  const json::object out = {{"strata_chat", kVersion},
                            {"model", talk.facts().model_name},
                            {"settings", talk.own_settings()},
                            {"messages", std::move(messages)}};
  return write_private(path, write_json(out) + "\n");
}

Status load_chat(Talk& talk, const std::string& path) {
  STRATA_ASSIGN(const std::string text, real_files().read_text(path, kMostBytes));
  const std::string name = fmt::format("'{}'", path);
  STRATA_ASSIGN(const json::value value, parse_written_json_exact(text, name));
  STRATA_ASSIGN(const json::object* object, json_object(value, name));
  const json::value* version = object->if_contains("strata_chat");
  const json::value* messages = object->if_contains("messages");
  if (version == nullptr || *version != kVersion || messages == nullptr) {
    return fail(ErrorCode::invalid_argument, "{} is no conversation that /save has written", name);
  }
  auto read = server::parse_openai_messages(*messages);
  if (!read) return fail(ErrorCode::invalid_argument, "{}: {}", name, read.error().message);
  const json::value* settings = object->if_contains("settings");
  if (settings != nullptr && settings->is_object())
    STRATA_TRY(talk.set_all(settings->get_object()));
  talk.set_messages(std::move(*read));
  return {};
}

Status export_chat(const Talk& talk, const std::string& path) {
  std::string out = fmt::format("# A conversation with {}\n", talk.facts().model_name);
  for (const chat::Message& m : talk.messages()) {
    const std::string_view who = m.role == "user"     ? "Question"
                                 : m.role == "system" ? "System prompt"
                                                      : "Answer";
    out += fmt::format("\n## {}\n\n{}\n", who, m.content);
    for (const chat::ToolCall& call : m.tool_calls)
      out += fmt::format("\nCall of `{}`: `{}`\n", call.name, write_json(call.arguments));
  }
  return write_private(path, out);
}

}  // namespace strata
