#include "telemetry/kept_file.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <memory>

namespace strata::telemetry {
namespace {

// Never waits: not for a writer of a pipe that stands where a file should.
int open_to_read(const std::string& path) {
  return ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
}

std::string_view trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin == text.npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r\n") - begin + 1);
}

// "card10" comes behind "card9".
bool before(const std::string& a, const std::string& b) {
  return a.size() != b.size() ? a.size() < b.size() : a < b;
}

}  // namespace

KeptFile::KeptFile(const std::string& path) {
  const int number = open_to_read(path);
  if (number >= 0) descriptor_ = std::make_unique<Descriptor>(number);
}

std::string_view KeptFile::read(ReadBuffer& buffer) {
  if (!there()) return {};
  const ssize_t size = ::pread(descriptor_->get(), buffer.data(), buffer.size(), 0);
  if (size >= 0) return {buffer.data(), static_cast<std::size_t>(size)};
  // Sensors that sleep or are busy answer again later; these are a process or device that is gone,
  // a folder and a pipe.
  for (const int gone : {ESRCH, ENODEV, ENXIO, EISDIR, ESPIPE})
    if (errno == gone) descriptor_.reset();
  return {};
}

std::optional<std::uint64_t> KeptFile::number(ReadBuffer& buffer) {
  const std::string_view text = trimmed(read(buffer));
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) return {};
  return value;
}

std::string line_of(const std::string& path, std::size_t most) {
  const Descriptor file(open_to_read(path));
  if (file.get() < 0) return {};
  std::string text(most, '\0');
  const ssize_t size = ::read(file.get(), text.data(), text.size());
  text.resize(size > 0 ? static_cast<std::size_t>(size) : 0);
  text = trimmed(std::string_view(text).substr(0, text.find('\n')));
  std::replace_if(text.begin(), text.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
  return text;
}

std::optional<std::uint64_t> number_of(const std::string& path) {
  ReadBuffer buffer;
  return KeptFile(path).number(buffer);
}

std::optional<std::uint64_t> leading_number(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t");
  if (begin == text.npos) return {};
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data() + begin, text.data() + text.size(), value);
  if (error != std::errc()) return {};
  return value;
}

std::optional<std::uint64_t> number_behind(std::string_view text, std::string_view key) {
  const bool anywhere = key.ends_with('=');
  for (std::size_t at = text.find(key); at != text.npos; at = text.find(key, at + 1)) {
    if (anywhere || at == 0 || text[at - 1] == '\n')
      return leading_number(text.substr(at + key.size()));
  }
  return {};
}

std::vector<std::string_view> words_of(std::string_view text, std::size_t most) {
  text = text.substr(0, text.find('\n'));
  std::vector<std::string_view> words;
  while (words.size() < most) {
    const std::size_t begin = text.find_first_not_of(' ');
    if (begin == text.npos) break;
    const std::size_t end = std::min(text.find(' ', begin), text.size());
    words.push_back(text.substr(begin, end - begin));
    text.remove_prefix(end);
  }
  return words;
}

std::vector<std::string> names_in(const std::string& folder, std::string_view prefix,
                                  std::size_t most) {
  std::vector<std::string> names;
  const std::unique_ptr<DIR, int (*)(DIR*)> open(::opendir(folder.c_str()), &::closedir);
  if (open == nullptr) return names;
  constexpr std::size_t kMostEntries = 4096;
  for (std::size_t seen = 0; seen < kMostEntries; ++seen) {
    const dirent* entry = ::readdir(open.get());
    if (entry == nullptr) break;
    const std::string_view name = entry->d_name;
    if (name != "." && name != ".." && name.starts_with(prefix)) names.emplace_back(name);
  }
  std::sort(names.begin(), names.end(), before);
  if (names.size() > most) names.resize(most);
  return names;
}

}  // namespace strata::telemetry
