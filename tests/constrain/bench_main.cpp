// How long constraints take: compiling, and masks along random answers.
//
//   constrain_bench [--tokenizer FILE] [--size N] [--rows N] [--no-cache] [GRAMMAR.gbnf ...]
//
// The vocabulary is that of a tokenizer.json; without one N invented pieces are used (pieces.h).
// Each grammar, or each of kGrammars, is compiled, then random answers are written, each token
// chosen among those that the mask allows, until N rows had a mask. Prints percentiles of the
// thread's own time. --no-cache makes every mask anew, as the first answer under a constraint does.
#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <fstream>
#include <iterator>
#include <random>

#include "base/json_number.h"
#include "constrain/gbnf.h"
#include "constrain/matcher.h"
#include "tests/constrain/pieces.h"
#include "tokenizer/byte_alphabet.h"

namespace strata::constrain {
namespace {

// Microseconds of the thread's own time: what else runs on the machine does not count.
double now() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) * 1e6 + static_cast<double>(time.tv_nsec) / 1e3;
}
double since(double start) {
  return now() - start;
}

struct Times {
  std::vector<double> all;
  double at(double part) {
    if (all.empty()) return 0;
    std::sort(all.begin(), all.end());
    return all[std::min(all.size() - 1,
                        static_cast<std::size_t>(part * static_cast<double>(all.size())))];
  }
};

std::string read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Texts of the tokens by id; added ones have none.
Result<std::vector<std::string>> read_tokenizer(const std::string& path) {
  STRATA_ASSIGN(const boost::json::value json, parse_json_exact(read(path), path));
  std::vector<std::string> texts;
  const auto at = [&](std::int64_t id) -> std::string& {
    if (texts.size() <= static_cast<std::size_t>(id))
      texts.resize(static_cast<std::size_t>(id) + 1);
    return texts[static_cast<std::size_t>(id)];
  };
  for (const auto& [piece, id] : json.at("model").at("vocab").as_object()) {
    STRATA_ASSIGN(at(id.as_int64()), bytes_of_printable(piece));
  }
  for (const auto& token : json.at("added_tokens").as_array())
    at(token.at("id").as_int64()).clear();
  return texts;
}

struct Sample {
  std::string_view name, grammar;
};
const Sample kGrammars[] = {
    {"free text up to a token", "root ::= !<[257]>* <[257]> \"x\""},
    {"any JSON object", "root ::= %object"},
    {"llama.cpp's JSON grammar",
     R"g(root ::= object
value ::= object | array | string | number | "true" | "false" | "null"
object ::= "{" ws (string ":" ws value ("," ws string ":" ws value)*)? "}"
array ::= "[" ws (value ("," ws value)*)? "]"
string ::= "\"" ([^"\\\x7F\x00-\x1F] | "\\" (["\\bfnrt/] | "u" [0-9a-fA-F]{4}))* "\""
number ::= "-"? ([0-9] | [1-9] [0-9]{0,15}) ("." [0-9]+)? ([eE] [-+]? [0-9] [1-9]{0,15})?
ws ::= | " " | "\n" [ \t]{0,20})g"},
    {"a person's record",
     R"g(root ::= %json {"type":"object","properties":{"name":{"type":"string","maxLength":100},
"age":{"type":"integer","minimum":0,"maximum":150},"email":{"type":"string","format":"email"},
"tags":{"type":"array","items":{"type":"string"},"maxItems":10},"address":{"type":"object",
"properties":{"street":{"type":"string"},"city":{"type":"string"},"zip":{"type":"string",
"pattern":"^[0-9]{5}$"}},"required":["street","city"],"additionalProperties":false},
"status":{"enum":["active","inactive","pending"]},"created":{"type":"string","format":"date-time"},
"score":{"type":"number"}},"required":["name","age","email"],"additionalProperties":false})g"},
    {"a tree of objects",
     R"g(root ::= %json {"type":"object","properties":{"a":{"type":"string"},"b":{"$ref":"#"},
"c":{"type":"array","items":{"$ref":"#"}}},"required":["a"]})g"},
    {"a call with fields",
     R"g(root ::= "<tool_call>\n<function=write>\n" %fields "<parameter=" ">\n" "\n</parameter>\n"
{"type":"object","properties":{"path":{"type":"string"},"content":{"type":"string"},
"mode":{"type":"integer"}},"required":["path","content"]}
{"others":["string"],"named":{"mode":["number"]}} "</function>\n</tool_call>")g"},
    {"a string of up to 500 characters", R"g(root ::= %json {"type":"string","maxLength":500})g"},
    {"a string of up to 5,000", R"g(root ::= %json {"type":"string","maxLength":5000})g"},
    {"a string that contains a word", R"g(root ::= %json {"type":"string","pattern":"foo"})g"},
    {"statements of names and numbers", R"g(root ::= (name " "? [=+*-] " "? (name | [0-9]+) ";\n")*
name ::= [a-zA-Z_][a-zA-Z0-9_]*)g"},
    {"lists in brackets", R"g(root ::= "(" ws atom* ")"
atom ::= root ws | [a-z]+ " "+ | "\"" [^"]* "\"" ws
ws ::= [ \n]*)g"},
};

void measure(std::string_view path, std::string_view text,
             const std::shared_ptr<const Vocabulary>& vocabulary, TokenId end, std::size_t rows,
             const CompileLimits& limits) {
  const auto start = now();
  const auto grammar = parse_gbnf(text, nullptr);
  if (!grammar) return fmt::print("{}: {}\n", path, grammar.error().message);
  const auto compiled = CompiledGrammar::compile(*grammar, vocabulary, limits);
  const double compile = since(start);
  if (!compiled)
    return fmt::print("{}: {} ({:.1f} ms)\n", path, compiled.error().message, compile / 1e3);
  Times masks, accepts;
  double worst = 0;
  std::string worst_text;
  std::mt19937_64 engine(1);
  std::vector<TokenId> allowed;
  std::size_t answers = 0;
  while (masks.all.size() < rows) {
    ++answers;
    Matcher matcher(*compiled, {end});
    std::string written;
    for (int step = 0; step < 400 && masks.all.size() < rows; ++step) {
      auto at = now();
      const Mask mask = matcher.mask();
      masks.all.push_back(since(at));
      if (masks.all.back() > worst) {
        worst = masks.all.back();
        worst_text = written;
      }
      allowed.clear();
      for (std::size_t w = 0; w < mask.size(); ++w)
        for (std::uint64_t word = mask[w]; word != 0; word &= word - 1)
          allowed.push_back(
              static_cast<TokenId>(w * 64 + static_cast<std::size_t>(__builtin_ctzll(word))));
      const TokenId chosen = allowed[engine() % allowed.size()];
      if (chosen == end) break;
      at = now();
      if (!matcher.accept(chosen)) return fmt::print("{}: token {} refused\n", path, chosen);
      accepts.all.push_back(since(at));
      written += fmt::format("{} ", chosen);
    }
  }
  fmt::print(
      "{}: compile {:.2f} ms, {} KiB; {} masks in {} answers: p50 {:.1f} us, p99 {:.1f} us, most "
      "{:.1f} us; accept p50 {:.2f} us, p99 {:.2f} us\n",
      path, compile / 1e3, (*compiled)->bytes() / 1024, masks.all.size(), answers, masks.at(0.5),
      masks.at(0.99), worst, accepts.at(0.5), accepts.at(0.99));
}

int run(int argc, char** argv) {
  std::size_t size = 248'320, rows = 2'000;
  std::string file;
  CompileLimits limits;
  std::vector<std::string> grammars;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--size" && i + 1 < argc)
      size = std::stoul(argv[++i]);
    else if (argument == "--rows" && i + 1 < argc)
      rows = std::stoul(argv[++i]);
    else if (argument == "--tokenizer" && i + 1 < argc)
      file = argv[++i];
    else if (argument == "--no-cache")
      limits.mask_cache_bytes = 0;
    else
      grammars.push_back(argument);
  }
  auto known = file.empty() ? Result<std::vector<std::string>>(Pieces::make(size - 1))
                            : read_tokenizer(file);
  if (!known) {
    fmt::print("{}\n", known.error().message);
    return 1;
  }
  std::vector<std::string> texts = std::move(*known);
  const auto end = static_cast<TokenId>(texts.size());
  texts.emplace_back();
  const auto start = now();
  const auto vocabulary = Vocabulary::make(std::move(texts));
  if (!vocabulary) {
    fmt::print("{}\n", vocabulary.error().message);
    return 1;
  }
  fmt::print("vocabulary of {} tokens: {:.0f} ms\n", (*vocabulary)->size(), since(start) / 1e3);
  for (const std::string& path : grammars)
    measure(path, read(path), *vocabulary, end, rows, limits);
  if (!grammars.empty()) return 0;
  for (const Sample& it : kGrammars) measure(it.name, it.grammar, *vocabulary, end, rows, limits);
  return 0;
}

}  // namespace
}  // namespace strata::constrain

int main(int argc, char** argv) {
  return strata::constrain::run(argc, argv);
}
