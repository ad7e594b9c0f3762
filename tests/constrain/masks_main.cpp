// Masks along given tokens, for tests/peers/masks.py and schema_documents.py. The first line is
// {"vocabulary": [texts in hexadecimal digits], "end": id}; then each line {"schema": ..., "ids":
// [...]} or {"grammar":
// "...", "ids": [...]} is answered by
//
//   {"masks": ["words of 64 bits in hexadecimal digits", ...], "ends": [may it end ...],
//    "taken": n}      before each of the tokens and after the last that was allowed
//   {"text": "hexadecimal digits", "whole": bool}   with "finish": true: the text of the tokens
//                     and of what may follow up to an end
//   {"taken": n, "whole": bool}   with "check": true: how many of the tokens are in the masks
//   before
//                     them, and whether the text may end behind the last of these
//   {"error": "..."}
#include <boost/json.hpp>
#include <iostream>
#include <random>
#include <string>

#include "constrain/gbnf.h"
#include "constrain/json_schema.h"
#include "constrain/matcher.h"

namespace json = boost::json;
using namespace strata;
using namespace strata::constrain;

namespace {

constexpr std::string_view kClosing = "\"}]0";
constexpr int kLongest = 400;  // tokens that are added at most

std::string from_hex(std::string_view digits) {
  std::string bytes;
  for (std::size_t i = 0; i + 1 < digits.size(); i += 2)
    bytes += static_cast<char>(std::stoi(std::string(digits.substr(i, 2)), nullptr, 16));
  return bytes;
}

std::string to_hex(std::string_view bytes) {
  std::string digits;
  for (const char c : bytes) digits += fmt::format("{:02x}", static_cast<unsigned char>(c));
  return digits;
}

struct Session {
  std::shared_ptr<const Vocabulary> vocabulary;
  std::vector<std::string> texts;
  TokenId end = 0;
  // The last constraint: many questions are about one.
  std::string source;
  std::shared_ptr<const CompiledGrammar> compiled;

  Status compile(const json::object& question) {
    std::string asked = json::serialize(question.contains("schema") ? question.at("schema")
                                                                    : question.at("grammar"));
    if (compiled && asked == source) return {};
    Grammar grammar;
    if (question.contains("schema")) {
      STRATA_ASSIGN(const Grammar::Expr root, json_schema(grammar, question.at("schema")));
      grammar.set_root(root);
    } else {
      STRATA_ASSIGN(grammar,
                    parse_gbnf(std::string_view(question.at("grammar").as_string()), nullptr));
    }
    STRATA_ASSIGN(compiled, CompiledGrammar::compile(grammar, vocabulary));
    source = std::move(asked);
    return {};
  }

  json::object answer(const json::object& question) {
    if (const Status status = compile(question); !status)
      return {{"error", status.error().message}};
    Matcher matcher(compiled, {end});
    if (question.contains("check")) return check(matcher, question.at("ids").as_array());
    json::array masks, ends;
    std::string text;
    std::size_t taken = 0;
    const bool finish = question.contains("finish");
    const auto look = [&] {
      if (finish) return;
      const Mask mask = matcher.mask();
      std::string words;
      for (const std::uint64_t word : mask) words += fmt::format("{:016x}", word);
      masks.emplace_back(std::move(words));
      ends.emplace_back(matcher.can_end());
    };
    look();
    for (const json::value& id : question.at("ids").as_array()) {
      const auto token = static_cast<TokenId>(id.as_int64());
      if (token == end || !matcher.accept(token)) break;
      text += texts[static_cast<std::size_t>(token)];
      ++taken;
      look();
    }
    if (finish) return write_end(matcher, std::move(text));
    return {{"masks", std::move(masks)}, {"ends", std::move(ends)}, {"taken", taken}};
  }

  static json::object check(Matcher& matcher, const json::array& ids) {
    std::size_t taken = 0;
    for (const json::value& id : ids) {
      const auto token = static_cast<TokenId>(id.as_int64());
      if (!allows(matcher.mask(), token) || !matcher.accept(token)) break;
      ++taken;
    }
    return {{"taken", taken}, {"whole", matcher.can_end()}};
  }

  // What closes comes first, then anything.
  json::object write_end(Matcher& matcher, std::string text) const {
    std::mt19937 engine(1);
    for (int n = 0; n < kLongest && !matcher.can_end(); ++n) {
      std::vector<TokenId> allowed;
      const Mask mask = matcher.mask();
      TokenId chosen = -1;
      std::size_t rank = kClosing.size();
      for (TokenId id = 0; id < static_cast<TokenId>(texts.size()); ++id) {
        if (id == end || !allows(mask, id)) continue;
        allowed.push_back(id);
        const std::string& it = texts[static_cast<std::size_t>(id)];
        const std::size_t place = it.size() == 1 ? kClosing.find(it) : std::string_view::npos;
        if (place >= rank) continue;
        rank = place;
        chosen = id;
      }
      if (allowed.empty()) break;
      if (chosen < 0 || engine() % 4 == 0) chosen = allowed[engine() % allowed.size()];
      if (!matcher.accept(chosen)) break;
      text += texts[static_cast<std::size_t>(chosen)];
    }
    return {{"text", to_hex(text)}, {"whole", matcher.can_end()}};
  }
};

}  // namespace

int main() {
  std::ios::sync_with_stdio(false);
  std::string line;
  Session session;
  while (std::getline(std::cin, line)) {
    const json::object question = json::parse(line).as_object();
    if (!question.contains("vocabulary")) {
      std::cout << json::serialize(session.answer(question)) << std::endl;
      continue;
    }
    for (const json::value& text : question.at("vocabulary").as_array())
      session.texts.push_back(from_hex(std::string_view(text.as_string())));
    session.end = static_cast<TokenId>(question.at("end").as_int64());
    const auto vocabulary = Vocabulary::make(session.texts);
    if (!vocabulary) {
      std::cerr << vocabulary.error().message << "\n";
      return 2;
    }
    session.vocabulary = *vocabulary;
  }
}
