// strata ple: measures and checks the n-gram table of a model file on this machine's disk.
#include <fmt/format.h>
#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <boost/json.hpp>
#include <cmath>
#include <cstdio>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/latency_histogram.h"
#include "base/log.h"
#include "cli/checks.h"
#include "cli/command.h"
#include "cli/engine_options.h"
#include "cli/fio.h"
#include "cli/output_options.h"
#include "cli/version.h"
#include "model/hyperparams.h"
#include "ple/ngram.h"
#include "ple/open_table.h"
#include "ple/row_cache.h"
#include "terminal/progress.h"
#include "tokenizer/tokenizer.h"

namespace strata {
namespace {

constexpr std::uint32_t kTokenRows = 16;  // that a token of the full-size model reads
constexpr std::size_t kBulkRows = 1024;   // of a request when many reads are to be under way
constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

struct PleArguments {
  std::string model;
  TableOptions table;
  std::vector<std::uint32_t> depths = {1, 16, 64};
  std::uint32_t seconds = 2, rounds = 3;
  std::string text;
  std::vector<std::uint64_t> caches = {16, 64, 128, 512};  // MiB, for the text
  std::uint64_t rows = 20'000;
  bool json = false, progress = true;
};

// A model file and its first n-gram table.
struct Model {
  std::shared_ptr<const GgufModel> file;
  const TensorView* table = nullptr;

  static Result<Model> open(const std::string& path) {
    STRATA_ASSIGN(GgufModel file, open_gguf(real_files(), path));
    Model model;
    model.file = std::make_shared<const GgufModel>(std::move(file));
    model.table = model.file->find("per_layer_token_embd.weight");
    if (!model.table)
      return fail(ErrorCode::not_found, "'{}' has no n-gram table (per_layer_token_embd.weight)",
                  path);
    return model;
  }
  const std::string& path() const { return file->paths[table->part]; }
  std::uint64_t rows() const { return table->ne[1]; }
  std::size_t row_bytes() const { return table->data.size() / table->ne[1]; }
};

double cpu_seconds() {
  rusage usage = {};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) { return double(t.tv_sec) + double(t.tv_usec) / 1e6; };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0 : values[values.size() / 2];
}

// ---- random reads

struct Reads {
  std::string how;
  double per_second = 0, cpu_microseconds = 0, p50 = 0, p99 = 0;
};

// Rows at random places, without a cache, `depth` reads under way all the time.
Result<Reads> random_reads(const Model& model, const PleArguments& arguments, std::uint32_t depth,
                           unsigned seed) {
  TableOptions options = arguments.table;
  options.queue_depth = depth;
  options.cache_bytes = 0;
  STRATA_ASSIGN(const auto reader,
                open_row_reader(real_files(), *model.file, *model.table, options));
  std::mt19937_64 random(seed);
  const auto ask = [&] {
    std::vector<std::uint64_t> keys(kBulkRows);
    for (std::uint64_t& key : keys) key = random() % model.rows();
    return reader->request(keys);
  };
  reader->reset();
  const double start = monotonic_seconds(), cpu = cpu_seconds();
  STRATA_ASSIGN(RowTicket now, ask());
  while (monotonic_seconds() - start < arguments.seconds) {
    STRATA_ASSIGN(RowTicket next, ask());  // there is always more to read than the queue holds
    STRATA_TRY(now.wait());
    now = std::move(next);
  }
  const TableStats stats = reader->stats();
  const double seconds = monotonic_seconds() - start;
  Reads reads;
  reads.how = stats.how;
  reads.per_second = double(stats.reads) / seconds;
  reads.cpu_microseconds =
      (cpu_seconds() - cpu) * 1e6 / double(std::max<std::uint64_t>(stats.reads, 1));
  reads.p50 = double(stats.read_p50);
  reads.p99 = double(stats.read_p99);
  return reads;
}

struct Compared {
  std::uint32_t depth = 0;
  Reads ours;
  std::optional<FioReads> fio;
};

// Rounds of both by turns; medians.
Result<Compared> compare(const Model& model, const PleArguments& arguments, std::uint32_t depth,
                         bool with_fio) {
  std::vector<Reads> ours;
  std::vector<FioReads> fio;
  const bool ring = arguments.table.mode != TableMode::threads;
  for (std::uint32_t round = 0; round < arguments.rounds; ++round) {
    STRATA_ASSIGN(Reads reads, random_reads(model, arguments, depth, depth * 100 + round));
    ours.push_back(std::move(reads));
    if (!with_fio) continue;
    STRATA_ASSIGN(const FioReads peer,
                  fio_random_reads(model.path(), model.table->file_offset, model.table->data.size(),
                                   depth, arguments.seconds, ring));
    fio.push_back(peer);
  }
  const auto of = [](const auto& runs, auto member) {
    std::vector<double> values;
    for (const auto& run : runs) values.push_back(run.*member);
    return median(std::move(values));
  };
  Compared result;
  result.depth = depth;
  result.ours = {ours.front().how, of(ours, &Reads::per_second), of(ours, &Reads::cpu_microseconds),
                 of(ours, &Reads::p50), of(ours, &Reads::p99)};
  if (!fio.empty()) {
    result.fio =
        FioReads{of(fio, &FioReads::per_second), of(fio, &FioReads::cpu_microseconds),
                 of(fio, &FioReads::p50), of(fio, &FioReads::p90), of(fio, &FioReads::p99)};
  }
  return result;
}

// The rows of one token at a time: from asking to having them.
Result<LatencyHistogram> token_times(const Model& model, const PleArguments& arguments) {
  TableOptions options = arguments.table;
  options.cache_bytes = 0;
  STRATA_ASSIGN(const auto reader,
                open_row_reader(real_files(), *model.file, *model.table, options));
  std::mt19937_64 random(1);
  LatencyHistogram times;
  std::vector<std::uint64_t> keys(kTokenRows);
  const double start = monotonic_seconds();
  while (monotonic_seconds() - start < arguments.seconds) {
    for (std::uint64_t& key : keys) key = random() % model.rows();
    const double asked = monotonic_seconds();
    STRATA_ASSIGN(RowTicket ticket, reader->request(keys));
    STRATA_TRY(ticket.wait());
    times.add(static_cast<std::uint64_t>((monotonic_seconds() - asked) * 1e6));
  }
  return times;
}

// ---- hits of a text

struct Hits {
  std::uint64_t cache_mib = 0, cache_rows = 0, rows = 0, hits = 0;
};

// Which rows of a text, read token by token, a cache would have had; starting empty.
Result<std::vector<Hits>> text_hits(const Model& model, const PleArguments& arguments) {
  STRATA_ASSIGN(const std::string text, real_files().read_text(arguments.text));
  STRATA_ASSIGN(const Tokenizer tokenizer, Tokenizer::from_gguf(model.file->metadata));
  STRATA_ASSIGN(const HyperParams params, hyperparams_from_gguf(model.file->metadata));
  if (params.ngram_layers.empty())
    return fail(ErrorCode::corrupt, "'{}' has a table but no layer that reads it", arguments.model);
  const NgramLayer& layer = params.ngram_layers.front();
  STRATA_ASSIGN(const NgramHash hash, NgramHash::create(layer.multipliers, layer.head_vocab_sizes,
                                                        layer.head_offsets, params.ngram_eos));
  const std::vector<TokenId> ids = tokenizer.encode(text, Specials::none);
  const Bytes row(model.row_bytes());
  std::vector<Hits> all;
  for (const std::uint64_t mib : arguments.caches) {
    STRATA_ASSIGN(RowCache cache, RowCache::create(mib * kMiB, row.size(), model.rows()));
    Hits hits{mib, cache.capacity(), 0, 0};
    std::vector<std::uint64_t> rows(hash.heads());
    std::vector<std::int32_t> previous;
    for (const TokenId id : ids) {
      hash.rows(id, previous, rows);
      previous.insert(previous.begin(), id);
      if (previous.size() >= hash.ngram_size()) previous.pop_back();
      for (const std::uint64_t r : rows) {
        ++hits.rows;
        if (cache.find(r).bytes)
          ++hits.hits;
        else
          cache.insert(r, row, false);
      }
    }
    all.push_back(hits);
  }
  return all;
}

// ---- output

void print_reads(const std::vector<Compared>& all) {
  fmt::print(
      "\n| reads under way | reads/s | fio | share | CPU us a read | fio | ratio | p50 us | fio | "
      "p99 us | fio |\n| ---: |");
  for (int i = 0; i < 10; ++i) fmt::print(" ---: |");
  fmt::print("\n");
  for (const Compared& c : all) {
    const auto peer = [&](double FioReads::* member, int digits) {
      return c.fio ? fmt::format("{:.{}f}", *c.fio.*member, digits) : std::string("-");
    };
    const auto ratio = [&](double ours, double FioReads::* member, double scale, int digits) {
      return c.fio ? fmt::format("{:.{}f}", scale * ours / (*c.fio.*member), digits)
                   : std::string("-");
    };
    fmt::print("| {} | {:.0f} | {} | {} % | {:.1f} | {} | {} | {:.0f} | {} | {:.0f} | {} |\n",
               c.depth, c.ours.per_second, peer(&FioReads::per_second, 0),
               ratio(c.ours.per_second, &FioReads::per_second, 100, 0), c.ours.cpu_microseconds,
               peer(&FioReads::cpu_microseconds, 1),
               ratio(c.ours.cpu_microseconds, &FioReads::cpu_microseconds, 1, 2), c.ours.p50,
               peer(&FioReads::p50, 0), c.ours.p99, peer(&FioReads::p99, 0));
  }
}

boost::json::object json_of(const Compared& c) {
  boost::json::object out = {{"depth", c.depth},
                             {"reads_per_s", c.ours.per_second},
                             {"cpu_us", c.ours.cpu_microseconds},
                             {"p50_us", c.ours.p50},
                             {"p99_us", c.ours.p99}};
  if (c.fio) {
    out["fio"] = boost::json::object{{"reads_per_s", c.fio->per_second},
                                     {"cpu_us", c.fio->cpu_microseconds},
                                     {"p50_us", c.fio->p50},
                                     {"p99_us", c.fio->p99}};
  }
  return out;
}

// Both commands are about reads from the disk; nothing is claimed of a mode that has none.
Status check_mode(const PleArguments& arguments) {
  const TableMode mode = arguments.table.mode;
  if (mode == TableMode::mapped || mode == TableMode::resident) {
    return fail(ErrorCode::invalid_argument,
                "'strata ple' reads the table from the disk: --ngram-table is direct or threads");
  }
  return {};
}

Result<int> run_bench(const PleArguments& arguments) {
  set_log_level("warning");
  STRATA_TRY(check_mode(arguments));
  for (const std::uint32_t depth : arguments.depths) {
    if (arguments.table.mode != TableMode::threads || depth <= kMaxReadThreads) continue;
    return fail(ErrorCode::invalid_argument,
                "--depths asks for {} reads under way, but with --ngram-table threads there are at "
                "most {}",
                depth, kMaxReadThreads);
  }
  STRATA_ASSIGN(const Model model, Model::open(arguments.model));
  const bool with_fio = has_fio();
  std::vector<Compared> reads;
  terminal::Progress progress(arguments.progress && !arguments.json, "random reads");
  const std::size_t jobs = arguments.depths.size() + 1;
  for (const std::uint32_t depth : arguments.depths) {
    progress.update(reads.size(), jobs, fmt::format("{} under way", depth));
    STRATA_ASSIGN(Compared one, compare(model, arguments, depth, with_fio));
    reads.push_back(std::move(one));
  }
  progress.update(reads.size(), jobs, "a token's rows");
  STRATA_ASSIGN(const LatencyHistogram token, token_times(model, arguments));
  std::vector<Hits> hits;
  if (!arguments.text.empty()) {
    progress.next("counting rows of the text");
    progress.update(0, 0);
    STRATA_ASSIGN(hits, text_hits(model, arguments));
  }
  progress.clear();
  if (arguments.json) {
    boost::json::array rows, caches;
    for (const Compared& c : reads) rows.push_back(json_of(c));
    for (const Hits& h : hits) {
      caches.push_back({{"cache_mib", h.cache_mib},
                        {"cache_rows", h.cache_rows},
                        {"rows", h.rows},
                        {"hits", h.hits}});
    }
    const boost::json::object out = {{"file", model.path()},
                                     {"table_bytes", model.table->data.size()},
                                     {"rows", model.rows()},
                                     {"row_bytes", model.row_bytes()},
                                     {"how", reads.empty() ? "" : reads.front().ours.how},
                                     {"version", version_text()},
                                     {"reads", rows},
                                     {"token_rows", kTokenRows},
                                     {"token_p50_us", token.percentile(0.5)},
                                     {"token_p99_us", token.percentile(0.99)},
                                     {"text", caches}};
    fmt::print("{}\n", boost::json::serialize(out));
    return 0;
  }
  fmt::print("{}: {} rows of {} bytes, {:.1f} MB; {}; medians of {} runs of {} s{}\n", model.path(),
             model.rows(), model.row_bytes(), double(model.table->data.size()) / 1e6,
             reads.empty() ? "" : reads.front().ours.how, arguments.rounds, arguments.seconds,
             with_fio ? ", fio by turns" : "; fio is not installed");
  print_reads(reads);
  fmt::print("\n{} random rows at once, from asking to having them: p50 {} us, p99 {} us\n",
             kTokenRows, token.percentile(0.5), token.percentile(0.99));
  for (const Hits& h : hits) {
    fmt::print("{}: {} rows read, a cache of {} MiB ({} rows) has {:.1f} % of them\n",
               arguments.text, h.rows, h.cache_mib, h.cache_rows,
               100.0 * double(h.hits) / double(std::max<std::uint64_t>(h.rows, 1)));
  }
  return 0;
}

// ---- verify

// The first, the last and random rows (or all), in bulk and in random order, against plain reads.
Result<int> run_verify(const PleArguments& arguments) {
  set_log_level("warning");
  STRATA_TRY(check_mode(arguments));
  STRATA_ASSIGN(const Model model, Model::open(arguments.model));
  STRATA_ASSIGN(const RowFormat format, RowFormat::of(model.file->metadata, *model.table));
  STRATA_ASSIGN(const auto reader,
                open_row_reader(real_files(), *model.file, *model.table, arguments.table));
  STRATA_ASSIGN(const std::unique_ptr<File> file, real_files().open(model.path()));
  const bool all = arguments.rows == 0;
  const std::uint64_t count =
      all ? model.rows() : std::min(std::min(arguments.rows, model.rows()) + 2, model.rows());
  std::mt19937_64 random(7);
  Bytes right(model.row_bytes());
  std::vector<float> values(format.width());
  std::uint64_t checked = 0, odd = 0;
  terminal::Progress progress(arguments.progress && !arguments.json, "comparing rows");
  while (checked < count) {
    progress.update(checked, count);
    std::vector<std::uint64_t> keys(std::min<std::uint64_t>(count - checked, 4096));
    for (std::uint64_t& key : keys) {
      const std::uint64_t i = checked++;
      key = all ? i : i == 0 ? 0 : i == 1 ? model.rows() - 1 : random() % model.rows();
    }
    if (checked % 3 == 0) reader->prefetch(keys);
    STRATA_ASSIGN(RowTicket ticket, reader->request(keys));
    STRATA_TRY(ticket.wait());
    for (std::size_t i = 0; i < keys.size(); ++i) {
      const auto got = ticket.row(i);
      STRATA_TRY(file->read_exact(model.table->file_offset + keys[i] * right.size(), right));
      if (!std::equal(right.begin(), right.end(), got.begin())) {
        return fail(ErrorCode::corrupt, "row {} of '{}' is not what the file holds", keys[i],
                    model.path());
      }
      STRATA_TRY(format.decode_row(got, values));
      odd += std::any_of(values.begin(), values.end(), [](float v) { return !std::isfinite(v); });
    }
  }
  progress.clear();
  const TableStats stats = reader->stats();
  if (odd > 0) {
    return fail(ErrorCode::corrupt,
                "{} of {} rows hold values that are no numbers; the table may be "
                "damaged",
                odd, checked);
  }
  if (arguments.json) {
    const boost::json::object out = {{"file", model.path()},
                                     {"rows", model.rows()},
                                     {"compared", checked},
                                     {"how", stats.how},
                                     {"reads", stats.reads},
                                     {"read_bytes", stats.read_bytes},
                                     {"cache_hits", stats.rows.cache_hits},
                                     {"joined", stats.rows.joined}};
    fmt::print("{}\n", boost::json::serialize(out));
    return 0;
  }
  fmt::print("{} of {} rows of '{}' read by {}: the bytes are the file's\n", checked, model.rows(),
             model.path(), stats.how);
  fmt::print("{} reads, {:.1f} MB, {} rows from the cache, {} joined\n", stats.reads,
             double(stats.read_bytes) / 1e6, stats.rows.cache_hits, stats.rows.joined);
  return 0;
}

CLI::Option* add_file(CLI::App& command, std::string& path) {
  return command.add_option("FILE", path, "A model file with an n-gram table")
      ->required()
      ->check(CLI::Validator(not_empty("the model path"), ""));
}

}  // namespace

void register_ple(CLI::App& app, Invocation& invocation) {
  auto arguments = std::make_shared<PleArguments>();
  CLI::App* ple =
      app.add_subcommand("ple", "Measure and check a model's n-gram table on this machine's disk");
  ple->require_subcommand(1);
  CLI::App* bench = ple->add_subcommand("bench", "Random reads, beside fio where it is installed");
  add_file(*bench, arguments->model);
  bench->add_option("--depths", arguments->depths, "Reads under way (default 1,16,64)")
      ->delimiter(',')
      ->check(CLI::Validator(whole_number_between(1, kMaxReadDepth), ""));
  bench->add_option("--seconds", arguments->seconds, "Of each run (default 2)")
      ->check(CLI::Validator(whole_number_between(1, 600), ""));
  bench->add_option("--rounds", arguments->rounds, "Runs of each depth (default 3)")
      ->check(CLI::Validator(whole_number_between(1, 99), ""));
  bench->add_option("--text", arguments->text, "A text whose rows are counted against caches")
      ->type_name("FILE");
  bench->add_option("--caches", arguments->caches, "Their sizes in MiB (default 16,64,128,512)")
      ->delimiter(',')
      ->check(CLI::Validator(whole_number_between(1, 1 << 20), ""));
  add_json_option(*bench, arguments->json, "One JSON object instead of tables");
  add_progress_option(*bench, arguments->progress);
  CLI::App* verify = ple->add_subcommand("verify", "Compare rows with what plain reads give");
  add_file(*verify, arguments->model);
  verify->add_option("--rows", arguments->rows, "Random rows, 0 for all (default 20000)")
      ->check(CLI::Validator(whole_number_up_to(INT64_MAX), ""));
  add_json_option(*verify, arguments->json);
  add_progress_option(*verify, arguments->progress);
  add_table_mode(*bench, arguments->table.mode);  // it sets depth and cache itself
  add_table_options(*verify, arguments->table);
  bench->callback(
      [arguments, &invocation] { invocation.run = [arguments] { return run_bench(*arguments); }; });
  verify->callback([arguments, &invocation] {
    invocation.run = [arguments] { return run_verify(*arguments); };
  });
}

}  // namespace strata
