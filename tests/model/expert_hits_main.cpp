// What residencies of experts are worth: which part of the experts that a held-out text needs is in
// memory, by policy and budget. Records what the router chooses, token by token, for a text to
// learn from and a held-out one, and replays it.
//
//     model_expert_hits MODEL LEARN HELD_OUT [TOKENS]    (texts; "-" for random tokens)
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <list>
#include <numeric>
#include <random>
#include <unordered_map>

#include "model/expert_profile.h"
#include "model/forward.h"
#include "model/open_network.h"
#include "tokenizer/tokenizer.h"

namespace strata {
namespace {

using Choices = std::vector<std::uint32_t>;  // ids of (layer, expert) in the order of their use

class Recorder final : public ExpertSource {
 public:
  Recorder(std::shared_ptr<ExpertSource> inner, std::uint32_t experts)
      : inner_(std::move(inner)), experts_(experts) {}
  void begin(std::uint32_t layer, std::span<const ExpertUse> uses, bool decode) override {
    for (const ExpertUse& use : uses) choices.push_back(layer * experts_ + use.expert);
    inner_->begin(layer, uses, decode);
  }
  std::span<const ExpertBlob> next() override { return inner_->next(); }
  const Status& failure() const override { return inner_->failure(); }
  bool looks_ahead() const override { return true; }
  // How much of the next layer's choice is guessed right is told by who asks.
  void prefetch(std::uint32_t layer, std::span<const std::uint32_t> experts) override {
    for (const std::uint32_t expert : experts) guesses.push_back(layer * experts_ + expert);
  }
  ExpertLifetime lifetime(std::uint32_t layer, std::uint32_t expert) const override {
    return inner_->lifetime(layer, expert);
  }
  ExpertCounters counters() const override { return inner_->counters(); }

  Choices choices, guesses;

 private:
  std::shared_ptr<ExpertSource> inner_;
  std::uint32_t experts_;
};

struct Text {
  Choices choices;
  std::size_t tokens = 0, guessed = 0, right = 0;
};

Result<Text> record(Network& network, Backend& backend, Recorder& recorder,
                    std::span<const std::int32_t> ids) {
  recorder.choices.clear();
  Text text;
  Forward forward(network, backend);
  STRATA_ASSIGN(Sequence sequence, forward.new_sequence());
  for (const std::int32_t& id : ids) {
    if (sequence.tokens() + 1 >= network.params.context) {
      STRATA_ASSIGN(sequence, forward.new_sequence());
    }
    recorder.guesses.clear();
    const std::size_t before = recorder.choices.size();
    const Forward::Rows rows{&sequence, {&id, 1}};
    STRATA_TRY(forward.read({&rows, 1}, {}, {}));
    Choices now(recorder.choices.begin() + static_cast<std::ptrdiff_t>(before),
                recorder.choices.end());
    std::sort(now.begin(), now.end());
    text.guessed += recorder.guesses.size();
    for (const std::uint32_t guess : recorder.guesses)
      text.right += std::binary_search(now.begin(), now.end(), guess) ? 1 : 0;
    ++text.tokens;
  }
  text.choices = recorder.choices;
  return text;
}

// Hits of a fixed set.
double fixed(const std::vector<bool>& resident, const Choices& choices) {
  const auto hits =
      std::count_if(choices.begin(), choices.end(), [&](std::uint32_t id) { return resident[id]; });
  return static_cast<double>(hits) / static_cast<double>(choices.size());
}

// A fixed core, and the rest for those used last.
double with_recent(const std::vector<bool>& core, std::size_t recent, const Choices& choices) {
  std::list<std::uint32_t> order;  // the longest unused in front
  std::unordered_map<std::uint32_t, std::list<std::uint32_t>::iterator> where;
  std::size_t hits = 0;
  for (const std::uint32_t id : choices) {
    if (core[id]) {
      ++hits;
      continue;
    }
    if (const auto found = where.find(id); found != where.end()) {
      ++hits;
      order.splice(order.end(), order, found->second);
      continue;
    }
    if (recent == 0) continue;
    if (order.size() == recent) {
      where.erase(order.front());
      order.pop_front();
    }
    where[id] = order.insert(order.end(), id);
  }
  return static_cast<double>(hits) / static_cast<double>(choices.size());
}

// The set that ExpertStore keeps: what is used less by both counts of a profile makes room.
double with_profile(ExpertProfile profile, std::size_t layers, std::size_t count,
                    const Choices& choices) {
  std::vector<std::uint32_t> ids(profile.size());
  std::iota(ids.begin(), ids.end(), 0u);
  const std::size_t experts = ids.size() / layers;
  std::stable_sort(ids.begin(), ids.end(), [&](std::uint32_t a, std::uint32_t b) {
    if (profile.heat(a) != profile.heat(b)) return profile.heat(a) > profile.heat(b);
    return a % experts < b % experts;
  });
  std::vector<bool> resident(ids.size());
  ids.resize(count);
  for (const std::uint32_t id : ids) resident[id] = true;
  std::size_t hits = 0;
  for (std::size_t i = 0; i < choices.size(); ++i) {
    const std::uint32_t id = choices[i];
    profile.used(id, 1);
    if (id < experts) profile.passed(1);  // layer 0 has chosen
    if (resident[id]) {
      ++hits;
      continue;
    }
    const auto least = std::min_element(
        ids.begin(), ids.end(),
        [&](std::uint32_t a, std::uint32_t b) { return profile.score(a) < profile.score(b); });
    if (least == ids.end() || profile.score(*least) >= profile.score(id)) continue;
    resident[*least] = false;
    resident[id] = true;
    *least = id;
  }
  return static_cast<double>(hits) / static_cast<double>(choices.size());
}

std::vector<bool> hottest(const std::vector<double>& heat, std::size_t count) {
  std::vector<std::uint32_t> ids(heat.size());
  std::iota(ids.begin(), ids.end(), 0u);
  std::stable_sort(ids.begin(), ids.end(),
                   [&](std::uint32_t a, std::uint32_t b) { return heat[a] > heat[b]; });
  std::vector<bool> set(heat.size());
  for (std::size_t i = 0; i < count; ++i) set[ids[i]] = true;
  return set;
}

std::vector<bool> first_come(const Choices& choices, std::size_t all, std::size_t count) {
  std::vector<bool> set(all);
  for (const std::uint32_t id : choices) {
    if (count == 0) break;
    if (set[id]) continue;
    set[id] = true;
    --count;
  }
  return set;
}

Result<std::vector<std::int32_t>> tokens_of(const Network& network, const std::string& path,
                                            std::size_t most, unsigned seed) {
  std::vector<std::int32_t> ids;
  if (path == "-") {
    std::mt19937 random(seed);
    for (std::size_t i = 0; i < most; ++i)
      ids.push_back(static_cast<std::int32_t>(random() % network.embedding.rows));
    return ids;
  }
  STRATA_ASSIGN(const std::string text, real_files().read_text(path));
  STRATA_ASSIGN(const Tokenizer tokenizer, Tokenizer::from_gguf(network.file->metadata));
  ids = tokenizer.encode(text, Specials::none);
  ids.resize(std::min(ids.size(), most));
  return ids;
}

Status report(const std::string& model, const std::string& learn, const std::string& held,
              std::size_t most) {
  STRATA_ASSIGN(Network network, open_network(real_files(), model));
  STRATA_ASSIGN(const auto backend, make_cpu_backend(network.shape(), 0));
  const std::uint32_t experts = network.blocks[0].experts.gate.count;
  const std::size_t all = experts * network.blocks.size();
  const auto recorder = std::make_shared<Recorder>(network.experts, experts);
  network.take_experts_from(recorder);
  STRATA_ASSIGN(const auto learn_ids, tokens_of(network, learn, most, 1));
  STRATA_ASSIGN(const auto held_ids, tokens_of(network, held, most, 2));
  STRATA_ASSIGN(const Text learned, record(network, *backend, *recorder, learn_ids));
  STRATA_ASSIGN(const Text text, record(network, *backend, *recorder, held_ids));
  std::vector<double> heat(all);
  const ExpertProfile none_learned(0, std::vector<std::uint32_t>(network.blocks.size(), experts));
  ExpertProfile profile = none_learned;
  for (const std::uint32_t id : learned.choices) {
    ++heat[id];
    profile.used(id, 1);
    if (id < experts) profile.passed(1);
  }
  profile = profile.as_saved();
  fmt::print("{} tokens to learn from, {} held out; guesses of the next layer: {:.1f} % right\n",
             learned.tokens, text.tokens,
             100 * static_cast<double>(text.right) /
                 static_cast<double>(std::max<std::size_t>(1, text.guessed)));
  fmt::print(
      "| budget | first come | last used | fixed profile | 1/2 profile, 1/2 last used | both "
      "counts, "
      "nothing learned | both counts |\n"
      "| --- | ---: | ---: | ---: | ---: | ---: | ---: |\n");
  for (const int percent : {75, 50, 25, 10}) {
    const std::size_t count = all * static_cast<std::size_t>(percent) / 100;
    const std::vector<bool> none(all);
    fmt::print("| {} % | {:.1f} % | {:.1f} % | {:.1f} % | {:.1f} % | {:.1f} % | {:.1f} % |\n",
               percent, 100 * fixed(first_come(text.choices, all, count), text.choices),
               100 * with_recent(none, count, text.choices),
               100 * fixed(hottest(heat, count), text.choices),
               100 * with_recent(hottest(heat, count - count / 2), count / 2, text.choices),
               100 * with_profile(none_learned, network.blocks.size(), count, text.choices),
               100 * with_profile(profile, network.blocks.size(), count, text.choices));
  }
  return {};
}

}  // namespace
}  // namespace strata

int main(int count, char** words) {
  if (count < 4) return 2;
  const std::size_t most = count > 4 ? static_cast<std::size_t>(std::atol(words[4])) : 2000;
  const strata::Status status = strata::report(words[1], words[2], words[3], most);
  if (!status) fmt::print(stderr, "{}\n", status.error().message);
  return status ? 0 : 1;
}
