// What a schema says about values of one kind, as a disjunction of cases. A case is a conjunction
// of constraints without any "or" in it, from which an automaton can be made; two cases merge into
// one that demands both. Subschemas of members and items stay unopened (All).
#pragma once

#include <boost/json/value.hpp>
#include <compare>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "constrain/regular.h"
#include "constrain/schema_numbers.h"

namespace strata::constrain {

// Counts of a schema (items, characters, members) from here on are this one: no answer has so many.
inline constexpr std::uint64_t kEndless = 1'000'000'000'000'000'000;
std::string count_text(std::uint64_t count);  // "7", "10^18 or more"

// A subschema that a value must, or must not, satisfy; or a constant that it must, or must not,
// equal.
struct Literal {
  const boost::json::value* node = nullptr;
  bool negated = false;
  bool constant = false;
  auto operator<=>(const Literal&) const = default;
};
using All = std::vector<Literal>;  // all of them; none: any value

void add(All& all, const All& more);  // without repeating any
// Whether some literal is the schema `false`.
bool is_false(const All& all);

enum class Kind : std::uint8_t { null, yes, no, number, string, array, object };

// null, true and false: there is nothing more to say about them.
template <Kind K>
struct PlainCase {
  static constexpr Kind kind = K;
  bool merge(const PlainCase&) { return true; }
  bool anything() const { return true; }
  std::size_t size() const { return 1; }
};

struct NumberCase {
  static constexpr Kind kind = Kind::number;
  NumberRanges ranges;
  bool integer = false, fraction = false;  // is, is not a whole number
  std::vector<Decimal> steps, not_steps;   // is, is not a multiple of

  bool merge(const NumberCase& other);  // false: no value is left
  bool anything() const;
  std::size_t size() const { return 1; }
};

// A language that patterns and formats mean; shared.
using Language = std::shared_ptr<const Regular>;

struct StringCase {
  static constexpr Kind kind = Kind::string;
  std::optional<std::vector<std::string>> values;  // one of these, sorted
  std::vector<std::string> not_values;
  std::vector<Language> in, not_in;
  bool format = false;      // the only language in `in` is that of a format
  std::uint64_t least = 0;  // characters
  std::optional<std::uint64_t> most;

  bool merge(const StringCase& other);
  bool anything() const;
  std::size_t size() const { return 1 + (values ? values->size() : 0); }
};

struct ArrayCase {
  static constexpr Kind kind = Kind::array;
  // Of the items from `from` on, at least and at most so many are in `value`.
  struct Count {
    All value;
    std::uint64_t from = 0, least = 0;
    std::optional<std::uint64_t> most;
  };
  std::vector<All> prefix;
  All rest;  // of each item behind the prefix
  std::uint64_t least = 0;
  std::optional<std::uint64_t> most;
  std::vector<Count> counts;
  bool unique = false;
  std::uint64_t evaluated = 0;  // items that keywords have looked at
  bool all_evaluated = false;

  bool merge(const ArrayCase& other);
  bool anything() const;
  std::size_t size() const { return 1 + prefix.size(); }
  All& item(std::size_t index);  // makes the prefix long enough
};

// Names of properties: those listed and those in one of the languages, or all but them.
struct NameSet {
  std::vector<std::string> names;
  std::vector<Language> languages;
  bool complement = false;
  bool contains(std::string_view name) const;
};

struct ObjectCase {
  static constexpr Kind kind = Kind::object;
  struct Property {
    std::string name;
    All value;  // if it is there
    bool required = false, absent = false;
    bool placed = false;  // `properties` names it: that gives it its place
  };
  struct Rule {  // each property of such a name has such a value
    NameSet names;
    All value;
  };
  std::vector<Property> properties;
  std::vector<Rule> rules;
  std::vector<All> names;       // of each name, as a string
  std::vector<Rule> witnesses;  // some property of such a name has such a value
  std::uint64_t least = 0;
  std::optional<std::uint64_t> most;
  NameSet evaluated;  // what keywords have looked at
  bool all_evaluated = false;

  bool merge(const ObjectCase& other);
  bool anything() const;
  std::size_t size() const { return 1 + properties.size() + rules.size(); }
  // Adds to what is said of a name; false if it must be there and must not.
  bool mention(const Property& property);
};

// What one of several cases must be: an "or" of them. Empty: no value at all.
template <class Case>
using Cases = std::vector<Case>;

}  // namespace strata::constrain
