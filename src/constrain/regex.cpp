// Patterns to automata.
//
// What a pattern says about places (^, $, \b, \B, lookaround) becomes marks: bytes that occur in
// no character, one kind for each assertion. A pattern's language is then regular over characters
// and marks; that of texts whose marks all speak the truth is regular too; and the pattern's texts
// are what both have in common, without the marks.
#include <algorithm>
#include <map>

#include "constrain/automaton.h"
#include "constrain/regex_parser.h"
#include "tokenizer/utf8.h"

namespace strata::constrain {
namespace {

using Kind = Pattern::Kind;
using State = Regular::State;

// Bytes that no UTF-8 has.
constexpr std::uint8_t kStart = 0xFF, kEnd = 0xFE, kBoundary = 0xFD, kNoBoundary = 0xFC;
constexpr std::uint8_t kLooks[] = {0xFB, 0xFA, 0xF9, 0xF8, 0xF7, 0xF6, 0xF5, 0xC1, 0xC0};

Regular mark(std::uint8_t byte) {
  return Regular::literal(std::string_view(reinterpret_cast<const char*>(&byte), 1));
}

// Texts in which the marks of ^, $, \b and \B are where they are true. Other marks may be anywhere.
Regular honest_marks() {
  enum Before : unsigned { kNothing, kWord, kOther, kBefores };
  enum Claim : unsigned { kAny, kWordNext, kOtherNext, kEndNext, kClaims };  // of what comes next
  ByteClasses classes;
  std::bitset<256> word;
  for (const CodePoints& in : word_characters())
    for (char32_t c = in.first; c <= in.last; ++c) word.set(c);
  classes.refine(word);
  for (const std::uint8_t byte : {kStart, kEnd, kBoundary, kNoBoundary}) classes.refine(byte);
  std::bitset<256> looks;
  for (const std::uint8_t byte : kLooks) looks.set(byte);
  classes.refine(looks);

  Table table(classes);
  const auto state = [](unsigned before, unsigned claim) { return before * kClaims + claim; };
  // Two claims at one place: an end is no word either.
  const auto also = [](unsigned a, unsigned b) -> std::optional<unsigned> {
    if (a == kAny || a == b) return b;
    if (b == kAny) return a;
    if (a == kWordNext || b == kWordNext) return std::nullopt;
    return kEndNext;
  };
  for (unsigned before = 0; before < kBefores; ++before)
    for (unsigned claim = 0; claim < kClaims; ++claim) table.add(claim != kWordNext);
  table.start = state(kNothing, kAny);
  for (unsigned before = 0; before < kBefores; ++before) {
    for (unsigned claim = 0; claim < kClaims; ++claim) {
      const State from = state(before, claim);
      const auto say = [&](std::uint8_t byte, unsigned next) {
        if (const auto both_claims = also(claim, next))
          table.connect(from, byte, state(before, *both_claims));
      };
      if (claim == kAny || claim == kWordNext) table.connect(from, 'a', state(kWord, kAny));
      if (claim == kAny || claim == kOtherNext) table.connect(from, '-', state(kOther, kAny));
      if (before == kNothing) say(kStart, kAny);
      say(kEnd, kEndNext);
      say(kBoundary, before == kWord ? kOtherNext : kWordNext);
      say(kNoBoundary, before == kWord ? kWordNext : kOtherNext);
      table.connect(from, kLooks[0], from);
    }
  }
  return minimal(table);
}

// A part of a pattern: its language over characters and marks, and which marks it has.
struct Piece {
  Regular language;
  Marks marks;
};

class Compiler {
 public:
  Compiler(const Pattern& pattern, const RegularLimits& limits)
      : pattern_(pattern), budget_(limits) {}

  Result<Regular> run(Match match) {
    STRATA_ASSIGN(const Piece piece, top(match == Match::anywhere));
    return resolved(piece);
  }

 private:
  const Pattern::Node& node(std::uint32_t index) const { return pattern_.nodes[index]; }

  // --- the pattern's language, with marks ---

  Result<Piece> compile(std::uint32_t index) {
    const Pattern::Node& it = node(index);
    switch (it.kind) {
      case Kind::characters: {
        STRATA_ASSIGN(Regular set, characters(it.characters));
        return Piece{std::move(set), {}};
      }
      case Kind::concat:
        return concatenation(it.children);
      case Kind::either: {
        std::vector<Regular> parts;
        Marks marks;
        for (const std::uint32_t child : it.children) {
          STRATA_ASSIGN(Piece part, compile(child));
          parts.push_back(std::move(part.language));
          marks |= part.marks;
        }
        STRATA_ASSIGN(Regular language, either(parts, budget_));
        return Piece{std::move(language), marks};
      }
      case Kind::repeat: {
        STRATA_ASSIGN(Piece part, compile(it.children[0]));
        STRATA_ASSIGN(part.language, repeat(part.language, it.least, it.most, budget_));
        return part;
      }
      case Kind::start:
        return marked(kStart);
      case Kind::end:
        return marked(kEnd);
      case Kind::boundary:
        return marked(kBoundary);
      case Kind::no_boundary:
        return marked(kNoBoundary);
      case Kind::look_ahead:
      case Kind::look_behind:
        return look(it);
    }
    return Piece();
  }

  static Piece marked(std::uint8_t byte) {
    Marks marks;
    marks.set(byte);
    return {mark(byte), marks};
  }

  Result<Regular> characters(const CharacterSet& set) {
    if (!budget_.take(500)) return tl::unexpected(budget_.error());
    std::vector<std::pair<char32_t, char32_t>> key;
    for (const CodePoints& in : set) key.emplace_back(in.first, in.last);
    const auto [known, fresh] = sets_.try_emplace(std::move(key));
    if (fresh) known->second = Regular::characters(set);
    return known->second;
  }

  static bool single(const Pattern::Node& it) {
    return it.kind == Kind::characters && it.characters.size() == 1 &&
           it.characters[0].first == it.characters[0].last;
  }

  // Characters that follow each other are one word.
  Result<Piece> concatenation(std::span<const std::uint32_t> children) {
    std::vector<Regular> parts;
    Marks marks;
    std::string word;
    const auto end_word = [&] {
      if (!word.empty()) parts.push_back(Regular::literal(word));
      word.clear();
    };
    for (const std::uint32_t child : children) {
      if (single(node(child))) {
        append_utf8(word, node(child).characters[0].first);
        continue;
      }
      end_word();
      STRATA_ASSIGN(Piece part, compile(child));
      parts.push_back(std::move(part.language));
      marks |= part.marks;
    }
    end_word();
    STRATA_ASSIGN(Regular language, concat(parts, budget_));
    return Piece{std::move(language), marks};
  }

  // The pattern, with any text around it if `anywhere`. Where the first or the last term of an
  // alternative holds it to an end of the text, no mark is needed: most patterns have none then.
  Result<Piece> top(bool anywhere) {
    const Pattern::Node& root = node(pattern_.root);
    std::vector<std::uint32_t> alternatives{pattern_.root};
    if (root.kind == Kind::either) alternatives = root.children;
    std::vector<Regular> parts;
    Marks marks;
    for (const std::uint32_t alternative : alternatives) {
      std::vector<std::uint32_t> terms{alternative};
      if (node(alternative).kind == Kind::concat) terms = node(alternative).children;
      std::span<const std::uint32_t> rest = terms;
      const bool from_start = !rest.empty() && node(rest.front()).kind == Kind::start;
      if (from_start) rest = rest.subspan(1);
      const bool to_end = !rest.empty() && node(rest.back()).kind == Kind::end;
      if (to_end) rest = rest.first(rest.size() - 1);
      STRATA_ASSIGN(Piece piece, concatenation(rest));
      STRATA_ASSIGN(Regular part, within(piece, anywhere && !from_start, anywhere && !to_end));
      parts.push_back(std::move(part));
      marks |= piece.marks;
    }
    STRATA_ASSIGN(Regular language, either(parts, budget_));
    return Piece{std::move(language), marks};
  }

  // With any text before and after.
  Result<Regular> within(const Piece& piece, bool before, bool after) {
    std::vector<Regular> parts;
    if (before) parts.push_back(Regular::text());
    parts.push_back(piece.language);
    if (!after) return concat(parts, budget_);
    STRATA_ASSIGN(const Regular anything, any_marked(piece.marks));
    parts.push_back(anything);
    return concat(parts, budget_, anything);
  }

  // Any text with any of these marks anywhere.
  Result<Regular> any_marked(const Marks& marks) {
    if (marks.none()) return Regular::text();
    return scattered(Regular::text(), marks, budget_);
  }

  // --- what marks mean ---

  Result<Piece> look(const Pattern::Node& it) {
    STRATA_ASSIGN(const Piece inner, compile(it.children[0]));
    if (looks_ == std::size(kLooks))
      return fail(ErrorCode::unsupported, "the pattern has more than {} lookarounds",
                  std::size(kLooks));
    const std::uint8_t byte = kLooks[looks_++];
    const bool ahead = it.kind == Kind::look_ahead;
    Piece place{Regular(), inner.marks};
    place.marks.set(byte);
    const Regular parts[] = {mark(byte), inner.language};
    const Regular turned[] = {inner.language, mark(byte)};
    STRATA_ASSIGN(place.language, concat(ahead ? parts : turned, budget_));
    STRATA_ASSIGN(place.language, within(place, true, true));
    place.marks.reset(byte);
    STRATA_ASSIGN(const Regular true_marks, resolved(place));
    const Regular around[] = {Regular::text(), mark(byte), Regular::text()};
    STRATA_ASSIGN(const Regular one_mark, concat(around, budget_));
    STRATA_ASSIGN(Regular lies, it.negative ? both(one_mark, true_marks, budget_)
                                            : without(one_mark, true_marks, budget_));
    lies_.push_back({byte, std::move(lies)});
    return marked(byte);
  }

  // The texts whose marks speak the truth, without those marks that the piece lists.
  Result<Regular> resolved(const Piece& piece) {
    if (piece.marks.none()) return piece.language;
    static const Regular honest = honest_marks();
    STRATA_ASSIGN(Regular language, both(piece.language, honest, budget_));
    Marks others = piece.marks;  // that may stand around a lie
    for (const std::uint8_t byte : kLooks) others.set(byte);
    for (const Lie& lie : lies_) {
      if (!piece.marks[lie.byte]) continue;
      STRATA_ASSIGN(const Regular lies, scattered(lie.texts, others, budget_));
      STRATA_ASSIGN(language, without(language, lies, budget_));
    }
    return erased(language, piece.marks, budget_);
  }

  // Texts with one mark of a lookaround, at a place where it does not hold.
  struct Lie {
    std::uint8_t byte;
    Regular texts;
  };

  const Pattern& pattern_;
  Budget budget_;
  std::map<std::vector<std::pair<char32_t, char32_t>>, Regular> sets_;
  std::vector<Lie> lies_;
  std::size_t looks_ = 0;
};

}  // namespace

Result<Regular> regex(std::string_view pattern, Match match, const RegularLimits& limits) {
  STRATA_ASSIGN(const Pattern parsed, parse_pattern(pattern));
  return Compiler(parsed, limits).run(match);
}

}  // namespace strata::constrain
