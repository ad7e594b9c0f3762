// From a schema to what a grammar needs: a graph whose nodes are the languages of values ("all of
// these subschemas hold") and whose edges are members and items. Nodes from which no document ends
// are known before a grammar is made.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <vector>

#include "base/result.h"
#include "constrain/json_schema.h"
#include "constrain/schema_expand.h"

namespace strata::constrain {

// Index into Plan::nodes().
enum class PlanId : std::uint32_t {};

// Orders and counts of members or items that no plain sequence says: an automaton over them. State
// 0 is the start; nothing leads back to it.
struct Machine {
  struct Edge {
    std::optional<PlanId> value;  // absent: a step without a member
    std::uint32_t key = 0;        // of ObjectPlan::keys
    std::uint32_t to = 0;
  };
  struct State {
    std::vector<Edge> edges;
    bool accepting = false;
    bool first = false;  // nothing was written: no comma comes before what follows
  };
  std::vector<State> states;
};

struct ArrayPlan {
  std::vector<PlanId> prefix;
  std::optional<PlanId> rest;
  std::uint64_t least = 0;
  std::optional<std::uint64_t> most;
  std::optional<Machine> machine;  // instead of all of the above
};

struct ObjectPlan {
  struct Member {
    Regular name;
    Regular key;  // its spellings as a string of JSON, quotes included
    PlanId value;
    bool required = false;
  };
  std::vector<Member> members;     // in their order
  std::vector<Member> others;      // any number of these behind them
  std::optional<Machine> machine;  // instead; its keys are members, then others
};

struct PlanNode {
  All all;
  std::uint32_t depth = 0;
  bool any = false;               // every document
  Regular other_scalars;          // null, true, false, numbers
  std::vector<Regular> literals;  // strings, as JSON writes them
  Regular strings;                // the same as they are
  struct Lengths {
    std::uint64_t least = 0;
    std::optional<std::uint64_t> most;
  };
  std::vector<Lengths> long_strings;  // any strings of so many characters
  std::vector<ArrayPlan> arrays;
  std::vector<ObjectPlan> objects;
  bool productive = false;  // some document ends
};

class Plan {
 public:
  static constexpr std::size_t kMaxNodes = 20'000;
  static constexpr std::uint64_t kShortLength = 64;      // of strings that are one automaton
  static constexpr std::uint64_t kMaxLeast = 1'000'000;  // characters, items
  static constexpr std::size_t kMaxStates = 8'192;       // of one machine
  static constexpr std::size_t kMaxDistinct = 10;        // values that uniqueItems keeps apart
  static constexpr std::size_t kMaxLanguages = 64;       // of names, of one object

  Plan(SchemaDocument& document, const JsonSchemaOptions& options)
      : options_(options), expander_(document, options.depth) {}

  // Makes all nodes that the schema's documents need; the answer is the first of them.
  Result<PlanId> make(const boost::json::value& schema);
  const PlanNode& node(PlanId id) const { return nodes_[static_cast<std::uint32_t>(id)]; }
  std::size_t size() const { return nodes_.size(); }
  bool productive(const Machine::Edge& edge) const {
    return !edge.value || node(*edge.value).productive;
  }
  bool ends(const ArrayPlan& it) const;  // some array of it is whole
  bool ends(const ObjectPlan& it) const;
  Expander& expander() { return expander_; }

 private:
  Result<PlanId> id_of(All all);
  Result<All> simplified(const All& all);
  Status open(PlanNode& node);
  Status open_scalars(PlanNode& node);
  Result<Regular> number_language(const NumberCase& it);
  static Result<Regular> number_range(const NumberCase& it, NumberBounds bounds);
  Result<ArrayPlan> array(ArrayCase it);
  Result<Machine> counting(const ArrayCase& it);
  Result<Machine> distinct(const ArrayCase& it);
  Result<std::vector<const boost::json::value*>> finite(const All& all);
  Status objects(ObjectCase it, std::vector<ObjectPlan>& out);
  Status object(ObjectCase it, const std::vector<NameSet>& witnesses, std::vector<ObjectPlan>& out);
  struct Cell {
    Regular names;
    All value;
    bool witness = false;
  };
  Result<std::vector<Cell>> cells(const ObjectCase& it, const NameSet& listed,
                                  const std::vector<NameSet>& witnesses);
  Status split(std::vector<Cell>& cells, const NameSet& by, const All* value);
  Result<Machine> counted(const ObjectPlan& plan, const std::vector<bool>& witness,
                          const ObjectCase& bounds);
  void find_productive();

  bool ends(const Machine& it) const;
  tl::unexpected<Error> refuse(ErrorCode code, std::string_view message) const;

  JsonSchemaOptions options_;
  Expander expander_;
  std::deque<PlanNode> nodes_;  // stay where they are
  std::map<All, PlanId> known_;
  std::deque<boost::json::value> constants_;  // of uniqueItems
  std::uint32_t depth_ = 0;                   // of the node being opened
  const boost::json::value* place_ = nullptr;
};

}  // namespace strata::constrain
