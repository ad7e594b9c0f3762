// How long constraints take: compiling, and masks along random answers.
//
//   constrain_bench [--vocabulary FILE] [--size N] [--rows N] [--no-cache] GRAMMAR.gbnf ...
//
// FILE has a JSON array of texts, empty for special tokens; without it N invented pieces are used
// (pieces.h). Each grammar is compiled, then random answers are written, each token chosen among
// those that the mask allows, until N rows had a mask. Prints percentiles. --no-cache makes every
// mask anew, as the first answer under a constraint does.
#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <fstream>
#include <iterator>
#include <random>

#include "base/json.h"
#include "constrain/gbnf.h"
#include "constrain/matcher.h"
#include "tests/constrain/pieces.h"

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

std::vector<std::string> read_vocabulary(const std::string& path) {
  std::vector<std::string> texts;
  const auto json = parse_json(read(path), "the vocabulary");
  if (!json || !json->is_array()) return texts;
  for (const auto& text : json->get_array()) {
    // One character a byte.
    std::string bytes;
    const std::string_view utf8 = text.is_string() ? std::string_view(text.get_string()) : "";
    for (std::size_t i = 0; i < utf8.size(); ++i) {
      const auto c = static_cast<unsigned char>(utf8[i]);
      if (c < 0x80 || i + 1 == utf8.size())
        bytes += utf8[i];
      else
        bytes +=
            static_cast<char>(((c & 3U) << 6U) | (static_cast<unsigned char>(utf8[++i]) & 0x3FU));
    }
    texts.push_back(bytes);
  }
  return texts;
}

void measure(const std::string& path, const std::shared_ptr<const Vocabulary>& vocabulary,
             TokenId end, std::size_t rows, const CompileLimits& limits) {
  const std::string text = read(path);
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
    else if (argument == "--vocabulary" && i + 1 < argc)
      file = argv[++i];
    else if (argument == "--no-cache")
      limits.mask_cache_bytes = 0;
    else
      grammars.push_back(argument);
  }
  std::vector<std::string> texts = file.empty() ? Pieces::make(size - 1) : read_vocabulary(file);
  const auto end = static_cast<TokenId>(texts.size());
  texts.emplace_back();
  const auto start = now();
  const auto vocabulary = Vocabulary::make(std::move(texts));
  if (!vocabulary) {
    fmt::print("{}\n", vocabulary.error().message);
    return 1;
  }
  fmt::print("vocabulary of {} tokens: {:.0f} ms\n", (*vocabulary)->size(), since(start) / 1e3);
  for (const std::string& grammar : grammars) measure(grammar, *vocabulary, end, rows, limits);
  return 0;
}

}  // namespace
}  // namespace strata::constrain

int main(int argc, char** argv) {
  return strata::constrain::run(argc, argv);
}
