#include "server/telemetry_api.h"

#include <unistd.h>

#include <charconv>

#include "server/query.h"
#include "server/status_api.h"

namespace strata::server {

namespace json = boost::json;
using telemetry::kUnknown;
using telemetry::Rate;

namespace {

constexpr std::size_t kDepths = 5;  // of guesses, that have a line each

// What the server counts, as fields. Only counters are read: nothing waits for the engine.
class Answers final : public telemetry::Source {
 public:
  explicit Answers(std::function<ServicePtr()> service) : service_(std::move(service)) {
    const auto add = [&](std::string name, std::string unit, std::string group) {
      fields_.push_back({std::move(name), std::move(unit), std::move(group)});
    };
    add("Prompts read", "tokens/s", "Speed");
    add("Answers written", "tokens/s", "Speed");
    add("Running", "requests", "Requests");
    add("Waiting", "requests", "Requests");
    add("Guesses that were right", "%", "Drafts");
    for (std::size_t i = 1; i <= kDepths; ++i) add(fmt::format("At depth {}", i), "%", "Drafts");
    add("From memory", "tokens/s", "Prompt cache");
    add("From disk", "tokens/s", "Prompt cache");
    add("Read anew", "tokens/s", "Prompt cache");
    add("Weights", "B", "Memory");
    add("Kept conversations", "B", "Memory");
    add("Running requests", "B", "Memory");
    add("N-gram rows", "B", "Memory");
    add("Kept prompts", "B", "Memory");
    add("Kept conversations", "B", "Disk");
    add("Rows needed", "rows/s", "N-gram table");
    add("Rows read when needed", "rows/s", "N-gram table");
    add("Rows read ahead", "rows/s", "N-gram table");
    add("Waits", "ms/s", "N-gram waits");
  }

  void read(double seconds, std::span<double> values) override {
    const ServicePtr service = service_();
    if (service == nullptr) return;
    std::size_t at = 0;
    const auto put = [&](double value) { values[at++] = value; };
    const AnswerTimes& times = service->times();
    const double read = rate(read_, times.tokens_read, seconds);
    put(read);
    put(rate(written_, times.tokens_written, seconds));
    const Load load = load_of(service->answers());
    put(static_cast<double>(load.running));
    put(static_cast<double>(load.waiting));

    const EngineCounters engine = service->engine_counters();
    const auto& drafts = engine.drafts;
    put(share(rate(accepted_[kDepths], drafts.accepted, seconds),
              rate(drafted_[kDepths], drafts.drafted, seconds)));
    for (std::size_t i = 0; i < kDepths; ++i) {
      put(share(rate(accepted_[i], drafts.accepted_at[i], seconds),
                rate(drafted_[i], drafts.drafted_at[i], seconds)));
    }
    const std::uint64_t disk = engine.cache.disk_tokens;
    put(rate(from_memory_, engine.cache.tokens - std::min(disk, engine.cache.tokens), seconds));
    put(rate(from_disk_, disk, seconds));
    put(read);
    add_memory(*service, engine, put);
    add_tables(engine, seconds, put);
  }

 private:
  template <class Put>
  void add_memory(const Service& service, const EngineCounters& engine, const Put& put) {
    std::uint64_t rows = 0;
    for (const TableStats& table : engine.ngram_tables) rows += table.memory_bytes;
    const bool up = engine_health(service).up();
    put(up ? static_cast<double>(service.facts().weight_bytes) : 0);
    put(static_cast<double>(engine.cache.bytes));
    put(static_cast<double>(engine.reserved_bytes));
    put(static_cast<double>(rows));
    put(static_cast<double>(service.encoder_counters().held_bytes));
    put(static_cast<double>(engine.cache.disk_bytes));
  }
  template <class Put>
  void add_tables(const EngineCounters& engine, double seconds, const Put& put) {
    std::uint64_t needed = 0, read = 0, ahead = 0;
    double waited = 0;
    for (const TableStats& table : engine.ngram_tables) {
      needed += table.rows.requested;
      read += table.rows.read;
      ahead += table.prefetched;
      waited += table.rows.wait_seconds;
    }
    put(rate(needed_, needed, seconds));
    put(rate(rows_, read, seconds));
    put(rate(ahead_, ahead, seconds));
    put(1e3 * waited_(waited, seconds));
  }

  static double rate(Rate& rate, std::uint64_t now, double seconds) {
    return rate(static_cast<double>(now), seconds);
  }
  // Of nothing there is no share.
  static double share(double part, double whole) {
    return whole > 0 ? std::min(100.0, 100 * part / whole) : kUnknown;
  }

  std::function<ServicePtr()> service_;
  Rate read_, written_, from_memory_, from_disk_, needed_, rows_, ahead_, waited_;
  std::array<Rate, kDepths + 1> drafted_, accepted_;  // the last one: all depths
};

std::string samples_text(const telemetry::Sampler::Samples& samples) {
  std::string text = "[";
  const std::size_t width = samples.fields.size();
  for (std::size_t i = 0; i < samples.times.size(); ++i) {
    fmt::format_to(std::back_inserter(text), "{}[{:.3f}", i == 0 ? "" : ",", samples.times[i]);
    for (const float value : std::span(samples.values).subspan(i * width, width)) {
      if (std::isfinite(value)) {
        fmt::format_to(std::back_inserter(text), ",{:.5g}", value);
      } else {
        text += ",null";
      }
    }
    text += ']';
  }
  return text + "]";
}

}  // namespace

std::unique_ptr<telemetry::Sampler> make_sampler(TelemetryOptions options,
                                                 std::function<ServicePtr()> service) {
  telemetry::Sampler::Options sampler;
  sampler.busy = [service] {
    const ServicePtr now = service();
    return now != nullptr && !now->answers().empty();
  };
  sampler.sources = [options = std::move(options), service] {
    std::vector<telemetry::WatchedProcess> processes = {
        {"Server", "server", [] { return static_cast<int>(::getpid()); }}};
    if (options.engine_apart) {
      processes.push_back({"Engine", "engine", [service] {
                             const ServicePtr now = service();
                             return now == nullptr ? 0 : engine_health(*now).pid;
                           }});
    }
    telemetry::Sources sources;
    sources.push_back(std::make_unique<Answers>(service));
    for (auto& source : telemetry::machine_sources(options.roots, std::move(processes)))
      sources.push_back(std::move(source));
    return sources;
  };
  return std::make_unique<telemetry::Sampler>(std::move(sampler));
}

void serve_telemetry(telemetry::Sampler* sampler, const HttpRequest& request,
                     const Writer& writer) {
  if (sampler == nullptr) {
    return send_openai_error(
        *writer, {501, "this server takes no samples ('telemetry' is off)", {}, "not_supported"});
  }
  std::uint64_t since = 0;
  if (const auto text = query_value(request.query, "since")) {
    const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), since);
    if (text->empty() || error != std::errc() || end != text->data() + text->size()) {
      return send_openai_error(*writer,
                               {400, "'since' must be the 'seq' of an answer before", "since", {}});
    }
  }
  sampler->look();
  const telemetry::Sampler::Samples samples = sampler->since(since);
  json::array fields;
  for (const telemetry::Field& field : samples.fields)
    fields.push_back({{"name", field.name}, {"unit", field.unit}, {"group", field.group}});
  json::object head = {{"seq", samples.seq},
                       {"interval_s", 1},
                       {"fields", std::move(fields)},
                       {"facts", samples.facts}};
  HttpResponse response;
  response.body = json::serialize(head);
  response.body.pop_back();
  response.body.append(",\"samples\":").append(samples_text(samples)).append("}");
  writer->send(std::move(response));
}

}  // namespace strata::server
