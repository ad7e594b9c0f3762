// llama_driver: drives the prebuilt llama.cpp of npm's @node-llama-cpp/linux-x64 as a second
// opinion on Strata's files, tokens and logits.
//
//   llama_driver LIBDIR load MODEL               loads the weights and says what it took it for
//   llama_driver LIBDIR logits MODEL IDS OUT [key=value ...]
//       IDS: int32 token ids; OUT: float32 rows, one a token.
//       kv=f32|f16 (f32)  batch=N (512) tokens a decode call  threads=N (1)
//       trace=FILE tensors=PREFIX,...   also writes the graph's tensors whose names start so
//   llama_driver LIBDIR tokenize MODEL TEXTS OUT [special=0|1]
//       TEXTS: for each text its length (uint32) and bytes; OUT: for each text the number of its
//       ids (int32; -1 if llama.cpp throws) and the ids (int32). Loads the vocabulary only.
//   llama_driver LIBDIR speed MODEL [key=value ...]
//       Loads the model once, says what it is as one line of JSON, then answers each line of
//       standard input with one. Prompts and decoding are of random tokens.
//         prompt N         seconds of reading a prompt in an empty context
//         fill N           makes a context of N tokens
//         decode N         seconds of N steps that go on from there
//         logits IDS OUT   as the command above, with the settings of this one
//       cells=N (8192) of the context  batch=N (2048)  threads=N (1)  kv=f32|f16 (f16)
//       flash=-1|0|1 (-1)  mapped=0|1 (0)  repack=0|1 (1)
//
// Exit 0: done. 3: llama.cpp refused the model; its own words are on standard error.
#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <map>
#include <random>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "llama_api.h"

namespace peer {
namespace {

namespace fs = std::filesystem;
using Options = std::map<std::string, std::string>;

struct Refused : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// --- the libraries ------------------------------------------------------------------------------

// The one file of `folder` whose name starts with `prefix` and a dot.
std::string find_library(const fs::path& folder, const std::string& prefix) {
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.path().filename().string().starts_with(prefix + ".")) return entry.path().string();
  throw std::runtime_error("no " + prefix + ".* in " + folder.string());
}

class Library {
 public:
  explicit Library(const std::string& path) : path_(path), handle_(dlopen(path.c_str(), RTLD_NOW)) {
    if (!handle_) throw std::runtime_error(std::string("cannot load: ") + dlerror());
  }
  template <class F>
  void get(F*& function, const char* name) const {
    function = reinterpret_cast<F*>(dlsym(handle_, name));
    if (!function) throw std::runtime_error(path_ + " has no " + name);
  }

 private:
  std::string path_;
  void* handle_;
};

Api load_api(const fs::path& folder) {
  const Library base(find_library(folder, "libggml-base")), ggml(find_library(folder, "libggml")),
      llama(find_library(folder, "libllama"));
  Api a{};
  ggml.get(a.load_backends, "ggml_backend_load_all_from_path");
  llama.get(a.init, "llama_backend_init");
  llama.get(a.version, "llama_version");
  llama.get(a.system_info, "llama_print_system_info");
  llama.get(a.set_log, "llama_log_set");
  llama.get(a.default_model, "llama_model_default_params");
  llama.get(a.default_context, "llama_context_default_params");
  llama.get(a.load_model, "llama_model_load_from_file");
  llama.get(a.free_model, "llama_model_free");
  llama.get(a.describe, "llama_model_desc");
  llama.get(a.parameters, "llama_model_n_params");
  llama.get(a.vocabulary, "llama_model_get_vocab");
  llama.get(a.token_count, "llama_vocab_n_tokens");
  llama.get(a.tokenize, "llama_tokenize");
  llama.get(a.new_context, "llama_init_from_model");
  llama.get(a.free_context, "llama_free");
  llama.get(a.context_batch, "llama_n_batch");
  llama.get(a.context_micro_batch, "llama_n_ubatch");
  llama.get(a.context_threads, "llama_n_threads");
  llama.get(a.new_batch, "llama_batch_init");
  llama.get(a.free_batch, "llama_batch_free");
  llama.get(a.decode, "llama_decode");
  llama.get(a.logits, "llama_get_logits_ith");
  llama.get(a.memory, "llama_get_memory");
  llama.get(a.clear_memory, "llama_memory_clear");
  llama.get(a.synchronize, "llama_synchronize");
  base.get(a.tensor_name, "ggml_get_name");
  base.get(a.tensor_elements, "ggml_nelements");
  base.get(a.tensor_bytes, "ggml_nbytes");
  base.get(a.tensor_get, "ggml_backend_tensor_get");
  const std::string version = a.version();
  if (!version.starts_with("0.4.0"))
    throw std::runtime_error("llama.cpp is " + version + ", but offsets are known for 0.4.0 only");
  return a;
}

// --- files --------------------------------------------------------------------------------------

std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::string data{std::istreambuf_iterator<char>(in), {}};
  if (!in) throw std::runtime_error("cannot read " + path);
  return data;
}

class Output {
 public:
  explicit Output(const std::string& path) : path_(path), out_(path, std::ios::binary) {}
  void write(const void* data, std::size_t size) {
    out_.write(static_cast<const char*>(data), static_cast<std::streamsize>(size));
  }
  void finish() {
    out_.close();
    if (!out_) throw std::runtime_error("cannot write " + path_);
  }

 private:
  std::string path_;
  std::ofstream out_;
};

std::string option(const Options& options, const std::string& name, const std::string& otherwise) {
  const auto found = options.find(name);
  return found == options.end() ? otherwise : found->second;
}

std::vector<std::string> split(const std::string& list) {
  std::vector<std::string> parts;
  for (std::size_t at = 0; at < list.size();) {
    const std::size_t end = std::min(list.find(',', at), list.size());
    parts.push_back(list.substr(at, end - at));
    at = end + 1;
  }
  return parts;
}

// --- commands -----------------------------------------------------------------------------------

Model* load(const Api& api, const std::string& path, bool vocab_only, const Options& options = {}) {
  Parameters p = api.default_model();
  p.put<std::int32_t>(model_field::gpu_layers, 0);
  p.put<bool>(model_field::vocab_only, vocab_only);
  if (options.count("mapped"))
    p.put<std::int32_t>(model_field::load_mode, std::stoi(options.at("mapped")));
  if (options.count("repack")) p.put<bool>(model_field::repack, options.at("repack") == "1");
  Model* model = api.load_model(path.c_str(), p);
  if (!model) throw Refused("llama.cpp does not load " + path);
  return model;
}

void command_load(const Api& api, const std::string& path) {
  Model* model = load(api, path, false);
  char text[256] = {};
  api.describe(model, text, sizeof text);
  std::printf(
      "{\"version\": \"%s\", \"description\": \"%s\", \"parameters\": %llu, \"tokens\": %d}\n",
      api.version(), text, static_cast<unsigned long long>(api.parameters(model)),
      api.token_count(api.vocabulary(model)));
  api.free_model(model);
}

// Writes chosen tensors of the graph: sizes of name and data, elements (uint64 each); name; data.
struct Trace {
  const Api& api;
  std::vector<std::string> prefixes;
  Output out;

  bool chosen(const std::string& name) const {
    return std::any_of(prefixes.begin(), prefixes.end(),
                       [&](const std::string& prefix) { return name.starts_with(prefix); });
  }
  static bool on_eval(Tensor* tensor, bool ask, void* data) {
    Trace& self = *static_cast<Trace*>(data);
    const std::string name = self.api.tensor_name(tensor);
    if (ask || !self.chosen(name)) return !ask || self.chosen(name);
    std::vector<char> bytes(self.api.tensor_bytes(tensor));
    self.api.tensor_get(tensor, bytes.data(), 0, bytes.size());
    const std::uint64_t head[3] = {name.size(), bytes.size(),
                                   static_cast<std::uint64_t>(self.api.tensor_elements(tensor))};
    self.out.write(head, sizeof head);
    self.out.write(name.data(), name.size());
    self.out.write(bytes.data(), bytes.size());
    return true;
  }
};

Context* new_context(const Api& api, Model* model, std::size_t cells, std::uint32_t batch,
                     const Options& options, Trace* trace) {
  const std::int32_t threads = std::stoi(option(options, "threads", "1"));
  const std::int32_t cache = option(options, "kv", "f32") == "f16" ? kF16 : kF32;
  Parameters p = api.default_context();
  p.put<std::uint32_t>(context_field::cells, static_cast<std::uint32_t>(cells));
  p.put<std::uint32_t>(context_field::batch, batch);
  p.put<std::uint32_t>(context_field::micro_batch, batch);
  p.put<std::uint32_t>(context_field::sequences, 1);
  p.put<std::int32_t>(context_field::threads, threads);
  p.put<std::int32_t>(context_field::batch_threads, threads);
  p.put<std::int32_t>(context_field::flash_attention, std::stoi(option(options, "flash", "0")));
  p.put<std::int32_t>(context_field::key_type, cache);
  p.put<std::int32_t>(context_field::value_type, cache);
  if (trace) {
    p.put<EvalCallback>(context_field::on_eval, &Trace::on_eval);
    p.put<void*>(context_field::on_eval_data, trace);
  }
  Context* context = api.new_context(model, p);
  if (!context) throw Refused("llama.cpp makes no context");
  if (api.context_batch(context) != batch || api.context_micro_batch(context) != batch ||
      api.context_threads(context) != threads)
    throw std::runtime_error("llama.cpp reads its parameters at other offsets than expected");
  return context;
}

std::vector<std::int32_t> read_ids(const std::string& path) {
  const std::string data = read_file(path);
  std::vector<std::int32_t> ids(data.size() / sizeof(std::int32_t));
  std::memcpy(ids.data(), data.data(), ids.size() * sizeof(std::int32_t));
  return ids;
}

// A context with its batch. Tokens go in one behind the other.
class Reader {
 public:
  Reader(const Api& api, Model* model, std::size_t cells, std::size_t batch, const Options& options,
         Trace* trace)
      : api_(api),
        batch_(static_cast<std::uint32_t>(std::min(batch, cells))),
        width_(static_cast<std::size_t>(api.token_count(api.vocabulary(model)))),
        context_(new_context(api, model, cells, batch_, options, trace)),
        tokens_(api.new_batch(static_cast<std::int32_t>(batch_), 0, 1)) {}
  ~Reader() {
    api_.free_batch(tokens_);
    api_.free_context(context_);
  }
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;

  std::size_t width() const { return width_; }
  void clear() {
    api_.clear_memory(api_.memory(context_), true);
    position_ = 0;
  }
  enum class Wanted { all, last };  // logits
  using Rows = std::function<void(const float*)>;
  void read(const std::vector<std::int32_t>& ids, Wanted wanted, const Rows& rows) {
    for (std::size_t at = 0; at < ids.size(); at += batch_) {
      tokens_.count = static_cast<std::int32_t>(std::min<std::size_t>(batch_, ids.size() - at));
      for (std::int32_t i = 0; i < tokens_.count; ++i) {
        const std::size_t id = at + static_cast<std::size_t>(i);
        tokens_.tokens[i] = ids[id];
        tokens_.positions[i] = position_++;
        tokens_.sequence_counts[i] = 1;
        tokens_.sequences[i][0] = 0;
        tokens_.wants_logits[i] = wanted == Wanted::all || id + 1 == ids.size();
      }
      if (const std::int32_t status = api_.decode(context_, tokens_); status != 0)
        throw std::runtime_error("llama_decode returned " + std::to_string(status));
      for (std::int32_t i = 0; i < tokens_.count; ++i)
        if (tokens_.wants_logits[i]) rows(api_.logits(context_, i));
    }
    api_.synchronize(context_);
  }

 private:
  const Api& api_;
  std::uint32_t batch_;
  std::size_t width_;
  Context* context_;
  Batch tokens_;
  std::int32_t position_ = 0;
};

void write_logits(Reader& reader, const std::string& ids_path, const std::string& out_path) {
  Output out(out_path);
  reader.read(read_ids(ids_path), Reader::Wanted::all,
              [&](const float* row) { out.write(row, reader.width() * sizeof(float)); });
  out.finish();
}

void command_logits(const Api& api, const std::string& path, const std::string& ids_path,
                    const std::string& out_path, const Options& options) {
  Trace trace{api, split(option(options, "tensors", "")),
              Output(option(options, "trace", "/dev/null"))};
  Model* model = load(api, path, false);
  const std::size_t cells = (read_ids(ids_path).size() + 255) / 256 * 256;
  {
    Reader reader(api, model, cells, std::stoul(option(options, "batch", "512")), options,
                  options.count("trace") ? &trace : nullptr);
    write_logits(reader, ids_path, out_path);
  }
  trace.out.finish();
  api.free_model(model);
}

double seconds_of(const std::function<void()>& body) {
  const auto start = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Answers one line of standard input.
std::string answer(Reader& reader, std::mt19937& random, const std::string& line) {
  std::istringstream words(line);
  std::string command;
  words >> command;
  if (command == "logits") {
    std::string ids, out;
    words >> ids >> out;
    reader.clear();
    write_logits(reader, ids, out);
    return "{}";
  }
  std::size_t count = 0;
  if (!(words >> count)) throw std::runtime_error(line + ": a number of tokens is missing");
  std::vector<std::int32_t> ids(count);
  for (std::int32_t& id : ids) id = static_cast<std::int32_t>(random() % reader.width());
  const auto ignore = [](const float*) {};
  double seconds = 0;
  if (command == "prompt" || command == "fill") {
    reader.clear();
    seconds = seconds_of([&] { reader.read(ids, Reader::Wanted::last, ignore); });
  } else if (command == "decode") {
    seconds = seconds_of([&] {
      for (const std::int32_t id : ids) reader.read({id}, Reader::Wanted::last, ignore);
    });
  } else {
    throw std::runtime_error("unknown command " + command);
  }
  return "{\"seconds\": " + std::to_string(seconds) + "}";
}

void command_speed(const Api& api, const std::string& path, Options options) {
  for (const auto& [name, otherwise] :
       Options{{"kv", "f16"}, {"flash", "-1"}, {"mapped", "0"}, {"repack", "1"}})
    options.emplace(name, otherwise);
  Model* model = nullptr;
  const double loading = seconds_of([&] { model = load(api, path, false, options); });
  {
    Reader reader(api, model, std::stoul(option(options, "cells", "8192")),
                  std::stoul(option(options, "batch", "2048")), options, nullptr);
    std::printf("{\"version\": \"%s\", \"system\": \"%s\", \"load_seconds\": %.1f}\n",
                api.version(), api.system_info(), loading);
    std::fflush(stdout);
    std::mt19937 random(7);
    for (std::string line; std::getline(std::cin, line);) {
      std::printf("%s\n", answer(reader, random, line).c_str());
      std::fflush(stdout);
    }
  }
  api.free_model(model);
}

// The number of `ids`, or -1 if llama.cpp throws (it does so for some texts that are not UTF-8).
std::int32_t tokens_of(const Api& api, const Vocabulary* vocabulary, std::string_view text,
                       bool special, std::vector<std::int32_t>& ids) {
  ids.resize(4 * text.size() + 16);
  std::int32_t count = -1;
  try {
    count = api.tokenize(vocabulary, text.data(), static_cast<std::int32_t>(text.size()),
                         ids.data(), static_cast<std::int32_t>(ids.size()), false, special);
    if (count < 0) throw Refused("llama_tokenize wants room for more ids than there can be");
  } catch (const std::invalid_argument&) {
  }
  ids.resize(static_cast<std::size_t>(std::max(count, 0)));
  return count;
}

void command_tokenize(const Api& api, const std::string& path, const std::string& texts_path,
                      const std::string& out_path, const Options& options) {
  const bool special = option(options, "special", "0") == "1";
  const std::string texts = read_file(texts_path);
  Model* model = load(api, path, true);
  const Vocabulary* vocabulary = api.vocabulary(model);
  Output out(out_path);
  std::vector<std::int32_t> ids;
  for (std::size_t at = 0; at + sizeof(std::uint32_t) <= texts.size();) {
    std::uint32_t length = 0;
    std::memcpy(&length, texts.data() + at, sizeof length);
    at += sizeof length;
    if (length > texts.size() - at) throw std::runtime_error(texts_path + " ends inside a text");
    const auto count = static_cast<std::uint32_t>(
        tokens_of(api, vocabulary, std::string_view(texts).substr(at, length), special, ids));
    out.write(&count, sizeof count);
    out.write(ids.data(), ids.size() * sizeof(std::int32_t));
    at += length;
  }
  out.finish();
  api.free_model(model);
}

int run(const std::vector<std::string>& arguments) {
  if (arguments.size() < 3) throw std::runtime_error("usage: see the top of llama_driver.cpp");
  const std::string& command = arguments[1];
  const std::size_t fixed = command == "load" || command == "speed" ? 3 : 5;
  if (arguments.size() < fixed) throw std::runtime_error(command + " needs more arguments");
  Options options;
  for (std::size_t i = fixed; i < arguments.size(); ++i) {
    const std::size_t equals = arguments[i].find('=');
    if (equals == std::string::npos) throw std::runtime_error(arguments[i] + ": no KEY=VALUE");
    options[arguments[i].substr(0, equals)] = arguments[i].substr(equals + 1);
  }
  const Api api = load_api(arguments[0]);
  api.set_log([](int, const char* text, void*) { std::fputs(text, stderr); }, nullptr);
  api.load_backends(arguments[0].c_str());
  api.init();
  if (command == "load") {
    command_load(api, arguments[2]);
  } else if (command == "logits") {
    command_logits(api, arguments[2], arguments[3], arguments[4], options);
  } else if (command == "speed") {
    command_speed(api, arguments[2], options);
  } else if (command == "tokenize") {
    command_tokenize(api, arguments[2], arguments[3], arguments[4], options);
  } else {
    throw std::runtime_error("unknown command " + command);
  }
  return 0;
}

}  // namespace
}  // namespace peer

int main(int count, char** values) {
  try {
    return peer::run({values + 1, values + count});
  } catch (const peer::Refused& refusal) {
    std::fprintf(stderr, "llama_driver: %s\n", refusal.what());
    return 3;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "llama_driver: %s\n", error.what());
    return 1;
  }
}
