// /v1/chats over real sockets, and the store under it.
#include "server/chats.h"

#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>

#include "server/response_store.h"
#include "server/sqlite.h"
#include "tests/server/api_fixture.h"

namespace strata::server::testing {
namespace {

class ChatsTest : public ApiTest {
 protected:
  void SetUp() override {
    ApiTest::SetUp();
    if (server_ == nullptr) return;
    use({});
  }
  void use(ChatLimits limits, std::vector<std::string> keys = {}) {
    ApiOptions options;
    options.access.keys = std::move(keys);
    options.chats = std::make_shared<Chats>(ChatStore::open("", limits).value());
    rebuild(std::move(options));
  }
  RawResponse put(const std::string& id, const std::string& text) {
    return send("PUT /v1/chats/" + id, "", text);
  }
  // Its id.
  std::string add(const std::string& title, const std::string& text) {
    const RawResponse response = client().post(
        "/v1/chats",
        json::serialize(json::object{{"title", title},
                                     {"content", {{"messages", json::array{{{"text", text}}}}}}}));
    EXPECT_EQ(response.status, 200u) << response.body;
    return response.status == 200 ? text_of(response.json().at("id")) : "";
  }
  json::value list(const std::string& query = "") {
    const RawResponse response = client().get("/v1/chats" + query);
    EXPECT_EQ(response.status, 200u) << query << response.body;
    return response.status == 200 ? response.json() : json::value();
  }
  std::vector<std::string> titles(const std::string& query = "") {
    std::vector<std::string> found;
    const json::value value = list(query);
    for (const json::value& one : value.at("data").as_array())
      found.push_back(text_of(one.at("title")));
    return found;
  }
  using Titles = std::vector<std::string>;
};

TEST_F(ChatsTest, IsMadeReadChangedAndRemoved) {
  const std::string content = R"({"messages":[{"role":"user","text":"Hello"}],"n":[1,2.5,null]})";
  const json::value made =
      client().post("/v1/chats", R"({"title":"First","content":)" + content + "}").json();
  const std::string id = text_of(made.at("id"));
  EXPECT_THAT(id, ::testing::StartsWith("chat_"));
  EXPECT_EQ(text_of(made.at("object")), "chat");
  EXPECT_EQ(made.at("version").as_int64(), 1);
  EXPECT_EQ(made.at("content"), json::parse(content));
  EXPECT_EQ(client().get("/v1/chats/" + id).json(), made);
  const json::value changed = put(id, R"({"title":"Second","content":{"a":1},"version":1})").json();
  EXPECT_EQ(changed.at("version").as_int64(), 2);
  EXPECT_EQ(text_of(changed.at("title")), "Second");
  EXPECT_EQ(changed.at("created_at"), made.at("created_at"));
  EXPECT_GE(changed.at("updated_at").as_int64(), made.at("updated_at").as_int64());
  // One of both may stay.
  EXPECT_EQ(put(id, R"({"title":"Third","version":2})").json().at("content"),
            json::value({{"a", 1}}));
  EXPECT_EQ(text_of(put(id, R"({"content":{},"version":3})").json().at("title")), "Third");
  EXPECT_EQ(send("DELETE /v1/chats/" + id).json().at("deleted").as_bool(), true);
  for (const RawResponse& gone : {client().get("/v1/chats/" + id), send("DELETE /v1/chats/" + id),
                                  put(id, R"({"title":"x","version":4})")}) {
    EXPECT_EQ(gone.status, 404u);
    EXPECT_EQ(error_of(gone, "code"), "chat_not_found");
  }
  EXPECT_TRUE(titles().empty());
}

TEST_F(ChatsTest, AChangeOfAnotherVersionChangesNothing) {
  const std::string id = add("mine", "words");
  ASSERT_EQ(put(id, R"({"title":"of one page","version":1})").status, 200u);
  for (const char* version : {"1", "0", "3", "-1"}) {
    const RawResponse late =
        put(id, std::string(R"({"title":"of another","version":)") + version + "}");
    EXPECT_EQ(late.status, 409u) << version;
    EXPECT_EQ(late.json().at("error").at("version").as_int64(), 2);
    EXPECT_EQ(error_of(late, "code"), "version_conflict");
    EXPECT_THAT(error_of(late), HasSubstr("has the version 2"));
  }
  EXPECT_EQ(titles(), Titles{"of one page"});
}

TEST_F(ChatsTest, ListsThoseChangedLastFirstAndInPages) {
  std::vector<std::string> ids;
  for (int i = 0; i < 25; ++i) ids.push_back(add(fmt::format("t{}", i), "x"));
  ASSERT_EQ(put(ids[3], R"({"title":"t3 again","version":1})").status, 200u);
  const json::value first = list();
  EXPECT_EQ(first.at("data").as_array().size(), 20u);
  EXPECT_TRUE(first.at("has_more").as_bool());
  EXPECT_EQ(text_of(first.at("data").at(0).at("title")), "t3 again");
  EXPECT_EQ(text_of(first.at("data").at(1).at("title")), "t24");
  const std::string last = text_of(first.at("data").at(19).at("id"));
  const json::value rest = list("?limit=10&after=" + last);
  EXPECT_EQ(rest.at("data").as_array().size(), 5u);
  EXPECT_FALSE(rest.at("has_more").as_bool());
  EXPECT_EQ(text_of(rest.at("data").at(4).at("title")), "t0");
  EXPECT_EQ(client().get("/v1/chats?after=chat_none").status, 404u);
  for (const char* query : {"?limit=0", "?limit=101", "?limit=x"})
    EXPECT_EQ(error_of(client().get(std::string("/v1/chats") + query), "param"), "limit");
}

TEST_F(ChatsTest, FindsWordsOfTitlesAndTexts) {
  add("Sailing", "The harbour was quiet, and the café closed.");
  const std::string second = text_of(
      client()
          .post("/v1/chats",
                R"({"title":"Cooking","content":{"text":"Onions","deep":[{"text":"and garlic"},
                    {"text":{"text":"basil"}},{"note":"saffron"}],"id":"text"}})")
          .json()
          .at("id"));
  EXPECT_EQ(titles("?query=harbour"), Titles{"Sailing"});
  EXPECT_EQ(titles("?query=HARB"), Titles{"Sailing"});
  EXPECT_EQ(titles("?query=cafe"), Titles{"Sailing"});
  EXPECT_EQ(titles("?query=caf%C3%A9%20quiet"), Titles{"Sailing"});
  EXPECT_EQ(titles("?query=sailing"), Titles{"Sailing"});
  EXPECT_EQ(titles("?query=harbour%20onions"), Titles{});
  for (const char* word : {"onions", "garlic", "basil", "cook"})
    EXPECT_EQ(titles(std::string("?query=") + word), Titles{"Cooking"}) << word;
  EXPECT_EQ(titles("?query=saffron"), Titles{}) << "not under a key 'text'";
  EXPECT_EQ(titles("?query="), (Titles{"Cooking", "Sailing"}));
  EXPECT_EQ(titles("?query=%20"), (Titles{"Cooking", "Sailing"}));
  EXPECT_THAT(text_of(list("?query=quiet").at("data").at(0).at("snippet")), HasSubstr("was quiet"));
  EXPECT_THAT(text_of(list().at("data").at(0).at("snippet")), ::testing::StartsWith("Onions and"));
  // What is changed is found as it is now.
  ASSERT_EQ(put(second, R"({"title":"Baking","version":1})").status, 200u);
  EXPECT_EQ(titles("?query=cooking"), Titles{});
  EXPECT_EQ(titles("?query=garlic"), Titles{"Baking"});
  ASSERT_EQ(put(second, R"({"content":{"text":"flour"},"version":2})").status, 200u);
  EXPECT_EQ(titles("?query=garlic"), Titles{});
  EXPECT_EQ(titles("?query=flour%20baking"), Titles{"Baking"});
  ASSERT_EQ(send("DELETE /v1/chats/" + second).status, 200u);
  EXPECT_EQ(titles("?query=flour"), Titles{});
}

TEST_F(ChatsTest, AnyTextMayBeSearchedFor) {
  add("a", "one AND two");
  for (const char* query : {"%22",
                            "%22%22",
                            "*",
                            "AND",
                            "OR",
                            "NOT",
                            "NEAR(a)",
                            "title:",
                            "text:one",
                            "%00",
                            "a%00b",
                            "(",
                            ")",
                            "-one",
                            "%5E",
                            "%7B%7D",
                            "';DROP%20TABLE%20chats;--",
                            "%FF%FE",
                            "%E2%80%9C",
                            "%E2%80%9C%20one",
                            "one+two",
                            "%F0%9F%98%80",
                            "a%22b*%22"}) {
    EXPECT_EQ(client().get(std::string("/v1/chats?query=") + query).status, 200u) << query;
  }
  EXPECT_EQ(titles("?query=AND"), Titles{"a"});
  EXPECT_EQ(titles("?query=%E2%80%9Cone%E2%80%9D"), Titles{"a"});
  EXPECT_EQ(titles("?query=text%3Aone"), Titles{}) << "two words, and one of them is not there";
  EXPECT_EQ(titles("?query=!!!"), Titles{});
  EXPECT_EQ(titles("?query=%E2%80%9C"), Titles{});
  std::string many;
  for (int i = 0; i < 33; ++i) many += "a+";
  EXPECT_EQ(error_of(client().get("/v1/chats?query=" + many), "param"), "query");
  EXPECT_EQ(error_of(client().get("/v1/chats?query=" + std::string(1001, 'a')), "param"), "query");
  EXPECT_EQ(client().get("/v1/chats/x'%20OR%20'1'='1").status, 404u);
}

TEST_F(ChatsTest, RefusesByName) {
  const std::pair<const char*, const char*> table[] = {
      {R"({"content":{}})", "title"},
      {R"({"title":"x"})", "content"},
      {R"({"title":5,"content":{}})", "title"},
      {R"({"title":"x","content":[]})", "content"},
      {R"({"title":"x","content":"text"})", "content"},
      {R"({"title":"x","content":{},"version":1})", "version"},
      {R"({"title":"x","content":{},"owner":"y"})", "owner"},
  };
  for (const auto& [text, param] : table) {
    const RawResponse refused = client().post("/v1/chats", text);
    EXPECT_EQ(refused.status, 400u) << text;
    EXPECT_EQ(error_of(refused, "param"), param) << text;
  }
  const std::string long_title = R"({"title":")" + std::string(1001, 'x') + R"(","content":{}})";
  EXPECT_EQ(error_of(client().post("/v1/chats", long_title), "param"), "title");
  const std::string id = add("t", "x");
  EXPECT_EQ(error_of(put(id, R"({"title":"x"})"), "param"), "version");
  EXPECT_EQ(error_of(put(id, R"({"title":"x","version":"1"})"), "param"), "version");
  EXPECT_EQ(client().post("/v1/chats", "[]").status, 400u);
  const RawResponse list = send("PATCH /v1/chats");
  EXPECT_EQ(list.status, 405u);
  EXPECT_EQ(list.headers.at("Allow"), "GET, POST");
  const RawResponse one = send("PATCH /v1/chats/" + id);
  EXPECT_EQ(one.status, 405u);
  EXPECT_EQ(one.headers.at("Allow"), "GET, PUT, DELETE");
  EXPECT_EQ(error_of(one), "this path takes GET, PUT, DELETE only");
  EXPECT_EQ(send("PATCH /v1/responses/resp_1").headers.at("Allow"), "GET, DELETE");
  EXPECT_EQ(send("PATCH /v1/responses/resp_1/cancel").headers.at("Allow"), "POST");
}

TEST_F(ChatsTest, HasBoundsAndDropsNothing) {
  const auto text_of_size = [](std::size_t bytes) {
    return R"({"title":"t","content":{"a":")" + std::string(bytes, 'x') + R"("}})";
  };
  EXPECT_EQ(client().post("/v1/chats", text_of_size(kMaxChatBytes - 100)).status, 200u);
  const RawResponse large = client().post("/v1/chats", text_of_size(kMaxChatBytes));
  EXPECT_EQ(large.status, 413u);
  EXPECT_THAT(error_of(large), HasSubstr(std::to_string(kMaxChatBytes)));

  use({.chats = 2, .bytes = 1'000'000});
  const std::string first = add("one", "x");
  add("two", "x");
  const RawResponse third = client().post("/v1/chats", text_of_size(5));
  EXPECT_EQ(third.status, 507u);
  EXPECT_THAT(error_of(third), HasSubstr("2 chats are kept"));
  EXPECT_EQ(error_of(third, "code"), "storage_full");
  EXPECT_EQ(titles(), (Titles{"two", "one"}));
  ASSERT_EQ(send("DELETE /v1/chats/" + first).status, 200u);
  EXPECT_EQ(client().post("/v1/chats", text_of_size(5)).status, 200u);

  use({.chats = 100, .bytes = 10'000});
  const std::string id = add("small", "x");
  ASSERT_EQ(client().post("/v1/chats", text_of_size(8000)).status, 200u);
  EXPECT_EQ(client().post("/v1/chats", text_of_size(3000)).status, 507u);
  const RawResponse grown =
      put(id, R"({"content":{"a":")" + std::string(3000, 'y') + R"("},"version":1})");
  EXPECT_EQ(grown.status, 507u);
  EXPECT_THAT(error_of(grown), HasSubstr("10000"));
  EXPECT_EQ(client().get("/v1/chats/" + id).json().at("version").as_int64(), 1);
  // In the place of what it had there is room.
  for (int i = 1; i < 5; ++i) {
    EXPECT_EQ(put(id, R"({"content":{"a":")" + std::string(1500, 'y') +
                          fmt::format(R"("}},"version":{}}})", i))
                  .status,
              200u);
  }
}

TEST_F(ChatsTest, OtherKeysFindNothing) {
  use({}, {"one", "two"});
  const auto as = [](const std::string& key) { return "x-api-key: " + key + "\r\n"; };
  const std::string body = R"({"title":"secret","content":{"text":"word"}})";
  EXPECT_EQ(send("POST /v1/chats", "", body).status, 401u);
  const std::string id = text_of(send("POST /v1/chats", as("one"), body).json().at("id"));
  const std::string path = "/v1/chats/" + id;
  EXPECT_EQ(send("GET " + path, as("two")).status, 404u);
  EXPECT_EQ(send("PUT " + path, as("two"), R"({"title":"x","version":1})").status, 404u);
  EXPECT_EQ(send("DELETE " + path, as("two")).status, 404u);
  for (const char* query : {"", "?query=word", "?query=secret"}) {
    EXPECT_TRUE(
        send(std::string("GET /v1/chats") + query, as("two")).json().at("data").as_array().empty());
    EXPECT_EQ(
        send(std::string("GET /v1/chats") + query, as("one")).json().at("data").as_array().size(),
        1u);
  }
  EXPECT_EQ(send("GET /v1/chats?after=" + id, as("two")).status, 404u);
  EXPECT_EQ(send("GET " + path, as("one")).status, 200u);
}

TEST_F(ChatsTest, AreThereWithoutAModelAndMayBeOff) {
  api_->set_service(nullptr);
  const std::string id = add("early", "x");
  EXPECT_EQ(client().get("/v1/chats/" + id).status, 200u);
  EXPECT_EQ(client().get("/v1/models").status, 503u);
  ApiOptions options;
  options.chats = std::make_shared<Chats>(nullptr);
  rebuild(std::move(options));
  for (const RawResponse& off : {client().get("/v1/chats"), client().get("/v1/chats/x"),
                                 client().post("/v1/chats", "{}"), send("DELETE /v1/chats/x")}) {
    EXPECT_EQ(off.status, 501u);
    EXPECT_THAT(error_of(off), HasSubstr("chats_max"));
  }
}

// The store --------------------------------------------------------------------------------

class ChatFile : public ::testing::Test {
 protected:
  void SetUp() override {
    path_ =
        (std::filesystem::temp_directory_path() / fmt::format("strata-chats-{}.sqlite", ::getpid()))
            .string();
    std::filesystem::remove(path_);
  }
  void TearDown() override { std::filesystem::remove(path_); }
  static ChatStore::Wish wish(const std::string& title, const std::string& text) {
    return {title, R"({"text":")" + text + "\"}", text};
  }
  std::string path_;
};

TEST_F(ChatFile, SurvivesARestartAndIsOneProgramsOwn) {
  std::string id;
  {
    auto store = ChatStore::open(path_).value();
    id = store->add("me", wish("title", "words"), 5).value().id;
    const auto second = ChatStore::open(path_);
    ASSERT_FALSE(second);
    EXPECT_EQ(second.error().code, ErrorCode::unavailable);
  }
  auto store = ChatStore::open(path_).value();
  EXPECT_EQ(store->get("me", id).value().title, "title");
  EXPECT_EQ(store->list("me", {"words"}, 10, "").value().chats.size(), 1u);
}

TEST_F(ChatFile, TouchesNoOtherDatabase) {
  {
    sqlite3* file = nullptr;
    ASSERT_EQ(sqlite3_open(path_.c_str(), &file), SQLITE_OK);
    sqlite3_exec(file, "CREATE TABLE t(a)", nullptr, nullptr, nullptr);
    sqlite3_close(file);
  }
  EXPECT_EQ(ChatStore::open(path_).error().code, ErrorCode::invalid_argument);
  EXPECT_EQ(ResponseStore::open(path_).error().code, ErrorCode::invalid_argument);
  std::filesystem::remove(path_);
  ASSERT_TRUE(ResponseStore::open(path_));
  EXPECT_EQ(ChatStore::open(path_).error().code, ErrorCode::invalid_argument);
}

TEST_F(ChatFile, AFullDiskChangesNothing) {
  auto store = ChatStore::open(path_).value();
  const std::string id = store->add("me", wish("before", "words"), 5).value().id;
  // Files may not grow: the system's word for it is that of a full disk.
  rlimit old = {};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &old), 0);
  std::signal(SIGXFSZ, SIG_IGN);
  const rlimit tight = {std::filesystem::file_size(path_) + 100'000, old.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &tight), 0);
  const auto full = store->add("me", wish("large", std::string(1'000'000, 'x')), 6);
  const auto changed = store->change("me", id, 1, wish("after", std::string(1'000'000, 'x')), 6);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &old), 0);
  EXPECT_FALSE(full);
  EXPECT_FALSE(changed);
  EXPECT_EQ(store->get("me", id).value().title, "before");
  EXPECT_EQ(store->list("me", {}, 10, "").value().chats.size(), 1u);
  EXPECT_EQ(store->list("me", {"words"}, 10, "").value().chats.size(), 1u);
  EXPECT_TRUE(store->add("me", wish("again", "words"), 7));
}

}  // namespace
}  // namespace strata::server::testing
