// The fields of a graphics card, the same for every maker.
#pragma once

#include "telemetry/source.h"

namespace strata::telemetry {

// As add_card_fields() orders them.
enum CardField : std::size_t { kCardLoad, kCardUsed, kCardTotal, kCardTemperature, kCardPower };
inline constexpr std::size_t kCardFields = 5;

inline void add_card_fields(std::vector<Field>& fields, const std::string& name,
                            const std::string& label) {
  const std::string labels = "gpu=\"" + label + "\"";
  fields.push_back({name, "%", "Graphics cards", "strata_gpu_busy_ratio", labels, 0.01});
  fields.push_back(
      {name + ", taken", "B", "Graphics memory", "strata_gpu_memory_used_bytes", labels});
  fields.push_back(
      {name + ", total", "B", "Graphics memory", "strata_gpu_memory_total_bytes", labels});
  fields.push_back({name, "°C", "Temperatures", "strata_gpu_temperature_celsius", labels});
  fields.push_back({name, "W", "Power", "strata_gpu_power_watts", labels});
}

// Behind what other makers' cards have put there.
inline void add_card_fact(boost::json::object& facts, boost::json::object card) {
  if (!facts.contains("graphics_cards")) facts["graphics_cards"] = boost::json::array();
  facts["graphics_cards"].as_array().push_back(std::move(card));
}

}  // namespace strata::telemetry
