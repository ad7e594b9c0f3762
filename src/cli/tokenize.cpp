// strata tokenize: text to token ids, one JSON array a line.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <iostream>
#include <iterator>
#include <map>
#include <memory>
#include <string>

#include "base/thread_pool.h"
#include "cli/checks.h"
#include "cli/command.h"
#include "cli/default_model.h"
#include "gguf/gguf.h"
#include "tokenizer/tokenizer.h"

namespace strata {
namespace {

struct TokenizeArguments {
  std::string model, tokenizer, text, file;
  std::string specials = "all";
  bool lines = false, hex = false, timing = false;
  std::size_t threads = 1;
};

const std::map<std::string, Specials, std::less<>> kSpecials = {
    {"all", Specials::all}, {"user_defined", Specials::user_defined}, {"none", Specials::none}};

// For the parser: an empty text accepts the value.
std::string check_specials(const std::string& name) {
  if (kSpecials.contains(name)) return "";
  return fmt::format("'{}' must be all, user_defined or none", name);
}

Result<Tokenizer> open_tokenizer(const TokenizeArguments& arguments) {
  if (!arguments.tokenizer.empty()) {
    STRATA_ASSIGN(const std::string json, real_files().read_text(arguments.tokenizer));
    return Tokenizer::from_tokenizer_json(json);
  }
  STRATA_ASSIGN(const std::string path, model_or_default(arguments.model));
  STRATA_ASSIGN(const GgufModel model, open_gguf(real_files(), path));
  return Tokenizer::from_gguf(model.metadata);
}

Result<std::string> bytes_of_hex(std::string_view hex) {
  const auto digit = [](char c) {
    if (c >= '0' && c <= '9') return c - '0';
    c = static_cast<char>(c | 0x20);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
  };
  std::string bytes;
  bytes.reserve(hex.size() / 2);
  for (std::size_t i = 0; i < hex.size(); i += 2) {
    const int high = digit(hex[i]);
    const int low = i + 1 < hex.size() ? digit(hex[i + 1]) : -1;
    if (high < 0 || low < 0) {
      return fail(ErrorCode::invalid_argument,
                  "the text has no two hexadecimal digits at offset {}; --hex reads two a byte", i);
    }
    bytes.push_back(static_cast<char>(high * 16 + low));
  }
  return bytes;
}

class Printer {
 public:
  Printer(const Tokenizer& tokenizer, const TokenizeArguments& arguments)
      : tokenizer_(tokenizer),
        arguments_(arguments),
        specials_(kSpecials.at(arguments.specials)),
        pool_(arguments.threads) {}

  Status print(std::string_view text) {
    std::string bytes;
    if (arguments_.hex) {
      STRATA_ASSIGN(bytes, bytes_of_hex(text));
      text = bytes;
    }
    const auto start = std::chrono::steady_clock::now();
    const auto ids = tokenizer_.encode(text, specials_, pool_);
    const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
    if (arguments_.timing) {
      fmt::print("{{\"bytes\": {}, \"tokens\": {}, \"seconds\": {:.6f}}}\n", text.size(),
                 ids.size(), time.count());
    } else {
      fmt::print("[{}]\n", fmt::join(ids, ", "));
    }
    return {};
  }

 private:
  const Tokenizer& tokenizer_;
  const TokenizeArguments& arguments_;
  const Specials specials_;
  ThreadPool pool_;
};

Result<int> run_tokenize(const TokenizeArguments& arguments) {
  STRATA_ASSIGN(const Tokenizer tokenizer, open_tokenizer(arguments));
  Printer printer(tokenizer, arguments);
  std::string text = arguments.text;
  if (arguments.file == "-" && arguments.lines) {
    // Answered line by line, so that another program can hold a conversation.
    while (std::getline(std::cin, text)) {
      STRATA_TRY(printer.print(text));
      std::fflush(stdout);
    }
    return 0;
  }
  if (arguments.file == "-") {
    text.assign(std::istreambuf_iterator<char>(std::cin), {});
  } else if (!arguments.file.empty()) {
    STRATA_ASSIGN(text, real_files().read_text(arguments.file));
  }
  if (!arguments.lines) {
    STRATA_TRY(printer.print(text));
    return 0;
  }
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    STRATA_TRY(printer.print(std::string_view(text).substr(at, end - at)));
    at = end + 1;
  }
  return 0;
}

}  // namespace

void register_tokenize(CLI::App& app, Invocation& invocation) {
  auto arguments = std::make_shared<TokenizeArguments>();
  CLI::App* command = app.add_subcommand("tokenize", "Print the token ids of a text as JSON");
  auto* model = add_model_option(*command, arguments->model);
  command
      ->add_option("--tokenizer", arguments->tokenizer,
                   "The tokenizer.json of a checkpoint instead of a model")
      ->type_name("FILE")
      ->excludes(model);
  auto* text = command->add_option("-p,--prompt", arguments->text, "The text");
  auto* file =
      command->add_option("-f,--file", arguments->file, "A file with the text, - for input")
          ->type_name("FILE")
          ->check(CLI::Validator(not_empty("the file's path"), ""));
  text->excludes(file);
  command
      ->add_option(
          "--specials", arguments->specials,
          "Special tokens spelled out in the text: all, user_defined or none become tokens")
      ->check(CLI::Validator(check_specials, ""));
  command->add_flag("--lines", arguments->lines, "Each line is a text of its own");
  command->add_flag("--hex", arguments->hex, "Texts are bytes in hexadecimal digits");
  command->add_flag("--timing", arguments->timing,
                    "Print bytes, tokens and seconds of each text instead of ids");
  command->add_option("--threads", arguments->threads, "Threads for long texts; 0: all CPUs")
      ->check(CLI::Validator(whole_number_between(0, 1024), ""));
  command->callback([arguments, text, file, &invocation] {
    if (text->count() + file->count() == 0)
      throw CLI::RequiredError("a text (-p TEXT) or a file (-f FILE)");
    invocation.run = [arguments] { return run_tokenize(*arguments); };
  });
}

}  // namespace strata
