#include "training/options/presets.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "runtime/base/error.h"

namespace dtrain {
namespace {

std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> words;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find(' ', begin), text.size());
    if (end > begin) words.emplace_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return words;
}

}  // namespace

Options with_preset(std::string_view program, std::span<const OptionSpec> specs, const Options& options,
                    std::span<const Preset> presets) {
  if (!options.has("recipe")) return options;
  std::vector<std::string_view> names;
  for (const Preset& preset : presets) names.push_back(preset.name);
  if (names.empty()) options.refuse("recipe", "none, as this program has no recipes");
  const std::string& name = options.choice("recipe", names);
  const Preset& preset = *std::ranges::find(presets, name, &Preset::name);
  std::map<std::string, OptionValue> values = options.all();
  const Options said = resolve_options(program, specs, words_of(preset.options), {});
  for (const auto& [option, value] : said.all()) {
    const auto found = values.find(option);
    const bool is_open = found == values.end() || found->second.source == "default";
    if (value.source == "default" || !is_open) continue;
    values.insert_or_assign(option, OptionValue{value.text, "--recipe " + name, value.agreement});
  }
  return Options(std::move(values));
}

}  // namespace dtrain
