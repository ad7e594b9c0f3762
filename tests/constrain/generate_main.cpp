// Lets a model that knows nothing write documents: reads lines {"schema": ..., "count": N, "seed":
// S, "tokens": T} and writes for each a line {"documents": [{"text", "ended", "finished"}, ...]},
// or
// {"error": ...} if the schema is refused. The last two documents are by a writer who closes what
// is open when he can. One that has not ended after T tokens is cut, and then finished by such a
// writer, which shows that it was the beginning of a document.
#include <boost/json.hpp>
#include <iostream>
#include <random>
#include <string>

#include "tests/constrain/schema_documents.h"

namespace json = boost::json;
using namespace strata;
using namespace strata::constrain;

namespace {

constexpr TokenId kEnd = 0;

// Bytes, and pieces as vocabularies of models have them.
std::vector<std::string> vocabulary() {
  std::vector<std::string> texts = {""};
  for (int byte = 0; byte < 256; ++byte) texts.emplace_back(1, static_cast<char>(byte));
  for (const char* piece :
       {"{\"",   "\":",   "\": ",  "\",",  "\", \"", "\":\"", "\": \"", "\"}",  "\"]",   "[\"",
        "{}",    "[]",    "}}",    "]}",   "},",     "}, {",  "], [",   "true", "false", "null",
        " true", ": ",    ", ",    "\n  ", "\n    ", ",\n",   "{\n",    "\n}",  "[\n",   "\n]",
        "00",    "10",    "12",    "99",   ".5",     ".0",    "-1",     "2024", "-01",   "T00",
        "Z\"",   "@",     ".com",  "://",  "http",   "é",     "ü",      "日",   "本",    "😀",
        "\\n",   "\\\"",  "\\u00", "the",  " of",    "name",  "id",     "tion", "ing",   "value",
        "type",  "items", "kind",  "desc", "path",   "a_b",   "AB",     "x1"})
    texts.emplace_back(piece);
  for (char a = 'a'; a <= 'z'; ++a)
    for (const char b : std::string_view("aeiourst")) texts.push_back({a, b});
  return texts;
}

struct Written {
  std::string text;
  bool ended = false, stuck = false;
};

class Writer {
 public:
  Writer(std::shared_ptr<const CompiledGrammar> grammar, const std::vector<std::string>& texts,
         std::mt19937_64& random)
      : matcher_(std::move(grammar), {kEnd}), texts_(texts), random_(random) {}

  void write(std::size_t tokens, bool closes) {
    for (std::size_t i = 0; i < tokens && !it.ended && !it.stuck; ++i) {
      const TokenId token = choose(matcher_.mask(), closes);
      it.stuck = matcher_.stuck() || token < 0 || !matcher_.accept(token);
      if (it.stuck) return;
      it.ended = token == kEnd;
      it.text += texts_[static_cast<std::size_t>(token)];
    }
  }

  Written it;

 private:
  TokenId choose(Mask mask, bool closes) {
    std::vector<TokenId> allowed, closing;
    for (std::size_t id = 0; id < texts_.size(); ++id) {
      if (!allows(mask, static_cast<TokenId>(id))) continue;
      allowed.push_back(static_cast<TokenId>(id));
      const std::string& text = texts_[id];
      if (id == kEnd || text == "\"" || text == "}" || text == "]")
        closing.push_back(static_cast<TokenId>(id));
    }
    if (allowed.empty()) return -1;
    const std::vector<TokenId>& among =
        closes && !closing.empty() && random_() % 4 != 0 ? closing : allowed;
    return among[random_() % among.size()];
  }

  Matcher matcher_;
  const std::vector<std::string>& texts_;
  std::mt19937_64& random_;
};

}  // namespace

int main() {
  std::ios::sync_with_stdio(false);
  const std::vector<std::string> texts = vocabulary();
  const std::shared_ptr<const Vocabulary> words = *Vocabulary::make(texts);
  for (std::string line; std::getline(std::cin, line);) {
    const Result<json::value> input = parse_json_exact(line, "the line", 256);
    if (!input) {
      std::cerr << input.error().message << "\n";
      return 2;
    }
    const json::object& order = input->as_object();
    const auto number = [&](const char* name) { return order.at(name).to_number<std::uint64_t>(); };
    json::object out;
    const Result<SchemaDocuments> made = SchemaDocuments::make(order.at("schema"), {}, words);
    json::array documents;
    std::mt19937_64 random(number("seed"));
    for (std::uint64_t i = 0; made && i < number("count"); ++i) {
      Writer writer(made->compiled(), texts, random);
      writer.write(number("tokens"), i + 2 >= number("count"));
      const bool ended = writer.it.ended;
      writer.write(number("tokens"), true);
      documents.emplace_back(json::object{{"text", writer.it.text},
                                          {"ended", ended},
                                          {"finished", writer.it.ended},
                                          {"stuck", writer.it.stuck}});
    }
    if (made) {
      out["documents"] = std::move(documents);
    } else {
      out["error"] = made.error().message;
    }
    std::cout << json::serialize(out) << "\n";
  }
}
