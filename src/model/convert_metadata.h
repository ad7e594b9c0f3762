// Metadata of a converted file beyond the hyper-parameters: name, sampling defaults, tokenizer,
// chat template, stop tokens. Taken from the small files of a checkpoint's folder.
#pragma once

#include <boost/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/result.h"
#include "gguf/gguf.h"
#include "model/hyperparams.h"

namespace strata {

// The path of a file in a folder ("" is the current one).
std::string path_in(const std::string& folder, std::string_view name);

// The file's content as a JSON object.
Result<boost::json::object> read_json_object(FileSystem& files, const std::string& path);

// What the model is called: the config's _name_or_path, or else the folder's name.
std::string model_name(const boost::json::object& config, const std::string& folder);

// Sets general.sampling.*, tokenizer.*, strata.stop_token_ids and the image token of the n-gram
// hash. A checkpoint without tokenizer.json gets no tokenizer.* keys, and a note.
Status write_checkpoint_metadata(FileSystem& files, const std::string& folder,
                                 const boost::json::object& config, const HyperParams& params,
                                 Metadata& metadata, std::vector<std::string>& notes);

}  // namespace strata
