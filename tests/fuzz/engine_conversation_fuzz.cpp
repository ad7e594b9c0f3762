// Any bytes as a file of a saved conversation: read, or refused with a sentence; a point that is
// read is the one that its name and tokens say.
//
// The first byte: bit 0 a page or a point, bit 1 its header gets the right hash, bit 2 its
// tokens, too, and its name the one they give, so that the checks behind the hashes are met.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>

#include "engine/conversation_format.h"
#include "engine/conversation_index.h"

namespace {

using namespace strata;

constexpr std::size_t kOutline = 56, kHeaderHash = 120;

template <class T>
T number(const Bytes& bytes, std::size_t offset) {
  T value{};
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

// The hash over the page ids and tokens that the header claims, as far as there are any; the id.
Hash128 mend_outline(Bytes& bytes) {
  const std::uint64_t model = number<std::uint64_t>(bytes, 16);
  const std::uint64_t page_tokens = std::max(1u, number<std::uint32_t>(bytes, 40));
  const std::uint64_t tokens = number<std::uint32_t>(bytes, 44);
  const std::span<const std::byte> body =
      std::span<const std::byte>(bytes).subspan(kConversationHeaderBytes);
  const std::size_t ids = std::min<std::size_t>(body.size(), tokens / page_tokens * 16);
  const std::size_t end = std::min<std::size_t>(body.size(), ids + tokens * 4);
  const Hash128 hash = hash128(body.first(end));
  std::memcpy(bytes.data() + kOutline, &hash, sizeof hash);
  return hash128(body.subspan(ids, end - ids), model);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const auto all = std::as_bytes(std::span(data + 1, size - 1));
  Bytes bytes(all.begin(), all.end());
  const auto kind = (data[0] & 1) != 0 ? ConversationFile::page : ConversationFile::point;
  Hash128 id{1, 2};
  ConversationShape shape{1, 4, 96, 40};
  if (bytes.size() >= kConversationHeaderBytes) {
    shape = {number<std::uint64_t>(bytes, 16), number<std::uint32_t>(bytes, 40),
             number<std::uint64_t>(bytes, 24), number<std::uint64_t>(bytes, 32)};
    if ((data[0] & 4) != 0) id = mend_outline(bytes);
    if ((data[0] & 2) != 0) {
      const std::uint64_t hash = hash64(std::span<const std::byte>(bytes).first(kHeaderHash));
      std::memcpy(bytes.data() + kHeaderHash, &hash, sizeof hash);
    }
  }
  MemoryFileSystem files;
  files.put("f/" + file_name(kind, id), bytes);
  const auto check = [](const auto& result) {
    if (!result && result.error().message.empty()) __builtin_trap();
    return static_cast<bool>(result);
  };
  if (!validate(shape)) shape = {1, 4, 96, 40};
  if (kind == ConversationFile::page) {
    const auto page = read_page(files, "f", id, shape);
    if (check(page) && page_id(shape, {page->get(), shape.page_bytes}) != id) __builtin_trap();
    return 0;
  }
  const auto outline = read_outline(files, "f", id, shape);
  if (!check(outline) || outline->shape != shape) return 0;
  if (point_id(shape, outline->tokens) != id) __builtin_trap();
  ConversationIndex index(shape);
  const auto added = index.add(id, outline->tokens, outline->page_ids);
  if (!check(added)) return 0;
  for (const Hash128& page : outline->page_ids) index.page_is_there(page, 128);
  index.set_stored(**added, outline->file_bytes, 1);
  std::vector<TokenId> prompt = outline->tokens;
  prompt.push_back(7);
  if (index.longest(prompt) != *added || index.longest(outline->tokens) != nullptr)
    __builtin_trap();
  const auto point = read_point(files, "f", id, shape, outline->tokens, outline->page_ids);
  if (check(point) && point->tokens != outline->tokens) __builtin_trap();
  index.remove(id);
  return 0;
}
