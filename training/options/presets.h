// Presets: values for options that belong together, under one name.
#pragma once

#include <span>
#include <string_view>

#include "runtime/base/options.h"

namespace dtrain {

struct Preset {
  std::string_view name;
  std::string_view options;  ///< as on a command line, with spaces between: "--optimizer adamw --lr 6e-4"
};

/// `options`, those of `specs` that a command line, the environment or a file does not say as the recipe says
/// that option "recipe" names; as they are without one. `program` is for messages. Throws UsageError for a
/// name that is none of `presets`.
Options with_preset(std::string_view program, std::span<const OptionSpec> specs, const Options& options,
                    std::span<const Preset> presets);

}  // namespace dtrain
