// A slow matcher that shares nothing with the library's: productions in Backus-Naur form and
// Earley's algorithm, a set of items after every byte, nothing compiled and nothing remembered.
#pragma once

#include <compare>
#include <cstddef>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "tokenizer/token.h"

namespace strata::constrain::reference {

struct Symbol {
  enum class Kind { bytes, tokens, name } kind = Kind::bytes;
  std::set<int> values;  // bytes, or ids of tokens
  int name = 0;
};
struct Productions {
  std::vector<std::vector<std::vector<Symbol>>> of;  // by name; 0 is the start

  int add() {
    of.emplace_back();
    return static_cast<int>(of.size()) - 1;
  }
  // Whether the name derives a text; productions with names that do not are taken out.
  std::vector<bool> trim() {
    std::vector<bool> finite(of.size(), false);
    const auto ends = [&](const std::vector<Symbol>& body) {
      for (const Symbol& s : body) {
        if (s.kind == Symbol::Kind::name ? !finite[static_cast<std::size_t>(s.name)]
                                         : s.values.empty())
          return false;
      }
      return true;
    };
    for (bool more = true; more;) {
      more = false;
      for (std::size_t n = 0; n < of.size(); ++n) {
        for (const auto& body : of[n]) {
          if (finite[n] || !ends(body)) continue;
          finite[n] = more = true;
        }
      }
    }
    for (auto& bodies : of) std::erase_if(bodies, [&](const auto& body) { return !ends(body); });
    return finite;
  }
};

class Earley {
 public:
  explicit Earley(const Productions& productions) : it_(productions) {
    now_ = beginning_ = std::make_shared<Items>();
    for (std::size_t b = 0; b < it_.of[0].size(); ++b)
      now_->list.insert({0, static_cast<int>(b), 0, now_.get()});
    close(*now_);
  }

  bool accept(TokenId id, const std::string& text) {
    auto next = std::make_shared<Items>();
    std::shared_ptr<Items> at = now_;
    scan(*at, Symbol::Kind::tokens, id, *next);
    for (std::size_t i = 0; i < text.size() && at; ++i) {
      auto to = std::make_shared<Items>();
      scan(*at, Symbol::Kind::bytes, static_cast<unsigned char>(text[i]),
           i + 1 == text.size() ? *next : *to);
      if (i + 1 == text.size()) break;
      close(*to);
      keep_.push_back(to);
      at = to->list.empty() ? nullptr : to;
    }
    close(*next);
    if (next->list.empty()) return false;
    keep_.push_back(now_);
    now_ = next;
    return true;
  }
  bool complete() const {
    for (const Item& item : now_->list)
      if (item.name == 0 && item.origin == beginning_.get() && done(item)) return true;
    return false;
  }
  bool continues() const {
    for (const Item& item : now_->list)
      if (!done(item) && symbol(item).kind != Symbol::Kind::name) return true;
    return false;
  }

 private:
  struct Items;
  struct Item {
    int name, body, dot;
    const Items* origin;  // where it began
    auto operator<=>(const Item&) const = default;
  };
  struct Items {
    std::set<Item> list;
  };

  const std::vector<Symbol>& body(const Item& item) const {
    return it_.of[static_cast<std::size_t>(item.name)][static_cast<std::size_t>(item.body)];
  }
  bool done(const Item& item) const {
    return static_cast<std::size_t>(item.dot) == body(item).size();
  }
  const Symbol& symbol(const Item& item) const {
    return body(item)[static_cast<std::size_t>(item.dot)];
  }

  void scan(const Items& from, Symbol::Kind kind, int value, Items& to) const {
    for (Item item : from.list) {
      if (done(item) || symbol(item).kind != kind || !symbol(item).values.contains(value)) continue;
      ++item.dot;
      to.list.insert(item);
    }
  }

  // Predicts and completes until nothing is new: no care is taken to be quick.
  void close(Items& items) const {
    for (bool more = true; more;) {
      more = false;
      const std::set<Item> before = items.list;
      for (const Item& item : before) {
        if (done(item)) {
          for (Item caller : item.origin == &items ? before : item.origin->list) {
            if (done(caller) || symbol(caller).kind != Symbol::Kind::name ||
                symbol(caller).name != item.name)
              continue;
            ++caller.dot;
            more = items.list.insert(caller).second || more;
          }
        } else if (symbol(item).kind == Symbol::Kind::name) {
          const int name = symbol(item).name;
          for (std::size_t b = 0; b < it_.of[static_cast<std::size_t>(name)].size(); ++b)
            more = items.list.insert({name, static_cast<int>(b), 0, &items}).second || more;
        }
      }
    }
  }

  const Productions& it_;
  std::shared_ptr<Items> now_, beginning_;
  std::vector<std::shared_ptr<Items>> keep_;
};

}  // namespace strata::constrain::reference
