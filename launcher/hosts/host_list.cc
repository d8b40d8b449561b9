// Items of a list and lines of a file come to the same: a name, and how many workers.
#include "launcher/hosts/host_list.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>
#include <string_view>

#include "cluster/detect/nodelist.h"
#include "runtime/base/error.h"
#include "runtime/base/options.h"

namespace dtrain::launcher {
namespace {

constexpr int kMostWorkers = 4096;
constexpr std::string_view kNameCharacters =
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_@:%";

[[noreturn]] void refuse(const std::string& where, const std::string& expected, std::string_view got) {
  throw UsageError(fmt::format("{}: expected {}, got '{}'", where, expected, got));
}

int parse_workers(const std::string& where, std::string_view text, std::string_view item) {
  const auto count = parse_integer(text);
  if (!count || *count < 1 || *count > kMostWorkers)
    refuse(where, fmt::format("a number of workers from 1 to {}", kMostWorkers), item);
  return static_cast<int>(*count);
}

// The parts between commas that are not in brackets.
std::vector<std::string> items_of(const std::string& list) {
  std::vector<std::string> items(1);
  int depth = 0;
  for (const char c : list) {
    depth += c == '[' ? 1 : c == ']' ? -1 : 0;
    if (c == ',' && depth <= 0)
      items.emplace_back();
    else
      items.back() += c;
  }
  return items;
}

void add(std::vector<HostEntry>& hosts, const std::string& where, std::string name,
         std::optional<int> workers) {
  if (name.empty() || name.front() == '-' || name.find_first_not_of(kNameCharacters) != std::string::npos)
    refuse(where, "the name or address of a host", name);
  const auto known =
      std::find_if(hosts.begin(), hosts.end(), [&](const HostEntry& host) { return host.name == name; });
  if (known == hosts.end()) {
    hosts.push_back({std::move(name), workers});
  } else {
    known->workers = known->workers.value_or(1) + workers.value_or(1);
  }
}

// `name`, `name:N`, `prefix[a-b]`, `prefix[a-b]:N`; an IPv6 address has several colons.
void add_item(std::vector<HostEntry>& hosts, const std::string& where, const std::string& item,
              std::optional<int> workers) {
  std::string name = item;
  const std::size_t colon = item.rfind(':');
  const bool counted = colon != std::string::npos && item.find(':') == colon;
  if (counted) {
    workers = parse_workers(where, std::string_view(item).substr(colon + 1), item);
    name = item.substr(0, colon);
  }
  if (name.find('[') == std::string::npos) return add(hosts, where, std::move(name), workers);
  const std::size_t at = name.find('@');
  const std::string user = at < name.find('[') ? name.substr(0, at + 1) : "";
  for (const std::string& each : expand_nodelist(name.substr(user.size()), where))
    add(hosts, where, user + each, workers);
}

void add_line(std::vector<HostEntry>& hosts, const std::string& where, const std::string& line) {
  std::istringstream words(line.substr(0, line.find('#')));
  std::string host;
  if (!(words >> host)) return;
  std::optional<int> workers;
  for (std::string word; words >> word;) {
    const std::string name = word.substr(0, word.find('='));
    if (name == "max-slots" || name == "max_slots") continue;
    if (name != "slots" || word.size() == name.size())
      refuse(where, "a host, and after it nothing or slots=N", word);
    workers = parse_workers(where, std::string_view(word).substr(name.size() + 1), word);
  }
  add_item(hosts, where, host, workers);
}

}  // namespace

std::vector<HostEntry> parse_hosts(const std::string& text, const ReadFile& read_file) {
  std::vector<HostEntry> hosts;
  if (!text.starts_with('@')) {
    for (const std::string& item : items_of(text)) add_item(hosts, "--hosts", item, std::nullopt);
    return hosts;
  }
  const std::string path = text.substr(1);
  const auto content = read_file(path);
  if (!content) throw UsageError(fmt::format("--hosts: the file {} cannot be read", path));
  std::istringstream lines(*content);
  int number = 0;
  for (std::string line; std::getline(lines, line);)
    add_line(hosts, fmt::format("--hosts, {}:{}", path, ++number), line);
  if (hosts.empty()) throw UsageError(fmt::format("--hosts: the file {} names no host", path));
  return hosts;
}

}  // namespace dtrain::launcher
