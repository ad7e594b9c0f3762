#include "tokenizer/prompt_encoder.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "tokenizer/special_scan.h"
#include "tokenizer/tokenizer_state.h"
#include "tokenizer/unicode.h"

namespace strata {

namespace {

using Range = Tokenizer::Range;

constexpr std::size_t kNone = static_cast<std::size_t>(-1);

bool equal_ids(std::span<const TokenId> a, std::span<const TokenId> b) {
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin());
}

// Bytes at the beginning of both.
std::size_t common_prefix(std::string_view a, std::string_view b) {
  constexpr std::size_t kBlock = 1024;
  const std::size_t size = std::min(a.size(), b.size());
  std::size_t at = 0;
  while (size - at >= kBlock && std::memcmp(a.data() + at, b.data() + at, kBlock) == 0) {
    at += kBlock;
  }
  while (at < size && a[at] == b[at]) ++at;
  return at;
}

// Bytes at the beginning whose trust is the same in both, borders between ranges included.
std::size_t common_trust(std::span<const Range> a, std::span<const Range> b) {
  const auto [in_a, in_b] = std::ranges::mismatch(a, b);
  const bool more_a = in_a != a.end(), more_b = in_b != b.end();
  if (!more_a && !more_b) return kNone;
  if (!more_a) return in_b->begin;
  if (!more_b) return in_a->begin;
  if (in_a->begin == in_b->begin) return std::min(in_a->end, in_b->end);
  return std::min(in_a->begin, in_b->begin);
}

// Whether the text may be encoded in two parts that meet here, as far as characters go.
bool parts_characters(std::string_view text, std::size_t at, bool nfc) {
  if (at == text.size()) return true;
  const auto byte = static_cast<unsigned char>(text[at]);
  if (byte < 0x80) return true;
  if ((byte & 0xC0) == 0x80) return false;
  if (!nfc) return true;
  const Utf8Char next = decode_utf8(text, at);
  return next.status != Utf8Status::valid || !unicode::nfc_may_change(next.code);
}

}  // namespace

struct PromptEncoder::Prompt {
  std::string text;
  std::vector<Range> trusted;
  std::vector<TokenId> ids;
  std::vector<ResumePoint> points;   // behind each special token
  std::size_t written_from = kNone;  // offset of the first byte whose id is from a reply

  std::size_t bytes() const {
    return sizeof(Prompt) + text.capacity() + trusted.capacity() * sizeof(Range) +
           ids.capacity() * sizeof(TokenId) + points.capacity() * sizeof(ResumePoint);
  }
};

struct PromptEncoder::Reply {
  std::vector<TokenId> ids;
  std::size_t text_bytes = 0;

  std::size_t bytes() const { return sizeof(Reply) + ids.capacity() * sizeof(TokenId); }
};

struct PromptEncoder::Entry {
  std::shared_ptr<const Prompt> prompt;
  std::vector<std::shared_ptr<const Reply>> replies;  // the latest first
  bool outgrown = false;                              // a later prompt carries all of it

  std::size_t bytes() const {
    std::size_t total = sizeof(Entry) + prompt->bytes();
    for (const auto& reply : replies) total += reply->bytes();
    return total;
  }
  // The furthest place to which its ids may go.
  std::size_t reach() const {
    std::size_t longest = 0;
    for (const auto& reply : replies) longest = std::max(longest, reply->text_bytes);
    return prompt->text.size() + longest;
  }
};

// Where a new prompt's tail begins, and what its ids before that are.
struct PromptEncoder::Source {
  std::shared_ptr<const Prompt> prompt;  // null: nothing is known of the text
  std::size_t text = 0;                  // the tail's offset
  std::size_t points = 0;                // of the earlier prompt, with the ids before the last
  bool whole = false;                    // all of the earlier prompt's ids
  bool outgrows = false;                 // the text begins with all of the earlier prompt
  std::shared_ptr<const Reply> reply;    // the first `reply_ids` of it follow the whole prompt
  std::size_t reply_ids = 0;
  std::vector<ResumePoint> reply_points;  // counted from the whole text's beginning

  std::size_t prompt_ids() const {
    if (prompt == nullptr) return 0;
    if (whole) return prompt->ids.size();
    return points == 0 ? 0 : prompt->points[points - 1].ids;
  }
};

PromptEncoder::PromptEncoder(const Tokenizer& tokenizer, Limits limits)
    : tokenizer_(tokenizer),
      limits_{std::min(limits.entries, kMostEntries), limits.bytes,
              std::min(limits.replies, kMostReplies)},
      look_ahead_(std::max<std::size_t>(tokenizer.state().parts.specials.longest(), 1) - 1) {}

PromptEncoder::~PromptEncoder() = default;

// Encoding -----------------------------------------------------------------------------------

std::vector<TokenId> PromptEncoder::encode(std::string text, std::vector<Range> trusted, Use use) {
  const Source source = find_source(snapshot(), text, trusted, use.replies);
  const std::size_t known = source.prompt_ids();
  auto made = std::make_shared<Prompt>();
  std::vector<TokenId>& ids = made->ids;
  ids.reserve(known + source.reply_ids + (text.size() - source.text) / 3 + 8);
  if (source.prompt != nullptr) {
    const Prompt& earlier = *source.prompt;
    ids.assign(earlier.ids.begin(), earlier.ids.begin() + static_cast<std::ptrdiff_t>(known));
    const std::size_t points = source.whole ? earlier.points.size() : source.points;
    made->points.assign(earlier.points.begin(),
                        earlier.points.begin() + static_cast<std::ptrdiff_t>(points));
    if (earlier.written_from < source.text) made->written_from = earlier.written_from;
  }
  if (source.reply != nullptr) {
    const auto& written = source.reply->ids;
    ids.insert(ids.end(), written.begin(),
               written.begin() + static_cast<std::ptrdiff_t>(source.reply_ids));
    made->points.insert(made->points.end(), source.reply_points.begin(), source.reply_points.end());
    made->written_from = std::min(made->written_from, source.prompt->text.size());
  }
  encode_tail(tokenizer_.state(), text, trusted, source.text, ids, made->points);

  {
    const std::lock_guard lock(mutex_);
    ++counters_.prompts;
    counters_.bytes += text.size();
    counters_.encoded_bytes += text.size() - source.text;
    counters_.tokens += ids.size();
    counters_.reused_tokens += known;
    counters_.reply_tokens += source.reply_ids;
  }
  if (!use.store || limits_.entries == 0) return std::move(ids);
  std::vector<TokenId> answer =
      std::exchange(ids, std::vector<TokenId>(ids));  // no more than needed
  made->text = std::move(text);
  made->trusted = std::move(trusted);
  made->text.shrink_to_fit();
  made->trusted.shrink_to_fit();
  made->points.shrink_to_fit();
  publish(std::move(made), source);
  return answer;
}

std::vector<PromptEncoder::Entry> PromptEncoder::snapshot() const {
  const std::lock_guard lock(mutex_);
  return entries_;
}

PromptEncoder::Source PromptEncoder::find_source(const std::vector<Entry>& entries,
                                                 std::string_view text,
                                                 std::span<const Range> trusted,
                                                 bool replies) const {
  Source best;
  for (const Entry& entry : entries) {
    const Prompt& earlier = *entry.prompt;
    if (best.prompt != nullptr && entry.reach() <= best.text) continue;
    std::size_t same =
        std::min(common_prefix(earlier.text, text), common_trust(earlier.trusted, trusted));
    const bool carried = same == earlier.text.size();
    if (!replies) same = std::min(same, earlier.written_from);
    if (same == text.size() && carried && std::ranges::equal(earlier.trusted, trusted)) {
      best = {};
      best.prompt = entry.prompt;
      best.text = text.size();
      best.whole = true;
      break;
    }
    const auto beyond = std::ranges::partition_point(
        earlier.points, [&](const ResumePoint& point) { return point.text + look_ahead_ <= same; });
    const auto points = static_cast<std::size_t>(beyond - earlier.points.begin());
    if (points > 0 && earlier.points[points - 1].text > best.text) {
      best = {};
      best.prompt = entry.prompt;
      best.text = earlier.points[points - 1].text;
      best.points = points;
      best.outgrows = carried;
    }
    if (carried && replies) follow_replies(entry, text, trusted, best);
  }
  return best;
}

// The text begins with all of the entry's prompt. Its ids and those of a reply are the text's as
// far as the scan of the text finds the special tokens that stand in them, and no others.
void PromptEncoder::follow_replies(const Entry& entry, std::string_view text,
                                   std::span<const Range> trusted, Source& best) const {
  if (entry.replies.empty()) return;
  const Prompt& earlier = *entry.prompt;
  const std::size_t size = earlier.text.size();
  const bool nfc = tokenizer_.vocabulary().rules.nfc;
  auto point = std::ranges::partition_point(
      earlier.points, [&](const ResumePoint& p) { return p.text + look_ahead_ <= size; });
  SpecialScan scan(tokenizer_.state().parts.specials, text, trusted,
                   point == earlier.points.begin() ? 0 : std::prev(point)->text);
  auto match = scan.next();
  for (; point != earlier.points.end(); ++point, match = scan.next()) {
    if (!match || match->begin + match->length != point->text ||
        match->id != earlier.ids[point->ids - 1]) {
      return;
    }
  }
  if (match && match->begin < size) return;

  for (const auto& reply : entry.replies) {
    SpecialScan ahead = scan;
    auto special = match;  // the next one
    std::size_t at = size, count = 0;
    std::size_t cut = 0, cut_ids = 0;
    std::vector<ResumePoint> points;
    for (const TokenId id : reply->ids) {
      const std::string_view bytes = tokenizer_.bytes(id);
      const bool taken = special && special->begin == at && special->id == id;
      if (taken) {
        points.push_back({at + bytes.size(), earlier.ids.size() + count + 1});
        special = ahead.next();
      } else if (tokenizer_.kind(id) != TokenKind::normal ||
                 text.substr(at, bytes.size()) != bytes ||
                 (special && special->begin < at + bytes.size())) {
        break;
      }
      at += bytes.size();
      ++count;
      if (!taken && !parts_characters(text, at, nfc)) continue;
      cut = at;
      cut_ids = count;
    }
    if (cut <= best.text) continue;
    best = {};
    best.prompt = entry.prompt;
    best.text = cut;
    best.whole = true;
    best.outgrows = true;
    best.reply = reply;
    best.reply_ids = cut_ids;
    best.reply_points = std::move(points);
  }
}

// What is kept -------------------------------------------------------------------------------

void PromptEncoder::publish(std::shared_ptr<const Prompt> prompt, const Source& source) {
  if (sizeof(Entry) + prompt->bytes() > limits_.bytes) return;
  const std::lock_guard lock(mutex_);
  const auto equal = std::ranges::find_if(entries_, [&](const Entry& entry) {
    return entry.prompt->text == prompt->text && entry.prompt->trusted == prompt->trusted;
  });
  if (equal != entries_.end()) {
    if (!equal_ids(equal->prompt->ids, prompt->ids)) *equal = Entry{std::move(prompt), {}, false};
    equal->outgrown = false;
    std::rotate(entries_.begin(), equal, equal + 1);
  } else {
    entries_.insert(entries_.begin(), Entry{std::move(prompt), {}, false});
  }
  if (source.outgrows) {
    for (Entry& entry : entries_) entry.outgrown |= entry.prompt == source.prompt;
  }
  keep_within_limits();
}

// Prompts that a later one carries go first, then the oldest; the latest stays.
void PromptEncoder::keep_within_limits() {
  counters_.held_bytes = 0;
  for (const Entry& entry : entries_) counters_.held_bytes += entry.bytes();
  while (entries_.size() > 1 &&
         (entries_.size() > limits_.entries || counters_.held_bytes > limits_.bytes)) {
    auto victim = std::prev(entries_.end());
    for (auto entry = victim; entry != entries_.begin(); --entry) {
      if (!entry->outgrown) continue;
      victim = entry;
      break;
    }
    counters_.held_bytes -= victim->bytes();
    entries_.erase(victim);
  }
  counters_.entries = entries_.size();
}

void PromptEncoder::remember_reply(std::span<const TokenId> prompt,
                                   std::span<const TokenId> generated) {
  if (limits_.replies == 0 || generated.empty()) return;
  auto reply = std::make_shared<Reply>();
  reply->ids.assign(generated.begin(), generated.end());
  for (const TokenId id : generated) reply->text_bytes += tokenizer_.bytes(id).size();

  const std::lock_guard lock(mutex_);
  const auto entry = std::ranges::find_if(
      entries_, [&](const Entry& known) { return equal_ids(known.prompt->ids, prompt); });
  if (entry == entries_.end()) return;
  auto& replies = entry->replies;
  std::erase_if(replies, [&](const auto& known) { return equal_ids(known->ids, generated); });
  if (replies.size() == limits_.replies) replies.pop_back();
  if (entry->bytes() + reply->bytes() > limits_.bytes) return;
  replies.insert(replies.begin(), std::move(reply));
  std::rotate(entries_.begin(), entry, entry + 1);
  keep_within_limits();
}

void PromptEncoder::forget(std::span<const TokenId> prompt) {
  const std::lock_guard lock(mutex_);
  std::erase_if(entries_, [&](const Entry& entry) { return equal_ids(entry.prompt->ids, prompt); });
  keep_within_limits();
}

PromptEncoder::Counters PromptEncoder::counters() const {
  const std::lock_guard lock(mutex_);
  return counters_;
}

}  // namespace strata
