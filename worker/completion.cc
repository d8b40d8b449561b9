// `dtrain completion`: scripts for shells, and the candidates that they ask for. What there is to choose from
// comes from the tables of options (--help=words) of the programs that are installed together.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <sstream>

#include "worker/commands.h"

namespace dtrain {
namespace {

constexpr std::string_view kUsage =
    "usage: dtrain completion bash|zsh|fish\n\n"
    "Prints a script that completes commands, options and values of dtrain and\n"
    "dtrain-launch in that shell. Packages install it; by hand:\n\n"
    "  bash:  source <(dtrain completion bash)        in ~/.bashrc\n"
    "  zsh:   source <(dtrain completion zsh)         in ~/.zshrc, after compinit\n"
    "  fish:  dtrain completion fish | source         in config.fish\n";

constexpr std::string_view kBash =
    R"(# bash completion of dtrain and dtrain-launch, by `dtrain completion bash`.
_dtrain() {
  local -a words=()
  local word line dtrain glue=false IFS=$'\n'
  for word in "${COMP_WORDS[@]:0:COMP_CWORD+1}"; do  # bash cuts --option=value in three
    if [[ ${#words[@]} -gt 0 && ($word == = || $glue == true) ]]; then words[-1]+=$word; else words+=("$word"); fi
    if [[ $word == = ]]; then glue=true; else glue=false; fi
  done
  dtrain=$(type -P -- "${words[0]/#\~/$HOME}") || return
  COMPREPLY=()
  while read -r line; do
    if [[ $line == :files ]]; then
      compopt -o filenames 2>/dev/null
      COMPREPLY+=($(compgen -f -- "${words[-1]#--*=}"))
    else
      word=${line%%$'\t'*}
      if [[ ${words[-1]} == --*=* ]]; then word=${word#*=}; fi
      COMPREPLY+=("$word")
    fi
  done < <("${dtrain%/*}/dtrain" completion candidates -- "${words[@]}" 2>/dev/null)
}
complete -F _dtrain dtrain dtrain-launch
)";

constexpr std::string_view kZsh = R"(#compdef dtrain dtrain-launch
# zsh completion of dtrain and dtrain-launch, by `dtrain completion zsh`.
_dtrain() {
  local line word dtrain files=0
  local -a found
  dtrain=${commands[${words[1]:t}]:-${words[1]}}
  [[ ${words[1]} == */* ]] && dtrain=${(Q)words[1]/#\~/$HOME}
  for line in "${(@f)$("${dtrain:h}/dtrain" completion candidates -- "${(@Q)words[1,CURRENT]}" 2>/dev/null)}"; do
    if [[ $line == :files ]]; then
      files=1
    elif [[ -n $line ]]; then
      word=${line%%$'\t'*}
      found+=("${word//:/\\:}:${line#*$'\t'}")
    fi
  done
  (( $#found )) && _describe -t options dtrain found
  (( files )) && _files
}
if [[ $funcstack[1] == _dtrain ]]; then _dtrain "$@"; else compdef _dtrain dtrain dtrain-launch; fi
)";

constexpr std::string_view kFish =
    R"(# fish completion of dtrain and dtrain-launch, by `dtrain completion fish`.
function __dtrain_candidates
    set -l words (commandline -opc) (commandline -ct)
    set -l dtrain (dirname (command -s -- $words[1]))/dtrain
    $dtrain completion candidates -- $words 2>/dev/null | string match -v -- :files
end
complete -c dtrain -a '(__dtrain_candidates)'
complete -c dtrain-launch -a '(__dtrain_candidates)'
)";

constexpr std::string_view kLauncher = "dtrain-launch";

/// An option, as --help=words has it.
struct Row {
  std::string name, letter, value, choices, help;

  bool takes_value() const { return !value.empty(); }
  /// Users may write underscores for dashes.
  bool is_called(std::string word) const {
    std::ranges::replace(word, '_', '-');
    return word == name || (!letter.empty() && word == "-" + letter);
  }
};

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, separator);) parts.push_back(part);
  return parts;
}

std::string base_name(const std::string& path) { return path.substr(path.rfind('/') + 1); }

/// What a command of the programs beside this one prints; empty where it fails.
std::string output_of(const std::vector<std::string>& command, std::string_view help) {
  const std::filesystem::path own = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  std::string quoted;
  for (const char c : (own / command.front()).string()) quoted += c == '\'' ? "'\\''" : std::string(1, c);
  std::string line = "'" + quoted + "'";
  for (std::size_t i = 1; i < command.size(); ++i) line += " " + command[i];  // letters alone: see commands()
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(
      ::popen(fmt::format("{} {} 2>/dev/null", line, help).c_str(), "r"), ::pclose);
  std::string text;
  char bytes[4096];
  while (pipe) {
    const std::size_t got = std::fread(bytes, 1, sizeof bytes, pipe.get());
    if (got == 0) break;
    text.append(bytes, got);
  }
  return text;
}

std::vector<Row> options_of(const std::vector<std::string>& command) {
  std::vector<Row> rows;
  for (const std::string& line : split(output_of(command, "--help=words"), '\n')) {
    std::vector<std::string> columns = split(line, '\t');
    columns.resize(5);
    if (columns[0].starts_with("--"))
      rows.push_back({columns[0], columns[1], columns[2], columns[3], columns[4]});
  }
  return rows;
}

/// The words that can follow `command`, with what they do: lines of its help such as "  train      …".
std::map<std::string, std::string> commands_of(const std::vector<std::string>& command) {
  constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyz";
  std::map<std::string, std::string> found;
  for (const std::string& line : split(output_of(command, "--help"), '\n')) {
    const std::size_t end = line.find_first_not_of(kLetters, 2);
    const bool row = line.starts_with("  ") && end != line.npos && end > 2 && line.compare(end, 2, "  ") == 0;
    const std::size_t help = row ? line.find_first_not_of(' ', end) : line.npos;
    if (help != line.npos) found.emplace(line.substr(2, end - 2), line.substr(help));
  }
  return found;
}

class Completion {
 public:
  explicit Completion(const std::vector<std::string>& words) : words_(words) {}

  std::string text() {
    command_ = {base_name(words_.front()) == kLauncher ? std::string(kLauncher) : "dtrain"};
    for (std::size_t i = 1; i + 1 < words_.size(); ++i) {
      if (!take(i)) return ":files\n";
    }
    return candidates(words_.back());
  }

 private:
  const std::vector<Row>& options() {
    auto& rows = options_[command_];
    if (!rows) rows = options_of(command_);
    return *rows;
  }

  const Row* option(const std::string& word) {
    const auto& rows = options();
    const auto found =
        std::find_if(rows.begin(), rows.end(), [&](const Row& row) { return row.is_called(word); });
    return found == rows.end() ? nullptr : &*found;
  }

  /// Takes word `i`, and an option's value with it; false: another program's command line begins.
  bool take(std::size_t& i) {
    const std::string& word = words_[i];
    if (word.starts_with('-') && word != "--") {
      const Row* row = option(word);
      if (row == nullptr || !row->takes_value()) return true;
      if (i + 2 == words_.size()) valued_ = row;
      ++i;
      return true;
    }
    const bool launcher = command_.front() == kLauncher;
    // A launcher's command is its first word; later it is a program's name.
    if ((!launcher || i == 1) && commands_of(command_).contains(word)) {
      command_.push_back(word);
      return true;
    }
    if (!launcher || command_.size() > 1) return true;
    if (word == "--") return true;
    if (base_name(word) != "dtrain") return false;
    command_ = {"dtrain"};
    return true;
  }

  std::string candidates(const std::string& current) {
    const std::size_t equals = current.starts_with("--") ? current.find('=') : current.npos;
    if (equals != current.npos) {
      const Row* row = option(current.substr(0, equals));
      return row == nullptr ? "" : values(*row, current.substr(0, equals + 1), current.substr(equals + 1));
    }
    if (valued_ != nullptr) return values(*valued_, "", current);
    std::string text;
    if (current.starts_with('-')) {
      for (const Row& row : options()) add(text, row.name, row.help, current);
      return text;
    }
    const bool starts_a_job = command_.front() == kLauncher && command_.size() == 1;
    if (!starts_a_job || words_.size() == 2) {
      for (const auto& [name, help] : commands_of(command_)) add(text, name, help, current);
    }
    if (starts_a_job) add(text, "dtrain", "the built-in program", current);
    return text + ":files\n";
  }

  static std::string values(const Row& row, const std::string& before, const std::string& current) {
    std::string text;
    for (const std::string& choice : split(row.choices, ' '))
      add(text, before + choice, "", before + current);
    const auto names = [&](const char* what) { return row.value.find(what) != std::string::npos; };
    return names("FILE") || names("DIR") || names("PATH") || names("FOLDER") ? text + ":files\n" : text;
  }

  static void add(std::string& text, const std::string& word, const std::string& help,
                  const std::string& current) {
    if (!word.empty() && word.starts_with(current)) text += word + "\t" + help + "\n";
  }

  const std::vector<std::string>& words_;
  std::vector<std::string> command_;  ///< "dtrain", "data", "check"
  std::map<std::vector<std::string>, std::optional<std::vector<Row>>> options_;
  const Row* valued_ = nullptr;  ///< the word that is completed is its value
};

}  // namespace

ExitCode run_completion(const Invocation& invocation) {
  const std::vector<std::string>& arguments = invocation.arguments;
  const std::string what = arguments.empty() ? "" : arguments.front();
  if (what == "--help" || what == "-h") {
    fmt::print("{}", kUsage);
  } else if (what == "candidates" && arguments.size() >= 4 && arguments[1] == "--") {
    const std::vector<std::string> words(arguments.begin() + 2, arguments.end());
    fmt::print("{}", Completion(words).text());
  } else if (arguments.size() == 1 && (what == "bash" || what == "zsh" || what == "fish")) {
    fmt::print("{}", what == "bash" ? kBash : what == "zsh" ? kZsh : kFish);
  } else {
    throw UsageError(
        fmt::format("dtrain completion: expected bash, zsh or fish, got {}",
                    what.empty() ? "nothing" : "'" + fmt::format("{}", fmt::join(arguments, " ")) + "'"));
  }
  return ExitCode::ok;
}

}  // namespace dtrain
