// Shows an answer while it is made. On a terminal: Markdown, thinking dimmed, nothing of what the
// model writes as it stands (terminal/text.h). Else the answer's text and nothing but that.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "cli/talk.h"
#include "terminal/markdown.h"
#include "terminal/progress.h"
#include "terminal/screen.h"
#include "terminal/text.h"
#include "terminal/typesetter.h"

namespace strata {

enum class ShowThinking : std::uint8_t { hide, fold, show };

struct ViewOptions {
  ShowThinking thinking = ShowThinking::show;
  bool markdown = true;
  bool progress = true;
};

class AnswerView final : public Watcher {
 public:
  // `out`: what standard output is.
  AnswerView(const terminal::Screen& out, const ViewOptions& options);
  void reading(std::uint32_t read, std::uint32_t total) override;
  void event(const chat::OutputEvent& event) override;
  bool wrote() const { return wrote_; }
  // No more comes; the last line is ended.
  void end();

 private:
  enum class Part : std::uint8_t { none, thinking, answer };
  void begin(Part part);
  void show(std::string_view text);
  void thought(std::string_view text);
  void end_part();
  void write(std::string_view text);

  const terminal::Screen out_, error_;
  const ViewOptions options_;
  terminal::Progress progress_;
  Part part_ = Part::none;
  bool blank_ = true;  // nothing of this part was shown yet
  bool wrote_ = false, line_open_ = false;
  bool thought_ = false;  // on standard error
  terminal::SafeText safe_;
  std::optional<terminal::Typesetter> typesetter_;
  std::optional<terminal::Markdown> markdown_;
  double thinking_since_ = 0;
  std::uint64_t thinking_pieces_ = 0;
};

// "[812 tokens read at 402/s, 64 made at 31.2/s, first after 2.1 s, context 876 of 32768 (2.7 %)]"
std::string speed_line(const TalkAnswer& answer, const EngineFacts& facts);
// Why the answer ended, if a person should know: "(cut: ...)"; else empty.
std::string end_note(const TalkAnswer& answer, const EngineFacts& facts);
// The same on standard error, where standard output is the text alone.
void tell_cut(std::string_view note, std::uint32_t tokens);

}  // namespace strata
