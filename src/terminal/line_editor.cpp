#include "terminal/line_editor.h"

#include <fmt/format.h>
#include <histedit.h>
#include <langinfo.h>

#include <algorithm>
#include <clocale>
#include <csignal>
#include <cstdio>
#include <cstring>

#include "terminal/line_history.h"
#include "terminal/text.h"

namespace strata::terminal {
namespace {

static_assert(sizeof(wchar_t) == sizeof(char32_t), "libedit's characters are code points here");

constexpr wchar_t kEscape = L'\x1b';
// What terminals put around pasted text, and how they are asked to.
constexpr std::wstring_view kPasteBegin = L"\x1b[200~", kPasteEnd = L"\x1b[201~";
constexpr const char* kMarkPastes = "\x1b[?2004h";
constexpr const char* kMarkPastesNoMore = "\x1b[?2004l";
constexpr char kHidden = '\1';  // around what takes no room in a prompt

std::wstring to_wide(std::string_view utf8) {
  const std::u32string text = from_utf8(utf8);
  return {text.begin(), text.end()};
}
std::string from_wide(std::wstring_view text) {
  std::string out;
  for (const wchar_t c : text) append_utf8(out, static_cast<char32_t>(c));
  return out;
}

void use_utf8() {
  std::setlocale(LC_CTYPE, "");
  if (std::strcmp(nl_langinfo(CODESET), "UTF-8") != 0) std::setlocale(LC_CTYPE, "C.UTF-8");
}

// What the texts have in common from their beginning, in whole characters.
std::string common_beginning(const std::vector<std::string>& texts) {
  std::u32string common = from_utf8(texts.front());
  for (const std::string& text : texts) {
    const std::u32string other = from_utf8(text);
    const auto [end, ignored] =
        std::mismatch(common.begin(), common.end(), other.begin(), other.end());
    common.erase(end, common.end());
  }
  return to_utf8(common);
}

class Editor final : public LineEditor {
 public:
  Editor(const Screen& screen, Complete complete)
      : colour_(screen.colour), marks_pastes_(screen.moves), complete_(std::move(complete)) {}
  ~Editor() override {
    if (history_ != nullptr) history_wend(history_);
    if (edit_ != nullptr) el_end(edit_);
  }
  Editor(const Editor&) = delete;
  Editor& operator=(const Editor&) = delete;

  Status start() {
    use_utf8();
    edit_ = el_init("strata", stdin, stdout, stderr);
    history_ = history_winit();
    if (edit_ == nullptr || history_ == nullptr)
      return fail(ErrorCode::exhausted, "no memory for the line editor");
    HistEventW event;
    history_w(history_, &event, H_SETSIZE, static_cast<int>(LineHistory::kMostEntries));
    history_w(history_, &event, H_SETUNIQUE, 1);
    el_set(edit_, EL_CLIENTDATA, this);
    el_set(edit_, EL_EDITOR, "emacs");
    el_set(edit_, EL_SIGNAL, 1);  // resizing
    el_set(edit_, EL_PROMPT_ESC, &Editor::prompt_of, kHidden);
    el_wset(edit_, EL_HIST, history_w, history_);
    // Ctrl-C and Ctrl-Z are keys while a line is edited.
    el_set(edit_, EL_SETTY, "-d", "-isig", nullptr);
    add("strata-give-up", &Editor::give_up, "^C");
    add("strata-stop", &Editor::stop, "^Z");
    add("strata-complete", &Editor::complete_word, "^I");
    add("strata-paste", &Editor::paste, "\\e[200~");
    add("strata-break", &Editor::break_line, "\\e^M");
    el_set(edit_, EL_BIND, "\\e^J", "strata-break", nullptr);
    el_set(edit_, EL_BIND, "^R", "em-inc-search-prev", nullptr);
    el_set(edit_, EL_BIND, "\\e[1;5D", "ed-prev-word", nullptr);  // Ctrl with an arrow
    el_set(edit_, EL_BIND, "\\e[1;5C", "em-next-word", nullptr);
    return {};
  }

  Line read(const std::string& prompt, const std::string& start) override {
    set_prompt(prompt);
    given_up_ = false;
    if (marks_pastes_) write(kMarkPastes);
    if (!start.empty()) {
      pushed_ = std::wstring(kPasteBegin) + to_wide(start) + std::wstring(kPasteEnd);
      el_wpush(edit_, pushed_.c_str());
    }
    int count = 0;
    const wchar_t* text = el_wgets(edit_, &count);
    if (marks_pastes_) write(kMarkPastesNoMore);
    if (given_up_) return {.end = Line::End::interrupted, .text = {}};
    if (text == nullptr || count <= 0) {
      write("\n");
      return {.end = Line::End::closed, .text = {}};
    }
    std::wstring_view line(text, static_cast<std::size_t>(count));
    if (line.ends_with(L'\n')) line.remove_suffix(1);
    return {.end = Line::End::entered, .text = from_wide(line)};
  }

  void remember(const std::string& text) override {
    HistEventW event;
    history_w(history_, &event, H_ENTER, to_wide(text).c_str());
  }

 private:
  using Function = unsigned char (*)(EditLine*, int);

  void add(const char* name, Function function, const char* key) {
    el_set(edit_, EL_ADDFN, name, name, function);
    el_set(edit_, EL_BIND, key, name, nullptr);
  }

  static Editor& of(EditLine* edit) {
    void* self = nullptr;
    el_get(edit, EL_CLIENTDATA, &self);
    return *static_cast<Editor*>(self);
  }
  static char* prompt_of(EditLine* edit) { return of(edit).prompt_.data(); }

  static void write(std::string_view text) {
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
  }

  void set_prompt(const std::string& prompt) {
    prompt_ = prompt;
    if (!colour_ || prompt.empty()) return;
    // libedit drops what is hidden at the very end: the last character, a space, stands there.
    const std::string_view mark(prompt.data(), prompt.size() - 1);
    prompt_ = fmt::format("{0}\x1b[1;32m{0}{1}{0}\x1b[0m{0}{2}", kHidden, mark, prompt.back());
  }

  static unsigned char give_up(EditLine* edit, int /*key*/) {
    of(edit).given_up_ = true;
    el_push(edit, "\n");  // so that libedit itself leaves the line, however many rows it has
    return CC_NORM;
  }

  // As the shell's job control wants it: in the terminal's usual mode.
  static unsigned char stop(EditLine* edit, int /*key*/) {
    el_set(edit, EL_PREP_TERM, 0);
    std::raise(SIGTSTP);
    el_set(edit, EL_PREP_TERM, 1);
    return CC_REDISPLAY;
  }

  static unsigned char break_line(EditLine* edit, int /*key*/) {
    return el_winsertstr(edit, L"\n") == 0 ? CC_REFRESH : CC_ERROR;
  }

  // Behind the mark of its beginning: up to that of its end.
  static unsigned char paste(EditLine* edit, int /*key*/) {
    std::wstring text;
    wchar_t c = 0;
    while (!text.ends_with(kPasteEnd) && el_wgetc(edit, &c) == 1) {
      // What is too much goes, but not what may be the mark of the end.
      if (text.size() >= kMostPasted) text.erase(text.size() - kPasteEnd.size(), 1);
      text.push_back(c);
    }
    if (text.ends_with(kPasteEnd)) text.resize(text.size() - kPasteEnd.size());
    std::wstring clean;
    for (std::size_t i = 0; i < text.size(); ++i) {
      const bool pair = text[i] == L'\r' && i + 1 < text.size() && text[i + 1] == L'\n';
      if (pair) continue;
      const wchar_t letter = text[i] == L'\r' ? L'\n' : text[i];
      const bool control = letter < L' ' && letter != L'\n' && letter != L'\t';
      if (!control && letter != kEscape && letter != 0x7F) clean.push_back(letter);
    }
    if (clean.empty()) return CC_NORM;
    return el_winsertstr(edit, clean.c_str()) == 0 ? CC_REFRESH : CC_ERROR;
  }

  static unsigned char complete_word(EditLine* edit, int /*key*/) {
    const LineInfoW* line = el_wline(edit);
    const std::string before =
        from_wide({line->buffer, static_cast<std::size_t>(line->cursor - line->buffer)});
    Completions found = of(edit).complete_(before);
    if (found.texts.empty() || found.from > before.size()) return CC_ERROR;
    std::string common = common_beginning(found.texts);
    const std::string typed = before.substr(found.from);
    if (found.texts.size() == 1 && found.space) common += ' ';
    if (common.starts_with(typed) && common.size() > typed.size()) {
      const bool done = el_winsertstr(edit, to_wide(common.substr(typed.size())).c_str()) == 0;
      return done ? CC_REFRESH : CC_ERROR;
    }
    if (found.texts.size() == 1) return CC_NORM;
    std::string list = "\n";
    for (const std::string& text : found.texts) list += safe_line(text) + "  ";
    list.resize(list.size() - 2);
    write(list + "\n");
    return CC_REDISPLAY;
  }

  const bool colour_, marks_pastes_;
  Complete complete_;
  EditLine* edit_ = nullptr;
  HistoryW* history_ = nullptr;
  std::string prompt_;
  std::wstring pushed_;  // libedit may look at it until the line is read
  bool given_up_ = false;
};

}  // namespace

Result<std::unique_ptr<LineEditor>> LineEditor::open(const Screen& screen, Complete complete) {
  auto editor = std::make_unique<Editor>(screen, std::move(complete));
  STRATA_TRY(editor->start());
  return editor;
}

}  // namespace strata::terminal
