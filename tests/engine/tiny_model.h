// The golden checkpoint tiny-a with a byte tokenizer, as a model file in memory.
#pragma once

#include <boost/json.hpp>
#include <condition_variable>
#include <mutex>

#include "engine/engine.h"
#include "tests/model/golden.h"

namespace strata::test {

// One token for each byte, then <|endoftext|>, <|im_start|> and <|im_end|> as 256 to 258.
inline std::string byte_tokenizer_json() {
  boost::json::object vocab;
  int extra = 0;
  for (int byte = 0; byte < 256; ++byte) {
    const bool plain = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
    const int code = plain ? byte : 256 + extra++;
    std::string text;
    if (code < 0x80) {
      text = static_cast<char>(code);
    } else {
      text = {static_cast<char>(0xC0 | (code >> 6)), static_cast<char>(0x80 | (code & 63))};
    }
    vocab[text] = byte;
  }
  boost::json::array added;
  int id = 256;
  for (const char* literal : {"<|endoftext|>", "<|im_start|>", "<|im_end|>"})
    added.push_back({{"id", id++}, {"content", literal}, {"special", true}});
  const char* pattern =
      "(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{"
      "M}]"
      "+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
  const boost::json::object split = {{"type", "Split"},
                                     {"pattern", {{"Regex", pattern}}},
                                     {"behavior", "Isolated"},
                                     {"invert", false}};
  const boost::json::object byte_level = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
  const boost::json::object root = {
      {"added_tokens", added},
      {"pre_tokenizer",
       {{"type", "Sequence"}, {"pretokenizers", boost::json::array{split, byte_level}}}},
      {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", boost::json::array{}}}}};
  return boost::json::serialize(root);
}

inline Tokenizer byte_tokenizer() {
  return std::move(Tokenizer::from_tokenizer_json(byte_tokenizer_json()).value());
}

inline std::unique_ptr<Converted> tiny_model() {
  return convert({golden_dir() + "/tiny-a"}, {}, {}, {{"tokenizer.json", byte_tokenizer_json()}});
}

// With its draft (MTP) block.
inline std::unique_ptr<Converted> tiny_draft_model() {
  return convert({golden_dir() + "/tiny-a", golden_dir() + "/tiny-a-mtp"}, {}, {},
                 {{"tokenizer.json", byte_tokenizer_json()}});
}

// Collects a request's events and waits for its end.
class Collector final : public Listener {
 public:
  void progress(std::uint32_t read, std::uint32_t) override {
    const std::lock_guard lock(mutex_);
    progress_.push_back(read);
  }
  void prompt_chances(const TokenChances& chances) override {
    const std::lock_guard lock(mutex_);
    prompt_chances_.push_back(chances);
  }
  void chances(const TokenChances& chances) override {
    const std::lock_guard lock(mutex_);
    chances_.push_back(chances);
  }
  void token(TokenId id) override {
    const std::lock_guard lock(mutex_);
    tokens_.push_back(id);
    changed_.notify_all();
  }
  void finished(const Completion& completion) override {
    const std::lock_guard lock(mutex_);
    ++finished_;
    completion_ = completion;
    changed_.notify_all();
  }
  Completion wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return finished_ > 0; });
    return completion_;
  }
  void wait_for_tokens(std::size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return tokens_.size() >= count || finished_ > 0; });
  }
  std::vector<TokenId> tokens() const {
    const std::lock_guard lock(mutex_);
    return tokens_;
  }
  // Of the prompt's tokens from the second on, then of the generated ones.
  std::vector<TokenChances> all_chances() const {
    const std::lock_guard lock(mutex_);
    std::vector<TokenChances> all = prompt_chances_;
    all.insert(all.end(), chances_.begin(), chances_.end());
    return all;
  }
  std::vector<std::uint32_t> progress_seen() const {
    const std::lock_guard lock(mutex_);
    return progress_;
  }
  int times_finished() const {
    const std::lock_guard lock(mutex_);
    return finished_;
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<TokenId> tokens_;
  std::vector<std::uint32_t> progress_;
  std::vector<TokenChances> prompt_chances_, chances_;
  Completion completion_;
  int finished_ = 0;
};

}  // namespace strata::test
