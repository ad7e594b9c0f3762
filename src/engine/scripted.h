// An engine that plays scripts in the model's place: given texts as tokens, in given pieces and at
// a given pace. For tests of everything around an engine; it needs a model file's tokenizer and
// template, not its weights.
//
// The script is JSON:
//
//   {"scripts": [{"text": "...", "match": "...", "piece": 3, "wait_ms": 0, "pace_ms": 0,
//                 "finish": "stop", "error": "...", "repeat": false, "cached": 0,
//                 "reads": 1, "crash": false, "answer": "..."}, ...]}
//
//   text      what is written; special literals become tokens
//   match     the script is for requests whose prompt holds this text; those without are played in
//             turn, the last of them stays
//   piece     bytes: the text is cut so, and each piece becomes tokens of its own, which are
//             reported together (0: the text as a whole, token by token)
//   wait_ms   before the prompt is read; pace_ms between pieces or tokens
//   reads     in so many parts the prompt is read, with a wait before each (1)
//   finish    "stop", "length" or "error" (with the sentence in "error")
//   repeat    the text is written until the limit or the end
//   cached    tokens of the prompt that count as read before
//   answer    what is written after thinking that the engine has brought to an end; then it stops
//   crash     the process ends at once when the text is written (a fault for supervisors)
#pragma once

#include <memory>
#include <string_view>

#include "engine/engine.h"

namespace strata {

struct ScriptedOptions {
  std::string model_path;
  std::uint32_t context = 0;  // 0 = the model's own
  std::uint32_t parallel = 4;
  std::uint32_t queue_limit = 4096;
};

Result<std::unique_ptr<Engine>> open_scripted_engine(FileSystem& files,
                                                     const ScriptedOptions& options,
                                                     std::string_view script);

}  // namespace strata
