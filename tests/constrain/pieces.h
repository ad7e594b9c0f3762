// A vocabulary as byte-level BPE makes them, but invented: pieces of words with and without a space
// before them, numbers, punctuation and code, indentation, other scripts, pieces of characters.
#pragma once

#include <random>
#include <set>
#include <string>
#include <vector>

namespace strata::constrain {

class Pieces {
 public:
  // `count` texts, the 256 bytes first.
  static std::vector<std::string> make(std::size_t count, std::uint64_t seed = 1) {
    Pieces pieces(seed);
    for (int byte = 0; byte < 256; ++byte) pieces.add(std::string(1, static_cast<char>(byte)));
    pieces.marks();
    while (pieces.list_.size() < count) pieces.add(pieces.one());
    pieces.list_.resize(count);
    return std::move(pieces.list_);
  }

 private:
  explicit Pieces(std::uint64_t seed) : engine_(seed) {}
  std::size_t below(std::size_t n) { return engine_() % n; }
  void add(const std::string& text) {
    if (known_.insert(text).second) list_.push_back(text);
  }

  void marks() {
    const std::vector<std::string> all = {
        "\"",   "\":", "\": ", "\":\"", "\": \"", "\",", "\",\"", "\", \"", "\"}", "\"},", "\"]",
        "\n",   "{\"", "[{\"", "}]",    "}}",     "{}",  "[]",    "[\"",    "\\n", "\\\"", "\\u",
        "\\\\", "();", "->",   "=>",    "://",    "</",  "/>",    "<?",     "--",  "...",  "\r\n",
        "\n\n", ",\n", "{\n",  "\"\n",  "==",     " =",  "('",    "')",     "*/",  "//",   " {",
        " [",   " \"", "\t\"", ".\"",   "?\"",    "!\"", "true",  "false",  "null"};
    for (const std::string& text : all) add(text);
    for (std::size_t n = 2; n < 80; ++n) {
      add(std::string(n, ' '));
      if (n < 20) add(std::string(n, '\t'));
      if (n < 20) add(std::string("\n").append(n, ' '));
      if (n < 12) add(std::string("\n").append(n, ' ').append("\""));
      add(std::string(n, '-'));
    }
  }

  std::string word() {
    static const char* const kSyllables[] = {
        "a",   "e",   "in", "er",   "on", "re",   "st",  "th",  "an",  "al",   "ti",
        "en",  "or",  "de", "ment", "co", "tion", "ing", "pre", "ver", "lo",   "ma",
        "pro", "si",  "ta", "ne",   "ra", "li",   "us",  "ful", "ver", "ious", "ab",
        "ter", "con", "o",  "i",    "u",  "ly",   "s",   "ed",  "qu",  "z",    "x"};
    std::string text;
    for (std::size_t n = 1 + below(4); n > 0; --n) text += kSyllables[below(std::size(kSyllables))];
    return text;
  }

  std::string wide() {
    std::string text;
    for (std::size_t n = 1 + below(3); n > 0; --n) {
      const auto code = static_cast<unsigned>(0x4E00 + below(0x5000));
      text += static_cast<char>(0xE0 | (code >> 12U));
      text += static_cast<char>(0x80 | ((code >> 6U) & 0x3FU));
      text += static_cast<char>(0x80 | (code & 0x3FU));
    }
    const std::size_t kind = below(20);
    if (kind == 0) text.pop_back();
    if (kind == 1) text.erase(0, 1);
    if (kind == 2) text.insert(text.begin(), ' ');
    return text;
  }

  std::string one() {
    static const std::string kMarks = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~ \n\t";
    const std::size_t kind = below(100);
    std::string text = word();
    if (kind >= 60 && kind < 70) text[0] = static_cast<char>(text[0] - 'a' + 'A');
    if (kind < 45 || (kind >= 60 && kind < 65)) text.insert(text.begin(), ' ');
    if (kind < 70) return text;
    if (kind < 85) return wide();
    if (kind < 88) return std::to_string(below(1000));
    if (kind < 91) return text + kMarks[below(kMarks.size())];
    if (kind < 96) return text.insert(0, 1, kMarks[below(kMarks.size())]);
    text.clear();
    for (std::size_t n = 2 + below(3); n > 0; --n) text += kMarks[below(kMarks.size())];
    return text;
  }

  std::mt19937_64 engine_;
  std::vector<std::string> list_;
  std::set<std::string> known_;
};

}  // namespace strata::constrain
