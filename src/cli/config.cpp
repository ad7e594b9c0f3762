#include "cli/config.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <filesystem>

#include "base/json.h"
#include "base/nearest.h"
#include "base/sizes.h"
#include "cli/checks.h"
#include "cli/data_folder.h"
#include "cli/engine_options.h"
#include "compute/kv_type.h"
#include "ple/open_table.h"
#include "server/access.h"
#include "server/defaults.h"
#include "server/thinking_budget.h"
#include "tokenizer/prompt_encoder.h"

namespace strata {

namespace json = boost::json;

namespace {

using Type = ConfigKey::Type;

constexpr std::int64_t kMaxTokens = 0xffffffff;

constexpr std::array kKeys = {
    ConfigKey{"model", Type::path, "GGUF file; empty: the demo model"},
    ConfigKey{"host", Type::text, "Address to listen on; others than loopback need a key"},
    ConfigKey{"port", Type::number, "Port to listen on, 0 for any free one", 0, 65535},
    ConfigKey{"socket", Type::path, "Listen on a unix socket at this path instead"},
    ConfigKey{"tls_cert", Type::path, "Certificate chain in PEM: serve HTTPS"},
    ConfigKey{"tls_key", Type::path, "Its key in PEM"},
    ConfigKey{"ctx", Type::number, "Tokens a conversation may hold, 0 for the model's own", 0,
              kMaxTokens},
    ConfigKey{"threads", Type::number, "0 for one per usable CPU", 0, kMostThreads},
    ConfigKey{"parallel", Type::number, "Answers made at the same time, 64 with a model", 1, 4096},
    ConfigKey{"weights", Type::text,
              "Where they lie: ram, map (the mapped file), or auto: in memory if there is room", 0,
              0, false, "auto,ram,map"},
    ConfigKey{"kv_type", Type::text,
              "How keys and values are kept: f32, f16, int8, q4_0 or k8v4 (smaller, less exact)", 0,
              0, false, "f32,f16,int8,q4_0,k8v4"},
    ConfigKey{
        "expert_ram", Type::text,
        "Memory for experts: all, a size as 12G (MiB without a unit) or a part as 25%; the others "
        "are read",
        0, INT64_MAX},
    ConfigKey{
        "expert_profile", Type::text,
        "File that remembers the most used experts, off, or auto: in the user's cache folder"},
    ConfigKey{"expert_look_ahead", Type::flag,
              "Read also what the next layer will probably need, where that pays"},
    ConfigKey{"mlock", Type::flag, "Keep weights from being swapped out"},
    ConfigKey{"ngram_table", Type::text,
              "How the n-gram table is read: auto, direct, threads, mmap or resident", 0, 0, false,
              "auto,direct,threads,mmap,resident"},
    ConfigKey{"ngram_cache", Type::number, "MiB for rows of the table that were read", 0,
              static_cast<std::int64_t>(kMaxTableCache >> 20)},
    ConfigKey{"ngram_depth", Type::number, "Reads of the table under way at the same time", 1,
              kMaxReadDepth},
    ConfigKey{"ngram_keep_alive", Type::number,
              "Milliseconds after which a silent disk is kept awake, 0 for never", 0, 3'600'000},
    ConfigKey{"drafts", Type::text, "Tokens guessed each round: auto, off, or 1 to 15", 0, 15},
    ConfigKey{"draft_source", Type::text, "Where guesses come from: mtp, lookup or both", 0, 0,
              false, "mtp,lookup,both"},
    ConfigKey{"draft_vocabulary", Type::path,
              "File of 32-bit ids that the draft block may guess; empty: the usual ones"},
    ConfigKey{"cache_ram", Type::text,
              "Memory for conversations to go on from: auto, or a size as 2G, 0 for none", 0,
              INT64_MAX},
    ConfigKey{"cache_dir", Type::path, "Folder where they survive a restart; empty: nowhere"},
    ConfigKey{"cache_disk", Type::text, "Most that they take there, as 16G", 0, INT64_MAX},
    ConfigKey{"trace", Type::path, "Write what every round of the engine did, as JSON lines"},
    ConfigKey{"engine", Type::text, "process: a child that is restarted when it dies; or inside", 0,
              0, false, "process,inside"},
    ConfigKey{"engine_silence_s", Type::number,
              "Seconds without a sign of life until the engine is killed", 1, 86'400},
    ConfigKey{"idle_unload_s", Type::number,
              "Seconds without a request after which the model is unloaded, 0 for never", 0,
              31'536'000},
    ConfigKey{"manual_load", Type::flag,
              "Refuse requests while it is unloaded instead of loading it for them"},
    ConfigKey{"script", Type::path, "Play this script instead of a model, for tests"},
    ConfigKey{"api_key", Type::list, "Keys that clients must send one of", 0, 0, true},
    ConfigKey{"allowed_hosts", Type::list, "Further names of this server: 'x', '.x.org', '*'"},
    ConfigKey{"trusted_origins", Type::list, "Pages that may use the server: 'https://x.org'"},
    ConfigKey{"cors_origins", Type::list, "Pages that may use it and read its answers"},
    ConfigKey{"aliases", Type::list, "Further names of the model"},
    ConfigKey{"sampling", Type::object, "Sampling that requests leave open, as JSON"},
    ConfigKey{"reasoning_effort", Type::text, "Thinking of requests that say nothing about it"},
    ConfigKey{"reasoning_budget_tokens", Type::number,
              "Tokens of thinking for requests that say nothing, 0 for no budget", 0, kMaxTokens},
    ConfigKey{
        "answer_room", Type::flag,
        "Without a budget, thinking leaves a quarter of the limit, at least 512, to the answer"},
    ConfigKey{"thinking_wrap_up", Type::text, "What is written where thinking is cut"},
    ConfigKey{"reasoning_close_retry", Type::flag,
              "Close thinking that the model leaves without an answer, and let it go on"},
    ConfigKey{"loop_guard", Type::text,
              "Text in circles: off, stop (ends the answer), recover (first ends the thinking)", 0,
              0, false, "off,stop,recover"},
    ConfigKey{"tool_call_recovery", Type::flag,
              "Calls of declared tools count in other shapes than the family's, too"},
    ConfigKey{"repeat_stop_tokens", Type::number,
              "One token so often in a row ends an answer, 0 for never", 0, kMaxTokens},
    ConfigKey{"fit_max_tokens", Type::flag,
              "Shorten an answer's limit to the room in the context instead of refusing it"},
    ConfigKey{"encoder_entries", Type::number,
              "Prompts whose tokens are kept, so that only new text is encoded; 0 for none", 0,
              PromptEncoder::kMostEntries},
    ConfigKey{"encoder_mib", Type::number, "MiB for them", 0, 65'536},
    ConfigKey{"encoder_replies", Type::number,
              "Answers kept as written with each of them; 0: a conversation's tokens are those of "
              "its text",
              0, PromptEncoder::kMostReplies},
    ConfigKey{"parity", Type::flag, "Pin every default that changes output, for evaluations"},
    ConfigKey{"settings_file", Type::path,
              "File that keeps the settings clients share; empty: while the server runs"},
    ConfigKey{"responses_db", Type::path, "File that keeps responses; empty: in memory"},
    ConfigKey{"slot_save_path", Type::path, "Folder where slots are saved; empty: nowhere"},
    ConfigKey{"chats_db", Type::path,
              "File that keeps chats; empty: in memory (default: in the user's data folder)"},
    ConfigKey{"chats_max", Type::number, "Chats kept, 0 to keep none", 0, 10'000'000},
    ConfigKey{"chats_mib", Type::number, "MiB for them", 1, 1'048'576},
    ConfigKey{"telemetry", Type::flag, "Sample the machine while someone looks"},
    ConfigKey{"no_web_app", Type::flag, "Serve no web app at /"},
    ConfigKey{"body_mib", Type::number, "Largest body of a request", 1, 4096},
    ConfigKey{"connections", Type::number, "Connections open at once", 1, 100'000},
    ConfigKey{"log_level", Type::text, "trace, debug, info, warning, error or off", 0, 0, false,
              "trace,debug,info,warning,error,off"},
};

json::value built_in(std::string_view name) {
  if (name == "host") return "127.0.0.1";
  if (name == "port") return 8080;
  if (name == "parallel") return 4;
  if (name == "weights" || name == "ngram_table") return "auto";
  if (name == "kv_type") return json::value(to_string(kDefaultKvType).data());
  if (name == "expert_ram") return "all";
  if (name == "expert_profile") return "auto";
  if (name == "expert_look_ahead") return true;
  if (name == "ngram_cache") return 128;
  if (name == "ngram_depth") return 64;
  if (name == "drafts" || name == "cache_ram") return "auto";
  if (name == "draft_source") return "both";
  if (name == "cache_disk") return "16G";
  if (name == "answer_room" || name == "telemetry") return true;
  if (name == "repeat_stop_tokens") return 256;
  if (name == "loop_guard") return "off";
  if (name == "thinking_wrap_up") return json::value(server::ThinkingOptions().wrap_up);
  if (name == "engine") return "process";
  if (name == "engine_silence_s") return 60;
  if (name == "encoder_entries" || name == "encoder_replies") return 4;
  if (name == "encoder_mib") return 64;
  if (name == "chats_max") return 10'000;
  if (name == "chats_mib") return 256;
  if (name == "body_mib") return 16;
  if (name == "connections") return 1024;
  if (name == "log_level") return "info";
  for (const ConfigKey& key : kKeys) {
    if (key.name != name) continue;
    if (key.type == Type::flag) return false;
    if (key.type == Type::number) return 0;
    if (key.type == Type::list) return json::array();
    if (key.type == Type::object) return json::object();
  }
  return "";
}

// Keys of the public project that this one has under another name, or not at all.
struct Foreign {
  std::string_view name, instead;
};
constexpr std::array kForeign = {
    Foreign{"exe", "it is one program here"},
    Foreign{"args", "use the keys of this file"},
    Foreign{"cwd", "relative paths are meant from the file's folder"},
    Foreign{"tokenizer", "the model file carries its tokenizer"},
    Foreign{"model_name", "the model file carries its name; use 'aliases' for further ones"},
    Foreign{"log", "the log goes to standard error; use 'log_level' for how much of it"},
    Foreign{"env", "set the environment before the start"},
    Foreign{"lib_dirs", "nothing is loaded at run time"},
    Foreign{"backend", "there is one backend, the CPU"},
    Foreign{"gpu", ""},
    Foreign{"hip_ordinal", ""},
    Foreign{"layer_split", ""},
    Foreign{"gpu_order", ""},
    Foreign{"split_skip_if_fits", ""},
    Foreign{"vision", ""},
    Foreign{"min_free_vram_mib", ""},
    Foreign{"before_load", ""},
    Foreign{"lazy_load", "the model is loaded at the start; POST /unload unloads it"},
    Foreign{"vram_elastic", ""},
    Foreign{"vram_segment_mib", ""},
    Foreign{"reasoning_loop_recovery", "use 'loop_guard'"},
    Foreign{"literal_think_guard", ""},
    Foreign{"model_card_sampling", "the model file's general.sampling.* is used, then 'sampling'"},
    Foreign{"anthropic_thinking", ""},
    Foreign{"effort_position", ""},
    Foreign{"codex_thread_titles", ""},
    Foreign{"codex_compaction_cache", ""},
    Foreign{"mcp_servers", ""},
    Foreign{"mcp", ""},
    Foreign{"api_monitor", ""},
    Foreign{"open_browser", ""},
    Foreign{"prevent_sleep", ""},
    Foreign{"replicas", ""},
    Foreign{"expert_profile_save", ""},
    Foreign{"expert_profile_save_every", ""},
};

const ConfigKey* find_key(std::string_view name) {
  const auto key = std::find_if(kKeys.begin(), kKeys.end(),
                                [&](const ConfigKey& known) { return known.name == name; });
  return key == kKeys.end() ? nullptr : &*key;
}

tl::unexpected<Error> unknown_key(std::string_view name, const std::string& file) {
  for (const Foreign& foreign : kForeign) {
    if (foreign.name != name) continue;
    return fail(ErrorCode::invalid_argument, "'{}' in '{}' is not supported{}{}", name, file,
                foreign.instead.empty() ? "" : ": ", foreign.instead);
  }
  std::vector<std::string_view> names;
  for (const ConfigKey& key : kKeys) names.push_back(key.name);
  const auto near = nearest(name, names);
  return fail(ErrorCode::invalid_argument, "unknown key '{}' in '{}'{}", name, file,
              near ? fmt::format("; did you mean '{}'?", *near)
                   : std::string("; 'strata config' lists what there is"));
}

// Whether requests may have such defaults.
Status check_defaults(const server::DefaultOptions& options) {
  const auto made = server::make_defaults(options, Sampling(), {});
  if (made) return {};
  return fail(ErrorCode::invalid_argument, "{}", made.error().message);
}

// Of a text key: whether what reads it later takes it.
Status check_text(const ConfigKey& key, std::string_view text) {
  if (key.name == "expert_ram") STRATA_TRY(expert_ram_from(text));
  if (key.name == "cache_disk") STRATA_TRY(parse_size(text));
  CacheOptions cache;
  if (key.name == "cache_ram") STRATA_TRY(set_cache_ram(cache, text));
  DraftOptions drafts;
  if (key.name == "drafts") STRATA_TRY(set_drafts(drafts, text));
  if (key.name == "reasoning_effort" && !text.empty()) {
    server::DefaultOptions requests;
    requests.reasoning_effort = std::string(text);
    STRATA_TRY(check_defaults(requests));
  }
  if (key.choices.empty()) return {};
  const std::string choices = fmt::format(",{},", key.choices);
  if (text.find(',') == text.npos && choices.find(fmt::format(",{},", text)) != choices.npos)
    return {};
  std::string words(key.choices);
  const std::size_t last = words.rfind(',');
  words.replace(last, 1, " or ");
  for (std::size_t at = 0; (at = words.find(',', at)) != words.npos; at += 2)
    words.insert(at + 1, 1, ' ');
  return fail(ErrorCode::invalid_argument, "'{}' is not known; it must be {}", text, words);
}

// Whether a client could send it as the value of a header.
bool fits_header(std::string_view key) {
  const auto control = [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7F; };
  return key.front() != ' ' && key.back() != ' ' && std::ranges::none_of(key, control);
}

// Of a list's entry: whether it could ever hold.
Status check_entry(const ConfigKey& key, std::string_view entry) {
  if (key.name == "allowed_hosts") return server::check_host_rule(entry);
  if (key.name == "trusted_origins" || key.name == "cors_origins")
    return server::check_origin_rule(entry);
  return {};
}

// One place's value, checked; `place` is "--port", "STRATA_PORT" or "'port' in 'x.json'".
Result<json::value> checked(const ConfigKey& key, json::value value, const std::string& place) {
  const auto wrong = [&](std::string_view what) {
    return fail(ErrorCode::invalid_argument, "{} must be {}", place, what);
  };
  switch (key.type) {
    case Type::text:
    case Type::path: {
      // Some words have numbers beside them: {"drafts": 3}.
      json::error_code error;
      const auto number = value.is_number() ? value.to_number<std::int64_t>(error) : -1;
      if (key.most > 0 && value.is_number() && !error && number >= key.least && number <= key.most)
        value = json::value(std::to_string(number));
      if (value.is_string()) {
        if (const Status known = check_text(key, value.get_string()); !known)
          return fail(ErrorCode::invalid_argument, "{}: {}", place, known.error().message);
        return value;
      }
      if (key.most == 0) return wrong("a string");
      return wrong(fmt::format("a string or a whole number from {} to {}", key.least, key.most));
    }
    case Type::flag:
      if (!value.is_bool()) return wrong("true or false");
      return value;
    case Type::number: {
      json::error_code error;
      const auto number = value.is_number() ? value.to_number<std::int64_t>(error) : -1;
      if (!value.is_number() || error || number < key.least || number > key.most) {
        return wrong(fmt::format("a whole number from {} to {}", key.least, key.most));
      }
      if (key.name == "ctx") {
        if (const std::string what = context_size()(std::to_string(number)); !what.empty())
          return fail(ErrorCode::invalid_argument, "{}: {}", place, what);
      }
      return json::value(number);
    }
    case Type::list: {
      if (value.is_string()) value = json::array{value};
      if (!value.is_array()) return wrong("a string or an array of strings");
      for (const json::value& one : value.get_array()) {
        if (!one.is_string()) return wrong("a string or an array of strings");
        if (one.get_string().empty()) return wrong("without empty strings");
        if (key.name == "api_key" && !fits_header(one.get_string()))
          return wrong(
              "without control characters and white space around a key: no client can send them");
        if (const Status known = check_entry(key, one.get_string()); !known)
          return fail(ErrorCode::invalid_argument, "{}: {}", place, known.error().message);
      }
      return value;
    }
    case Type::object: {
      if (!value.is_object()) return wrong("a JSON object");
      server::DefaultOptions requests;
      requests.sampling = value.get_object();
      if (const Status known = check_defaults(requests); !known)
        return fail(ErrorCode::invalid_argument, "{}: {}", place, known.error().message);
      return value;
    }
  }
  return value;
}

std::string trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin == text.npos) return {};
  return std::string(text.substr(begin, text.find_last_not_of(" \t\r\n") - begin + 1));
}

// The text of a flag or of the environment as a value of the key's type.
Result<json::value> from_text(const ConfigKey& key, const std::string& text,
                              const std::string& place) {
  switch (key.type) {
    case Type::flag:
      if (text == "true" || text == "1") return json::value(true);
      if (text == "false" || text == "0") return json::value(false);
      return fail(ErrorCode::invalid_argument, "{} must be true or false", place);
    case Type::number: {
      std::int64_t number = 0;
      const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
      const bool whole = error == std::errc() && end == text.data() + text.size();
      return checked(key, whole ? json::value(number) : json::value(text), place);
    }
    case Type::list: {
      json::array parts;
      std::string_view rest = text;
      for (;;) {
        const std::size_t comma = rest.find(',');
        parts.push_back(json::value(trimmed(rest.substr(0, comma))));
        if (comma == rest.npos) break;
        rest.remove_prefix(comma + 1);
      }
      return checked(key, std::move(parts), place);
    }
    case Type::object: {
      STRATA_ASSIGN(json::value value, parse_written_json(text, place));
      return checked(key, std::move(value), place);
    }
    case Type::text:
    case Type::path:
      break;
  }
  return checked(key, json::value(text), place);
}

std::string environment_name(const ConfigKey& key) {
  std::string name = "STRATA_" + std::string(key.name);
  for (char& c : name) {
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 32);
  }
  return name;
}

std::string flag_name(const ConfigKey& key) {
  std::string name = "--" + std::string(key.name);
  std::replace(name.begin(), name.end(), '_', '-');
  return name;
}

// As the help calls a key's value.
std::string type_name(const ConfigKey& key) {
  const bool folder = key.name == "cache_dir" || key.name == "slot_save_path";
  switch (key.type) {
    case Type::path:
      return folder ? "DIR" : "FILE";
    case Type::number:
      return "N";
    case Type::list:
      return "TEXT,...";
    case Type::object:
      return "JSON";
    case Type::text:
      if (!key.choices.empty()) return fmt::format("TEXT:{{{}}}", key.choices);
      break;
    case Type::flag:
      break;
  }
  return "TEXT";
}

// What only several values together tell.
Status check_together(const Config& config) {
  const bool model = config.text("script").empty();
  if (!model || config.number("parallel") <= kMostParallel) return {};
  return fail(ErrorCode::invalid_argument,
              "{} must be a whole number from 1 to {}; more is for scripts",
              config.at("parallel").place, kMostParallel);
}

}  // namespace

std::span<const ConfigKey> config_keys() {
  return kKeys;
}

Result<Config> Config::load(FileSystem& files, std::string file, const Flags& flags,
                            const Environment& environment) {
  Config config;
  for (const ConfigKey& key : kKeys) {
    config.entries_[std::string(key.name)] = {built_in(key.name)};
  }
  config.entries_["chats_db"].value = json::value(data_path(environment, "chats.db"));
  if (file.empty()) {
    if (const char* path = environment("STRATA_CONFIG")) file = path;
  }
  if (!file.empty()) {
    constexpr std::uint64_t kMostBytes = 1 << 20;
    STRATA_ASSIGN(std::string text, files.read_text(file, kMostBytes));
    if (text.starts_with("\xEF\xBB\xBF")) text.erase(0, 3);
    const std::string name = fmt::format("'{}'", file);
    STRATA_ASSIGN(const json::value root, parse_written_json(text, name));
    STRATA_ASSIGN(const json::object* object, json_object(root, name));
    for (const auto& [member, value] : *object) {
      const std::string_view member_name(member.data(), member.size());
      const ConfigKey* key = find_key(member_name);
      if (key == nullptr) return unknown_key(member_name, file);
      if (value.is_null()) continue;
      std::string place = fmt::format("'{}' in '{}'", key->name, file);
      STRATA_ASSIGN(json::value good, checked(*key, value, place));
      if (key->type == Type::path && !good.get_string().empty()) {
        const std::string_view path(good.get_string().data(), good.get_string().size());
        good = (std::filesystem::path(file).parent_path() / path).string();
      }
      config.entries_[std::string(key->name)] = {std::move(good), "config", std::move(place)};
    }
  }
  for (const ConfigKey& key : kKeys) {
    std::string name = environment_name(key);
    if (const char* text = environment(name.c_str())) {
      STRATA_ASSIGN(json::value value, from_text(key, text, name));
      config.entries_[std::string(key.name)] = {std::move(value), "environment", std::move(name)};
    }
    if (const auto flag = flags.find(key.name); flag != flags.end()) {
      name = flag_name(key);
      STRATA_ASSIGN(json::value value, from_text(key, flag->second, name));
      config.entries_[std::string(key.name)] = {std::move(value), "flag", std::move(name)};
    }
  }
  STRATA_TRY(check_together(config));
  return config;
}

const Config::Entry& Config::at(std::string_view key) const {
  static const Entry none;
  const auto entry = entries_.find(key);
  return entry == entries_.end() ? none : entry->second;
}

std::string Config::text(std::string_view key) const {
  const json::value& value = at(key).value;
  return value.is_string() ? std::string(value.get_string().data(), value.get_string().size())
                           : std::string();
}

bool Config::flag(std::string_view key) const {
  const json::value& value = at(key).value;
  return value.is_bool() && value.get_bool();
}

std::int64_t Config::number(std::string_view key) const {
  json::error_code error;
  const json::value& value = at(key).value;
  return value.is_number() ? value.to_number<std::int64_t>(error) : 0;
}

std::vector<std::string> Config::list(std::string_view key) const {
  std::vector<std::string> list;
  if (const auto* array = at(key).value.if_array()) {
    for (const json::value& one : *array) {
      if (one.is_string()) list.emplace_back(one.get_string().data(), one.get_string().size());
    }
  }
  return list;
}

json::object Config::shown() const {
  json::object out;
  for (const ConfigKey& key : kKeys) {
    const Entry& entry = at(key.name);
    const bool hidden = key.secret && entry.value != built_in(key.name);
    out[json::string_view(key.name.data(), key.name.size())] = {
        {"value", hidden ? json::value("(hidden)") : entry.value}, {"source", entry.source}};
  }
  return out;
}

std::string Config::printed() const {
  std::string out;
  for (const auto& [key, entry] : shown()) {
    // What is hidden is no value: it stands without quotation marks.
    std::string value = json::serialize(entry.at("value"));
    if (value == "\"(hidden)\"") value = "(hidden)";
    out += fmt::format("{:<18} {:<32} {}\n", std::string_view(key), value,
                       std::string_view(entry.at("source").as_string()));
  }
  return out;
}

void add_config_options(CLI::App& command, ConfigArguments& arguments) {
  command.add_option("--config", arguments.file, "JSON file with the keys below")
      ->type_name("FILE");
  for (const ConfigKey& key : kKeys) {
    std::string name = flag_name(key);
    if (key.name == "model") name = "-m," + name;
    const std::string stored(key.name);
    if (key.type == Type::flag) {
      // What is on without it has a flag that switches it off.
      const bool on = built_in(key.name) == true;
      if (on) name.replace(0, 2, "--no-");
      command.add_flag_callback(
          name, [&arguments, stored, on] { arguments.flags[stored] = on ? "false" : "true"; },
          on ? "Not: " + std::string(key.help) : std::string(key.help));
      continue;
    }
    CLI::Option* option = command.add_option_function<std::string>(
        name, [&arguments, stored](const std::string& text) { arguments.flags[stored] = text; },
        std::string(key.help));
    option->type_name(type_name(key));
  }
}

}  // namespace strata
