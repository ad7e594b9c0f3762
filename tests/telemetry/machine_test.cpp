// Readers over fixture trees: a machine with an AMD card, one with nothing, hostile contents.
#include "telemetry/machine.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <sys/stat.h>

#include <boost/json/serialize.hpp>
#include <set>

#include "telemetry/nvml.h"
#include "telemetry/sampler.h"
#include "tests/telemetry/tree.h"

namespace strata::telemetry::testing {
namespace {

using ::testing::HasSubstr;

double value_of(const Recorder& recorder, const std::string& group, const std::string& name,
                const std::string& unit = "") {
  for (std::size_t i = 0; i < recorder.fields().size(); ++i) {
    const Field& field = recorder.fields()[i];
    if (field.group == group && field.name == name && (unit.empty() || unit == field.unit))
      return recorder.values()[i];
  }
  ADD_FAILURE() << "no field '" << group << "', '" << name << "'";
  return kUnknown;
}
bool has_group(const Recorder& recorder, const std::string& group) {
  return std::any_of(recorder.fields().begin(), recorder.fields().end(),
                     [&](const Field& field) { return field.group == group; });
}

TEST(Machine, LoadIsTheShareOfTicksSinceTheLastReading) {
  const Tree tree;
  write_machine(tree, 1000, 10000);
  Recorder recorder(machine_sources(tree.roots(), {}));
  recorder.sample(1, 1);
  EXPECT_TRUE(std::isnan(value_of(recorder, "Processors", "All programs")));
  write_machine(tree, 1050, 10200);
  recorder.sample(2, 2);
  EXPECT_DOUBLE_EQ(value_of(recorder, "Processors", "All programs"), 25);
  EXPECT_EQ(value_of(recorder, "Memory of the machine", "Available"), 8192000000.0);
  EXPECT_EQ(recorder.facts().at("processors").as_uint64(), 2u);
  EXPECT_EQ(recorder.facts().at("memory_bytes").as_uint64(), 16384000000u);
  // Too long ago for a rate to mean anything.
  write_machine(tree, 1100, 10400);
  recorder.sample(100, 100);
  EXPECT_TRUE(std::isnan(value_of(recorder, "Processors", "All programs")));
  // Counters that fall are another machine's.
  write_machine(tree, 1, 100);
  recorder.sample(101, 101);
  EXPECT_TRUE(std::isnan(value_of(recorder, "Processors", "All programs")));
}

void write_process(const Tree& tree, int id, int faults, int user, int system, int pages) {
  const std::string folder = "proc/" + std::to_string(id);
  tree.write(folder + "/stat", fmt::format("{} (a ) name) S 1 2 3 4 5 6 7 8 {} 10 {} {} 13 14 15 "
                                           "16 17 18 19 20 {} 22\n",
                                           id, faults, user, system, pages));
  tree.write(folder + "/io",
             fmt::format("rchar: 999\nread_bytes: {}\nwrite_bytes: 5\n", 1000 * user));
}

TEST(Machine, ProcessesAreFollowedWhenTheyAreStartedAgain) {
  const Tree tree;
  int id = 70;
  write_machine(tree, 0, 1000);
  write_process(tree, 70, 5, 100, 50, 3);
  Recorder recorder(machine_sources(tree.roots(), {{"Engine", "engine", [&] { return id; }}}));
  recorder.sample(1, 1);
  write_machine(tree, 100, 1200);
  write_process(tree, 70, 9, 110, 60, 4);
  recorder.sample(3, 3);
  EXPECT_DOUBLE_EQ(value_of(recorder, "Processors", "Engine"), 10);  // 20 of 200 ticks
  EXPECT_DOUBLE_EQ(value_of(recorder, "Page faults", "Engine"), 2);
  EXPECT_DOUBLE_EQ(value_of(recorder, "Disk reads of processes", "Engine"), 5000);
  EXPECT_DOUBLE_EQ(value_of(recorder, "Memory of processes", "Engine"), 4.0 * getpagesize());
  // Another process: its counters are no continuation, what it has is known at once.
  id = 71;
  write_machine(tree, 200, 1400);
  write_process(tree, 71, 900, 900, 900, 7);
  recorder.sample(4, 4);
  EXPECT_TRUE(std::isnan(value_of(recorder, "Processors", "Engine")));
  EXPECT_TRUE(std::isnan(value_of(recorder, "Page faults", "Engine")));
  EXPECT_DOUBLE_EQ(value_of(recorder, "Memory of processes", "Engine"), 7.0 * getpagesize());
  id = 0;
  recorder.sample(5, 5);
  EXPECT_TRUE(std::isnan(value_of(recorder, "Memory of processes", "Engine")));
}

TEST(Machine, WithNothingThereIsNothing) {
  const Tree tree;
  Recorder recorder(machine_sources(tree.roots(), {{"Server", "server", [] { return 1; }}}));
  for (int i = 1; i < 4; ++i) {
    recorder.sample(i, i);
    for (const double value : recorder.values()) EXPECT_TRUE(std::isnan(value));
  }
  for (const char* group : {"Disks", "Waits for", "Temperatures", "Power", "Graphics cards"})
    EXPECT_FALSE(has_group(recorder, group)) << group;
  EXPECT_EQ(recorder.facts().at("nvidia").as_string(), "no NVIDIA driver");
  EXPECT_FALSE(recorder.facts().contains("graphics_cards"));
  EXPECT_FALSE(recorder.facts().contains("processor"));
}

void write_amd(const Tree& tree) {
  const std::string device = "sys/class/drm/card1/device";
  tree.write(device + "/vendor", "0x1002\n");
  tree.write(device + "/device", "0x744c\n");
  tree.write(device + "/gpu_busy_percent", "42\n");
  tree.write(device + "/mem_info_vram_used", "1000000000\n");
  tree.write(device + "/mem_info_vram_total", "24000000000\n");
  tree.write(device + "/power/runtime_status", "active\n");
  tree.write(device + "/hwmon/hwmon3/temp1_input", "61000\n");
  tree.write(device + "/hwmon/hwmon3/power1_average", "150500000\n");
  tree.write(device + "/hwmon/hwmon3/power1_cap", "303000000\n");
  tree.write("sys/class/drm/card1-DP-1/status", "connected\n");
  // Another maker's.
  tree.write("sys/class/drm/card0/device/vendor", "0x8086\n");
}

void write_sensors(const Tree& tree, int energy) {
  tree.write("sys/class/hwmon/hwmon0/name", "nvme\n");
  tree.write("sys/class/hwmon/hwmon0/temp1_input", "38850\n");
  tree.write("sys/class/hwmon/hwmon1/name", "k10temp\n");
  tree.write("sys/class/hwmon/hwmon1/temp1_input", "10000\n");
  tree.write("sys/class/hwmon/hwmon1/temp3_label", "Tctl\n");
  tree.write("sys/class/hwmon/hwmon1/temp3_input", "55125\n");
  tree.write("sys/class/hwmon/hwmon3/name", "amdgpu\n");
  tree.write("sys/class/hwmon/hwmon3/temp1_input", "61000\n");
  tree.write("sys/class/powercap/intel-rapl:0/name", "package-0\n");
  tree.write("sys/class/powercap/intel-rapl:0/max_energy_range_uj", "262143328850\n");
  tree.write("sys/class/powercap/intel-rapl:0/energy_uj", std::to_string(energy) + "\n");
  tree.write("sys/class/powercap/intel-rapl:0:0/name", "core\n");
  tree.write("sys/class/powercap/intel-rapl:0:0/energy_uj", "1\n");
}

TEST(Machine, AnAmdCardIsReadThroughSysfs) {
  const Tree tree;
  write_machine(tree, 1, 10);
  write_amd(tree);
  write_sensors(tree, 1'000'000);
  Recorder recorder(machine_sources(tree.roots(), {}));
  recorder.sample(1, 1);
  write_sensors(tree, 91'000'000);
  recorder.sample(3, 3);
  EXPECT_EQ(value_of(recorder, "Graphics cards", "AMD 0"), 42);
  EXPECT_EQ(value_of(recorder, "Graphics memory", "AMD 0, taken"), 1e9);
  EXPECT_EQ(value_of(recorder, "Graphics memory", "AMD 0, total"), 24e9);
  EXPECT_EQ(value_of(recorder, "Temperatures", "AMD 0"), 61);
  EXPECT_EQ(value_of(recorder, "Power", "AMD 0"), 150.5);
  EXPECT_EQ(value_of(recorder, "Temperatures", "Processor"), 55.125);
  EXPECT_EQ(value_of(recorder, "Temperatures", "nvme"), 38.85);
  EXPECT_EQ(value_of(recorder, "Power", "package-0"), 45);
  std::size_t cards = 0;
  for (const Field& field : recorder.fields()) cards += field.group == "Graphics cards";
  EXPECT_EQ(cards, 1u);
  const auto& fact = recorder.facts().at("graphics_cards").as_array().at(0).as_object();
  EXPECT_EQ(fact.at("memory_bytes").as_uint64(), 24000000000u);
  EXPECT_EQ(fact.at("power_limit_w").as_double(), 303);
  // The counter of energy begins anew at its range.
  tree.write("sys/class/powercap/intel-rapl:0/energy_uj", "262143328850\n");
  recorder.sample(4, 4);
  tree.write("sys/class/powercap/intel-rapl:0/energy_uj", "7000000\n");
  recorder.sample(5, 5);
  EXPECT_EQ(value_of(recorder, "Power", "package-0"), 7);
  // One that sleeps is left alone.
  tree.write("sys/class/drm/card1/device/power/runtime_status", "suspended\n");
  recorder.sample(6, 6);
  EXPECT_TRUE(std::isnan(value_of(recorder, "Graphics cards", "AMD 0")));
  EXPECT_TRUE(std::isnan(value_of(recorder, "Power", "AMD 0")));
}

TEST(Machine, DisksPressureAndGroupsAreRead) {
  const Tree tree;
  write_machine(tree, 1, 10);
  const auto write = [&](int read, int written, int waited) {
    tree.write("sys/block/vda/stat", fmt::format("9 9 {} 9 9 9 {} 9\n", read, written));
    tree.write("sys/block/loop0/stat", fmt::format("9 9 {} 9 9 9 {} 9\n", 5 * read, 7 * written));
    tree.write("proc/pressure/io",
               fmt::format("some avg10=0.00 avg60=0.00 avg300=0.00 total={}\nfull avg10=0.00 "
                           "avg60=0.00 avg300=0.00 total=1\n",
                           waited));
  };
  tree.write("sys/block/vda/device/model", "disk\n");
  tree.write("proc/self/cgroup", "0::/user/strata\n1:name=systemd:/x\n");
  tree.write("sys/fs/cgroup/user/memory.max", "4000000000\n");
  tree.write("sys/fs/cgroup/user/memory.current", "1234\n");
  tree.write("sys/fs/cgroup/user/strata/memory.max", "max\n");
  write(100, 200, 1000);
  Recorder recorder(machine_sources(tree.roots(), {}));
  recorder.sample(1, 1);
  EXPECT_TRUE(std::isnan(value_of(recorder, "Waits for", "Disks")));
  write(104, 208, 501000);
  recorder.sample(2, 2);
  EXPECT_EQ(value_of(recorder, "Disks", "Read"), 4 * 512);
  EXPECT_EQ(value_of(recorder, "Disks", "Written"), 8 * 512);
  EXPECT_EQ(value_of(recorder, "Waits for", "Disks"), 50);
  EXPECT_EQ(value_of(recorder, "Memory of the machine", "Of the control group"), 1234);
  EXPECT_EQ(recorder.facts().at("control_group_memory_bytes").as_uint64(), 4000000000u);
  EXPECT_EQ(recorder.facts().at("disks").as_string(), "vda");
}

TEST(Machine, GroupsOfTheOldInterfaceCountOnlyBelowTheMachinesMemory) {
  const Tree tree;
  write_machine(tree, 1, 10);
  tree.write("proc/self/cgroup", "4:memory:/a/b\n0::/\n");
  tree.write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  tree.write("sys/fs/cgroup/memory/a/b/memory.limit_in_bytes", "9223372036854771712\n");
  Recorder unlimited(machine_sources(tree.roots(), {}));
  EXPECT_FALSE(unlimited.facts().contains("control_group_memory_bytes"));
  tree.write("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "5000000\n");
  tree.write("sys/fs/cgroup/memory/a/memory.usage_in_bytes", "77\n");
  Recorder limited(machine_sources(tree.roots(), {}));
  limited.sample(1, 1);
  EXPECT_EQ(value_of(limited, "Memory of the machine", "Of the control group"), 77);
}

// Whatever the files hold, a reading is a value within reason or unknown.
TEST(Machine, HostileContentsAreUnknown) {
  const std::string huge(200'000, '9');
  const std::vector<std::string> contents = {
      "",
      "\n",
      "-1",
      "99999999999999999999999999999999",
      "nan",
      "1e400",
      std::string("\0\x01\xff\xfe", 4),
      huge,
      "cpu",
      "cpu  1 2",
      ") ) )",
      "some total=",
      "some total=18446744073709551615",
      "MemTotal: 99999999999999999999 kB",
      "MemAvailable: 18446744073709551615 kB",
      std::string(5000, '\n'),
      "0x1002",
  };
  const std::vector<std::string> files = {"proc/stat",
                                          "proc/meminfo",
                                          "proc/cpuinfo",
                                          "proc/9/stat",
                                          "proc/9/io",
                                          "proc/self/cgroup",
                                          "proc/pressure/cpu",
                                          "proc/pressure/io",
                                          "sys/block/sda/stat",
                                          "sys/block/sda/device/x",
                                          "sys/class/hwmon/hwmon0/name",
                                          "sys/class/hwmon/hwmon0/temp1_input",
                                          "sys/class/thermal/thermal_zone0/type",
                                          "sys/class/thermal/thermal_zone0/temp",
                                          "sys/class/powercap/intel-rapl:0/name",
                                          "sys/class/powercap/intel-rapl:0/energy_uj",
                                          "sys/class/powercap/intel-rapl:0/max_energy_range_uj",
                                          "sys/class/drm/card0/device/gpu_busy_percent",
                                          "sys/class/drm/card0/device/mem_info_vram_used",
                                          "sys/class/drm/card0/device/hwmon/hwmon1/temp1_input",
                                          "sys/class/drm/card0/device/hwmon/hwmon1/power1_average",
                                          "sys/class/drm/card0/device/product_name"};
  for (std::size_t i = 0; i < contents.size(); ++i) {
    for (const std::size_t other : {0, 4}) {
      const std::string& before = contents[i];
      const std::string& after = contents[(i + other) % contents.size()];
      const Tree tree;
      for (const std::string& file : files) tree.write(file, before);
      tree.write("sys/class/drm/card0/device/vendor", "0x1002\n");
      Recorder recorder(machine_sources(tree.roots(), {{"P", "p", [] { return 9; }}}));
      recorder.sample(1, 1);
      for (const std::string& file : files) tree.write(file, after);
      recorder.sample(2, 2);
      for (std::size_t f = 0; f < recorder.fields().size(); ++f) {
        const double value = recorder.values()[f];
        const Field& field = recorder.fields()[f];
        if (std::isnan(value)) continue;
        EXPECT_TRUE(std::isfinite(value)) << field.group << ", " << field.name;
        const bool fits = field.unit == "%"    ? value >= 0 && value <= 100
                          : field.unit == "°C" ? value > -51 && value < 201
                                               : value >= 0;
        EXPECT_TRUE(fits) << field.name << " " << value;
      }
      // Facts are text that can be shown.
      for (const char c : boost::json::serialize(recorder.facts()))
        EXPECT_TRUE(c >= ' ' && c <= '~');
    }
  }
}

TEST(Machine, FoldersPipesAndLoopsInPlaceOfFilesAreUnknown) {
  const Tree tree;
  std::filesystem::create_directories(tree.path("proc/stat"));
  ASSERT_EQ(mkfifo(tree.path("proc/meminfo").c_str(), 0600), 0);
  std::filesystem::create_directories(tree.path("proc/pressure"));
  std::filesystem::create_symlink("cpu", tree.path("proc/pressure/cpu"));
  std::filesystem::create_symlink("/dev/zero", tree.path("proc/pressure/io"));
  Recorder recorder(machine_sources(tree.roots(), {}));
  for (int i = 1; i < 4; ++i) recorder.sample(i, i);
  for (const double value : recorder.values()) EXPECT_TRUE(std::isnan(value));
}

TEST(Machine, DevicesAreBounded) {
  const Tree tree;
  for (int i = 0; i < 100; ++i) {
    tree.write(fmt::format("sys/block/sd{}/stat", i), "1 1 1 1 1 1 1\n");
    tree.write(fmt::format("sys/block/sd{}/device/x", i), "");
    tree.write(fmt::format("sys/class/hwmon/hwmon{}/name", i), "chip\n");
    tree.write(fmt::format("sys/class/hwmon/hwmon{}/temp1_input", i), "1000\n");
    tree.write(fmt::format("sys/class/powercap/intel-rapl:{}/name", i), "package\n");
    tree.write(fmt::format("sys/class/powercap/intel-rapl:{}/energy_uj", i), "1\n");
    tree.write(fmt::format("sys/class/drm/card{}/device/vendor", i), "0x1002\n");
    tree.write(fmt::format("sys/class/drm/card{}/device/gpu_busy_percent", i), "1\n");
  }
  Recorder recorder(machine_sources(tree.roots(), {}));
  recorder.sample(1, 1);
  EXPECT_LE(recorder.fields().size(), 4 + kMostSensors + kMostEnergyZones + 5 * kMostCards + 4);
  std::set<std::string> names;
  for (const Field& field : recorder.fields())
    EXPECT_TRUE(names.insert(field.group + field.unit + field.name).second) << field.name;
}

TEST(Machine, EveryMetricOfAFieldIsAFamily) {
  const Tree tree;
  write_machine(tree, 1, 10);
  write_amd(tree);
  write_sensors(tree, 1);
  tree.write("proc/pressure/io", "some total=1\n");
  tree.write("sys/block/vda/stat", "1 1 1 1 1 1 1\n");
  tree.write("sys/block/vda/device/x", "");
  const Recorder recorder(machine_sources(tree.roots(), {{"P", "p", [] { return 9; }}}));
  std::set<std::string_view> families, used;
  for (const Family& family : machine_families()) families.insert(family.name);
  for (const Field& field : recorder.fields()) {
    EXPECT_TRUE(families.contains(field.metric)) << field.name;
    used.insert(field.metric);
  }
  EXPECT_EQ(used.size() + 1, families.size());  // all but the control group's
}

// NVIDIA -----------------------------------------------------------------------------------------

int g_inits = 0, g_shutdowns = 0, g_status = 0;

Nvml fake_nvml() {
  g_inits = g_shutdowns = g_status = 0;
  Nvml nvml;
  nvml.init = [] { return ++g_inits, g_status; };
  nvml.shutdown = [] { return ++g_shutdowns, 0; };
  nvml.error_string = [](int) -> const char* { return "Driver Not Loaded"; };
  nvml.driver_version = [](char* text, unsigned size) {
    return std::snprintf(text, size, "580.1"), 0;
  };
  nvml.device_count = [](unsigned* count) { return *count = 2, 0; };
  nvml.device_at = [](unsigned index, NvmlDevice* card) {
    return *card = reinterpret_cast<NvmlDevice>(std::uintptr_t{index} + 1), 0;
  };
  nvml.name = [](NvmlDevice, char* text, unsigned size) {
    return std::memset(text, 'H', size), 0;  // never ended
  };
  nvml.utilization = [](NvmlDevice, NvmlUtilization* load) { return *load = {37, 5}, 0; };
  nvml.memory = [](NvmlDevice, NvmlMemory* memory) { return *memory = {100, 60, 40}, 0; };
  nvml.temperature = [](NvmlDevice card, int, unsigned* degrees) {
    return *degrees = 30 + static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(card)), 0;
  };
  nvml.power = [](NvmlDevice, unsigned*) { return 3; };  // not supported
  nvml.power_limit = [](NvmlDevice, unsigned* limit) { return *limit = 700000, 0; };
  return nvml;
}

Recorder recorder_of(Result<Nvml> nvml) {
  Sources sources;
  sources.push_back(nvidia_source(std::move(nvml)));
  return Recorder(std::move(sources));
}

TEST(Nvidia, CardsAreReadAndLetGoWhenNobodyLooks) {
  {
    Recorder recorder = recorder_of(fake_nvml());
    recorder.sample(1, 1);
    EXPECT_EQ(value_of(recorder, "Graphics cards", "NVIDIA 1"), 37);
    EXPECT_EQ(value_of(recorder, "Graphics memory", "NVIDIA 0, taken"), 40);
    EXPECT_EQ(value_of(recorder, "Temperatures", "NVIDIA 1"), 32);
    EXPECT_TRUE(std::isnan(value_of(recorder, "Power", "NVIDIA 0")));
    EXPECT_EQ(recorder.facts().at("nvidia").as_string(), "driver 580.1");
    const auto& card = recorder.facts().at("graphics_cards").as_array().at(1).as_object();
    EXPECT_EQ(card.at("power_limit_w").as_double(), 700);
    EXPECT_EQ(card.at("name").as_string(), std::string(96, 'H'));
    recorder.rest();
    recorder.rest();
    EXPECT_EQ(g_shutdowns, 1);
    recorder.sample(2, 2);
    EXPECT_EQ(g_inits, 2);
    EXPECT_EQ(value_of(recorder, "Graphics cards", "NVIDIA 0"), 37);
  }
  EXPECT_EQ(g_shutdowns, 2);
}

TEST(Nvidia, TheNewerFormOfMemoryIsTakenWhereItWorks) {
  Nvml nvml = fake_nvml();
  nvml.memory2 = [](NvmlDevice card, NvmlMemory2* memory) {
    if (card == reinterpret_cast<NvmlDevice>(std::uintptr_t{2})) return 3;
    EXPECT_EQ(memory->version, 0x2000028u);
    memory->total = 100;
    memory->used = 25;
    return 0;
  };
  Recorder recorder = recorder_of(nvml);
  recorder.sample(1, 1);
  EXPECT_EQ(value_of(recorder, "Graphics memory", "NVIDIA 0, taken"), 25);
  EXPECT_EQ(value_of(recorder, "Graphics memory", "NVIDIA 1, taken"), 40);
}

TEST(Nvidia, ADriverThatDoesNotAnswerIsAFact) {
  Nvml nvml = fake_nvml();
  g_status = 9;
  Recorder recorder = recorder_of(nvml);
  recorder.sample(1, 1);
  EXPECT_TRUE(recorder.fields().empty());
  EXPECT_EQ(recorder.facts().at("nvidia").as_string(),
            "the driver does not answer: Driver Not Loaded");
  EXPECT_EQ(g_inits, 1) << "it is not asked again and again";
}

TEST(Nvidia, ALibraryThatIsNoneIsAFact) {
  const auto none = open_nvml("libnvidia-ml-of-nobody.so.1");
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().message, "no NVIDIA driver");
  const auto other = open_nvml("libm.so.6");
  ASSERT_FALSE(other);
  EXPECT_EQ(other.error().message, "'libm.so.6' has no nvmlInit_v2");
}

}  // namespace
}  // namespace strata::telemetry::testing
