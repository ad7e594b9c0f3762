#include "engine/loop_finder.h"

#include <algorithm>
#include <span>
#include <unordered_map>

#include "base/hash.h"

namespace strata {
namespace {

constexpr std::size_t kLongestWord = 1024;  // bytes; more of it is another word
constexpr std::size_t kBytesOfCharacter = 4;

bool is_space(char c) {
  return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

std::uint64_t hash_of(std::string_view text) {
  return hash64(std::as_bytes(std::span(text)));
}

}  // namespace

void LoopFinder::restart() {
  *this = {};
}

void LoopFinder::add(std::string_view token) {
  ++tokens_;
  for (const char c : token) {
    if (!is_space(c)) word_ += c;
    if (word_.empty() || (!is_space(c) && word_.size() < kLongestWord)) continue;
    words_.push_back(hash_of(word_));
    word_.clear();
  }
  if (words_.size() > 2 * kWords) words_.erase(words_.begin(), words_.end() - kWords);
  tail_ += token;
  constexpr std::size_t kMost = kTail * kBytesOfCharacter;
  if (tail_.size() > 2 * kMost) tail_.erase(0, tail_.size() - kMost);
}

bool LoopFinder::looping() {
  if (tokens_ < kEvery) return false;
  tokens_ = 0;
  return repeats_passages() || is_periodic();
}

bool LoopFinder::repeats_passages() const {
  const auto words = std::span(words_).last(std::min(words_.size(), kWords));
  if (words.size() < kPassage) return false;
  std::unordered_map<std::uint64_t, std::uint32_t> times;
  std::vector<std::uint64_t> passages(words.size() - kPassage + 1);
  for (std::size_t at = 0; at < passages.size(); ++at) {
    passages[at] = hash64(std::as_bytes(words.subspan(at, kPassage)));
    ++times[passages[at]];
  }
  const std::size_t recent = std::min(words.size(), kRecentWords);
  const std::size_t from = words.size() - recent;
  std::size_t covered = 0, end = from;  // words before `end` are counted
  for (std::size_t at = from < kPassage ? 0 : from - kPassage + 1; at < passages.size(); ++at) {
    if (times[passages[at]] < kTimes) continue;
    const std::size_t begin = std::max(at, end);
    end = std::max(end, at + kPassage);
    covered += end - std::min(begin, end);
  }
  return covered * 4 >= recent;
}

bool LoopFinder::is_periodic() const {
  std::vector<std::uint32_t> characters;  // the bytes of each
  for (const char c : tail_) {
    const auto byte = static_cast<unsigned char>(c);
    if ((byte & 0xC0) == 0x80 && !characters.empty()) {
      characters.back() = characters.back() << 8 | byte;
    } else {
      characters.push_back(byte);
    }
  }
  if (characters.size() < kTail) return false;
  const auto last = std::span<const std::uint32_t>(characters).last(kTail);
  for (std::size_t period = 1; period <= kPeriod; ++period) {
    if (std::equal(last.begin() + static_cast<std::ptrdiff_t>(period), last.end(), last.begin()))
      return true;
  }
  return false;
}

}  // namespace strata
