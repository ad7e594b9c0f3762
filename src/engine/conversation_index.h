// What lies in a folder of saved conversations: which points there are, which pages they need,
// which is the longest that a prompt continues, and what goes first when room is needed.
//
// Tokens are held once for all points that begin with them: a tree with an edge for every full
// page. An edge is found by a hash and then compared by its tokens; a point lies at the node of its
// full pages, with the tokens that are left. A page is needed as long as a node or a point of
// another model needs it.
//
// No disk access; not thread safe. Internal to the engine.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <unordered_map>
#include <vector>

#include "engine/conversation_format.h"

namespace strata {

// What a file of so many bytes takes from the disk: whole blocks.
inline std::uint64_t room_of(std::uint64_t file_bytes) {
  constexpr std::uint64_t kBlock = 4096;
  return (file_bytes + kBlock - 1) / kBlock * kBlock;
}

class ConversationIndex {
 public:
  using Hash = std::uint64_t (*)(std::span<const std::byte> bytes, std::uint64_t seed);

  // Nodes of the tree at most: what a folder may cost in memory.
  static constexpr std::size_t kMaxNodes = std::size_t{1} << 20;

  // `hash` finds candidates only; any function gives the same answers.
  explicit ConversationIndex(const ConversationShape& shape, Hash hash = hash64);
  ~ConversationIndex();

  struct Node;
  struct Point {
    Hash128 id;
    std::uint64_t file_bytes = 0;
    std::int64_t last_use = 0;  // nanoseconds since 1970
    bool stored = false;        // the file is whole; false: it is being written
    bool usable = true;         // of this model and not damaged
    std::uint32_t tokens = 0;
    // Of a usable point: where it lies, and its tokens behind the last full page.
    Node* node = nullptr;
    std::vector<TokenId> tail;
    std::vector<Hash128> pages;  // of another model's
  };

  // --- points ---

  // A point that can be used, once it is stored; one of the same id is replaced. `corrupt` if its
  // pages are not those of another point with the same tokens, `exhausted` beyond kMaxNodes.
  Result<Point*> add(Hash128 id, std::span<const TokenId> tokens, std::span<const Hash128> pages);
  // A file of ours that is not used, but takes room and pages.
  Point* add_unusable(Hash128 id, std::vector<Hash128> pages = {});
  Point* find(const Hash128& id);
  void set_stored(Point& point, std::uint64_t file_bytes, std::int64_t last_use);
  // Null if there is none with exactly these tokens, stored or not.
  Point* find(std::span<const TokenId> tokens);
  void remove(const Hash128& id);
  // The longest stored point whose pages are all there and whose tokens begin `prompt`, with at
  // least one token of it left; null if there is none.
  const Point* longest(std::span<const TokenId> prompt) const;
  std::vector<Hash128> pages_of(const Point& point) const;
  // Whether all its pages are there.
  bool complete(const Point& point) const;
  // The stored point that was not used for the longest time; null if there is none.
  const Point* first_to_go() const;
  std::map<Hash128, Point>& points() { return points_; }

  // --- pages ---

  struct Page {
    std::uint64_t file_bytes = 0;
    std::uint32_t needed_by = 0;  // nodes and points of other models
    bool there = false;           // as a file that is not known to be damaged
    bool damaged = false;         // a file that must not be read again
    bool given_up = false;        // nobody needs it any more
  };
  void page_is_there(const Hash128& id, std::uint64_t file_bytes);
  // The file is gone, or may as well be.
  void page_is_lost(const Hash128& id, bool damaged);
  void give_up(const Hash128& id);  // unless a point needs it
  const Page* page(const Hash128& id) const;
  // The ids of the full pages of `tokens` as far as points with the same tokens tell them.
  std::vector<Hash128> known_pages(std::span<const TokenId> tokens) const;
  // Files that no point needs any more. A page that none has needed yet is not among them: its
  // point may be on its way.
  const std::set<Hash128>& unneeded_pages() const { return unneeded_; }
  const std::map<Hash128, Page>& pages() const { return pages_; }

  // The room that all files take.
  std::uint64_t bytes() const { return bytes_; }

 private:
  Node* child(const Node& parent, std::span<const TokenId> tokens) const;
  Node* make_child(Node& parent, std::span<const TokenId> tokens, const Hash128& page);
  void drop(Node* node);  // and its ancestors, as far as nobody needs them
  void need(const Hash128& page);
  void need_no_more(const Hash128& page);
  void settle(std::map<Hash128, Page>::iterator page);  // after a change
  std::uint64_t key(const Node& parent, std::span<const TokenId> tokens) const;

  ConversationShape shape_;
  Hash hash_;
  std::unique_ptr<Node> root_;
  std::unordered_multimap<std::uint64_t, std::unique_ptr<Node>> nodes_;
  std::uint64_t next_node_ = 1;
  std::map<Hash128, Point> points_;
  std::map<Hash128, Page> pages_;
  std::set<Hash128> unneeded_;
  std::uint64_t bytes_ = 0;
};

}  // namespace strata
