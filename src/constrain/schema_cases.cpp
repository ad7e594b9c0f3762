#include "constrain/schema_cases.h"

#include <algorithm>
#include <unordered_set>

namespace strata::constrain {
namespace {

template <class T>
void append(std::vector<T>& to, const std::vector<T>& from) {
  to.insert(to.end(), from.begin(), from.end());
}

void lower(std::optional<std::uint64_t>& most, const std::optional<std::uint64_t>& other) {
  if (other) most = most ? std::min(*most, *other) : *other;
}

}  // namespace

std::string count_text(std::uint64_t count) {
  return count < kEndless ? std::to_string(count) : "10^18 or more";
}

void add(All& all, const All& more) {
  for (const Literal& literal : more)
    if (std::find(all.begin(), all.end(), literal) == all.end()) all.push_back(literal);
}

bool is_false(const All& all) {
  return std::any_of(all.begin(), all.end(), [](const Literal& it) {
    return !it.constant && it.node->is_bool() && it.node->get_bool() == it.negated;
  });
}

bool NumberCase::merge(const NumberCase& other) {
  ranges.meet(other.ranges);
  integer |= other.integer;
  fraction |= other.fraction;
  append(steps, other.steps);
  append(not_steps, other.not_steps);
  return !(integer && fraction) && !ranges.empty();
}

bool NumberCase::anything() const {
  return ranges.unbounded() && !integer && !fraction && steps.empty() && not_steps.empty();
}

bool StringCase::merge(const StringCase& other) {
  if (values && other.values) {
    std::vector<std::string> shared;
    std::set_intersection(values->begin(), values->end(), other.values->begin(),
                          other.values->end(), std::back_inserter(shared));
    values = std::move(shared);
  } else if (other.values) {
    values = other.values;
  }
  append(not_values, other.not_values);
  format = (format && other.in.empty()) || (other.format && in.empty());
  append(in, other.in);
  append(not_in, other.not_in);
  least = std::max(least, other.least);
  lower(most, other.most);
  if (values && !not_values.empty()) {
    std::erase_if(*values, [&](const std::string& value) {
      return std::find(not_values.begin(), not_values.end(), value) != not_values.end();
    });
  }
  return (!most || least <= *most) && (!values || !values->empty());
}

bool StringCase::anything() const {
  return !values && not_values.empty() && in.empty() && not_in.empty() && least == 0 && !most;
}

All& ArrayCase::item(std::size_t index) {
  if (prefix.size() <= index) prefix.resize(index + 1, rest);
  return prefix[index];
}

bool ArrayCase::merge(const ArrayCase& other) {
  for (std::size_t i = 0; i < std::max(prefix.size(), other.prefix.size()); ++i)
    add(item(i), i < other.prefix.size() ? other.prefix[i] : other.rest);
  add(rest, other.rest);
  least = std::max(least, other.least);
  lower(most, other.most);
  append(counts, other.counts);
  unique |= other.unique;
  evaluated = std::max(evaluated, other.evaluated);
  all_evaluated |= other.all_evaluated;
  return !most || least <= *most;
}

bool ArrayCase::anything() const {
  return prefix.empty() && rest.empty() && least == 0 && !most && counts.empty() && !unique;
}

bool NameSet::contains(std::string_view name) const {
  const auto in = [&](const Language& language) { return language->accepts(name); };
  const bool listed = std::find(names.begin(), names.end(), name) != names.end() ||
                      std::any_of(languages.begin(), languages.end(), in);
  return listed != complement;
}

bool ObjectCase::mention(const Property& property) {
  const auto found = std::find_if(properties.begin(), properties.end(),
                                  [&](const Property& it) { return it.name == property.name; });
  if (found == properties.end()) {
    properties.push_back(property);
    return !(property.required && property.absent);
  }
  add(found->value, property.value);
  found->required |= property.required;
  found->absent |= property.absent;
  const bool possible = !(found->required && found->absent);
  if (property.placed && !found->placed) {  // now it has its place: behind those that have one
    found->placed = true;
    std::rotate(found, found + 1, properties.end());
  }
  return possible;
}

bool ObjectCase::merge(const ObjectCase& other) {
  bool possible = true;
  if (properties.empty()) {
    properties = other.properties;
  } else if (properties.size() * other.properties.size() <= 4'096) {
    for (const Property& property : other.properties) possible &= mention(property);
  } else {
    std::unordered_set<std::string> known;
    for (const Property& property : properties) known.insert(property.name);
    std::vector<const Property*> fresh;
    for (const Property& property : other.properties)
      if (!known.contains(property.name)) fresh.push_back(&property);
    for (const Property& property : other.properties)
      if (known.contains(property.name)) possible &= mention(property);
    for (const Property* property : fresh) properties.push_back(*property);
  }
  append(rules, other.rules);
  append(names, other.names);
  append(witnesses, other.witnesses);
  least = std::max(least, other.least);
  lower(most, other.most);
  append(evaluated.names, other.evaluated.names);
  append(evaluated.languages, other.evaluated.languages);
  all_evaluated |= other.all_evaluated;
  return possible && (!most || least <= *most);
}

bool ObjectCase::anything() const {
  return properties.empty() && rules.empty() && names.empty() && witnesses.empty() && least == 0 &&
         !most;
}

}  // namespace strata::constrain
