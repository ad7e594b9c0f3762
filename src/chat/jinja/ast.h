// The parsed form of a template. Immutable once parsed, so renderings of several threads share it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "chat/jinja/value.h"

namespace strata::chat::jinja {

struct Expression;
using ExpressionPtr = std::unique_ptr<const Expression>;

struct Argument {
  enum class Kind { positional, named, star, double_star };
  Kind kind = Kind::positional;
  std::string name;
  ExpressionPtr value;
};

struct Expression {
  enum class Kind {
    constant,     // value
    name,         // name
    list,         // children
    tuple,        // children
    dict,         // children: key, value, key, value, ...
    logical_not,  // children[0]
    negate,       // children[0]
    plus,         // children[0]
    logical_and,  // children[0], [1]
    logical_or,   // children[0], [1]
    arithmetic,   // operators[0] of children[0], [1]
    concatenate,  // children
    compare,      // children joined by operators, chained as in Python
    conditional,  // children: value, condition, other value (may be null)
    attribute,    // children[0].name
    subscript,    // children[0][children[1]]
    slice,        // children[0][ [1] : [2] : [3] ], bounds may be null
    call,         // children[0](arguments)
    filter,       // children[0] | name(arguments); children[0] null: the enclosing block's text
    test,         // children[0] is name(arguments)
  };
  enum class Operator {
    add,
    subtract,
    multiply,
    divide,
    floor_divide,
    modulo,
    power,
    equal,
    not_equal,
    less,
    less_equal,
    greater,
    greater_equal,
    in,
    not_in,
  };
  Kind kind = Kind::constant;
  int line = 1;
  std::size_t depth = 1;  // levels of expressions, itself included
  std::string name;
  Value value;
  std::vector<ExpressionPtr> children;
  std::vector<Operator> operators;
  std::vector<Argument> arguments;
};

// What `set` and `for` assign to: a name, an attribute of a namespace, or several of them.
struct Target {
  std::string name;
  std::string attribute;  // of namespaces, else empty
  std::vector<Target> items;
  bool is_tuple = false;
};

struct Statement;
using Block = std::vector<std::unique_ptr<const Statement>>;

// A macro, or the body of a call block.
struct MacroBody {
  struct Parameter {
    std::string name;
    ExpressionPtr default_value;  // may be null
  };
  std::string name;
  std::vector<Parameter> parameters;
  Block body;
  bool uses_varargs = false;
  bool uses_kwargs = false;
  bool uses_caller = false;
};

struct Statement {
  enum class Kind {
    text,          // value
    print,         // expression
    branch,        // branches, otherwise
    loop,          // target in expression [if condition], body, otherwise, recursive
    set,           // target = expression
    set_block,     // target = body, through filter if there is one
    macro,         // macro
    call_block,    // expression (a call) with macro as its caller
    filter_block,  // filter over body
    with,          // assignments, body
    scope,         // body
    break_loop,
    continue_loop,
  };
  struct Branch {
    ExpressionPtr condition;
    Block body;
  };
  struct Assignment {
    Target target;
    ExpressionPtr value;
  };
  Kind kind = Kind::text;
  int line = 1;
  Value value;
  ExpressionPtr expression;
  ExpressionPtr condition;
  ExpressionPtr filter;
  Target target;
  std::vector<Branch> branches;
  std::vector<Assignment> assignments;
  Block body;
  Block otherwise;
  MacroBody macro;
  bool recursive = false;
};

}  // namespace strata::chat::jinja
