#include "engine/conversation_format.h"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cstring>
#include <new>

#include "base/checked.h"

namespace strata {
namespace {

static_assert(std::endian::native == std::endian::little, "the files are little-endian");
static_assert(sizeof(Hash128) == 16 && sizeof(TokenId) == 4);

constexpr std::string_view kMagic = "StrataKV";
constexpr std::string_view kTemporaryStart = "strata-";
constexpr std::string_view kTemporaryEnd = ".tmp";

// The first 128 bytes of every file. All fields are little-endian; there is no padding.
struct Header {
  char magic[8];
  std::uint32_t version;
  std::uint32_t kind;  // 1 point, 2 page
  std::uint64_t model;
  std::uint64_t page_bytes;
  std::uint64_t state_bytes;
  std::uint32_t page_tokens;
  std::uint32_t tokens;      // of the point; of a page: page_tokens
  std::uint64_t body_bytes;  // all that follows
  Hash128 outline;           // of the page ids and the tokens; of a page: 0
  Hash128 content;           // of the rest: the last page's cells and the states, or the page
  std::uint64_t reserved[4];
  std::uint64_t hash;  // of all bytes before
};
static_assert(sizeof(Header) == kConversationHeaderBytes);
constexpr std::size_t kHashedHeader = kConversationHeaderBytes - sizeof(std::uint64_t);

template <class T>
std::span<const std::byte> bytes_of(const std::vector<T>& values) {
  return std::as_bytes(std::span(values));
}

std::uint32_t number_of(ConversationFile kind) {
  return kind == ConversationFile::point ? 1 : 2;
}

Header make_header(ConversationFile kind, const ConversationShape& shape, std::size_t tokens,
                   std::uint64_t body_bytes) {
  Header header{};
  std::memcpy(header.magic, kMagic.data(), kMagic.size());
  header.version = kConversationVersion;
  header.kind = number_of(kind);
  header.model = shape.model;
  header.page_bytes = shape.page_bytes;
  header.state_bytes = shape.state_bytes;
  header.page_tokens = shape.page_tokens;
  header.tokens = static_cast<std::uint32_t>(tokens);
  header.body_bytes = body_bytes;
  return header;
}

Status write_header(OutputFile& out, Header& header) {
  const auto bytes = std::as_bytes(std::span(&header, 1));
  header.hash = hash64(bytes.first(kHashedHeader));
  return out.write(bytes);
}

std::uint64_t outline_bytes(const ConversationShape& shape, std::size_t tokens) {
  return shape.full_pages(tokens) * sizeof(Hash128) + tokens * sizeof(TokenId);
}

// Cells of the unfilled page.
std::uint64_t tail_bytes(const ConversationShape& shape, std::size_t tokens) {
  return tokens % shape.page_tokens == 0 ? 0 : shape.page_bytes;
}

// No product of the limits leaves 64 bits.
std::uint64_t body_bytes(ConversationFile kind, const ConversationShape& shape,
                         std::size_t tokens) {
  if (kind == ConversationFile::page) return shape.page_bytes;
  return outline_bytes(shape, tokens) + tail_bytes(shape, tokens) + shape.state_bytes;
}

struct OpenFile {
  std::unique_ptr<File> file;
  Header header;
  ConversationShape shape;
};

tl::unexpected<Error> damaged(const std::string& path, std::string_view what) {
  return fail(ErrorCode::corrupt, "'{}' is damaged: {}", path, what);
}

// What the header says of itself, before anything is allocated by it.
Result<ConversationShape> check_header(const Header& header, ConversationFile kind,
                                       const File& file) {
  const auto bytes = std::as_bytes(std::span(&header, 1));
  // Other versions keep magic, version and the place of the hash.
  if (header.hash != hash64(bytes.first(kHashedHeader)))
    return damaged(file.path(), "the hash of its header is wrong");
  if (header.version != kConversationVersion) {
    return fail(ErrorCode::unsupported, "'{}' has version {}, and this program writes version {}",
                file.path(), header.version, kConversationVersion);
  }
  if (header.kind != number_of(kind))
    return damaged(file.path(), "it is of another kind than its name says");
  const ConversationShape shape{header.model, header.page_tokens, header.page_bytes,
                                header.state_bytes};
  const bool page = kind == ConversationFile::page;
  if (!validate(shape) || header.tokens == 0 || header.tokens > kMaxPointTokens ||
      (page && header.tokens != header.page_tokens))
    return damaged(file.path(), "its header has impossible sizes");
  const std::uint64_t body = body_bytes(kind, shape, header.tokens);
  if (header.body_bytes != body || file.size() != kConversationHeaderBytes + body) {
    return fail(ErrorCode::corrupt, "'{}' is damaged: it has {} bytes in place of {}", file.path(),
                file.size(), kConversationHeaderBytes + body);
  }
  return shape;
}

Result<OpenFile> open_checked(FileSystem& files, const std::string& folder,
                              const ConversationName& name) {
  OpenFile opened{};
  STRATA_ASSIGN(opened.file, files.open_private(folder + "/" + file_name(name.kind, name.id)));
  const File& file = *opened.file;
  const bool whole = file.size() >= kConversationHeaderBytes;
  if (whole) STRATA_TRY(file.read_exact(0, std::as_writable_bytes(std::span(&opened.header, 1))));
  if (std::string_view(opened.header.magic, kMagic.size()) != kMagic)
    return fail(ErrorCode::io, "'{}' is not used: it does not begin as a saved conversation",
                file.path());
  STRATA_ASSIGN(opened.shape, check_header(opened.header, name.kind, file));
  return opened;
}

tl::unexpected<Error> other_shape(const std::string& path) {
  return fail(ErrorCode::unsupported, "'{}' belongs to another model or other settings", path);
}

Result<PointOutline> read_outline(const OpenFile& opened, const ConversationShape& wanted,
                                  const Hash128& id) {
  const File& file = *opened.file;
  const std::size_t tokens = opened.header.tokens;
  PointOutline outline{opened.shape, file.size(), {}, {}};
  outline.page_ids.resize(opened.shape.full_pages(tokens));
  outline.tokens.resize(tokens);
  const auto ids = std::as_writable_bytes(std::span(outline.page_ids));
  const auto token_bytes = std::as_writable_bytes(std::span(outline.tokens));
  STRATA_TRY(file.read_exact(kConversationHeaderBytes, ids));
  STRATA_TRY(file.read_exact(kConversationHeaderBytes + ids.size(), token_bytes));
  Hasher hasher;
  hasher.add(ids);
  hasher.add(token_bytes);
  if (hasher.digest128() != opened.header.outline)
    return damaged(file.path(), "the hash of its tokens is wrong");
  if (point_id(opened.shape, outline.tokens) != id)
    return damaged(file.path(), "its name is not that of its tokens");
  if (opened.shape != wanted) outline.tokens = {};
  return outline;
}

}  // namespace

Status validate(const ConversationShape& shape) {
  const auto check = [](std::string_view name, std::uint64_t value, std::uint64_t least,
                        std::uint64_t most) -> Status {
    if (value >= least && value <= most) return {};
    return fail(ErrorCode::invalid_argument, "{} of a saved conversation is {}; it must be {}..{}",
                name, value, least, most);
  };
  STRATA_TRY(check("page_tokens", shape.page_tokens, 1, kMaxPageTokens));
  STRATA_TRY(check("page_bytes", shape.page_bytes, 1, kMaxPageBytes));
  return check("state_bytes", shape.state_bytes, 0, kMaxStateBytes);
}

std::string file_name(ConversationFile kind, const Hash128& id) {
  return to_string(id) + (kind == ConversationFile::point ? ".point" : ".page");
}

std::optional<ConversationName> parse_name(std::string_view name) {
  constexpr std::size_t kDigits = 32;
  if (name.size() < kDigits) return std::nullopt;
  ConversationName parsed;
  const auto half = [&](std::size_t start, std::uint64_t& value) {
    const char* first = name.data() + start;
    const auto [end, error] = std::from_chars(first, first + kDigits / 2, value, 16);
    return error == std::errc() && end == first + kDigits / 2;
  };
  if (!half(0, parsed.id.high) || !half(kDigits / 2, parsed.id.low)) return std::nullopt;
  if (name.ends_with(".page")) parsed.kind = ConversationFile::page;
  // Only the one spelling of it: no capitals, no other end.
  if (file_name(parsed.kind, parsed.id) != name) return std::nullopt;
  return parsed;
}

std::string temporary_name(std::uint64_t unique) {
  return fmt::format("{}{:016x}{}", kTemporaryStart, unique, kTemporaryEnd);
}

bool is_temporary_name(std::string_view name) {
  constexpr std::size_t kDigits = 16;
  if (name.size() != kTemporaryStart.size() + kDigits + kTemporaryEnd.size()) return false;
  const std::string_view digits = name.substr(kTemporaryStart.size(), kDigits);
  return name.starts_with(kTemporaryStart) && name.ends_with(kTemporaryEnd) &&
         digits.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

// The model's fingerprint is the seed: models never meet under a name.
Hash128 point_id(const ConversationShape& shape, std::span<const TokenId> tokens) {
  return hash128(std::as_bytes(tokens), shape.model);
}

Hash128 page_id(const ConversationShape& shape, std::span<const std::byte> page) {
  return hash128(page, shape.model);
}

std::uint64_t point_file_bytes(const ConversationShape& shape, std::size_t tokens) {
  return kConversationHeaderBytes + body_bytes(ConversationFile::point, shape, tokens);
}

std::uint64_t page_file_bytes(const ConversationShape& shape) {
  return kConversationHeaderBytes + shape.page_bytes;
}

Status write_page(OutputFile& out, const ConversationShape& shape, std::span<const std::byte> page,
                  const Hash128& id) {
  Header header = make_header(ConversationFile::page, shape, shape.page_tokens, page.size());
  header.content = id;
  STRATA_TRY(write_header(out, header));
  return out.write(page);
}

Status write_point(OutputFile& out, const ConversationShape& shape, const SavedPoint& point,
                   std::span<const Hash128> page_ids) {
  const std::size_t tokens = point.tokens.size();
  Header header = make_header(ConversationFile::point, shape, tokens,
                              body_bytes(ConversationFile::point, shape, tokens));
  std::span<const std::byte> tail;
  if (tail_bytes(shape, tokens) > 0) tail = {point.pages.back().get(), shape.page_bytes};
  Hasher outline, content;
  outline.add(std::as_bytes(page_ids));
  outline.add(bytes_of(point.tokens));
  header.outline = outline.digest128();
  content.add(tail);
  content.add(*point.state);
  header.content = content.digest128();
  STRATA_TRY(write_header(out, header));
  STRATA_TRY(out.write(std::as_bytes(page_ids)));
  STRATA_TRY(out.write(bytes_of(point.tokens)));
  STRATA_TRY(out.write(tail));
  return out.write(*point.state);
}

Result<PointOutline> read_outline(FileSystem& files, const std::string& folder, const Hash128& id,
                                  const ConversationShape& wanted) try {
  STRATA_ASSIGN(const OpenFile opened, open_checked(files, folder, {ConversationFile::point, id}));
  return read_outline(opened, wanted, id);
} catch (const std::bad_alloc&) {
  return fail(ErrorCode::exhausted, "no memory for the tokens of a saved conversation");
}

Result<SavedPoint> read_point(FileSystem& files, const std::string& folder, const Hash128& id,
                              const ConversationShape& shape, std::span<const TokenId> tokens,
                              std::span<const Hash128> page_ids) try {
  STRATA_ASSIGN(const OpenFile opened, open_checked(files, folder, {ConversationFile::point, id}));
  const File& file = *opened.file;
  if (opened.shape != shape) return other_shape(file.path());
  STRATA_ASSIGN(PointOutline outline, read_outline(opened, shape, id));
  // The name is a hash: here is where other tokens of the same hash are told apart.
  if (!std::ranges::equal(outline.tokens, tokens) ||
      !std::ranges::equal(outline.page_ids, page_ids))
    return fail(ErrorCode::not_found, "'{}' has been replaced by another conversation's",
                file.path());

  SavedPoint point;
  point.tokens = std::move(outline.tokens);
  point.pages.resize(shape.pages(point.tokens.size()));
  std::uint64_t place = kConversationHeaderBytes + outline_bytes(shape, point.tokens.size());
  Hasher hasher;
  if (const std::uint64_t size = tail_bytes(shape, point.tokens.size()); size > 0) {
    const auto tail = std::make_shared_for_overwrite<std::byte[]>(size);
    const std::span<std::byte> bytes(tail.get(), size);
    STRATA_TRY(file.read_exact(place, bytes));
    hasher.add(bytes);
    place += size;
    point.pages.back() = tail;
  }
  auto state = std::make_shared<Bytes>(shape.state_bytes);
  STRATA_TRY(file.read_exact(place, *state));
  hasher.add(*state);
  if (hasher.digest128() != opened.header.content)
    return damaged(file.path(), "the hash of its state is wrong");
  point.state = std::move(state);
  return point;
} catch (const std::bad_alloc&) {
  return fail(ErrorCode::exhausted, "no memory for a saved conversation's {} bytes of state",
              shape.state_bytes);
}

Result<PageBytes> read_page(FileSystem& files, const std::string& folder, const Hash128& id,
                            const ConversationShape& shape) try {
  STRATA_ASSIGN(const OpenFile opened, open_checked(files, folder, {ConversationFile::page, id}));
  const File& file = *opened.file;
  if (opened.shape != shape) return other_shape(file.path());
  const auto page = std::make_shared_for_overwrite<std::byte[]>(shape.page_bytes);
  const std::span<std::byte> bytes(page.get(), shape.page_bytes);
  STRATA_TRY(file.read_exact(kConversationHeaderBytes, bytes));
  if (opened.header.content != id || page_id(shape, bytes) != id)
    return damaged(file.path(), "its content is not what its name says");
  return page;
} catch (const std::bad_alloc&) {
  return fail(ErrorCode::exhausted, "no memory for a page of {} bytes of a saved conversation",
              shape.page_bytes);
}

Status remove_own_file(FileSystem& files, const std::string& folder, const ConversationName& name) {
  const std::string path = folder + "/" + file_name(name.kind, name.id);
  const auto not_ours = [&] {
    return fail(ErrorCode::invalid_argument, "'{}' is not removed: it is no saved conversation",
                path);
  };
  STRATA_ASSIGN(const FileStatus found, files.examine(path));
  if (found.kind != FileStatus::Kind::file || found.names != 1 || !found.own) return not_ours();
  STRATA_ASSIGN(const std::unique_ptr<File> file, files.open_private(path));
  std::array<char, kMagic.size()> magic{};
  STRATA_TRY(file->read_at(0, std::as_writable_bytes(std::span(magic))));
  if (std::string_view(magic.data(), magic.size()) != kMagic) return not_ours();
  return files.remove(path);
}

}  // namespace strata
