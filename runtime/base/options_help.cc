// Options as people read them: --help, tables in the documentation, --print-config.
#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "runtime/base/options.h"

namespace dtrain {
namespace {

constexpr std::size_t kHelpIndent = 31, kHelpWidth = 80;

std::string help_of(const OptionSpec& spec) {
  return spec.no_effect.empty() ? std::string(spec.help) : fmt::format("no effect: {}", spec.no_effect);
}

/// The rows below one heading, wherever in the table they are: it may have another table's rows in its
/// middle.
struct Group {
  std::string_view heading;
  std::vector<const OptionSpec*> rows;
};

std::vector<Group> grouped(std::span<const OptionSpec> specs) {
  std::vector<Group> groups;  // in the order of their first rows
  for (const OptionSpec& spec : specs) {
    auto group = std::ranges::find(groups, spec.group, &Group::heading);
    if (group == groups.end()) group = groups.insert(group, Group{spec.group, {}});
    group->rows.push_back(&spec);
  }
  return groups;
}

std::string option_line(const OptionSpec& spec) {
  const std::string letter = spec.letter != 0 ? fmt::format("-{}, ", spec.letter) : std::string();
  const std::string left =
      fmt::format("{}--{}{}{}", letter, spec.name, spec.value_name.empty() ? "" : " ", spec.value_name);
  const bool show_default = !spec.default_text.empty() && !spec.value_name.empty();
  return help_line(left, help_of(spec) + (show_default ? fmt::format(" [{}]", spec.default_text) : ""));
}

// For a Markdown table: a bar would end the cell, an angle bracket outside of code begin a tag.
std::string escaped(std::string_view text, std::string_view special) {
  std::string safe;
  for (const char c : text) {
    if (special.find(c) != std::string_view::npos) safe += '\\';
    safe += c;
  }
  return safe;
}

std::string markdown_row(const OptionSpec& spec) {
  const std::string letter = spec.letter != 0 ? fmt::format("`-{}`, ", spec.letter) : std::string();
  const std::string value = spec.value_name.empty() ? std::string() : fmt::format(" {}", spec.value_name);
  return fmt::format("| {}`--{}{}` | {} | {} |\n", letter, spec.name, escaped(value, "|"),
                     spec.default_text.empty() ? "" : fmt::format("`{}`", escaped(spec.default_text, "|")),
                     escaped(help_of(spec), "|<"));
}

// Breaks a help text at blanks so that it stays in its column.
std::string wrapped(std::string_view text) {
  std::string lines;
  while (text.size() > kHelpWidth - kHelpIndent) {
    std::size_t cut = text.rfind(' ', kHelpWidth - kHelpIndent);
    if (cut == text.npos) cut = std::min(text.find(' '), text.size());
    lines.append(text.substr(0, cut)).append("\n").append(kHelpIndent, ' ');
    text.remove_prefix(std::min(cut + 1, text.size()));
  }
  return lines.append(text);
}

}  // namespace

std::string help_line(const std::string& left, std::string_view right) {
  const std::string start = "  " + left;
  return start +
         (start.size() < kHelpIndent ? std::string(kHelpIndent - start.size(), ' ')
                                     : "\n" + std::string(kHelpIndent, ' ')) +
         wrapped(right) + "\n";
}

std::string options_help(std::string_view usage, std::span<const OptionSpec> specs) {
  std::string text = fmt::format("{}\n", usage);
  for (const auto& [heading, rows] : grouped(specs)) {
    if (!heading.empty()) text += fmt::format("\n{}\n", heading);
    for (const OptionSpec* spec : rows) text += option_line(*spec);
  }
  return text;
}

std::string options_markdown(std::span<const OptionSpec> specs) {
  std::string text = "| option | default | |\n|---|---|---|\n";
  for (const auto& [heading, rows] : grouped(specs)) {
    std::string lines;
    for (const OptionSpec* spec : rows) {
      if (spec->name != "help") lines += markdown_row(*spec);
    }
    if (!heading.empty() && !lines.empty()) text += fmt::format("| **{}** | | |\n", heading);
    text += lines;
  }
  return text;
}

std::optional<std::string> asked_help(const Options& options, std::string_view usage,
                                      std::span<const OptionSpec> specs) {
  if (!options.has("help")) return std::nullopt;
  if (options.text("help") == "markdown") return options_markdown(specs);
  if (!options.enabled("help")) return std::nullopt;
  return options_help(usage, specs);
}

std::string options_table(const Options& options) {
  std::string text;
  for (const auto& [name, value] : options.all())
    text += fmt::format("{:<24} {:<28} {}\n", name, value.text, value.source);
  return text;
}

}  // namespace dtrain
