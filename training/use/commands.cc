#include "training/use/commands.h"

#include <algorithm>
#include <iterator>

namespace dtrain {
namespace {

constexpr UseCommand kCommands[] = {{"predict", predict_command},
                                    {"export", export_command},
                                    {"convert", convert_command},
                                    {"show", show_command}};

}  // namespace

const UseCommand* find_use_command(std::string_view name) noexcept {
  const auto* const found = std::find_if(std::begin(kCommands), std::end(kCommands),
                                         [&](const UseCommand& command) { return command.name == name; });
  return found == std::end(kCommands) ? nullptr : found;
}

std::vector<std::string> take_words(std::vector<std::string>& arguments, std::size_t most) {
  std::vector<std::string> words;
  while (words.size() < most && !arguments.empty() && !arguments.front().starts_with("-")) {
    words.push_back(arguments.front());
    arguments.erase(arguments.begin());
  }
  return words;
}

}  // namespace dtrain
