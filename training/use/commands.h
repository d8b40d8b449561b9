// What a training program does with its runs, in addition to training: `dtrain predict`, `export`, `convert`
// and `show`, and the same of a program of somebody's own.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "training/train_main.h"

namespace dtrain {

/// `arguments` come after the command's name; program.name is what comes before it ("dtrain", "own_model").
/// Throw every kind of Error.
ExitCode predict_command(const TrainProgram& program, const std::vector<std::string>& arguments,
                         const Environment& environment);
ExitCode export_command(const TrainProgram& program, const std::vector<std::string>& arguments,
                        const Environment& environment);
ExitCode convert_command(const TrainProgram& program, const std::vector<std::string>& arguments,
                         const Environment& environment);
ExitCode show_command(const TrainProgram& program, const std::vector<std::string>& arguments,
                      const Environment& environment);

/// A command by its name, as above.
struct UseCommand {
  std::string_view name;
  ExitCode (*run)(const TrainProgram& program, const std::vector<std::string>& arguments,
                  const Environment& environment);
};
/// The command called `name`; null where there is none.
const UseCommand* find_use_command(std::string_view name) noexcept;

/// The words in front of the options, at most `most` of them; they are taken out of `arguments`.
std::vector<std::string> take_words(std::vector<std::string>& arguments, std::size_t most);

}  // namespace dtrain
