#include "server/control_api.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>

#include "server/query.h"
#include "server/request_fields.h"

namespace strata::server {

namespace json = boost::json;

namespace {

constexpr std::string_view kSlotPrefix = "/slots/";
constexpr std::size_t kLongestName = 200;

bool blank(std::string_view text) {
  return text.find_first_not_of(" \t\r\n") == text.npos;
}

// The body's object; none is an empty one.
Answer<json::object> optional_body(const HttpRequest& request, std::span<const Field> fields) {
  if (blank(request.body)) return json::object();
  auto body = parse_body(request.body);
  if (!body) return passed_on(body);
  if (auto known = check_fields(*body, fields); !known) return passed_on(known);
  return body;
}

Answer<void> check_model(const Service& service, const HttpRequest& request) {
  constexpr std::array kFields = {Field{"model"}};
  auto body = optional_body(request, kFields);
  if (!body) return passed_on(body);
  auto model = read_string(*body, "model");
  if (!model) return passed_on(model);
  if (*model && !service.serves(**model)) {
    return tl::unexpected<ApiError>(
        ApiError{404, "there is no such model; GET /v1/models lists what is served", "model",
                 "model_not_found"});
  }
  return {};
}

// What is answered when it is done.
EngineProcess::Done reply(const StatusContext& context, const HttpRequest& request,
                          const Writer& writer) {
  const bool long_form = request.path.starts_with("/v1/");
  return [context, writer, long_form](const Status& status) {
    if (!status) {
      ApiError error = api_error(status.error());
      // Whatever it is, it is not the request that is wrong.
      error.status = status.error().code == ErrorCode::exhausted ? 409 : 503;
      return send_openai_error(*writer, error);
    }
    send_json(*writer, long_form ? status_json(context) : health_json(context));
  };
}

EngineProcess* process_of(const StatusContext& context, const Writer& writer) {
  EngineProcess* process = context.service->options().process;
  if (process == nullptr) {
    send_openai_error(*writer, {501,
                                "the engine runs inside the server and stays loaded; serve with "
                                "--engine process",
                                {},
                                "not_supported"});
  }
  return process;
}

Answer<std::uint32_t> slot_number(const Service& service, std::string_view text) {
  std::uint32_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() ||
      number >= service.facts().parallel) {
    return refuse(404, "id_slot", "there is no such slot; GET /slots lists 0 to {}",
                  service.facts().parallel - 1);
  }
  return number;
}

// The name that save and restore are given.
Answer<std::string> slot_file(const HttpRequest& request) {
  constexpr std::array kFields = {Field{"filename"}};
  auto body = optional_body(request, kFields);
  if (!body) return passed_on(body);
  auto name = read_string(*body, "filename");
  if (!name) return passed_on(name);
  if (!*name) return refuse(400, "filename", "'filename' is missing");
  if (auto plain = check_file_name(**name, "filename"); !plain) return passed_on(plain);
  return std::move(**name);
}

// llama.cpp's answers.
json::object slot_json(ConversationTask::Kind kind, std::uint32_t slot, const std::string& file,
                       const ConversationResult& result,
                       std::chrono::steady_clock::time_point begun) {
  using Kind = ConversationTask::Kind;
  const std::size_t tokens = result.tokens.size();
  if (kind == Kind::erase) return {{"id_slot", slot}, {"n_erased", tokens}};
  const bool save = kind == Kind::save;
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begun;
  return {{"id_slot", slot},
          {"filename", file},
          {save ? "n_saved" : "n_restored", tokens},
          {save ? "n_written" : "n_read", result.bytes},
          {"timings", {{save ? "save_ms" : "restore_ms", took.count()}}}};
}

// What is wrong with a file is wrong with the request, which names it (the folder is nobody's
// business); a full disk has a status of its own.
ApiError slot_error(const Error& error, const std::string& folder) {
  ApiError answer = api_error(error, "action");
  if (const auto at = answer.message.find(folder); at != std::string::npos)
    answer.message.erase(at, folder.size());
  if (error.code == ErrorCode::corrupt) answer.status = 400;
  if (error.code == ErrorCode::io && error.message.find(std::strerror(ENOSPC)) != std::string::npos)
    answer.status = 507;
  return answer;
}

std::string upper(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 32);
  }
  return out;
}

// Names that Windows takes for a device, with or without an ending.
bool is_device(std::string_view name) {
  std::string stem = upper(name.substr(0, name.find('.')));
  while (stem.ends_with(' ')) stem.pop_back();
  constexpr std::array<std::string_view, 6> kDevices = {"CON", "PRN",    "AUX",
                                                        "NUL", "CONIN$", "CONOUT$"};
  if (std::find(kDevices.begin(), kDevices.end(), stem) != kDevices.end()) return true;
  const bool port = stem.starts_with("COM") || stem.starts_with("LPT");
  if (!port) return false;
  const std::string_view number = std::string_view(stem).substr(3);
  // Superscripts count as digits there.
  constexpr std::array<std::string_view, 3> kSuperscripts = {"\u00B9", "\u00B2", "\u00B3"};
  return (number.size() == 1 && number[0] >= '0' && number[0] <= '9') ||
         std::find(kSuperscripts.begin(), kSuperscripts.end(), number) != kSuperscripts.end();
}

bool is_control(std::string_view text, std::size_t at) {
  const auto byte = static_cast<unsigned char>(text[at]);
  if (byte < 0x20 || byte == 0x7F) return true;
  // U+0080 to U+009F
  return byte == 0xC2 && at + 1 < text.size() && static_cast<unsigned char>(text[at + 1]) < 0xA0;
}

}  // namespace

Answer<void> check_file_name(std::string_view name, std::string_view param) {
  const auto bad = [&](std::string_view why) -> Answer<void> {
    return refuse(400, param, "'{}' must be a plain file name: {}", param, why);
  };
  if (name.empty()) return bad("it is empty");
  if (name.size() > kLongestName)
    return bad(fmt::format("it has {} bytes, at most {} are allowed", name.size(), kLongestName));
  if (presentable(name) != name) return bad("it is no valid Unicode");
  for (std::size_t i = 0; i < name.size(); ++i) {
    if (is_control(name, i)) return bad("it holds a control character");
  }
  if (name.find_first_of("/\\") != name.npos) return bad("it holds a separator");
  if (name.find(':') != name.npos) return bad("it names a drive or a stream");
  if (name.find_first_of("<>\"|?*") != name.npos)
    return bad("it holds a character that not every system allows");
  if (name.starts_with('.')) return bad("it begins with a dot");
  if (name.ends_with('.') || name.ends_with(' ')) return bad("it ends with a dot or a blank");
  if (is_device(name)) return bad("it is the name of a device");
  return {};
}

void serve_load(const StatusContext& context, const HttpRequest& request, const Writer& writer) {
  EngineProcess* process = process_of(context, writer);
  if (process == nullptr) return;
  if (auto known = check_model(*context.service, request); !known)
    return send_openai_error(*writer, known.error());
  process->load(reply(context, request, writer));
}

void serve_unload(const StatusContext& context, const HttpRequest& request, const Writer& writer) {
  EngineProcess* process = process_of(context, writer);
  if (process == nullptr) return;
  if (auto known = check_model(*context.service, request); !known)
    return send_openai_error(*writer, known.error());
  process->unload(reply(context, request, writer));
}

namespace {

Answer<void> share(Service& service, std::string_view text) {
  auto body = parse_body(text);
  if (!body) return passed_on(body);
  constexpr std::array kMembers = {Field{"defaults"}};
  if (auto done = check_fields(*body, kMembers); !done) return done;
  if (!body->contains("defaults"))
    return refuse(400, "defaults", "'defaults' is missing: an object, or null to clear it");
  auto fields = read_object(*body, "defaults");
  if (!fields) return passed_on(fields);
  return service.share_settings(*fields == nullptr ? boost::json::object() : **fields);
}

}  // namespace

void serve_settings(const StatusContext& context, const HttpRequest& request,
                    const Writer& writer) {
  Service& service = *context.service;
  if (request.method == "POST") {
    if (auto shared = share(service, request.body); !shared)
      return send_openai_error(*writer, shared.error());
  }
  send_json(*writer, {{"defaults", service.shared_settings()},
                      {"in_force", settings_json(service.defaults()->settings)}});
}

void serve_slot_action(const StatusContext& context, const HttpRequest& request,
                       const Writer& writer) {
  const std::string action = query_value(request.query, "action").value_or("");
  if (action != "save" && action != "restore" && action != "erase") {
    return send_openai_error(*writer,
                             {400, "'action' must be save, restore or erase", "action", {}});
  }
  auto slot =
      slot_number(*context.service, std::string_view(request.path).substr(kSlotPrefix.size()));
  if (!slot) return send_openai_error(*writer, slot.error());
  std::string file;
  if (action != "erase") {
    if (auto named = assign(file, slot_file(request)); !named)
      return send_openai_error(*writer, named.error());
    if (context.service->options().slot_save_path.empty()) {
      return send_openai_error(*writer, {501,
                                         "slots are saved nowhere; start the server with "
                                         "--slot-save-path FOLDER",
                                         "action", "not_supported"});
    }
  }
  using Kind = ConversationTask::Kind;
  const Kind kind = action == "save"      ? Kind::save
                    : action == "restore" ? Kind::restore
                                          : Kind::erase;
  const std::string folder = context.service->options().slot_save_path + "/";
  context.service->slot_task(
      kind, *slot, folder + file,
      [writer, kind, file, folder, slot = *slot,
       begun = std::chrono::steady_clock::now()](const Result<ConversationResult>& result) {
        if (!result) return send_openai_error(*writer, slot_error(result.error(), folder));
        send_json(*writer, slot_json(kind, slot, file, *result, begun));
      });
}

}  // namespace strata::server
