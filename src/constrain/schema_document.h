// A JSON Schema as a document: which draft it follows, what $id, $anchor and $ref name in it, and
// where a value stands. Nothing outside the document is ever fetched.
#pragma once

#include <boost/json/value.hpp>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "base/result.h"

namespace strata::constrain {

enum class Draft {
  seven,     // and those before: $ref stands alone, `items` may be a list
  current,   // 2019-09 and 2020-12
  unstated,  // no $schema: 2020-12 that also knows draft 7's keywords
};

// Refers to the schema it was made of, which must stay where it is.
class SchemaDocument {
 public:
  static constexpr std::size_t kMaxValues = 400'000;  // of the whole document
  static constexpr std::size_t kMaxDepth = 128;

  static Result<SchemaDocument> make(const boost::json::value& root);

  Draft draft() const { return draft_; }
  const boost::json::value& root() const { return *root_; }
  // The schema that a reference in `from` means.
  Result<const boost::json::value*> resolve(const boost::json::value& from,
                                            std::string_view reference);
  // $dynamicRef and $recursiveRef, as long as only one schema can be meant.
  Result<const boost::json::value*> resolve_dynamic(const boost::json::value& from,
                                                    std::string_view reference);
  // "#/properties/a", for messages.
  std::string place(const boost::json::value& value) const;
  Error error(ErrorCode code, const boost::json::value& schema, std::string_view keyword,
              std::string_view message) const;

 private:
  struct Walk;
  explicit SchemaDocument(const boost::json::value& root) : root_(&root) {}
  const boost::json::value* find(std::string_view uri, std::string_view fragment) const;
  void note_parents(const boost::json::value& value) const;

  const boost::json::value* root_;
  Draft draft_ = Draft::unstated;
  std::unordered_map<const boost::json::value*, std::string> base_;       // of each known subschema
  std::unordered_map<std::string, const boost::json::value*> resources_;  // by URI
  std::unordered_map<std::string, const boost::json::value*> anchors_;    // by URI#NAME
  std::unordered_map<std::string, std::uint32_t> dynamic_anchors_;        // how many, by name
  // In what each value stands and as what; made when a place is asked for.
  mutable std::unordered_map<const boost::json::value*,
                             std::pair<const boost::json::value*, std::string>>
      parents_;
};

// How keywords hold their subschemas.
enum class Holds { none, schema, list, schema_or_list, map, map_of_schemas_or_names };
Holds keyword_holds(std::string_view keyword);

}  // namespace strata::constrain
