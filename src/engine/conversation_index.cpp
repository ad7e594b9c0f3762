#include "engine/conversation_index.h"

#include <algorithm>

namespace strata {
struct ConversationIndex::Node {
  Node* parent = nullptr;
  std::uint64_t number = 0;      // never given twice
  std::uint32_t full_pages = 0;  // from the start to its end
  std::uint32_t users = 0;       // points at it and children
  Hash128 page;
  std::vector<TokenId> tokens;  // of the last of its pages
  std::vector<Point*> points;
};

ConversationIndex::ConversationIndex(const ConversationShape& shape, Hash hash)
    : shape_(shape), hash_(hash), root_(std::make_unique<Node>()) {}
ConversationIndex::~ConversationIndex() = default;

// --- the tree ---

std::uint64_t ConversationIndex::key(const Node& parent, std::span<const TokenId> tokens) const {
  return hash_(std::as_bytes(tokens), parent.number);
}

ConversationIndex::Node* ConversationIndex::child(const Node& parent,
                                                  std::span<const TokenId> tokens) const {
  const auto [first, last] = nodes_.equal_range(key(parent, tokens));
  for (auto candidate = first; candidate != last; ++candidate) {
    Node& node = *candidate->second;
    if (node.parent == &parent && std::ranges::equal(node.tokens, tokens)) return &node;
  }
  return nullptr;
}

ConversationIndex::Node* ConversationIndex::make_child(Node& parent,
                                                       std::span<const TokenId> tokens,
                                                       const Hash128& page) {
  auto node = std::make_unique<Node>();
  node->parent = &parent;
  node->number = next_node_++;
  node->full_pages = parent.full_pages + 1;
  node->page = page;
  node->tokens.assign(tokens.begin(), tokens.end());
  Node* made = node.get();
  nodes_.emplace(key(parent, tokens), std::move(node));
  ++parent.users;
  need(page);
  return made;
}

void ConversationIndex::drop(Node* node) {
  while (node != root_.get() && node->users == 0) {
    Node* parent = node->parent;
    need_no_more(node->page);
    auto [candidate, last] = nodes_.equal_range(key(*parent, node->tokens));
    while (candidate != last && candidate->second.get() != node) ++candidate;
    if (candidate != last) nodes_.erase(candidate);
    --parent->users;
    node = parent;
  }
}

// --- points ---

Result<ConversationIndex::Point*> ConversationIndex::add(Hash128 id,
                                                         std::span<const TokenId> tokens,
                                                         std::span<const Hash128> pages) {
  const std::size_t size = shape_.page_tokens;
  Node* node = root_.get();
  std::size_t depth = 0;
  for (; depth < pages.size(); ++depth) {
    Node* next = child(*node, tokens.subspan(depth * size, size));
    if (next == nullptr) break;
    if (next->page != pages[depth]) {
      return fail(ErrorCode::corrupt,
                  "page {} of a saved conversation differs from another's for the same tokens",
                  depth);
    }
    node = next;
  }
  if (pages.size() - depth > kMaxNodes - std::min(kMaxNodes, nodes_.size())) {
    return fail(ErrorCode::exhausted, "the saved conversations have more than {} pages", kMaxNodes);
  }
  for (; depth < pages.size(); ++depth)
    node = make_child(*node, tokens.subspan(depth * size, size), pages[depth]);

  ++node->users;  // before the old point goes: what both need stays
  remove(id);
  Point& point = points_[id];
  point.id = id;
  point.tokens = static_cast<std::uint32_t>(tokens.size());
  point.node = node;
  const auto tail = tokens.subspan(pages.size() * size);
  point.tail.assign(tail.begin(), tail.end());
  node->points.push_back(&point);
  return &point;
}

ConversationIndex::Point* ConversationIndex::add_unusable(Hash128 id, std::vector<Hash128> pages) {
  for (const Hash128& page : pages) need(page);
  remove(id);
  Point& point = points_[id];
  point.id = id;
  point.usable = false;
  point.pages = std::move(pages);
  return &point;
}

void ConversationIndex::set_stored(Point& point, std::uint64_t file_bytes, std::int64_t last_use) {
  bytes_ += room_of(file_bytes) - room_of(point.file_bytes);
  point.file_bytes = file_bytes;
  point.last_use = last_use;
  point.stored = true;
}

ConversationIndex::Point* ConversationIndex::find(const Hash128& id) {
  const auto found = points_.find(id);
  return found == points_.end() ? nullptr : &found->second;
}

ConversationIndex::Point* ConversationIndex::find(std::span<const TokenId> tokens) {
  Node* node = root_.get();
  while (node != nullptr && tokens.size() >= shape_.page_tokens) {
    node = child(*node, tokens.first(shape_.page_tokens));
    tokens = tokens.subspan(shape_.page_tokens);
  }
  if (node == nullptr) return nullptr;
  for (Point* point : node->points) {
    if (std::ranges::equal(point->tail, tokens)) return point;
  }
  return nullptr;
}

void ConversationIndex::remove(const Hash128& id) {
  const auto found = points_.find(id);
  if (found == points_.end()) return;
  Point& point = found->second;
  bytes_ -= room_of(point.file_bytes);
  if (point.node != nullptr) {
    std::erase(point.node->points, &point);
    --point.node->users;
    drop(point.node);
  }
  for (const Hash128& page : point.pages) need_no_more(page);
  points_.erase(found);
}

const ConversationIndex::Point* ConversationIndex::longest(std::span<const TokenId> prompt) const {
  if (prompt.empty()) return nullptr;
  // One token must be left to read: without it there is no window, and no logits.
  std::span<const TokenId> left = prompt.first(prompt.size() - 1);
  const Point* best = nullptr;
  for (const Node* node = root_.get();;) {
    for (const Point* point : node->points) {
      if (!point->stored || point->tail.size() > left.size()) continue;
      if (best != nullptr && point->tokens <= best->tokens) continue;
      if (std::ranges::equal(point->tail, left.first(point->tail.size()))) best = point;
    }
    if (left.size() < shape_.page_tokens) return best;
    node = child(*node, left.first(shape_.page_tokens));
    if (node == nullptr) return best;
    const Page* needed = page(node->page);
    if (needed == nullptr || !needed->there) return best;
    left = left.subspan(shape_.page_tokens);
  }
}

std::vector<Hash128> ConversationIndex::pages_of(const Point& point) const {
  if (point.node == nullptr) return point.pages;
  std::vector<Hash128> pages(point.node->full_pages);
  const Node* node = point.node;
  for (std::size_t i = pages.size(); i-- > 0; node = node->parent) pages[i] = node->page;
  return pages;
}

bool ConversationIndex::complete(const Point& point) const {
  return std::ranges::all_of(pages_of(point), [&](const Hash128& id) {
    const Page* found = page(id);
    return found != nullptr && found->there;
  });
}

const ConversationIndex::Point* ConversationIndex::first_to_go() const {
  const Point* first = nullptr;
  for (const auto& [id, point] : points_) {
    if (point.stored && (first == nullptr || point.last_use < first->last_use)) first = &point;
  }
  return first;
}

// --- pages ---

void ConversationIndex::settle(std::map<Hash128, Page>::iterator page) {
  const Page& now = page->second;
  if (now.needed_by == 0 && now.file_bytes > 0 && now.given_up)
    unneeded_.insert(page->first);
  else
    unneeded_.erase(page->first);
  if (now.needed_by == 0 && now.file_bytes == 0) pages_.erase(page);
}

void ConversationIndex::need(const Hash128& page) {
  const auto entry = pages_.try_emplace(page).first;
  ++entry->second.needed_by;
  settle(entry);
}

void ConversationIndex::need_no_more(const Hash128& page) {
  const auto entry = pages_.find(page);
  if (entry == pages_.end()) return;
  entry->second.given_up = --entry->second.needed_by == 0;
  settle(entry);
}

void ConversationIndex::give_up(const Hash128& id) {
  const auto entry = pages_.find(id);
  if (entry == pages_.end()) return;
  entry->second.given_up = entry->second.needed_by == 0;
  settle(entry);
}

void ConversationIndex::page_is_there(const Hash128& id, std::uint64_t file_bytes) {
  const auto entry = pages_.try_emplace(id).first;
  Page& page = entry->second;
  bytes_ += room_of(file_bytes) - room_of(page.file_bytes);
  page.file_bytes = file_bytes;
  page.there = true;
  page.damaged = false;
  settle(entry);
}

void ConversationIndex::page_is_lost(const Hash128& id, bool damaged) {
  const auto entry = pages_.find(id);
  if (entry == pages_.end()) return;
  Page& page = entry->second;
  page.there = false;
  page.damaged = damaged;
  if (!damaged) {
    bytes_ -= room_of(page.file_bytes);
    page.file_bytes = 0;
  }
  settle(entry);
}

const ConversationIndex::Page* ConversationIndex::page(const Hash128& id) const {
  const auto found = pages_.find(id);
  return found == pages_.end() ? nullptr : &found->second;
}

std::vector<Hash128> ConversationIndex::known_pages(std::span<const TokenId> tokens) const {
  std::vector<Hash128> known;
  const std::size_t size = shape_.page_tokens;
  const Node* node = root_.get();
  for (; tokens.size() >= size; tokens = tokens.subspan(size)) {
    node = child(*node, tokens.first(size));
    if (node == nullptr) break;
    known.push_back(node->page);
  }
  return known;
}

}  // namespace strata
