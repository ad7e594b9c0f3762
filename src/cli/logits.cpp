// strata logits: the logits of every position of a token sequence, for oracles and for bisecting.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <boost/json.hpp>
#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "cli/checks.h"
#include "cli/command.h"
#include "cli/default_model.h"
#include "cli/engine_options.h"
#include "cli/output_options.h"
#include "engine/logits.h"
#include "gguf/gguf.h"
#include "terminal/progress.h"

namespace strata {
namespace {

struct LogitsArguments {
  LogitsOptions options;
  std::string ids_path, output;
  bool progress = true;
};

Result<std::vector<std::int32_t>> read_ids(const std::string& path) {
  STRATA_ASSIGN(const std::string text, real_files().read_text(path));
  STRATA_ASSIGN(const boost::json::value value, parse_json(text, path));
  const boost::json::array* array = value.if_array();
  if (!array)
    return fail(ErrorCode::invalid_argument, "{}: a JSON array of token ids is needed", path);
  std::vector<std::int32_t> ids;
  for (const boost::json::value& item : *array) {
    const std::int64_t* id = item.if_int64();
    if (!id || *id < 0 || *id > INT32_MAX) {
      return fail(ErrorCode::invalid_argument, "{}: element {} is {}, no token id", path,
                  ids.size(), boost::json::serialize(item));
    }
    ids.push_back(static_cast<std::int32_t>(*id));
  }
  if (ids.empty()) return fail(ErrorCode::invalid_argument, "{}: there are no token ids", path);
  return ids;
}

// The output may replace none of the inputs, any part of a split model among them.
Status check_output(const LogitsArguments& arguments) {
  std::vector<std::string> inputs = {arguments.ids_path, arguments.options.model_path};
  STRATA_ASSIGN(const GgufModel model, open_gguf(real_files(), arguments.options.model_path));
  inputs.insert(inputs.end(), model.paths.begin(), model.paths.end());
  return check_not_an_input(arguments.output, inputs);
}

Result<int> run_logits(LogitsArguments& arguments) {
  STRATA_ASSIGN(arguments.options.model_path, model_or_default(arguments.options.model_path));
  STRATA_TRY(check_output(arguments));
  STRATA_ASSIGN(const auto ids, read_ids(arguments.ids_path));
  const std::string partial = arguments.output + ".partial";
  STRATA_ASSIGN(auto out, real_files().create(partial));
  terminal::Progress progress(arguments.progress, "reading the weights", terminal::Unit::bytes);
  arguments.options.loading = [&](std::uint64_t done, std::uint64_t all) {
    progress.update(done, all);
  };
  arguments.options.progress = [&](std::size_t done, std::size_t all) {
    if (done == 0) progress.next("computing", terminal::Unit::tokens);
    progress.update(done, all);
  };
  Status status = compute_logits(
      real_files(), arguments.options, ids,
      [&](std::span<const float> rows) -> Status { return out->write(std::as_bytes(rows)); });
  progress.clear();
  if (status) status = out->finish();
  if (status) status = real_files().rename(partial, arguments.output);
  if (!status) {
    (void)real_files().remove(partial);
    return tl::unexpected(std::move(status).error());
  }
  return 0;
}

}  // namespace

void register_logits(CLI::App& app, Invocation& invocation) {
  auto arguments = std::make_shared<LogitsArguments>();
  CLI::App* command = app.add_subcommand(
      "logits", "Write the float32 logits of every position of a token sequence");
  add_model_option(*command, arguments->options.model_path);
  command->add_option("--ids", arguments->ids_path, "File with a JSON array of token ids")
      ->type_name("FILE")
      ->required();
  command->add_option("-o,--output", arguments->output, "Float32 rows, one after the other")
      ->type_name("FILE")
      ->required();
  command->add_option("--chunk", arguments->options.chunk, "Tokens a window (default 512)")
      ->check(CLI::Validator(whole_number_between(1, 2048), ""));
  command->add_flag("--reference", arguments->options.reference,
                    "The slow float32 forward instead of the fast one");
  command->add_flag("--cell-width", arguments->options.cell_width,
                    "Select cells by llama.cpp's rule instead of HF's");
  command->add_option("--threads", arguments->options.threads, "Threads (default: usable CPUs)")
      ->check(CLI::Validator(whole_number_between(0, kMostThreads), ""));
  command->add_option("--isa", arguments->options.isa,
                      "Instruction set of the kernels (default: the best)");
  add_kv_option(*command, arguments->options.kv_type);
  add_progress_option(*command, arguments->progress);
  command->callback([arguments, &invocation] {
    invocation.run = [arguments] { return run_logits(*arguments); };
  });
}

}  // namespace strata
