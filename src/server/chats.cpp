#include "server/chats.h"

#include <array>
#include <charconv>
#include <ctime>

#include "base/json_number.h"
#include "server/query.h"
#include "server/request_fields.h"

namespace strata::server {

namespace json = boost::json;

namespace {

constexpr std::size_t kPage = 20, kLargestPage = 100;

constexpr std::array kNewFields = {Field{"title"}, Field{"content"}};
constexpr std::array kChangedFields = {Field{"title"}, Field{"content"}, Field{"version"}};

std::int64_t now() {
  return static_cast<std::int64_t>(std::time(nullptr));
}

void send_store_error(const Writer& writer, const Error& error, std::string_view param) {
  ApiError answer = api_error(error, param);
  if (error.code == ErrorCode::not_found) answer.code = "chat_not_found";
  if (error.code == ErrorCode::exhausted) {
    answer.status = 507;
    answer.code = "storage_full";
  }
  send_openai_error(*writer, answer);
}

// Every string under a key "text", at any depth (which the parser has bounded).
void collect_text(const json::value& value, std::string& text) {
  if (const auto* array = value.if_array()) {
    for (const json::value& one : *array) collect_text(one, text);
  }
  const auto* object = object_of(value);
  if (object == nullptr) return;
  for (const auto& [key, member] : *object) {
    if (key == "text" && member.is_string()) {
      if (!text.empty()) text += '\n';
      text += view(member.get_string());
    } else {
      collect_text(member, text);
    }
  }
}

Answer<ChatStore::Wish> read_wish(const json::object& body) {
  ChatStore::Wish wish;
  if (auto done = assign(wish.title, read_string(body, "title")); !done) return passed_on(done);
  if (wish.title && wish.title->size() > kMaxChatTitle) {
    return refuse(400, "title", "'title' has {} bytes, at most {} are allowed", wish.title->size(),
                  kMaxChatTitle);
  }
  const json::value* content = given(body, "content");
  if (content == nullptr) return wish;
  if (!object_of(*content)) return refuse(400, "content", "'content' must be an object");
  wish.content = write_json(*content);
  if (wish.content->size() > kMaxChatBytes) {
    return refuse(413, "content", "'content' has {} bytes of JSON, at most {} are allowed",
                  wish.content->size(), kMaxChatBytes);
  }
  collect_text(*content, wish.text);
  return wish;
}

// What lists say of a chat, and with its content what the chat's own path says.
json::object chat_json(const StoredChat& chat) {
  return {{"id", chat.id},
          {"title", chat.title},
          {"created_at", chat.created},
          {"updated_at", chat.updated},
          {"version", chat.version}};
}

// The content is JSON already, and may be long.
void send_chat(const Writer& writer, const StoredChat& chat) {
  json::object head = {{"object", "chat"}};
  for (auto& [key, value] : chat_json(chat)) head[key] = value;
  HttpResponse response;
  response.body = write_json(head);
  response.body.pop_back();
  response.body.append(",\"content\":").append(chat.content).append("}");
  writer->send(std::move(response));
}

void send_conflict(const Writer& writer, std::int64_t version, std::int64_t current) {
  send_json(*writer,
            {{"error",
              {{"message", fmt::format("the chat has the version {}, and the change was made from "
                                       "{}; read it again and repeat the change",
                                       current, version)},
               {"type", "version_conflict"},
               {"param", "version"},
               {"code", "version_conflict"},
               {"version", current}}}},
            409);
}

struct Search {
  std::vector<std::string> words;
  bool any = false;  // something is searched for, be it without a word
  std::size_t limit = kPage;
  std::string after;
};

Answer<Search> read_search(std::string_view query) {
  Search search;
  search.after = query_value(query, "after").value_or("");
  if (const auto text = query_value(query, "limit")) {
    const auto [end, error] =
        std::from_chars(text->data(), text->data() + text->size(), search.limit);
    if (error != std::errc() || end != text->data() + text->size() || search.limit < 1 ||
        search.limit > kLargestPage) {
      return refuse(400, "limit", "'limit' must be a whole number from 1 to {}", kLargestPage);
    }
  }
  const std::string text = query_value(query, "query").value_or("");
  if (text.size() > kMaxSearchBytes) {
    return refuse(400, "query", "'query' has {} bytes, at most {} are allowed", text.size(),
                  kMaxSearchBytes);
  }
  search.words = search_words(text);
  search.any = text.find_first_not_of(" \t\r\n") != text.npos;
  if (search.words.size() > kMaxSearchWords) {
    return refuse(400, "query", "'query' has {} words, at most {} are allowed", search.words.size(),
                  kMaxSearchWords);
  }
  return search;
}

}  // namespace

bool Chats::off(const Writer& writer) const {
  if (store_ != nullptr) return false;
  send_openai_error(*writer,
                    {501, "this server keeps no chats ('chats_max' is 0)", {}, "not_supported"});
  return true;
}

template <class Work>
void Chats::run(Work work) {
  worker_.post(
      [self = shared_from_this(), work = std::move(work)]() mutable { work(*self->store_); });
}

void Chats::list(const std::string& owner, std::string_view query, const Writer& writer) {
  if (off(writer)) return;
  auto search = read_search(query);
  if (!search) return send_openai_error(*writer, search.error());
  run([owner, writer, search = std::move(*search)](ChatStore& store) {
    ChatStore::Page page;
    // Signs alone are in no word.
    if (!search.any || !search.words.empty()) {
      auto found = store.list(owner, search.words, search.limit, search.after);
      if (!found) return send_store_error(writer, found.error(), "after");
      page = std::move(*found);
    }
    json::array data;
    for (const StoredChat& chat : page.chats) {
      json::object entry = chat_json(chat);
      entry["snippet"] = chat.snippet;
      data.push_back(std::move(entry));
    }
    send_json(*writer, {{"object", "list"}, {"data", std::move(data)}, {"has_more", page.more}});
  });
}

void Chats::add(const std::string& owner, std::string_view text, const Writer& writer) {
  if (off(writer)) return;
  auto body = parse_body(text);
  if (!body) return send_openai_error(*writer, body.error());
  if (auto done = check_fields(*body, kNewFields); !done) {
    return send_openai_error(*writer, done.error());
  }
  auto wish = read_wish(*body);
  if (!wish) return send_openai_error(*writer, wish.error());
  if (!wish->title || !wish->content) {
    const std::string_view field = wish->title ? "content" : "title";
    return send_openai_error(*writer,
                             {400, fmt::format("'{}' is missing", field), std::string(field), {}});
  }
  run([owner, writer, wish = std::move(*wish)](ChatStore& store) {
    auto chat = store.add(owner, wish, now());
    if (!chat) return send_store_error(writer, chat.error(), "content");
    send_chat(writer, *chat);
  });
}

void Chats::get(const std::string& owner, const std::string& id, const Writer& writer) {
  if (off(writer)) return;
  run([owner, id, writer](ChatStore& store) {
    auto chat = store.get(owner, id);
    if (!chat) return send_store_error(writer, chat.error(), "id");
    send_chat(writer, *chat);
  });
}

void Chats::change(const std::string& owner, const std::string& id, std::string_view text,
                   const Writer& writer) {
  if (off(writer)) return;
  auto body = parse_body(text);
  if (!body) return send_openai_error(*writer, body.error());
  if (auto done = check_fields(*body, kChangedFields); !done) {
    return send_openai_error(*writer, done.error());
  }
  auto wish = read_wish(*body);
  if (!wish) return send_openai_error(*writer, wish.error());
  auto version = read_integer(*body, "version");
  if (!version) return send_openai_error(*writer, version.error());
  if (!*version) {
    return send_openai_error(
        *writer,
        {400, "'version' is missing; send the one the change was made from", "version", {}});
  }
  run([owner, id, writer, version = **version, wish = std::move(*wish)](ChatStore& store) {
    auto changed = store.change(owner, id, version, wish, now());
    if (!changed) return send_store_error(writer, changed.error(), "id");
    if (changed->conflict) return send_conflict(writer, version, changed->chat.version);
    send_chat(writer, changed->chat);
  });
}

void Chats::remove(const std::string& owner, const std::string& id, const Writer& writer) {
  if (off(writer)) return;
  run([owner, id, writer](ChatStore& store) {
    if (auto status = store.remove(owner, id); !status) {
      return send_store_error(writer, status.error(), "id");
    }
    send_json(*writer, {{"id", id}, {"object", "chat"}, {"deleted", true}});
  });
}

}  // namespace strata::server
