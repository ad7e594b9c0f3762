#include "engine/conversation_format.h"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cstring>
#include <new>
#include <random>

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
  std::uint32_t kind;  // 1 point, 2 page, 3 whole conversation
  std::uint64_t model;
  std::uint64_t page_bytes;
  std::uint64_t state_bytes;
  std::uint32_t page_tokens;
  std::uint32_t tokens;      // of the point; of a page: page_tokens
  std::uint64_t body_bytes;  // all that follows
  Hash128 outline;           // of the page ids and the tokens; of a page: 0
  Hash128 content;           // of the rest: the last page's cells and the states, or the page
  std::uint32_t before;      // of a whole conversation: tokens of its second point, or 0
  std::uint32_t reserved[7];
  std::uint64_t hash;  // of all bytes before
};
static_assert(sizeof(Header) == kConversationHeaderBytes);
constexpr std::size_t kHashedHeader = kConversationHeaderBytes - sizeof(std::uint64_t);

template <class T>
std::span<const std::byte> bytes_of(const std::vector<T>& values) {
  return std::as_bytes(std::span(values));
}

constexpr std::uint32_t kPoint = 1, kPage = 2, kWhole = 3;

std::uint32_t number_of(ConversationFile kind) {
  return kind == ConversationFile::point ? kPoint : kPage;
}

Header make_header(std::uint32_t kind, const ConversationShape& shape, std::size_t tokens,
                   std::uint64_t body_bytes) {
  Header header{};
  std::memcpy(header.magic, kMagic.data(), kMagic.size());
  header.version = kConversationVersion;
  header.kind = kind;
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
std::uint64_t body_bytes(std::uint32_t kind, const ConversationShape& shape, std::size_t tokens,
                         bool before = false) {
  if (kind == kPage) return shape.page_bytes;
  if (kind == kWhole) {
    return tokens * sizeof(TokenId) + shape.pages(tokens) * shape.page_bytes +
           (before ? 2 : 1) * shape.state_bytes;
  }
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
Result<ConversationShape> check_header(const Header& header, std::uint32_t kind, const File& file) {
  const auto bytes = std::as_bytes(std::span(&header, 1));
  // Other versions keep magic, version and the place of the hash.
  if (header.hash != hash64(bytes.first(kHashedHeader)))
    return damaged(file.path(), "the hash of its header is wrong");
  if (header.version != kConversationVersion) {
    return fail(ErrorCode::unsupported, "'{}' has version {}, and this program writes version {}",
                file.path(), header.version, kConversationVersion);
  }
  if (header.kind != kind) return damaged(file.path(), "it is of another kind than its place says");
  const ConversationShape shape{header.model, header.page_tokens, header.page_bytes,
                                header.state_bytes};
  const bool page = kind == kPage;
  if (!validate(shape) || header.tokens == 0 || header.tokens > kMaxPointTokens ||
      (page && header.tokens != header.page_tokens) || header.before >= header.tokens ||
      (kind != kWhole && header.before != 0))
    return damaged(file.path(), "its header has impossible sizes");
  const std::uint64_t body = body_bytes(kind, shape, header.tokens, header.before > 0);
  if (header.body_bytes != body || file.size() != kConversationHeaderBytes + body) {
    return fail(ErrorCode::corrupt, "'{}' is damaged: it has {} bytes in place of {}", file.path(),
                file.size(), kConversationHeaderBytes + body);
  }
  return shape;
}

Result<OpenFile> open_checked(FileSystem& files, const std::string& path, std::uint32_t kind) {
  OpenFile opened{};
  STRATA_ASSIGN(opened.file, files.open_private(path));
  const File& file = *opened.file;
  const bool whole = file.size() >= kConversationHeaderBytes;
  if (whole) STRATA_TRY(file.read_exact(0, std::as_writable_bytes(std::span(&opened.header, 1))));
  if (std::string_view(opened.header.magic, kMagic.size()) != kMagic)
    return fail(ErrorCode::invalid_argument,
                "'{}' is not used: it does not begin as a saved conversation", file.path());
  STRATA_ASSIGN(opened.shape, check_header(opened.header, kind, file));
  return opened;
}

Result<OpenFile> open_checked(FileSystem& files, const std::string& folder,
                              const ConversationName& name) {
  return open_checked(files, folder + "/" + file_name(name.kind, name.id), number_of(name.kind));
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
  return kConversationHeaderBytes + body_bytes(kPoint, shape, tokens);
}

std::uint64_t page_file_bytes(const ConversationShape& shape) {
  return kConversationHeaderBytes + shape.page_bytes;
}

Status write_page(OutputFile& out, const ConversationShape& shape, std::span<const std::byte> page,
                  const Hash128& id) {
  Header header = make_header(kPage, shape, shape.page_tokens, page.size());
  header.content = id;
  STRATA_TRY(write_header(out, header));
  return out.write(page);
}

Status write_point(OutputFile& out, const ConversationShape& shape, const SavedPoint& point,
                   std::span<const Hash128> page_ids) {
  const std::size_t tokens = point.tokens.size();
  Header header = make_header(kPoint, shape, tokens, body_bytes(kPoint, shape, tokens));
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

// Whole conversations ---------------------------------------------------------------------------

namespace {

// What stands under the name may be replaced: nothing, or one of these.
Status check_replaceable(FileSystem& files, const std::string& path) {
  const auto found = files.examine(path);
  if (!found && found.error().code == ErrorCode::not_found) return {};
  STRATA_TRY(found);
  const auto file = found->kind == FileStatus::Kind::file ? files.open_private(path)
                                                          : Result<std::unique_ptr<File>>();
  std::array<char, kMagic.size()> magic{};
  if (file && *file) (void)(*file)->read_at(0, std::as_writable_bytes(std::span(magic)));
  if (std::string_view(magic.data(), magic.size()) == kMagic) return {};
  return fail(ErrorCode::invalid_argument,
              "'{}' is not replaced: what has this name is no saved conversation", path);
}

Status write_body(OutputFile& out, const ConversationShape& shape,
                  const WholeConversation& conversation) {
  const SavedPoint& end = conversation.end;
  const std::size_t tokens = end.tokens.size();
  const bool two = conversation.before_tokens > 0;
  Header header = make_header(kWhole, shape, tokens, body_bytes(kWhole, shape, tokens, two));
  header.before = conversation.before_tokens;
  Hasher outline, content;
  outline.add(bytes_of(end.tokens));
  header.outline = outline.digest128();
  const auto each = [&](const auto& function) -> Status {
    for (const PageBytes& page : end.pages)
      STRATA_TRY(function(std::span<const std::byte>(page.get(), shape.page_bytes)));
    STRATA_TRY(function(std::span<const std::byte>(*end.state)));
    if (two) STRATA_TRY(function(std::span<const std::byte>(*conversation.before_state)));
    return {};
  };
  STRATA_TRY(each([&](std::span<const std::byte> bytes) -> Status {
    content.add(bytes);
    return {};
  }));
  header.content = content.digest128();
  STRATA_TRY(write_header(out, header));
  STRATA_TRY(out.write(bytes_of(end.tokens)));
  STRATA_TRY(each([&](std::span<const std::byte> bytes) { return out.write(bytes); }));
  return out.finish();
}

}  // namespace

Result<std::uint64_t> write_whole(FileSystem& files, const std::string& folder,
                                  const std::string& name, const ConversationShape& shape,
                                  const WholeConversation& conversation) {
  const SavedPoint& end = conversation.end;
  const auto fits = [&](const std::shared_ptr<const Bytes>& state) {
    return state && state->size() == shape.state_bytes;
  };
  if (!validate(shape) || end.tokens.empty() || end.tokens.size() > kMaxPointTokens ||
      end.pages.size() != shape.pages(end.tokens.size()) || !fits(end.state) ||
      conversation.before_tokens >= end.tokens.size() ||
      (conversation.before_tokens > 0 && !fits(conversation.before_state))) {
    return fail(ErrorCode::internal, "a conversation of {} tokens is not whole", end.tokens.size());
  }
  STRATA_TRY(files.make_private_folder(folder));
  const std::string path = folder + "/" + name;
  STRATA_TRY(check_replaceable(files, path));
  std::random_device random;
  const std::string temporary =
      folder + "/" + temporary_name(std::uint64_t{random()} << 32 | random());
  STRATA_ASSIGN(auto out, files.create_private(temporary));
  Status status = write_body(*out, shape, conversation);
  out.reset();
  if (status) status = files.replace(temporary, path);
  if (!status) {
    (void)files.remove(temporary);
    return tl::unexpected<Error>(status.error());
  }
  STRATA_TRY(files.flush_folder(folder));
  return kConversationHeaderBytes +
         body_bytes(kWhole, shape, end.tokens.size(), conversation.before_tokens > 0);
}

Result<ReadConversation> read_whole(FileSystem& files, const std::string& path,
                                    const ConversationShape& shape, const WholeLimits& limits) try {
  STRATA_ASSIGN(const OpenFile opened, open_checked(files, path, kWhole));
  const File& file = *opened.file;
  const Header& header = opened.header;
  if (opened.shape != shape) return other_shape(path);
  if (header.tokens > limits.tokens) {
    return fail(ErrorCode::exhausted, "'{}' holds {} tokens, and the context has {}", path,
                header.tokens, limits.tokens);
  }
  if (file.size() > limits.bytes) {
    return fail(ErrorCode::exhausted,
                "'{}' needs {} bytes of memory, and conversations may take {} (cache_ram)", path,
                file.size(), limits.bytes);
  }
  ReadConversation read{{}, file.size()};
  SavedPoint& end = read.conversation.end;
  end.tokens.resize(header.tokens);
  std::uint64_t place = kConversationHeaderBytes;
  Hasher outline, content;
  const auto next = [&](std::span<std::byte> bytes, Hasher& hasher) -> Status {
    STRATA_TRY(file.read_exact(place, bytes));
    place += bytes.size();
    hasher.add(bytes);
    return {};
  };
  STRATA_TRY(next(std::as_writable_bytes(std::span(end.tokens)), outline));
  if (outline.digest128() != header.outline)
    return damaged(path, "the hash of its tokens is wrong");
  for (std::size_t i = 0; i < shape.pages(header.tokens); ++i) {
    const auto page = std::make_shared_for_overwrite<std::byte[]>(shape.page_bytes);
    STRATA_TRY(next({page.get(), shape.page_bytes}, content));
    end.pages.push_back(page);
  }
  const auto state = [&]() -> Result<std::shared_ptr<const Bytes>> {
    auto bytes = std::make_shared<Bytes>(shape.state_bytes);
    STRATA_TRY(next(*bytes, content));
    return bytes;
  };
  STRATA_ASSIGN(end.state, state());
  if (header.before > 0) {
    STRATA_ASSIGN(read.conversation.before_state, state());
  }
  read.conversation.before_tokens = header.before;
  if (content.digest128() != header.content)
    return damaged(path, "the hash of its content is wrong");
  return read;
} catch (const std::bad_alloc&) {
  return fail(ErrorCode::exhausted, "no memory for a saved conversation");
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
