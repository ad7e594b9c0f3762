// A schema as text: it is refused, or its grammar compiles and lets a document be written of which
// every prefix can go on. The same for its fields.
#include <boost/json.hpp>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/json_number.h"
#include "constrain/json_schema.h"
#include "constrain/matcher.h"

namespace {

using namespace strata;
using namespace strata::constrain;

constexpr TokenId kEnd = 256;

void require(bool holds) {
  if (!holds) __builtin_trap();
}

const std::shared_ptr<const Vocabulary>& bytes() {
  static const std::shared_ptr<const Vocabulary> vocabulary = [] {
    std::vector<std::string> texts;
    for (int byte = 0; byte < 256; ++byte) texts.emplace_back(1, static_cast<char>(byte));
    texts.emplace_back();
    return *Vocabulary::make(std::move(texts));
  }();
  return vocabulary;
}

// Writes up to 200 bytes, each the first allowed one from a place that the input chooses.
void write(Grammar& grammar, Grammar::Expr root, std::string_view input) {
  grammar.set_root(root);
  CompileLimits limits;
  limits.states = 20'000;
  const auto compiled = CompiledGrammar::compile(grammar, bytes(), limits);
  if (!compiled) return;
  Matcher matcher(*compiled, {kEnd});
  for (std::size_t i = 0; i < 200; ++i) {
    const Mask mask = matcher.mask();
    const auto from = static_cast<unsigned char>(input[(i * 7) % input.size()]);
    TokenId next = -1;
    for (int k = 0; k < 257 && next < 0; ++k)
      if (allows(mask, (from + k) % 257)) next = (from + k) % 257;
    require(next >= 0);
    require(matcher.accept(next));
    if (next == kEnd) return;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const auto schema = parse_json_exact(input, "the schema", 128);
  if (!schema || input.empty()) return 0;
  Grammar documents;
  if (const auto root = json_schema(documents, *schema)) write(documents, *root, input);
  Grammar fields;
  const FieldMarks marks{"<p=", ">\n", "\n</p>\n"};
  if (const auto root = json_fields(fields, *schema, marks, FieldReader()))
    write(fields, *root, input);
  return 0;
}
