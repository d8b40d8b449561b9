// Options as people read them: --help, tables in the documentation, --print-config.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
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

/// The character of UTF-8 that begins at `at`, which moves to its last byte.
unsigned code_point(std::string_view text, std::size_t& at) {
  const auto lead = static_cast<unsigned char>(text[at]);
  const unsigned more = lead >= 0xf0 ? 3 : lead >= 0xe0 ? 2 : 1;
  unsigned point = lead & (0x3fU >> more);
  for (unsigned i = 0; i < more && at + 1 < text.size(); ++i)
    point = point << 6 | (static_cast<unsigned char>(text[++at]) & 0x3fU);
  return point;
}

/// Text for man(7): no request at the start of a line, dashes that can be copied, characters by their codes.
std::string roff(std::string_view text) {
  std::string safe;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    const bool at_start = safe.empty() || safe.back() == '\n';
    if (at_start && (c == '.' || c == '\'')) safe += "\\&";
    if (c == '\\')
      safe += "\\e";
    else if (c == '-')
      safe += "\\-";
    else if (static_cast<unsigned char>(c) >= 0xc0)
      safe += fmt::format("\\[u{:04X}]", code_point(text, at));
    else
      safe += c;
  }
  return safe;
}

std::string man_option(const OptionSpec& spec) {
  const std::string letter = spec.letter != 0 ? fmt::format("\\fB\\-{}\\fR, ", spec.letter) : std::string();
  const std::string value =
      spec.value_name.empty() ? std::string() : fmt::format(" \\fI{}\\fR", roff(spec.value_name));
  const bool show_default = !spec.default_text.empty() && !spec.value_name.empty();
  return fmt::format(".TP\n{}\\fB\\-\\-{}\\fR{}\n{}{}\n", letter, roff(spec.name), value, roff(help_of(spec)),
                     show_default ? fmt::format(" [{}]", roff(spec.default_text)) : "");
}

/// What follows the usage line: paragraphs, and lines that begin with blanks as they are (commands).
std::string man_paragraphs(std::string_view text) {
  std::string page;
  bool as_it_is = false;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = text.substr(at, end - at);
    at = end + 1;
    const bool verbatim = line.starts_with(' ');
    if (verbatim != as_it_is) page += verbatim ? ".PP\n.nf\n" : ".fi\n";
    as_it_is = verbatim;
    page += line.empty() ? ".PP\n" : roff(line) + "\n";
  }
  return as_it_is ? page + ".fi\n" : page;
}

/// The first sentence below the usage line, for whatis(1).
std::string summary_of(std::string_view usage) {
  const std::size_t blank = usage.find("\n\n");
  if (blank == usage.npos) return "part of dtrain, distributed training";
  std::string text(usage.substr(blank + 2, usage.find("\n\n", blank + 2) - blank - 2));
  std::ranges::replace(text, '\n', ' ');
  text = text.substr(0, text.find(". "));
  while (text.ends_with('.') || text.ends_with(' ')) text.pop_back();
  return roff(text);
}

/// The values of an option that can be one of some words, between blanks.
std::string choices_of(const OptionSpec& spec) {
  const auto* words = std::get_if<OneOf>(&spec.values);
  std::string text(words != nullptr ? words->words : "");
  std::erase(text, ',');
  return text;
}

/// A line each for completion: --name, letter, value name, values to choose from, help; between tabs. An
/// option of no effect is left out.
std::string options_words(std::span<const OptionSpec> specs) {
  std::string text;
  for (const OptionSpec& spec : specs) {
    if (!spec.no_effect.empty()) continue;
    text +=
        fmt::format("--{}\t{}\t{}\t{}\t{}\n", spec.name, spec.letter != 0 ? std::string(1, spec.letter) : "",
                    spec.value_name, choices_of(spec), spec.help);
  }
  return text;
}

/// A manual page (man(7)): what `usage` says, then groups as headings. Its name comes from the usage line:
/// "usage: dtrain data check …" is dtrain-data-check(1).
std::string options_man(std::string_view usage, std::span<const OptionSpec> specs) {
  constexpr std::string_view kUsage = "usage: ";
  const std::string_view line = usage.substr(0, usage.find('\n'));
  const std::string_view synopsis = line.starts_with(kUsage) ? line.substr(kUsage.size()) : line;
  std::string name;
  for (std::size_t at = 0; at < synopsis.size();) {  // the words before what the user fills in
    const std::size_t end = std::min(synopsis.find(' ', at), synopsis.size());
    const std::string_view word = synopsis.substr(at, end - at);
    const bool fixed = word.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-_") == word.npos;
    if (!fixed || word.starts_with('-')) break;
    name.append(name.empty() ? "" : "-").append(word);
    at = end + 1;
  }
  std::string title = name;
  std::ranges::transform(title, title.begin(), [](char c) { return c >= 'a' && c <= 'z' ? c - 32 : c; });
  std::string page =
      fmt::format(".TH {} 1 \"\" dtrain \"dtrain manual\"\n.SH NAME\n{} \\- ", roff(title), roff(name));
  page += fmt::format("{}\n.SH SYNOPSIS\n.B {}\n", summary_of(usage), roff(synopsis));
  const std::string_view rest = usage.substr(std::min(line.size() + 1, usage.size()));
  const std::size_t first = rest.find_first_not_of('\n');
  if (first != rest.npos) page += ".SH DESCRIPTION\n" + man_paragraphs(rest.substr(first));
  page += ".SH OPTIONS\n";
  for (const auto& [heading, rows] : grouped(specs)) {
    if (!heading.empty()) page += fmt::format(".SS {}\n", roff(heading));
    for (const OptionSpec* spec : rows) page += man_option(*spec);
  }
  return page;
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
                                      std::span<const OptionSpec> specs, std::string_view common) {
  const bool all = options.enabled("help-all");
  if (options.has("help")) {
    const std::string& form = options.text("help");
    if (form == "markdown") return options_markdown(specs);
    if (form == "words") return options_words(specs);
    if (form == "man") return options_man(usage, specs);
  }
  if (!all && !options.enabled("help")) return std::nullopt;
  if (all || common.empty()) return options_help(usage, specs);
  const auto names = split_words(common);
  std::vector<OptionSpec> few;
  std::ranges::copy_if(specs, std::back_inserter(few), [&](const OptionSpec& spec) {
    return std::ranges::find(names, spec.name) != names.end();
  });
  return fmt::format("{}\n{} more options: --help-all\n", options_help(usage, few),
                     specs.size() - few.size());
}

std::string options_table(const Options& options) {
  std::string text;
  for (const auto& [name, value] : options.all())
    text += fmt::format("{:<24} {:<28} {}\n", name, value.text, value.source);
  return text;
}

}  // namespace dtrain
