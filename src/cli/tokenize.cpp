// strata tokenize: text to token ids, one JSON array a line.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <iostream>
#include <iterator>
#include <map>
#include <memory>
#include <string>

#include "cli/command.h"
#include "cli/default_model.h"
#include "gguf/gguf.h"
#include "tokenizer/tokenizer.h"

namespace strata {
namespace {

struct TokenizeArguments {
  std::string model, text, file;
  Specials specials = Specials::all;
  bool lines = false;
};

Result<int> run_tokenize(TokenizeArguments& arguments) {
  STRATA_ASSIGN(arguments.model, model_or_default(arguments.model));
  STRATA_ASSIGN(const GgufModel model, open_gguf(real_files(), arguments.model));
  STRATA_ASSIGN(const Tokenizer tokenizer, Tokenizer::from_gguf(model.metadata));
  const auto print = [&](std::string_view text) {
    fmt::print("[{}]\n", fmt::join(tokenizer.encode(text, arguments.specials), ", "));
  };
  std::string text = arguments.text;
  if (arguments.file == "-") {
    text.assign(std::istreambuf_iterator<char>(std::cin), {});
  } else if (!arguments.file.empty()) {
    STRATA_ASSIGN(text, real_files().read_text(arguments.file));
  }
  if (!arguments.lines) {
    print(text);
    return 0;
  }
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    print(std::string_view(text).substr(at, end - at));
    at = end + 1;
  }
  return 0;
}

}  // namespace

void register_tokenize(CLI::App& app, Invocation& invocation) {
  auto arguments = std::make_shared<TokenizeArguments>();
  CLI::App* command = app.add_subcommand("tokenize", "Print the token ids of a text as JSON");
  command->add_option("-m,--model", arguments->model, "GGUF file (default: the demo model)");
  auto* text = command->add_option("-p,--prompt", arguments->text, "The text");
  auto* file =
      command->add_option("-f,--file", arguments->file, "A file with the text, - for input");
  text->excludes(file);
  command->require_option(1, 0);
  command
      ->add_option(
          "--specials", arguments->specials,
          "Special tokens spelled out in the text: all, user_defined or none become tokens")
      ->transform(CLI::CheckedTransformer(
          std::map<std::string, Specials>{{"all", Specials::all},
                                          {"user_defined", Specials::user_defined},
                                          {"none", Specials::none}}));
  command->add_flag("--lines", arguments->lines, "Each line is a text of its own");
  command->callback([arguments, &invocation] {
    invocation.run = [arguments] { return run_tokenize(*arguments); };
  });
}

}  // namespace strata
