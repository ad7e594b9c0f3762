#include "cli/answer_view.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "base/clock.h"

namespace strata {

using terminal::columns_of;

AnswerView::AnswerView(const terminal::Screen& out, const ViewOptions& options)
    : out_(out),
      error_(terminal::screen_of(STDERR_FILENO)),
      options_(options),
      progress_(options.progress, "reading the prompt", terminal::Unit::tokens) {}

void AnswerView::reading(std::uint32_t read, std::uint32_t total) {
  if (part_ == Part::none) progress_.update(read, total);
}

void AnswerView::write(std::string_view text) {
  if (text.empty()) return;
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
  line_open_ = text.back() != '\n';
  wrote_ = true;
}

void AnswerView::begin(Part part) {
  if (part == part_) return;
  progress_.clear();
  end_part();
  part_ = part;
  blank_ = true;
  if (!out_.terminal) return;
  if (wrote_) write("\n");
  typesetter_.emplace(out_.colour, [] { return columns_of(STDOUT_FILENO); });
  markdown_.emplace(*typesetter_);
}

void AnswerView::end_part() {
  if (part_ == Part::none || !out_.terminal) return;
  if (part_ == Part::thinking && options_.thinking == ShowThinking::fold) {
    progress_.clear();
    write(fmt::format("{}(thought for {:.1f} s; /thinking last shows it){}\n",
                      out_.colour ? terminal::begin(terminal::kDim) : "",
                      monotonic_seconds() - thinking_since_,
                      out_.colour ? terminal::kPlainAgain : ""));
    return;
  }
  show(safe_.flush());
  if (options_.markdown && part_ == Part::answer) markdown_->finish();
  write(typesetter_->finish());
  if (line_open_) write("\n");
}

// A piece of this part, safe already.
void AnswerView::show(std::string_view text) {
  if (blank_) {  // models begin with line breaks
    const std::size_t start = text.find_first_not_of('\n');
    if (start == text.npos) return;
    text.remove_prefix(start);
    blank_ = false;
  }
  if (part_ == Part::answer && options_.markdown) {
    markdown_->feed(text);
  } else {
    const terminal::Looks looks = part_ == Part::thinking ? terminal::kDim : terminal::kPlain;
    for (const char32_t c : terminal::from_utf8(text)) {
      if (c == '\n') {
        typesetter_->line_break();
      } else {
        typesetter_->put(c, looks);
      }
    }
  }
  write(typesetter_->take());
}

void AnswerView::thought(std::string_view text) {
  if (options_.thinking == ShowThinking::hide) return;
  if (!out_.terminal) {  // beside the answer, not in it
    const std::string safe = error_.terminal ? safe_.feed(text) : std::string(text);
    std::fwrite(safe.data(), 1, safe.size(), stderr);
    thought_ = true;
    return;
  }
  if (part_ != Part::thinking) {
    begin(Part::thinking);
    thinking_since_ = monotonic_seconds();
    progress_.next("thinking", terminal::Unit::tokens);
  }
  if (options_.thinking == ShowThinking::fold) {
    progress_.update(++thinking_pieces_, 0);
  } else {
    show(safe_.feed(text));
  }
}

void AnswerView::event(const chat::OutputEvent& event) {
  using Kind = chat::OutputEvent::Kind;
  if (event.kind == Kind::reasoning) return thought(event.text);
  if (event.kind == Kind::tool_call_end) return;
  begin(Part::answer);
  const std::string name = "\n" + event.name + " ";
  const std::string_view text = event.kind == Kind::tool_call_begin ? name : event.text;
  if (!out_.terminal) return write(text);
  show(safe_.feed(text));
}

void AnswerView::end() {
  progress_.clear();
  end_part();
  part_ = Part::none;
  if (line_open_ || !wrote_) write("\n");
  if (thought_) std::fputc('\n', stderr);
}

std::string speed_line(const TalkAnswer& answer, const EngineFacts& facts) {
  const server::ChatResult& r = answer.result;
  const auto rate = [](double tokens, double seconds) {
    return seconds > 0 ? fmt::format(" at {:.3g}/s", tokens / seconds) : std::string();
  };
  const std::uint32_t read = r.prompt_tokens - r.cached_tokens;
  const std::uint32_t held = r.prompt_tokens + r.completion_tokens;
  std::string text = fmt::format("{} tokens read{}", read, rate(read, r.prompt_seconds));
  if (r.cached_tokens > 0) text += fmt::format(" ({} known)", r.cached_tokens);
  text +=
      fmt::format(", {} made{}", r.completion_tokens, rate(r.completion_tokens, r.decode_seconds));
  text += fmt::format(", first after {:.2f} s", answer.first_seconds);
  if (r.drafted > 0) text += fmt::format(", {} of {} drafts right", r.accepted, r.drafted);
  text += fmt::format(", context {} of {} ({:.2g} %)", held, facts.context,
                      100.0 * held / std::max<std::uint32_t>(facts.context, 1));
  return "[" + text + "]";
}

std::string end_note(const TalkAnswer& answer, const EngineFacts& facts) {
  const server::ChatResult& r = answer.result;
  if (r.finish == server::ChatFinish::cancelled) return "(stopped; Ctrl-C once more ends)";
  if (r.finish != server::ChatFinish::length) return {};
  if (r.stopped_by != StoppedBy::none) return "(ended: it went round in circles)";
  if (r.prompt_tokens + r.completion_tokens + server::kContextSlack >= facts.context)
    return "(cut: the context is full)";
  return "(cut: that was the limit of tokens)";
}

void tell_cut(std::string_view note, std::uint32_t tokens) {
  std::fflush(stdout);
  fmt::print(stderr, "strata: {} after {} tokens\n", note.substr(1, note.size() - 2), tokens);
}

}  // namespace strata
