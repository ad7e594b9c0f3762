// Apple's graphics cores, through IOKit: the accelerator's own statistics, read in this process.
// Compiled on macOS only.
#include "telemetry/card_fields.h"
#include "telemetry/machine.h"

#ifdef __APPLE__
#include <CoreFoundation/CoreFoundation.h>
#include <IOKit/IOKitLib.h>
#include <sys/sysctl.h>
#endif

namespace strata::telemetry {
namespace {

#ifdef __APPLE__
// The service is found once; a sample reads one property of it and lets it go.
class AppleGraphics final : public Source {
 public:
  AppleGraphics()
      : service_(
            IOServiceGetMatchingService(kIOMasterPortDefault, IOServiceMatching("IOAccelerator"))) {
    std::uint64_t bytes = 0;
    std::size_t size = sizeof bytes;
    if (sysctlbyname("hw.memsize", &bytes, &size, nullptr, 0) == 0) memory_ = bytes;
    if (service_ != IO_OBJECT_NULL) add_card_fields(fields_, "Apple 0", "apple0");
  }
  ~AppleGraphics() override {
    if (service_ != IO_OBJECT_NULL) IOObjectRelease(service_);
  }

  void read(double, std::span<double> values) override {
    if (service_ == IO_OBJECT_NULL) return;
    const CFTypeRef found = IORegistryEntryCreateCFProperty(
        service_, CFSTR("PerformanceStatistics"), kCFAllocatorDefault, 0);
    if (found == nullptr) return;
    if (CFGetTypeID(found) == CFDictionaryGetTypeID()) {
      const auto statistics = static_cast<CFDictionaryRef>(found);
      values[kCardLoad] = number(statistics, CFSTR("Device Utilization %"));
      // What is allocated, not what is in use at the moment: that is a thousandth of it when idle.
      values[kCardUsed] = number(statistics, CFSTR("Alloc system memory"));
      if (memory_) values[kCardTotal] = static_cast<double>(*memory_);
    }
    CFRelease(found);
  }

  void add_facts(boost::json::object& facts) const override {
    if (service_ == IO_OBJECT_NULL) return;
    add_card_fact(facts, {{"name", "Apple"}, {"memory", "the machine's"}});
  }

 private:
  static double number(CFDictionaryRef statistics, CFStringRef key) {
    const void* value = CFDictionaryGetValue(statistics, key);
    double number = 0;
    if (value == nullptr || CFGetTypeID(value) != CFNumberGetTypeID()) return kUnknown;
    if (!CFNumberGetValue(static_cast<CFNumberRef>(value), kCFNumberDoubleType, &number))
      return kUnknown;
    return number;
  }

  io_service_t service_;
  std::optional<std::uint64_t> memory_;
};
#else
class AppleGraphics final : public Source {
 public:
  void read(double, std::span<double>) override {}
};
#endif

}  // namespace

std::unique_ptr<Source> apple_source() {
  return std::make_unique<AppleGraphics>();
}

}  // namespace strata::telemetry
