// Temperatures (hwmon, else thermal zones) and the processors' energy counters (RAPL).
#include <algorithm>
#include <array>
#include <charconv>

#include "telemetry/kept_file.h"
#include "telemetry/machine.h"
#include "telemetry/sensor_values.h"

namespace strata::telemetry {
namespace {

constexpr std::array<std::string_view, 5> kProcessorChips = {"coretemp", "k10temp", "zenpower",
                                                             "cpu_thermal", "cpu"};

bool is_processor(std::string_view chip) {
  return std::find(kProcessorChips.begin(), kProcessorChips.end(), chip) != kProcessorChips.end();
}

struct Thermometer {
  std::string name;
  std::string path;
};

// The package of a processor, where it is named, else the first sensor of a chip.
std::string main_temperature(const std::string& folder, std::string_view chip) {
  constexpr std::size_t kMostLabels = 64;
  if (is_processor(chip)) {
    for (const std::string& name : names_in(folder, "temp", kMostLabels)) {
      if (!name.ends_with("_label")) continue;
      const std::string label = line_of(folder + "/" + name);
      if (label == "Tctl" || label == "Tdie" || label.starts_with("Package"))
        return folder + "/" + name.substr(0, name.size() - 5) + "input";
    }
  }
  return folder + "/temp1_input";
}

std::vector<Thermometer> thermometers(const Roots& roots) {
  constexpr std::size_t kMostChips = 64;
  std::vector<Thermometer> processors, others;
  const std::string chips = roots.sys + "/class/hwmon";
  for (const std::string& name : names_in(chips, "hwmon", kMostChips)) {
    const std::string folder = chips + "/" + name;
    const std::string chip = line_of(folder + "/name", 64);
    if (chip.empty() || chip == "amdgpu") continue;  // cards are read as such
    auto& list = is_processor(chip) ? processors : others;
    list.push_back({is_processor(chip) ? "Processor" : chip, main_temperature(folder, chip)});
  }
  if (processors.empty()) {
    const std::string zones = roots.sys + "/class/thermal";
    for (const std::string& name : names_in(zones, "thermal_zone", kMostChips)) {
      const std::string type = line_of(zones + "/" + name + "/type", 64);
      if (!type.empty()) processors.push_back({type, zones + "/" + name + "/temp"});
    }
  }
  processors.insert(processors.end(), others.begin(), others.end());
  return processors;
}

class Sensors final : public Source {
 public:
  explicit Sensors(const Roots& roots) {
    add_temperatures(roots);
    add_energy(roots);
  }

  void read(double seconds, std::span<double> values) override {
    std::size_t at = 0;
    for (KeptFile& file : temperatures_) values[at++] = celsius(file.read(buffer_));
    for (Zone& zone : zones_) values[at++] = watts(zone, seconds);
  }

  void add_facts(boost::json::object& facts) const override {
    if (locked_)
      facts["power"] = "the processors' energy counters are there, but only root may read them";
  }

 private:
  struct Zone {
    KeptFile file;
    std::uint64_t range = 0;  // where the counter begins anew
    std::optional<std::uint64_t> last;
  };

  void add_temperatures(const Roots& roots) {
    for (auto& [name, path] : thermometers(roots)) {
      if (temperatures_.size() == kMostSensors) break;
      KeptFile file(path);
      if (!file.there()) continue;
      temperatures_.push_back(std::move(file));
      const std::string shown = numbered(name, "°C");
      fields_.push_back({shown, "°C", "Temperatures", "strata_machine_temperature_celsius",
                         "sensor=\"" + escaped_label(shown) + "\""});
    }
  }

  void add_energy(const Roots& roots) {
    constexpr std::size_t kMostZones = 64;
    const std::string folder = roots.sys + "/class/powercap";
    for (const std::string& name : names_in(folder, "intel-rapl:", kMostZones)) {
      if (zones_.size() == kMostEnergyZones) break;
      const std::string zone = folder + "/" + name;
      const std::string what = line_of(zone + "/name", 64);
      const bool part = std::count(name.begin(), name.end(), ':') > 1;
      if (what.empty() || (part && what != "dram")) continue;  // cores are part of the package
      KeptFile file(zone + "/energy_uj");
      if (!file.there()) {
        locked_ = true;
        continue;
      }
      zones_.push_back({std::move(file), number_of(zone + "/max_energy_range_uj").value_or(0), {}});
      const std::string shown = numbered(what, "W");
      fields_.push_back({shown, "W", "Power", "strata_machine_power_watts",
                         "zone=\"" + escaped_label(shown) + "\""});
    }
  }

  // Names are told apart by a number where two are the same.
  std::string numbered(const std::string& name, std::string_view unit) const {
    const auto same = [&](const std::string& wanted) {
      return std::any_of(fields_.begin(), fields_.end(), [&](const Field& field) {
        return field.name == wanted && field.unit == unit;
      });
    };
    std::string shown = name;
    for (int n = 2; same(shown); ++n) shown = name + " " + std::to_string(n);
    return shown;
  }

  double watts(Zone& zone, double seconds) {
    const auto now = zone.file.number(buffer_);
    const auto before = std::exchange(zone.last, now);
    if (!now || !before || seconds <= 0) return kUnknown;
    std::uint64_t used = *now - *before;
    if (*now < *before) {
      if (zone.range < *before) return kUnknown;
      used = zone.range - *before + *now;
    }
    return 1e-6 * static_cast<double>(used) / seconds;
  }

  ReadBuffer buffer_{};
  std::vector<KeptFile> temperatures_;
  std::vector<Zone> zones_;
  bool locked_ = false;
};

}  // namespace

double celsius(std::string_view text) {
  constexpr double kLeast = -50, kMost = 200;  // what else it says is no temperature
  const std::size_t minus = text.starts_with('-') ? 1 : 0;
  const auto thousandths = leading_number(text.substr(minus));
  if (!thousandths) return kUnknown;
  const double value = (minus == 1 ? -1e-3 : 1e-3) * static_cast<double>(*thousandths);
  return value < kLeast || value > kMost ? kUnknown : value;
}

std::unique_ptr<Source> sensor_source(const Roots& roots) {
  return std::make_unique<Sensors>(roots);
}

}  // namespace strata::telemetry
