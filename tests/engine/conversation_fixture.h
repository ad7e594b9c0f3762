// Conversations whose states and cells follow from their tokens, as the real ones' do: what is
// loaded can be compared with what must have been saved.
#pragma once

#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <future>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "engine/conversation_files.h"

namespace strata::conversations {

inline ConversationShape small_shape() {
  return {0x1234'5678'9abc'def0, 4, 96, 40};
}

using Tokens = std::vector<TokenId>;

// first, first + 1, ...
inline Tokens counting(std::size_t count, TokenId first = 0) {
  Tokens tokens(count);
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

inline Tokens operator+(Tokens left, const Tokens& right) {
  left.insert(left.end(), right.begin(), right.end());
  return left;
}

inline void fill(std::span<std::byte> bytes, std::span<const TokenId> tokens, std::uint64_t seed) {
  std::uint64_t value = hash64(std::as_bytes(tokens), seed);
  for (std::byte& byte : bytes) {
    value = value * 6364136223846793005u + 1442695040888963407u;
    byte = static_cast<std::byte>(value >> 56);
  }
}

inline SavedPoint make_point(const Tokens& tokens, const ConversationShape& shape = small_shape()) {
  SavedPoint point;
  point.tokens = tokens;
  const std::span<const TokenId> all(tokens);
  for (std::size_t i = 0; i < shape.pages(tokens.size()); ++i) {
    auto page = std::make_shared<std::byte[]>(shape.page_bytes);
    const std::size_t end = std::min<std::size_t>(tokens.size(), (i + 1) * shape.page_tokens);
    fill({page.get(), shape.page_bytes}, all.first(end), shape.model);
    point.pages.push_back(std::move(page));
  }
  auto state = std::make_shared<Bytes>(shape.state_bytes);
  fill(*state, all, shape.model + 1);
  point.state = std::move(state);
  return point;
}

// Whether a loaded point is to the bit the one of these tokens.
inline bool same_point(const SavedPoint& loaded, const Tokens& tokens,
                       const ConversationShape& shape = small_shape()) {
  const SavedPoint expected = make_point(tokens, shape);
  if (loaded.tokens != tokens || !loaded.state || *loaded.state != *expected.state) return false;
  if (loaded.pages.size() != expected.pages.size()) return false;
  for (std::size_t i = 0; i < loaded.pages.size(); ++i) {
    if (!loaded.pages[i] ||
        std::memcmp(loaded.pages[i].get(), expected.pages[i].get(), shape.page_bytes) != 0)
      return false;
  }
  return true;
}

// Tokens of conversation `which`: the first six are the same for all.
inline Tokens of_conversation(std::uint32_t which, std::size_t count) {
  Tokens tokens = counting(count);
  for (std::size_t i = 6; i < count; ++i) tokens[i] += static_cast<TokenId>(1000 * which);
  return tokens;
}

// Saves, loads and forgets at random for a while; whether everything loaded was right.
inline bool work_at_random(ConversationFiles& store, std::uint64_t seed,
                           std::chrono::milliseconds duration) {
  std::mt19937_64 random(seed);
  const auto end = std::chrono::steady_clock::now() + duration;
  while (std::chrono::steady_clock::now() < end) {
    const std::uint32_t which = static_cast<std::uint32_t>(random() % 8);
    const Tokens tokens = of_conversation(which, 1 + random() % 40);
    const std::uint64_t action = random() % 16;
    if (action < 6) {
      store.save(make_point(tokens));
    } else if (action == 6) {
      store.forget(tokens);
    } else if (action == 7) {
      (void)store.flush(std::chrono::milliseconds(50));
    } else {
      std::promise<void> ready;
      const auto load = store.load(tokens, [&] { ready.set_value(); });
      if (action == 8) {  // dropped half-way; the promise must live as long as the load
        continue;
      }
      if (!load->ready()) ready.get_future().wait();
      const auto point = load->take();
      if (!point) continue;
      if (point->tokens.size() >= tokens.size() ||
          !same_point(*point, of_conversation(which, point->tokens.size())))
        return false;
    }
  }
  return true;
}

// A new folder's name; the folder goes with this. In memory where there is such a place: these
// tests flush thousands of files.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    const bool memory = ::access("/dev/shm", R_OK | W_OK | X_OK) == 0;
    const std::filesystem::path base =
        memory ? std::filesystem::path("/dev/shm") : std::filesystem::temp_directory_path();
    std::string pattern = base / "strata-conversations-XXXXXX";
    if (::mkdtemp(pattern.data()) != nullptr) path_ = pattern;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace strata::conversations
