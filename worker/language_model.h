// A language model that is used: its network, and how texts become its tokens.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "models/text/transformer.h"
#include "models/text/words.h"
#include "runtime/base/log.h"

namespace dtrain {

/// A network and how its tokens are read.
struct LanguageModel {
  std::unique_ptr<Module> network;
  std::string tokenizer;           ///< a file or folder; empty: tokens are bytes
  std::vector<std::int32_t> ends;  ///< what config.json says ends a text

  Transformer& transformer() const { return dynamic_cast<Transformer&>(*network); }
};

/// Of a folder of published weights or of a run; `checkpoint` of that if it is not empty. Throws UsageError
/// for what is no language model.
LanguageModel open_language_model(const std::filesystem::path& path, const std::string& checkpoint,
                                  const std::shared_ptr<Device>& device, Log& log);

}  // namespace dtrain
