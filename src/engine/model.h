// Opening a model file as the engine's parts need it. Internal to the engine.
#pragma once

#include <memory>
#include <string>

#include "model/forward.h"
#include "model/network.h"
#include "model/residence.h"

namespace strata {

inline Result<Network> open_network(FileSystem& files, const std::string& path,
                                    LoadOptions options = {}) {
  options.files = &files;
  STRATA_ASSIGN(GgufModel model, open_gguf(files, path));
  // The n-gram tables have their own readers.
  auto resident = load_into_memory(files, model, options.residence, [](const TensorView& tensor) {
    return !tensor.name.ends_with("per_layer_token_embd.weight");
  });
  if (!resident) return with_context(std::move(resident).error(), fmt::format("model '{}'", path));
  auto network = load_network(std::make_shared<const GgufModel>(std::move(model)), options);
  if (!network) return with_context(std::move(network).error(), fmt::format("model '{}'", path));
  return network;
}

}  // namespace strata
