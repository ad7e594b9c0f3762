// What is sampled: named values that a source reads together. Nothing here knows what is counted.
#pragma once

#include <boost/json/object.hpp>
#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace strata::telemetry {

inline constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

// One line of a plot. Fields of one group and unit belong together.
struct Field {
  std::string name;
  std::string unit;  // "%", "B", "B/s", "tokens/s", "°C", "W", ...
  std::string group;
  // As Prometheus' metric (prometheus.h, Family): its name, labels as `gpu="0"`, and what a value
  // is multiplied with. No name: it is not one.
  std::string metric = {};
  std::string labels = {};
  double scale = 1;
};

class Source {
 public:
  virtual ~Source() = default;
  // Fixed while the source lives.
  const std::vector<Field>& fields() const { return fields_; }
  // Writes a value a field; what is not written stays unknown. `seconds` have passed since the last
  // reading; 0: it is the first, or too long ago for a rate to mean anything.
  virtual void read(double seconds, std::span<double> values) = 0;
  // Nobody looks for a while: lets go of what keeps a device awake.
  virtual void rest() {}
  // What does not change, read when the source was made.
  virtual void add_facts(boost::json::object& facts) const { (void)facts; }

 protected:
  std::vector<Field> fields_;
};

using Sources = std::vector<std::unique_ptr<Source>>;

// A counter as growth a second. Unknown at first, after a pause, and where it has fallen.
class Rate {
 public:
  double operator()(std::optional<double> now, double seconds) {
    const std::optional<double> before = last_;
    last_ = now;
    if (!now || !before || seconds <= 0 || *now < *before) return kUnknown;
    return (*now - *before) / seconds;
  }

 private:
  std::optional<double> last_;
};

}  // namespace strata::telemetry
