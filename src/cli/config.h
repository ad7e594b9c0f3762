// The settings of `strata serve`: one table of keys, each from one of four places. A flag wins over
// an environment variable, that over the configuration file, that over what is built in.
//
// - File: one JSON object, UTF-8 with or without a byte order mark. Relative paths in it are meant
//   from its folder. Unknown keys are errors with the nearest name.
// - Environment: STRATA_ and the key in capitals. Lists with commas.
// - Flags: -- and the key with dashes. Lists with commas.
// A wrong value stops the start with the key's name and where it came from.
#pragma once

#include <boost/json.hpp>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/result.h"

namespace CLI {
class App;
}

namespace strata {

struct ConfigKey {
  enum class Type { text, path, flag, number, list, object };
  std::string_view name;
  Type type = Type::text;
  std::string_view help;
  // Of numbers; of texts that may be numbers, too.
  std::int64_t least = 0, most = 0;
  bool secret = false;  // its value is not printed
  // Of texts: all words that may stand here, as "auto,ram,map"; empty: others may, too.
  std::string_view choices = {};
};

std::span<const ConfigKey> config_keys();

inline constexpr std::string_view kBuiltIn = "built-in";

class Config {
 public:
  struct Entry {
    boost::json::value value;
    std::string source{kBuiltIn};  // or "flag", "environment", "config"
    std::string place = {};        // "--port", "STRATA_PORT", "'port' in 'x.json'"
  };
  // By key, as text.
  using Flags = std::map<std::string, std::string, std::less<>>;
  using Environment = std::function<const char*(const char*)>;

  // `file` empty: the path in STRATA_CONFIG, if there is one. The environment also says where the
  // user's data folder is (data_folder.h), the built-in place of chats_db.
  static Result<Config> load(FileSystem& files, std::string file, const Flags& flags,
                             const Environment& environment);

  const Entry& at(std::string_view key) const;
  std::string text(std::string_view key) const;  // empty: not given
  bool flag(std::string_view key) const;
  std::int64_t number(std::string_view key) const;
  std::vector<std::string> list(std::string_view key) const;

  // "key  value  source" for every key, secrets hidden.
  std::string printed() const;
  // The same by key: {"port": {"value": 8080, "source": "flag"}}.
  boost::json::object shown() const;

 private:
  std::map<std::string, Entry, std::less<>> entries_;
};

// The flags of all keys, and --config.
struct ConfigArguments {
  std::string file;
  Config::Flags flags;
};
void add_config_options(CLI::App& command, ConfigArguments& arguments);

}  // namespace strata
