// The files of the conversation store: how a saved point and a page lie on the disk
// (docs/formats/conversations.md), what they are called, and reading them without trust.
//
// A point is what the model's state was after it had read certain tokens: the tokens themselves,
// the recurrent states, and which pages of cells belong to them. A page that is full is a file of
// its own, called by the hash of its content, so that points whose tokens begin alike share it; the
// last, unfilled page lies in the point's file. A point's file says the hash of every page it
// needs: nothing else can take a page's place.
//
// What is read is either exactly what was written or an error:
//   not_found    the file is gone
//   unsupported  well-formed, but of another version, model or shape
//   corrupt      ours, but damaged, or under a name that is not its own
//   io           it cannot be read, or is nothing that this program put there
//   exhausted    no memory for it
// Internal to the engine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/hash.h"
#include "base/result.h"
#include "tokenizer/token.h"

namespace strata {

// Bytes of one page, shared by everybody who holds it.
using PageBytes = std::shared_ptr<const std::byte[]>;

// A point of a conversation, to be saved or as it was loaded.
struct SavedPoint {
  std::vector<TokenId> tokens;         // read so far: what the point is known by
  std::shared_ptr<const Bytes> state;  // opaque, ConversationShape::state_bytes
  // Page i holds the cells of tokens [i * page_tokens, (i + 1) * page_tokens): page_bytes each,
  // also the last one.
  std::vector<PageBytes> pages;
};

// What all points of one folder's user have in common.
struct ConversationShape {
  std::uint64_t model = 0;  // fingerprint of everything that changes a bit of states or cells
  std::uint32_t page_tokens = 0;
  std::size_t page_bytes = 0;
  std::size_t state_bytes = 0;

  std::size_t full_pages(std::size_t tokens) const { return tokens / page_tokens; }
  std::size_t pages(std::size_t tokens) const { return (tokens + page_tokens - 1) / page_tokens; }
  friend bool operator==(const ConversationShape&, const ConversationShape&) = default;
};
// Each number inside its limit; the sentence names the one that is not.
Status validate(const ConversationShape& shape);

inline constexpr std::uint32_t kConversationVersion = 1;
inline constexpr std::size_t kConversationHeaderBytes = 128;
inline constexpr std::uint32_t kMaxPointTokens = 1u << 22;
inline constexpr std::uint32_t kMaxPageTokens = 1u << 16;
inline constexpr std::uint64_t kMaxPageBytes = 1ull << 30;
inline constexpr std::uint64_t kMaxStateBytes = 1ull << 32;

// A conversation in one file, under a name that somebody chose: its end, and perhaps the point
// before the last answer, which clients do not always send back as it was.
struct WholeConversation {
  SavedPoint end;
  // The first `before_tokens` of it, whose pages are the end's.
  std::uint32_t before_tokens = 0;  // 0: none
  std::shared_ptr<const Bytes> before_state;
};

// A file's name in the folder: 32 hexadecimal digits, then what it is.
enum class ConversationFile { point, page };
std::string file_name(ConversationFile kind, const Hash128& id);
struct ConversationName {
  ConversationFile kind = ConversationFile::point;
  Hash128 id;
};
std::optional<ConversationName> parse_name(std::string_view name);
// What a file is called until it is whole; nobody else has the same `unique`.
std::string temporary_name(std::uint64_t unique);
bool is_temporary_name(std::string_view name);

// Names of points and pages of a model.
Hash128 point_id(const ConversationShape& shape, std::span<const TokenId> tokens);
Hash128 page_id(const ConversationShape& shape, std::span<const std::byte> page);

// The size of a point's file.
std::uint64_t point_file_bytes(const ConversationShape& shape, std::size_t tokens);
std::uint64_t page_file_bytes(const ConversationShape& shape);

Status write_page(OutputFile& out, const ConversationShape& shape, std::span<const std::byte> page,
                  const Hash128& id);
// `page_ids` of the full pages.
Status write_point(OutputFile& out, const ConversationShape& shape, const SavedPoint& point,
                   std::span<const Hash128> page_ids);

// A point's file but for its states and cells.
struct PointOutline {
  ConversationShape shape;
  std::uint64_t file_bytes = 0;
  std::vector<Hash128> page_ids;  // [full_pages(tokens)]
  std::vector<TokenId> tokens;    // empty for another shape than the wanted one
};
// Reads and checks it; of whatever shape it is. Bytes behind the tokens are not looked at.
Result<PointOutline> read_outline(FileSystem& files, const std::string& folder, const Hash128& id,
                                  const ConversationShape& wanted);

// A whole point, but for the full pages: these places are null. The tokens must be `tokens`.
Result<SavedPoint> read_point(FileSystem& files, const std::string& folder, const Hash128& id,
                              const ConversationShape& shape, std::span<const TokenId> tokens,
                              std::span<const Hash128> page_ids);
Result<PageBytes> read_page(FileSystem& files, const std::string& folder, const Hash128& id,
                            const ConversationShape& shape);

// A whole conversation, in the place of one that stands there; anything else under that name is
// `invalid_argument` and stays. The bytes of the file.
Result<std::uint64_t> write_whole(FileSystem& files, const std::string& folder,
                                  const std::string& name, const ConversationShape& shape,
                                  const WholeConversation& conversation);
struct WholeLimits {
  std::uint32_t tokens = kMaxPointTokens;
  std::uint64_t bytes = UINT64_MAX;  // of the file
};
// More than the limits is `exhausted`, before anything is allocated.
struct ReadConversation {
  WholeConversation conversation;
  std::uint64_t bytes = 0;
};
Result<ReadConversation> read_whole(FileSystem& files, const std::string& path,
                                    const ConversationShape& shape, const WholeLimits& limits);

// Removes a file that this program wrote; `invalid_argument` for anything else under that name.
Status remove_own_file(FileSystem& files, const std::string& folder, const ConversationName& name);

}  // namespace strata
