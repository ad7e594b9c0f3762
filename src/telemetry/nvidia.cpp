// NVIDIA's graphics cards, through its management library.
#include <dlfcn.h>
#include <string.h>

#include <array>

#include "telemetry/card_fields.h"
#include "telemetry/machine.h"
#include "telemetry/nvml.h"

namespace strata::telemetry {
namespace {

constexpr int kSuccess = 0;

// Text that the library has written, which need not be ended.
template <std::size_t Size>
std::string text_of(const std::array<char, Size>& buffer) {
  std::string text(buffer.data(), strnlen(buffer.data(), buffer.size()));
  for (char& c : text)
    if (c < ' ' || c > '~') c = '?';
  return text;
}

class NvidiaCards final : public Source {
 public:
  explicit NvidiaCards(Result<Nvml> nvml) {
    if (!nvml) {
      fact_ = nvml.error().message;
      return;
    }
    nvml_ = std::move(*nvml);
    if (!begin()) return;
    std::array<char, 96> text{};
    if (nvml_.driver_version(text.data(), text.size()) == kSuccess)
      fact_ = "driver " + text_of(text);
    for (std::size_t i = 0; i < cards_.size(); ++i) {
      const std::string number = std::to_string(i);
      add_card_fields(fields_, "NVIDIA " + number, "nvidia" + number);
      add_fact(cards_[i]);
    }
  }
  ~NvidiaCards() override { rest(); }

  void read(double, std::span<double> values) override {
    if (fields_.empty() || (!begun_ && !begin())) return;
    for (const NvmlDevice card : cards_) {
      if (values.size() < kCardFields) return;  // a card that has come since
      read_card(card, values.first(kCardFields));
      values = values.subspan(kCardFields);
    }
  }

  // The library holds the driver's devices open, and a card that could sleep awake.
  void rest() override {
    if (begun_) nvml_.shutdown();
    begun_ = false;
    cards_.clear();
  }

  void add_facts(boost::json::object& facts) const override {
    facts["nvidia"] = fact_;
    for (const auto& card : card_facts_) add_card_fact(facts, card);
  }

 private:
  bool begin() {
    if (const int status = nvml_.init(); status != kSuccess) {
      const char* why = nvml_.error_string(status);
      fact_ = std::string("the driver does not answer: ") + (why == nullptr ? "no reason" : why);
      return false;
    }
    begun_ = true;
    unsigned count = 0;
    if (nvml_.device_count(&count) != kSuccess) count = 0;
    for (unsigned i = 0; i < count && i < kMostCards; ++i) {
      NvmlDevice card = nullptr;
      if (nvml_.device_at(i, &card) == kSuccess) cards_.push_back(card);
    }
    return true;
  }

  bool read_memory(NvmlDevice card, NvmlMemory2& memory) const {
    if (nvml_.memory2 != nullptr && nvml_.memory2(card, &memory) == kSuccess) return true;
    NvmlMemory older;  // of drivers before 510
    if (nvml_.memory(card, &older) != kSuccess) return false;
    memory.total = older.total;
    memory.used = older.used;
    return true;
  }

  void add_fact(NvmlDevice card) {
    boost::json::object fact;
    std::array<char, 96> text{};
    if (nvml_.name(card, text.data(), text.size()) == kSuccess) fact["name"] = text_of(text);
    NvmlMemory2 memory;
    if (read_memory(card, memory)) fact["memory_bytes"] = memory.total;
    unsigned limit = 0;
    if (nvml_.power_limit(card, &limit) == kSuccess) fact["power_limit_w"] = 1e-3 * limit;
    card_facts_.push_back(std::move(fact));
  }

  void read_card(NvmlDevice card, std::span<double> values) {
    NvmlUtilization load;
    if (nvml_.utilization(card, &load) == kSuccess && load.gpu <= 100) values[kCardLoad] = load.gpu;
    NvmlMemory2 memory;
    if (read_memory(card, memory)) {
      values[kCardUsed] = static_cast<double>(memory.used);
      values[kCardTotal] = static_cast<double>(memory.total);
    }
    unsigned degrees = 0;
    if (nvml_.temperature(card, 0, &degrees) == kSuccess) values[kCardTemperature] = degrees;
    unsigned milliwatts = 0;
    if (nvml_.power(card, &milliwatts) == kSuccess) values[kCardPower] = 1e-3 * milliwatts;
  }

  Nvml nvml_;
  bool begun_ = false;
  std::vector<NvmlDevice> cards_;
  std::string fact_;
  std::vector<boost::json::object> card_facts_;
};

}  // namespace

Result<Nvml> open_nvml(const std::string& library) {
  Nvml nvml;
  void* handle = ::dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) return fail(ErrorCode::not_found, "no NVIDIA driver");
  nvml.library = std::shared_ptr<void>(handle, [](void* open) { ::dlclose(open); });
  std::string missing;
  const auto find = [&](auto& function, const char* name) {
    void* symbol = ::dlsym(handle, name);
    if (symbol == nullptr && missing.empty()) missing = name;
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(symbol);
  };
  find(nvml.init, "nvmlInit_v2");
  find(nvml.shutdown, "nvmlShutdown");
  find(nvml.error_string, "nvmlErrorString");
  find(nvml.driver_version, "nvmlSystemGetDriverVersion");
  find(nvml.device_count, "nvmlDeviceGetCount_v2");
  find(nvml.device_at, "nvmlDeviceGetHandleByIndex_v2");
  find(nvml.name, "nvmlDeviceGetName");
  find(nvml.utilization, "nvmlDeviceGetUtilizationRates");
  find(nvml.memory, "nvmlDeviceGetMemoryInfo");
  find(nvml.temperature, "nvmlDeviceGetTemperature");
  find(nvml.power, "nvmlDeviceGetPowerUsage");
  find(nvml.power_limit, "nvmlDeviceGetEnforcedPowerLimit");
  nvml.memory2 =
      reinterpret_cast<decltype(nvml.memory2)>(::dlsym(handle, "nvmlDeviceGetMemoryInfo_v2"));
  if (!missing.empty()) return fail(ErrorCode::unsupported, "'{}' has no {}", library, missing);
  return nvml;
}

std::unique_ptr<Source> nvidia_source(Result<Nvml> nvml) {
  return std::make_unique<NvidiaCards>(std::move(nvml));
}

std::unique_ptr<Source> nvidia_source(const Roots& roots) {
  return nvidia_source(open_nvml(roots.nvml));
}

}  // namespace strata::telemetry
