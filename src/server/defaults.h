// What requests leave open, and where each of it comes from: shared settings, which clients may
// change while the server runs, go before the configuration, that before the model file, that
// before what is built in. With parity nothing but what is built in counts.
#pragma once

#include <boost/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "server/neutral.h"
#include "server/request_fields.h"
#include "server/thinking_budget.h"
#include "tokenizer/prompt_encoder.h"

namespace strata::server {

// A setting that is in force: its value and where it came from.
struct Setting {
  std::string name;
  boost::json::value value;
  // "built-in", "model file", "config", "environment", "flag", "shared settings", "parity"
  std::string source;
};

struct DefaultOptions {
  // Sampling that a request leaves open; what is absent here comes from the model file. Names and
  // ranges are those of requests.
  boost::json::object sampling = {};
  std::string sampling_source = "config";
  // Further fields of requests (setting_fields()), each from a place of its own.
  std::vector<Setting> fields = {};
  // Arguments of the template for requests that say nothing about thinking.
  std::optional<std::string> reasoning_effort = {};
  std::string reasoning_effort_source = "config";
  ThinkingOptions thinking = ThinkingOptions();
  // One token so often in a row ends an answer; 0: never.
  std::uint32_t repeat_stop_tokens = 256;
  std::string repeat_stop_tokens_source = "built-in";
  // A limit that does not fit is shortened to the room instead of refused.
  bool fit_max_tokens = false;
  std::string fit_max_tokens_source = "built-in";
  // Pins every default that changes output: greedy, nothing from the model file or the above.
  bool parity = false;
  // Of earlier prompts and answers, so that a conversation's next prompt is encoded and read from
  // where it goes on. With parity no answers are kept: ids are then those of the text alone.
  PromptEncoder::Limits encoder = {};
  std::string encoder_source = "built-in";
};

struct Defaults {
  // A request as it is before its own fields are read; a seed of 0 is a fresh one.
  ChatRequest request;
  ThinkingOptions thinking;
  std::uint32_t repeat_stop_tokens = 0;
  bool fit_max_tokens = false;
  std::uint32_t encoder_replies = 0;
  std::vector<Setting> settings;  // all of it
};

// Fields of requests that have a default of their own.
std::span<const Field> setting_fields();

// Values that no request may have are refused with the field's name.
Answer<Defaults> make_defaults(const DefaultOptions& options, const Sampling& of_model,
                               const boost::json::object& shared);

}  // namespace strata::server
