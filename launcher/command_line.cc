// Splits, spells out and settles the command line. cxxopts sees only our own options, all in one spelling.
#include "launcher/command_line.h"

#include <cxxopts.hpp>
#include <nlohmann/json.hpp>

#include "launcher/flags.h"
#include "runtime/base/error.h"

namespace dtrain::launcher {
namespace {

struct Cut {
  std::vector<std::string> ours;  // canonical --name=value tokens
  std::vector<std::string> program;
};

[[noreturn]] void unknown(const std::string& what, std::string_view name) {
  const std::string near = closest_flag(name);
  throw UsageError("unknown " + what + (near.empty() ? "" : "; did you mean '--" + near + "'?") +
                   " (dtrain-launch --help lists all)");
}

std::string spelled(const Flag& flag, std::string_view value) {
  return "--" + std::string(flag.name) + "=" + std::string(value);
}

// Takes the token at `i` (and its value, if that is the next one) apart; leaves `i` on the last token used.
std::string long_option(const std::vector<std::string>& arguments, std::size_t& i) {
  const std::string_view token = std::string_view(arguments[i]).substr(2);
  const std::size_t equals = token.find('=');
  const std::string_view name = token.substr(0, equals);
  const Flag* flag = find_flag(name);
  if (flag == nullptr) unknown("option '--" + std::string(name) + "'", name);
  if (equals != std::string_view::npos) return spelled(*flag, token.substr(equals + 1));
  if (!flag->takes_value) return spelled(*flag, "true");
  if (i + 1 == arguments.size())
    throw UsageError("--" + std::string(name) + ": expected a value (" + std::string(flag->argument) +
                     "), got the end of the command line");
  return spelled(*flag, arguments[++i]);
}

std::string short_option(const std::vector<std::string>& arguments, std::size_t& i) {
  const std::string& token = arguments[i];
  const Flag* flag = find_flag(token[1]);
  if (flag == nullptr || (!flag->takes_value && token.size() > 2)) {
    // A single dash before a long name is a common slip.
    unknown("option '" + token + "'", std::string_view(token).substr(1));
  }
  if (!flag->takes_value) return spelled(*flag, "true");
  if (token.size() > 2) return spelled(*flag, std::string_view(token).substr(token[2] == '=' ? 3 : 2));
  if (i + 1 == arguments.size())
    throw UsageError(token + ": expected a value (" + std::string(flag->argument) +
                     "), got the end of the command line");
  return spelled(*flag, arguments[++i]);
}

Cut cut_at_program(const std::vector<std::string>& arguments) {
  Cut cut;
  std::size_t i = 0;
  for (; i < arguments.size(); ++i) {
    const std::string& token = arguments[i];
    if (token == "--") {
      ++i;
      break;
    }
    if (token.size() < 2 || token[0] != '-') break;
    cut.ours.push_back(token[1] == '-' ? long_option(arguments, i) : short_option(arguments, i));
  }
  cut.program.assign(arguments.begin() + static_cast<std::ptrdiff_t>(i), arguments.end());
  return cut;
}

// For parsing, every option takes a text: each token has one by then, and options.cc says what is wrong with
// it.
cxxopts::Options described_options(bool for_help) {
  cxxopts::Options options("dtrain-launch",
                           "Starts one worker per GPU (or CPU slot) and looks after them until all end.");
  options.custom_help("[OPTIONS] [PROGRAM [ITS ARGUMENTS]]");
  for (const Flag& flag : all_flags()) {
    const std::string names =
        (flag.letter != 0 ? std::string(1, flag.letter) + "," : std::string()) + std::string(flag.name);
    std::shared_ptr<cxxopts::Value> value = cxxopts::value<std::string>();
    if (for_help && !flag.takes_value) value = cxxopts::value<bool>();
    options.add_option(std::string(flag.group),
                       cxxopts::Option(names, std::string(flag.help), value, std::string(flag.argument)));
  }
  return options;
}

// cxxopts 2 wants what main() gets; 3 is content with it.
std::map<std::string, std::string> given_on_command_line(std::vector<std::string> ours) {
  ours.insert(ours.begin(), "dtrain-launch");
  std::vector<char*> pointers;
  for (std::string& token : ours) pointers.push_back(token.data());
  pointers.push_back(nullptr);
  int argc = static_cast<int>(ours.size());
  char** argv = pointers.data();
  std::map<std::string, std::string> given;
  try {
    cxxopts::Options options = described_options(false);
    const cxxopts::ParseResult result = options.parse(argc, argv);
    for (const auto& pair : result.arguments()) given[pair.key()] = pair.value();
  } catch (const std::exception& error) {
    throw UsageError(std::string("command line: ") + error.what());
  }
  return given;
}

std::string json_as_text(const nlohmann::json& value, const std::string& path, const std::string& key) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_number() || value.is_boolean()) return value.dump();
  throw UsageError("config " + path + ": " + key + ": expected a string, number or boolean, got " +
                   value.dump());
}

std::map<std::string, std::string> given_in_config(const std::string& path, const FileReader& read_file) {
  const nlohmann::json json = nlohmann::json::parse(read_file(path), nullptr, false);
  if (!json.is_object())
    throw DataError(path, -1, "a JSON object of option names and values",
                    json.is_discarded() ? "text that is not JSON" : std::string(json.type_name()));
  std::map<std::string, std::string> given;
  for (const auto& [key, value] : json.items()) {
    const Flag* flag = find_flag(key);
    if (flag == nullptr) unknown("option '" + key + "' in config " + path, key);
    given[std::string(flag->name)] = json_as_text(value, path, key);
  }
  return given;
}

void note_if_without_meaning(const Flag& flag, const Setting& setting, std::vector<std::string>& notes) {
  if (flag.no_meaning.empty() || setting.source == "default") return;
  notes.push_back("--" + std::string(flag.name) + " has no effect: " + std::string(flag.no_meaning));
}

}  // namespace

CommandLine parse_command_line(const std::vector<std::string>& arguments, const Environment& environment,
                               const FileReader& read_file) {
  Cut cut = cut_at_program(arguments);
  const auto on_line = given_on_command_line(cut.ours);
  CommandLine line;
  line.program = std::move(cut.program);

  const auto settle = [&](const Flag& flag, const std::map<std::string, std::string>& in_config,
                          const std::string& config_path) {
    const std::string name(flag.name);
    if (const auto found = on_line.find(name); found != on_line.end()) return Setting{found->second, "flag"};
    // Nobody asks for help through the environment; DTRAIN_VERSION may well mean something else.
    if (name == "help" || name == "version") return Setting{std::string(flag.default_value), "default"};
    const std::string variable = variable_of(flag);
    if (const auto found = environment.find(variable); found != environment.end())
      return Setting{found->second, variable};
    if (const auto found = in_config.find(name); found != in_config.end())
      return Setting{found->second, "config " + config_path};
    return Setting{std::string(flag.default_value), "default"};
  };

  const std::string config_path = settle(*find_flag("config"), {}, "").value;
  std::map<std::string, std::string> in_config;
  if (!config_path.empty()) in_config = given_in_config(config_path, read_file);
  for (const Flag& flag : all_flags()) {
    const Setting& setting = line.settings[std::string(flag.name)] = settle(flag, in_config, config_path);
    note_if_without_meaning(flag, setting, line.notes);
  }
  return line;
}

std::string help_text() {
  cxxopts::Options options = described_options(true);
  std::vector<std::string> groups;
  for (const Flag& flag : all_flags()) {
    if (groups.empty() || groups.back() != flag.group) groups.emplace_back(flag.group);
  }
  return options.help(groups) +
         "\nPROGRAM is the built-in dtrain (when left out: dtrain train), a .py file, a\n"
         "module with -m, or any executable. Everything from PROGRAM on belongs to it.\n"
         "Options can be spelled with dashes or underscores, set as DTRAIN_<OPTION> in\n"
         "the environment, or put in the file given by --config; the command line wins\n"
         "over the environment, and the environment over the file.\n";
}

std::string config_text(const CommandLine& line) {
  std::string text;
  for (const Flag& flag : all_flags()) {
    const Setting& setting = line.settings.at(std::string(flag.name));
    std::string row = std::string(flag.name);
    row.resize(std::max<std::size_t>(row.size() + 1, 21), ' ');
    row += setting.value.empty() ? "-" : setting.value;
    row.resize(std::max<std::size_t>(row.size() + 2, 52), ' ');
    text += row + setting.source + "\n";
  }
  return text;
}

}  // namespace dtrain::launcher
