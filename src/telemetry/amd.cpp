// AMD's graphics cards, through sysfs.
#include <algorithm>

#include "telemetry/card_fields.h"
#include "telemetry/kept_file.h"
#include "telemetry/machine.h"
#include "telemetry/sensor_values.h"

namespace strata::telemetry {
namespace {

struct Card {
  std::string product;
  std::optional<std::uint64_t> memory, power_cap;
  KeptFile state, load, used, total, temperature, power;
};

// "card0", not "card0-DP-1", which is a connector.
bool is_card(std::string_view name) {
  return name.size() > 4 && name.substr(4).find_first_not_of("0123456789") == name.npos;
}

std::optional<Card> open_card(const std::string& device) {
  if (line_of(device + "/vendor", 16) != "0x1002") return {};
  Card card;
  card.load = KeptFile(device + "/gpu_busy_percent");
  card.used = KeptFile(device + "/mem_info_vram_used");
  if (!card.load.there() && !card.used.there()) return {};  // another driver's
  card.product = line_of(device + "/product_name", 64);
  if (card.product.empty()) card.product = "AMD " + line_of(device + "/device", 16);
  card.memory = number_of(device + "/mem_info_vram_total");
  card.total = KeptFile(device + "/mem_info_vram_total");
  card.state = KeptFile(device + "/power/runtime_status");
  const auto sensors = names_in(device + "/hwmon", "hwmon", 1);
  if (sensors.empty()) return card;
  const std::string folder = device + "/hwmon/" + sensors.front();
  card.temperature = KeptFile(folder + "/temp1_input");
  card.power = KeptFile(folder + "/power1_average");
  if (!card.power.there()) card.power = KeptFile(folder + "/power1_input");
  card.power_cap = number_of(folder + "/power1_cap");
  return card;
}

class AmdCards final : public Source {
 public:
  explicit AmdCards(const Roots& roots) {
    constexpr std::size_t kMostNames = 256;
    const std::string folder = roots.sys + "/class/drm";
    for (const std::string& name : names_in(folder, "card", kMostNames)) {
      if (!is_card(name) || cards_.size() == kMostCards) continue;
      auto card = open_card(folder + "/" + name + "/device");
      if (!card) continue;
      cards_.push_back(std::move(*card));
      const std::string number = std::to_string(cards_.size() - 1);
      add_card_fields(fields_, "AMD " + number, "amd" + number);
    }
  }

  void read(double, std::span<double> values) override {
    for (Card& card : cards_) {
      read_card(card, values.first(kCardFields));
      values = values.subspan(kCardFields);
    }
  }

  void add_facts(boost::json::object& facts) const override {
    for (const Card& card : cards_) {
      boost::json::object fact = {{"name", card.product}};
      if (card.memory) fact["memory_bytes"] = *card.memory;
      if (card.power_cap) fact["power_limit_w"] = 1e-6 * static_cast<double>(*card.power_cap);
      add_card_fact(facts, std::move(fact));
    }
  }

 private:
  void read_card(Card& card, std::span<double> values) {
    // To ask a card that sleeps would wake it.
    if (card.state.read(buffer_).starts_with("suspended")) return;
    const auto put = [&](CardField field, std::optional<std::uint64_t> value, double scale) {
      if (value) values[field] = scale * static_cast<double>(*value);
    };
    put(kCardLoad, card.load.number(buffer_), 1);
    if (values[kCardLoad] > 100) values[kCardLoad] = kUnknown;
    put(kCardUsed, card.used.number(buffer_), 1);
    put(kCardTotal, card.total.number(buffer_), 1);
    put(kCardPower, card.power.number(buffer_), 1e-6);
    if (card.temperature.there())
      values[kCardTemperature] = celsius(card.temperature.read(buffer_));
  }

  ReadBuffer buffer_{};
  std::vector<Card> cards_;
};

}  // namespace

std::unique_ptr<Source> amd_source(const Roots& roots) {
  return std::make_unique<AmdCards>(roots);
}

}  // namespace strata::telemetry
