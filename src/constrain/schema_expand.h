// Opens a schema's keywords for one kind of value: what is left of allOf, anyOf, not, $ref and
// their like is a disjunction of cases. Everything is exact, or an error that names the place.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "base/result.h"
#include "constrain/schema_cases.h"
#include "constrain/schema_document.h"

namespace strata::constrain {

// The texts of a format, always the same object; null for a name that is not known.
Language format_language(std::string_view name);
// Their literals in JSON; `texts` is a format's.
Result<Regular> format_literals(const Language& texts);

class Expander {
 public:
  static constexpr std::size_t kMaxCases = 512;         // of one disjunction
  static constexpr std::uint64_t kLongLength = 4'096;   // of strings whose texts are automata
  static constexpr std::size_t kMaxProperties = 4'096;  // that one object lists
  static constexpr std::size_t kMaxWork = 2'000'000;    // members looked at, over all

  Expander(SchemaDocument& document, std::uint32_t depth) : document_(document), depth_(depth) {}

  template <class Case>
  Result<Cases<Case>> cases(const All& all);

  // A keyword of a schema.
  struct Site {
    const boost::json::value& node;
    const boost::json::object& schema;
    std::string_view keyword;
    const boost::json::value& value;
    const boost::json::value* sibling(std::string_view name) const {
      return schema.if_contains(name);
    }
  };
  Error error(ErrorCode code, const Site& site, std::string_view message) const {
    return document_.error(code, site.node, site.keyword, message);
  }
  tl::unexpected<Error> wrong(const Site& site, std::string_view message) const {
    return tl::unexpected(error(ErrorCode::invalid_argument, site, message));
  }
  tl::unexpected<Error> refuse(const Site& site, std::string_view message) const {
    return tl::unexpected(error(ErrorCode::unsupported, site, message));
  }

  SchemaDocument& document() { return document_; }
  // Refuses when a schema takes more work than any honest one.
  Status spend(std::size_t members);
  // The language of a pattern, made once.
  Result<Language> pattern(const Site& site, std::string_view text);
  // Texts of the strings that are in `all`.
  Result<Regular> texts(const All& all, const boost::json::value& place);
  // The texts of a case with patterns, formats or short lengths.
  Result<Regular> texts(const StringCase& strings);
  Result<Regular> texts(const NameSet& set);
  // Whether no value can be in `all`, as far as a look of some levels tells.
  Result<bool> surely_empty(const All& all, int levels);

 private:
  template <class Case>
  Result<Cases<Case>> literal(const Literal& it);
  template <class Case>
  Result<Cases<Case>> satisfied(const boost::json::value& node, const boost::json::object& schema);
  template <class Case>
  Result<Cases<Case>> refuted(const boost::json::value& node, const boost::json::object& schema);
  // What one keyword says; absent if nothing about this kind. Refuted, absent means that it cannot
  // be.
  template <class Case>
  Result<std::optional<Cases<Case>>> keyword(const Site& site, bool negated);
  template <class Case>
  Result<std::optional<Cases<Case>>> applicator(const Site& site, bool negated);
  template <class Case>
  Result<Cases<Case>> product(Cases<Case> a, const Cases<Case>& b, const Site& site);
  template <class Case>
  Result<Cases<Case>> all_of(std::span<const Literal> parts, const Site& site);
  template <class Case>
  Result<Cases<Case>> any_of(std::span<const Literal> parts, const Site& site);
  template <class Case>
  Result<Cases<Case>> any_of_tracked(std::span<const Literal> parts, const Site& site);
  template <class Case>
  Result<Cases<Case>> one_of(std::span<const Literal> parts, const Site& site);
  template <class Case>
  Result<Cases<Case>> several_of(std::span<const Literal> parts, const Site& site);
  template <class Case>
  Result<Cases<Case>> conditional(const Site& site, bool negated);
  template <class Case>
  Result<Cases<Case>> types(const Site& site, bool negated);
  template <class Case>
  Result<bool> disjoint(const Literal& a, const Literal& b, const Site& site);
  template <class Case>
  Status without_unevaluated(const Site& site, Cases<Case>& cases);
  template <class Case, class... Others>
  Result<bool> surely_empty_kinds(const All& all, int levels);

  Result<bool> impossible(const NumberCase& it, int levels);
  Result<bool> impossible(const StringCase& it, int levels);
  Result<bool> impossible(const ArrayCase& it, int levels);
  Result<bool> impossible(const ObjectCase& it, int levels);
  template <Kind K>
  Result<bool> impossible(const PlainCase<K>&, int) {
    return false;
  }

  // Assertions about one kind.
  template <Kind K>
  Result<std::optional<Cases<PlainCase<K>>>> assertion(const Site&, bool, const PlainCase<K>&) {
    return std::optional<Cases<PlainCase<K>>>();
  }
  Result<std::optional<Cases<NumberCase>>> assertion(const Site& site, bool negated,
                                                     const NumberCase&);
  Result<std::optional<Cases<StringCase>>> assertion(const Site& site, bool negated,
                                                     const StringCase&);
  Result<std::optional<Cases<ArrayCase>>> assertion(const Site& site, bool negated,
                                                    const ArrayCase&);
  Result<std::optional<Cases<ObjectCase>>> assertion(const Site& site, bool negated,
                                                     const ObjectCase&);

  // Equal, or not, to one of the constants.
  using Constants = std::span<const boost::json::value* const>;
  template <Kind K>
  Result<Cases<PlainCase<K>>> among(Constants constants, bool negated, const PlainCase<K>&);
  Result<Cases<NumberCase>> among(Constants constants, bool negated, const NumberCase&);
  Result<Cases<StringCase>> among(Constants constants, bool negated, const StringCase&);
  Result<Cases<ArrayCase>> among(Constants constants, bool negated, const ArrayCase&);
  Result<Cases<ObjectCase>> among(Constants constants, bool negated, const ObjectCase&);

  // Values of keywords.
  Result<std::uint64_t> count(const Site& site, const boost::json::value& value) const;
  Result<SchemaNumber> number(const Site& site) const;
  Result<std::string_view> text(const Site& site) const;
  Result<const boost::json::object*> map(const Site& site) const;
  Result<std::vector<Literal>> schemas(const Site& site, bool negated) const;
  Result<std::vector<std::string_view>> name_list(const Site& site,
                                                  const boost::json::value& list) const;

  // Keywords of objects and arrays that need more than a line.
  Result<std::optional<Cases<ObjectCase>>> properties(const Site& site, bool negated);
  Result<std::optional<Cases<ObjectCase>>> pattern_properties(const Site& site, bool negated);
  Result<std::optional<Cases<ObjectCase>>> other_properties(const Site& site, bool negated);
  Result<std::optional<Cases<ObjectCase>>> required(const Site& site, bool negated);
  Result<std::optional<Cases<ObjectCase>>> dependencies(const Site& site, bool negated);
  Result<std::optional<Cases<ObjectCase>>> property_names(const Site& site, bool negated);
  Result<Cases<ObjectCase>> dependency(const Site& site, std::string_view name,
                                       const boost::json::value& on, bool negated);
  Result<NameSet> named_or_matched(const Site& site);
  Result<std::optional<Cases<ArrayCase>>> items(const Site& site, bool negated);
  Result<std::optional<Cases<ArrayCase>>> prefix_items(const Site& site, bool negated);
  Result<std::optional<Cases<ArrayCase>>> contains(const Site& site, bool negated);

  SchemaDocument& document_;
  std::uint32_t depth_;
  std::size_t work_ = 0;
  std::uint32_t tracking_ = 0;  // schemas around that ask what was evaluated
  bool looking_ = false;        // only for whether anything is left: oneOf counts as anyOf
  std::map<std::tuple<Kind, Literal, Literal>, bool> disjoint_;
  std::vector<Literal> open_;  // schemas being expanded, to see one that needs itself
  std::map<std::string, Language, std::less<>> patterns_;
};

}  // namespace strata::constrain
