// Prompts to ids, where most prompts are an earlier one with something appended: the ids of a few
// recent prompts are kept, and of a new one only the tail is encoded that none of them holds.
//
// What callers may rely on
// - The ids are those of Tokenizer::encode(text, trusted), but for replies (below).
// - Callers own the ids they get. Nothing that is kept changes but by being dropped.
// - Any thread may call anything. Encoding runs outside the lock, on what was kept at its start; of
//   two calls at a time one may miss what the other publishes, which costs time and nothing else.
// - What is kept stays within Limits, bytes counted with all it needs: text, ranges, ids, resume
//   points, replies. Calls that run hold on to what they began with, each to one prompt at most
//   once it has chosen.
//
// Why the ids are equal
// A prompt is resumed at a place c behind a special token that the earlier prompt's scan took.
// Neither byte pairs nor pieces nor normalisation (NFC) reach over a special token, so the ids
// before c and those behind it depend on each other only through what the scan takes. Whether it
// takes a token at a place q depends on the bytes and the trust of [q, q + L), L being the longest
// literal: literals are compared as they stand, before normalisation, and a match lies within one
// range. So where both prompts agree in bytes and in trust up to c + L - 1, both scans are at c in
// the same state, and the tail can be encoded alone. Agreement behind c is needed because a longer
// literal may begin before c, and agreement of trust because a literal that somebody quotes is
// plain text. This holds for every vocabulary; a text without special tokens is never resumed.
//
// Replies
// A model may write pieces that encoding would have merged: encoding its answer again gives other
// ids than those that stand in the engine's caches. remember_reply() keeps the written ids with
// their prompt. A later prompt that carries that prompt and then the reply's text gets them, up to
// where its text first differs. This is the one exception to the first promise above; it is kept in
// these bounds:
// - decode(ids) is still the text. (With NFC: what is written stands as the text has it, and the
//   whole is canonically equivalent to it.)
// - The special tokens are those of a full encoding, at the same places of the text: the reply's
//   are used only where the scan takes them, from trusted text, and those that the scan takes are
//   never replaced by plain bytes. A cut is never inside a literal.
// - A cut is never inside a character, and with NFC never before one that may combine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "tokenizer/tokenizer.h"

namespace strata {

class PromptEncoder {
 public:
  using Range = Tokenizer::Range;

  static constexpr std::size_t kMostEntries = 16;
  static constexpr std::size_t kMostReplies = 16;

  struct Limits {
    std::size_t entries = 4;                    // prompts, at most kMostEntries; 0 keeps nothing
    std::size_t bytes = std::size_t{64} << 20;  // of all that is kept
    std::size_t replies = 4;                    // of a prompt, at most kMostReplies; 0: none
  };
  struct Use {
    bool store = true;    // false: what is kept stays as it is
    bool replies = true;  // false: the ids of a full encoding, whatever was written
  };
  struct Counters {
    std::uint64_t prompts = 0;
    std::uint64_t bytes = 0;          // of their texts
    std::uint64_t encoded_bytes = 0;  // of them, not found in an earlier prompt or reply
    std::uint64_t tokens = 0;
    std::uint64_t reused_tokens = 0;  // of earlier prompts
    std::uint64_t reply_tokens = 0;   // of replies that were carried for the first time
    std::size_t entries = 0;          // kept now
    std::size_t held_bytes = 0;       // by them
  };

  // The tokenizer must outlive the encoder.
  PromptEncoder(const Tokenizer& tokenizer, Limits limits);
  ~PromptEncoder();
  PromptEncoder(const PromptEncoder&) = delete;
  PromptEncoder& operator=(const PromptEncoder&) = delete;

  // `trusted` as for Tokenizer::encode. The text is taken by value because it is what is kept.
  std::vector<TokenId> encode(std::string text, std::vector<Range> trusted, Use use);
  std::vector<TokenId> encode(std::string text, std::vector<Range> trusted) {
    return encode(std::move(text), std::move(trusted), Use{});
  }

  // `generated` was written after the prompt with these ids. Nothing happens if that is not kept.
  void remember_reply(std::span<const TokenId> prompt, std::span<const TokenId> generated);
  // Drops the prompt with these ids and its replies: of requests that were refused.
  void forget(std::span<const TokenId> prompt);

  Counters counters() const;

 private:
  struct Prompt;
  struct Reply;
  struct Entry;
  struct Source;

  std::vector<Entry> snapshot() const;
  Source find_source(const std::vector<Entry>& entries, std::string_view text,
                     std::span<const Range> trusted, bool replies) const;
  void follow_replies(const Entry& entry, std::string_view text, std::span<const Range> trusted,
                      Source& best) const;
  void publish(std::shared_ptr<const Prompt> prompt, const Source& source);
  void keep_within_limits();

  const Tokenizer& tokenizer_;
  const Limits limits_;
  const std::size_t look_ahead_;  // L - 1

  mutable std::mutex mutex_;
  std::vector<Entry> entries_;  // the latest first
  Counters counters_;
};

}  // namespace strata
