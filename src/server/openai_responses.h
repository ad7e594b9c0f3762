// OpenAI's Responses: the request to the neutral form, the neutral events to response objects and
// their event stream, responses that are stored, continued, run in the background and cancelled.
// docs/api.md lists every field.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <string_view>

#include "base/serial_worker.h"
#include "server/answer_json.h"
#include "server/openai_chat.h"
#include "server/request_fields.h"
#include "server/response_events.h"
#include "server/response_store.h"

namespace strata::server {

inline constexpr std::size_t kMaxMetadata = 16;        // pairs
inline constexpr std::size_t kMaxMetadataKey = 64;     // bytes
inline constexpr std::size_t kMaxMetadataValue = 512;  // bytes
inline constexpr std::size_t kMaxBackground = 64;      // responses that run or wait

struct ResponsesRequest {
  ChatRequest chat;          // its conversation holds this request's own input only
  boost::json::array input;  // as items, each with an id
  boost::json::object echo;  // members of the response object that repeat the request
  std::string model;
  std::string owner;                              // as Access::owner
  std::string previous;                           // previous_response_id
  std::set<std::string> custom_tools;             // their calls are free text
  std::map<std::string, std::string> namespaces;  // "space.name" of a tool to its space
  std::set<std::string> left_out;                 // types of tools that run elsewhere
  bool stream = false;
  bool store = true;
  bool background = false;
  bool encrypted_reasoning = false;  // include: reasoning.encrypted_content
};

std::span<const Field> openai_responses_fields();
Answer<ResponsesRequest> parse_openai_responses(std::string_view body, const ChatRequest& defaults);
// Items of earlier responses or of a request to messages, behind those that are there.
Answer<void> append_items(const boost::json::array& items, std::string_view place,
                          std::vector<chat::Message>& messages);

// Builds one response object while its answer comes, and tells every step as an event. All calls
// are the executor's.
class ResponseBuilder final : public ChatObserver {
 public:
  // An event's type, number and the other members of its data.
  using Send =
      std::function<void(std::string_view type, std::uint64_t number, boost::json::object data)>;
  using End = std::function<void(const ResponseBuilder&)>;

  ResponseBuilder(const ResponsesRequest& request, std::string model, const Tokenizer& tokenizer,
                  Send send, End end);

  // response.created, and response.in_progress or, in the background, response.queued.
  void begin();
  // begin() with the first event, or not at all if the answer fails before.
  void begin_late() { late_ = true; }
  bool begun() const { return !late_; }
  // One more response.in_progress, for clients whose idle timers count events.
  std::string still_here();
  void queued(std::uint32_t ahead) override;
  void started(std::uint32_t) override;
  void chances(const TokenChances& chances) override;
  void event(const chat::OutputEvent& event) override;
  void finished(const ChatResult& result) override;

  const std::string& id() const { return id_; }
  const boost::json::object& response() const { return response_; }
  boost::json::object so_far() const;  // with what the open item holds
  const std::optional<ApiError>& failure() const { return failure_; }

 private:
  void catch_up();
  void emit(std::string_view type, boost::json::object data);
  void open_item(std::string_view kind, boost::json::object item);
  void close_item(std::string_view status);
  void add_text(std::string_view kind, const std::string& text);
  void begin_call(const chat::OutputEvent& event);
  void add_arguments(const std::string& text);
  boost::json::object place() const;
  boost::json::object text_part() const;

  std::string id_ = new_id("resp_");
  boost::json::object response_;
  std::set<std::string> custom_tools_;
  std::map<std::string, std::string> namespaces_;
  bool encrypted_reasoning_;
  bool logprobs_;
  const Tokenizer& tokenizer_;
  Send send_;
  End end_;
  QueuePlace place_;
  std::uint64_t sequence_ = 0;
  std::string open_;  // the open item's type, empty if none is
  std::string text_;  // of the open item: text or arguments
  boost::json::array pending_logprobs_, item_logprobs_;
  std::optional<ApiError> failure_;
  bool late_ = false;  // begin() is still to come
};

// All responses of a server. Each belongs to the key it was asked for with (`owner`, see
// Access::owner): other keys' requests find nothing.
class Responses : public std::enable_shared_from_this<Responses> {
 public:
  explicit Responses(std::unique_ptr<ResponseStore> store) : store_(std::move(store)) {}

  void create(const ServicePtr& service, const HttpRequest& request, const std::string& owner,
              const Writer& writer);
  // As it is now, or with "stream=true" its events.
  void get(const std::string& id, const std::string& owner, std::string_view query,
           const Writer& writer);
  void input_items(const std::string& id, const std::string& owner, std::string_view query,
                   const Writer& writer);
  void remove(const std::string& id, const std::string& owner, const Writer& writer);
  void cancel(const std::string& id, const std::string& owner, const Writer& writer);
  // No background response runs any more. Before the engine goes.
  void stop() { worker_.stop(); }

 private:
  // One of the background has an executor of its own, the worker, and its events are kept.
  struct Background {
    std::shared_ptr<ResponseBuilder> builder;
    std::shared_ptr<ResponseEvents> events;
    bool cancelled = false;  // what is on its way still comes

    boost::json::object now() const;  // on the worker
  };
  struct Running {
    ServicePtr service;
    std::vector<RequestId> ids;
    std::string owner;
    std::optional<Background> background;
    bool forget = false;  // deleted meanwhile
  };
  struct Begin;
  Answer<void> add_history(ResponsesRequest& request);
  void tell_left_out(const ResponsesRequest& request);
  void begin(const std::shared_ptr<Begin>& begin);
  Answer<void> check_background();
  void begin_background(const std::shared_ptr<Begin>& begin);
  Status save(const ResponsesRequest& request, const boost::json::object& response,
              const ResponseEvents* events = nullptr);
  void save_last(const ResponsesRequest& request, boost::json::object response,
                 const ResponseEvents* events);
  void ended(const ResponsesRequest& request, const boost::json::object& response);
  std::optional<Background> background(const std::string& id, const std::string& owner,
                                       bool cancel = false);
  void stream(const std::string& id, const std::string& owner, std::uint64_t from,
              const Writer& writer);

  std::unique_ptr<ResponseStore> store_;
  SerialWorker worker_;  // the executor of background responses
  std::mutex mutex_;
  std::map<std::string, Running> running_;
  std::set<std::string> told_;  // types of tools that were left out, logged once
};

}  // namespace strata::server
