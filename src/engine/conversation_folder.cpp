#include "engine/conversation_folder.h"

#include <algorithm>
#include <random>

#include "base/log.h"

namespace strata {
namespace {

constexpr std::int64_t kSecond = 1'000'000'000;
constexpr std::int64_t kFullScanEvery = 600 * kSecond;
constexpr std::int64_t kAbandonedAfter =
    std::chrono::nanoseconds(ConversationFolder::kAbandoned).count();
// Pages that are written before the first of them is flushed: the disk works on all of them then.
constexpr std::size_t kPagesAtOnce = 16;

std::uint64_t random_start() {
  std::random_device random;
  return (std::uint64_t{random()} << 32) ^ random();
}

}  // namespace

std::int64_t calendar_now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

// A file under its temporary name; removed unless it gets its own.
struct ConversationFolder::Temporary {
  Temporary(FileSystem& in, std::string at, std::unique_ptr<OutputFile> file)
      : files(&in), path(std::move(at)), out(std::move(file)) {}
  Temporary(Temporary&& other) noexcept
      : files(std::exchange(other.files, nullptr)),
        path(std::move(other.path)),
        out(std::move(other.out)) {}
  Temporary& operator=(Temporary&&) = delete;
  ~Temporary() {
    out = nullptr;
    if (files != nullptr) (void)files->remove(path);
  }
  void named() { files = nullptr; }

  FileSystem* files;
  std::string path;
  std::unique_ptr<OutputFile> out;
};

struct ConversationFolder::NewPage {
  Hash128 id;
  PageBytes bytes;
};

ConversationFolder::ConversationFolder(const ConversationFilesOptions& options,
                                       ConversationCatalog& catalog,
                                       const std::atomic<bool>& stopping)
    : options_(options),
      files_(*options.files),
      catalog_(catalog),
      stopping_(stopping),
      next_temporary_(random_start()) {}

Status ConversationFolder::open() {
  STRATA_TRY(files_.make_private_folder(options_.folder));
  STRATA_TRY(create());  // and removes it again
  STRATA_TRY(scan());
  if (foreign_ > 0)
    log_info(
        "saved conversations: {} of those in '{}' are another model's, or of another kv_type, and "
        "are not used",
        foreign_, options_.folder);
  return {};
}

// --- looking ---

Status ConversationFolder::scan() {
  const std::int64_t now = calendar_now();
  STRATA_ASSIGN(const FileStatus folder, files_.examine(options_.folder));
  // Files come and go within one tick of the file system's clock: a folder that has just changed
  // is looked at again.
  const bool changed = folder.modified != scanned_ || folder.modified > last_scan_ - kSecond;
  if (!changed && now - last_scan_ < kFullScanEvery) return {};
  STRATA_ASSIGN(const std::vector<std::string> names, files_.list(options_.folder));
  scanned_ = folder.modified;
  last_scan_ = now;
  unusable_ = 0;
  forget_vanished(names);
  for (const std::string& name : names) {
    if (stopping_) return {};
    look_at(name, now);
  }
  if (unusable_ > 0) {
    log_warning("saved conversations: {} {} in '{}' cannot be used: {}", unusable_,
                unusable_ == 1 ? "file" : "files", options_.folder, first_unusable_);
  }
  remove_unneeded_pages();
  return make_room(0);
}

void ConversationFolder::forget_vanished(const std::vector<std::string>& names) {
  std::set<Hash128> points, pages;
  for (const std::string& name : names) {
    const auto parsed = parse_name(name);
    if (parsed) (parsed->kind == ConversationFile::point ? points : pages).insert(parsed->id);
  }
  std::erase_if(ignored_, [&](const std::string& name) {
    return !std::binary_search(names.begin(), names.end(), name);
  });
  const std::lock_guard lock(catalog_.mutex);
  ConversationIndex& index = catalog_.index;
  std::vector<Hash128> gone;
  for (const auto& [id, point] : index.points())
    if (point.stored && !points.contains(id)) gone.push_back(id);
  for (const Hash128& id : gone) index.remove(id);
  gone.clear();
  for (const auto& [id, page] : index.pages())
    if (page.file_bytes > 0 && !pages.contains(id)) gone.push_back(id);
  for (const Hash128& id : gone) index.page_is_lost(id, false);
}

void ConversationFolder::look_at(const std::string& name, std::int64_t now) {
  if (ignored_.contains(name)) return;
  Status status;
  const auto parsed = parse_name(name);
  if (is_temporary_name(name))
    look_at_temporary(name, now);
  else if (!parsed)
    status = fail(ErrorCode::io, "'{}' is no saved conversation", path_of(name));
  else if (parsed->kind == ConversationFile::page)
    status = look_at_page(parsed->id, now);
  else
    status = look_at_point(parsed->id, now);
  if (status || status.error().code == ErrorCode::not_found) return;
  if (unusable_++ == 0) first_unusable_ = status.error().message;
  // What is at least ours takes room and can be removed.
  if (parsed && parsed->kind == ConversationFile::point &&
      (status.error().code == ErrorCode::corrupt ||
       status.error().code == ErrorCode::unsupported)) {
    if (const auto found = files_.examine(path_of(name))) {
      const std::lock_guard lock(catalog_.mutex);
      catalog_.index.set_stored(*catalog_.index.add_unusable(parsed->id), found->size,
                                std::min(found->modified, now));
      return;
    }
  }
  ignored_.insert(name);
}

void ConversationFolder::look_at_temporary(const std::string& name, std::int64_t now) {
  const auto found = files_.examine(path_of(name));
  if (!found || found->kind != FileStatus::Kind::file || found->names != 1 || !found->own) return;
  if (now - found->modified > kAbandonedAfter) (void)files_.remove(path_of(name));
}

// Only a page's size is looked at; its content is checked when it is read.
Status ConversationFolder::look_at_page(const Hash128& id, std::int64_t now) {
  {
    const std::lock_guard lock(catalog_.mutex);
    const auto* page = catalog_.index.page(id);
    if (page != nullptr && page->file_bytes > 0 && page->needed_by > 0) return {};
  }
  const std::string path = path_of(file_name(ConversationFile::page, id));
  STRATA_ASSIGN(const FileStatus found, files_.examine(path));
  if (found.kind != FileStatus::Kind::file || found.names != 1 || !found.own ||
      found.size < kConversationHeaderBytes)
    return fail(ErrorCode::io, "'{}' is no page of a saved conversation", path);
  const std::lock_guard lock(catalog_.mutex);
  const auto* page = catalog_.index.page(id);
  if (page == nullptr || page->file_bytes == 0) catalog_.index.page_is_there(id, found.size);
  if (now - found.modified > kAbandonedAfter) catalog_.index.give_up(id);
  return {};
}

Status ConversationFolder::look_at_point(const Hash128& id, std::int64_t now) {
  {
    const std::lock_guard lock(catalog_.mutex);
    if (catalog_.index.find(id) != nullptr) return {};
    if (catalog_.index.points().size() >= kMaxPoints)
      return fail(ErrorCode::exhausted, "there are more than {}", kMaxPoints);
  }
  STRATA_ASSIGN(const FileStatus found,
                files_.examine(path_of(file_name(ConversationFile::point, id))));
  STRATA_ASSIGN(PointOutline outline, read_outline(files_, options_.folder, id, options_.shape));
  const std::lock_guard lock(catalog_.mutex);
  ConversationIndex& index = catalog_.index;
  ConversationIndex::Point* point = nullptr;
  if (outline.shape == options_.shape) {
    STRATA_ASSIGN(point, index.add(id, outline.tokens, outline.page_ids));
  } else {
    ++foreign_;
    point = index.add_unusable(id, std::move(outline.page_ids));
  }
  index.set_stored(*point, outline.file_bytes, std::min(found.modified, now));
  return {};
}

// --- writing ---

Result<ConversationFolder::Temporary> ConversationFolder::create() {
  const std::string path = path_of(temporary_name(next_temporary_++));
  auto out = files_.create_private(path);
  if (!out && out.error().code == ErrorCode::not_found) {  // somebody removed the folder
    STRATA_TRY(files_.make_private_folder(options_.folder));
    out = files_.create_private(path);
  }
  if (!out) return tl::unexpected(out.error());
  return Temporary(files_, path, std::move(*out));
}

Status ConversationFolder::write(const SavedPoint& point) {
  STRATA_ASSIGN(const std::vector<Hash128> ids, ids_of(point));
  const Hash128 id = point_id(options_.shape, point.tokens);
  {
    // From here on its pages are needed: making room does not take them.
    const std::lock_guard lock(catalog_.mutex);
    STRATA_TRY(catalog_.index.add(id, point.tokens, ids));
  }
  Status status = write_files(point, ids);
  {
    const std::lock_guard lock(catalog_.mutex);
    ConversationIndex& index = catalog_.index;
    // A reader that found an older file of it gone or damaged may have taken it out meanwhile.
    ConversationIndex::Point* added = index.find(id);
    if (status && added == nullptr) {
      auto again = index.add(id, point.tokens, ids);
      again ? void(added = *again) : void(status = tl::unexpected(again.error()));
    }
    if (status) {
      index.set_stored(*added, point_file_bytes(options_.shape, point.tokens.size()),
                       calendar_now());
      ++catalog_.counters.saved;
    } else {
      index.remove(id);
    }
  }
  if (!status) remove_unneeded_pages();  // those that were written for nothing
  return status;
}

// Hashes pages only where no saved point tells what they are.
Result<std::vector<Hash128>> ConversationFolder::ids_of(const SavedPoint& point) {
  std::vector<Hash128> ids;
  std::vector<bool> there;
  {
    const std::lock_guard lock(catalog_.mutex);
    ids = catalog_.index.known_pages(point.tokens);
    for (const Hash128& id : ids) there.push_back(catalog_.index.page(id)->there);
  }
  const std::size_t known = ids.size();
  for (std::size_t i = 0; i < options_.shape.full_pages(point.tokens.size()); ++i) {
    if (i < known && there[i]) continue;
    if (!point.pages[i])
      return fail(ErrorCode::unavailable, "page {} of the conversation has been removed meanwhile",
                  i);
    const Hash128 id = page_id(options_.shape, {point.pages[i].get(), options_.shape.page_bytes});
    if (i < known && ids[i] != id)
      return fail(ErrorCode::corrupt, "page {} differs from what was saved for the same tokens", i);
    if (i >= known) ids.push_back(id);
  }
  return ids;
}

Status ConversationFolder::write_files(const SavedPoint& point, const std::vector<Hash128>& ids) {
  // Another process may have removed a page that is thought to be here.
  std::vector<NewPage> pages;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    bool there = false;
    {
      const std::lock_guard lock(catalog_.mutex);
      const auto* page = catalog_.index.page(ids[i]);  // a reader may have given it up meanwhile
      there = page != nullptr && page->there;
    }
    if (there) {
      const auto found = files_.examine(path_of(file_name(ConversationFile::page, ids[i])));
      if (!found && found.error().code != ErrorCode::not_found)
        return tl::unexpected(found.error());
      if (found) continue;
      const std::lock_guard lock(catalog_.mutex);
      catalog_.index.page_is_lost(ids[i], false);
    }
    if (!point.pages[i])
      return fail(ErrorCode::unavailable, "page {} of the conversation has been removed meanwhile",
                  i);
    pages.push_back({ids[i], point.pages[i]});
  }
  const std::uint64_t point_bytes = point_file_bytes(options_.shape, point.tokens.size());
  const std::uint64_t page_room = room_of(page_file_bytes(options_.shape));
  STRATA_TRY(make_room(room_of(point_bytes) + page_room * pages.size()));
  STRATA_TRY(write_pages(std::move(pages)));

  STRATA_ASSIGN(Temporary file, create());
  STRATA_TRY(write_point(*file.out, options_.shape, point, ids));
  STRATA_TRY(file.out->finish());
  const Hash128 id = point_id(options_.shape, point.tokens);
  STRATA_TRY(files_.rename(file.path, path_of(file_name(ConversationFile::point, id))));
  file.named();
  const std::lock_guard lock(catalog_.mutex);
  catalog_.counters.written_bytes += point_bytes;
  return {};
}

// The folder is flushed before the point is written: a point never comes back without its pages.
Status ConversationFolder::write_pages(std::vector<NewPage> pages) {
  for (std::size_t start = 0; start < pages.size(); start += kPagesAtOnce) {
    const std::size_t end = std::min(pages.size(), start + kPagesAtOnce);
    std::vector<Temporary> written;
    written.reserve(kPagesAtOnce);
    for (std::size_t i = start; i < end; ++i) {
      if (stopping_) return fail(ErrorCode::cancelled, "the engine is stopping");
      STRATA_ASSIGN(Temporary file, create());
      const std::span<const std::byte> bytes(pages[i].bytes.get(), options_.shape.page_bytes);
      STRATA_TRY(write_page(*file.out, options_.shape, bytes, pages[i].id));
      written.push_back(std::move(file));
    }
    for (std::size_t i = start; i < end; ++i) {
      Temporary& file = written[i - start];
      STRATA_TRY(file.out->finish());
      const std::string path = path_of(file_name(ConversationFile::page, pages[i].id));
      STRATA_TRY(files_.replace(file.path, path));
      file.named();
      const std::lock_guard lock(catalog_.mutex);
      catalog_.index.page_is_there(pages[i].id, page_file_bytes(options_.shape));
      catalog_.counters.written_bytes += page_file_bytes(options_.shape);
    }
  }
  return pages.empty() ? Status{} : files_.flush_folder(options_.folder);
}

void ConversationFolder::touch(const Hash128& point) {
  (void)files_.touch(path_of(file_name(ConversationFile::point, point)));
}

// --- making room ---

// An error only if the room is needed and there is nothing left that could go.
Status ConversationFolder::make_room(std::uint64_t room) {
  remove_unneeded_pages();
  for (bool refreshed = false;; refreshed = true) {
    Hash128 victim;
    {
      const std::lock_guard lock(catalog_.mutex);
      ConversationIndex& index = catalog_.index;
      if (index.bytes() + room <= options_.budget_bytes && index.points().size() <= kMaxPoints)
        return {};
      const ConversationIndex::Point* point = index.first_to_go();
      if (point == nullptr && room == 0) return {};
      if (point == nullptr) {
        return fail(ErrorCode::exhausted,
                    "it takes {} bytes, the budget is {}, and {} of it are in use", room,
                    options_.budget_bytes, index.bytes());
      }
      victim = point->id;
    }
    if (refreshed)
      STRATA_TRY(evict(victim));
    else
      refresh_last_uses();
  }
}

Status ConversationFolder::evict(const Hash128& id) {
  const Status removed = remove_own_file(files_, options_.folder, {ConversationFile::point, id});
  if (!removed && removed.error().code == ErrorCode::invalid_argument) {
    ignored_.insert(file_name(ConversationFile::point, id));
  } else if (!removed && removed.error().code != ErrorCode::not_found) {
    // Not the next one to go, too.
    const std::lock_guard lock(catalog_.mutex);
    if (auto* point = catalog_.index.find(id)) point->last_use = calendar_now();
    return removed;
  }
  {
    const std::lock_guard lock(catalog_.mutex);
    catalog_.index.remove(id);
    ++catalog_.counters.evicted;
  }
  remove_unneeded_pages();
  return {};
}

void ConversationFolder::remove_unneeded_pages() {
  std::vector<Hash128> pages;
  {
    const std::lock_guard lock(catalog_.mutex);
    pages.assign(catalog_.index.unneeded_pages().begin(), catalog_.index.unneeded_pages().end());
  }
  for (const Hash128& id : pages) {
    const ConversationName name{ConversationFile::page, id};
    const Status removed = remove_own_file(files_, options_.folder, name);
    if (!removed && removed.error().code != ErrorCode::not_found)
      ignored_.insert(file_name(name.kind, name.id));
    const std::lock_guard lock(catalog_.mutex);
    catalog_.index.page_is_lost(id, false);
  }
}

// Other processes note uses in the files' times.
void ConversationFolder::refresh_last_uses() {
  const std::int64_t now = calendar_now();
  if (now - last_refresh_ < kSecond && now >= last_refresh_) return;
  last_refresh_ = now;
  std::vector<Hash128> points;
  {
    const std::lock_guard lock(catalog_.mutex);
    for (const auto& [id, point] : catalog_.index.points())
      if (point.stored) points.push_back(id);
  }
  for (const Hash128& id : points) {
    const auto found = files_.examine(path_of(file_name(ConversationFile::point, id)));
    const std::lock_guard lock(catalog_.mutex);
    ConversationIndex::Point* point = catalog_.index.find(id);
    if (point == nullptr) continue;
    if (found)
      point->last_use = std::max(point->last_use, std::min(found->modified, now));
    else if (found.error().code == ErrorCode::not_found)
      catalog_.index.remove(id);
  }
}

void ConversationFolder::remove_point(const Hash128& id) {
  if (const Status status = evict(id); !status)
    log_warning("a saved conversation is not removed: {}", status.error().message);
}

void ConversationFolder::discard(const ConversationName& name) {
  {
    const std::lock_guard lock(catalog_.mutex);
    const auto* page = catalog_.index.page(name.id);
    if (name.kind == ConversationFile::page ? page != nullptr && page->there
                                            : catalog_.index.find(name.id) != nullptr)
      return;
  }
  const Status removed = remove_own_file(files_, options_.folder, name);
  if (!removed && removed.error().code != ErrorCode::not_found) {
    ignored_.insert(file_name(name.kind, name.id));
    return;
  }
  if (name.kind == ConversationFile::point) return;
  const std::lock_guard lock(catalog_.mutex);
  catalog_.index.page_is_lost(name.id, false);
}

}  // namespace strata
