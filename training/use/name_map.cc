#include "training/use/name_map.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "runtime/base/error.h"

namespace dtrain {
namespace {

namespace fs = std::filesystem;

std::string trimmed(const std::string& text) {
  constexpr const char* kSpace = " \t\r";
  const auto first = text.find_first_not_of(kSpace);
  return first == std::string::npos ? "" : text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

bool take_star(std::string& name) {
  if (!name.ends_with('*')) return false;
  name.pop_back();
  return true;
}

}  // namespace

void NameMap::add(const std::string& ours, const std::string& theirs, const fs::path& path) {
  Rule rule{ours, theirs, false};
  const bool ours_open = take_star(rule.ours), theirs_open = take_star(rule.theirs);
  if (ours_open != theirs_open || (!ours_open && (ours.empty() || theirs.empty())))
    throw DataError(path.string(), -1, "ours = theirs, or ours.* = theirs.* for all names with that prefix",
                    fmt::format("{} = {}", ours, theirs));
  rule.prefix = ours_open;
  const auto same = [&](const Rule& other) { return other.ours == rule.ours && other.prefix == rule.prefix; };
  if (std::any_of(rules_.begin(), rules_.end(), same))
    throw DataError(path.string(), -1, "one rule for each of our names", fmt::format("{} twice", ours));
  rules_.push_back(std::move(rule));
}

NameMap NameMap::read(const fs::path& path) {
  std::ifstream in(path);
  if (!in || std::filesystem::is_directory(path))
    throw UsageError(fmt::format("--names {}: expected a file of names, {}", path.string(),
                                 in ? "got a directory" : "there is none"));
  NameMap map;
  map.path_ = path;
  if (path.extension() == ".json") {
    const auto json = nlohmann::json::parse(in, nullptr, false);
    if (!json.is_object())
      throw DataError(path.string(), -1, R"(a JSON object {"ours": "theirs", …})", "something else");
    for (const auto& [ours, theirs] : json.items()) {
      if (!theirs.is_string()) throw DataError(path.string(), -1, "a name for " + ours, theirs.dump());
      map.add(ours, theirs.get<std::string>(), path);
    }
    return map;
  }
  std::string line;
  while (std::getline(in, line)) {
    const std::string rule = trimmed(line.substr(0, line.find('#')));
    if (rule.empty()) continue;
    const auto equals = rule.find('=');
    if (equals == std::string::npos) throw DataError(path.string(), -1, "ours = theirs", rule);
    map.add(trimmed(rule.substr(0, equals)), trimmed(rule.substr(equals + 1)), path);
  }
  return map;
}

const NameMap::Rule* NameMap::rule_for(const std::string& name) const {
  const Rule* best = nullptr;
  for (const Rule& rule : rules_) {
    if (!rule.prefix && rule.ours == name) return &rule;
    if (rule.prefix && name.starts_with(rule.ours) &&
        (best == nullptr || rule.ours.size() > best->ours.size()))
      best = &rule;
  }
  return best;
}

std::map<std::string, std::string> NameMap::theirs(const std::vector<std::string>& names) const {
  std::map<std::string, std::string> result;
  std::map<std::string, std::string> taken;  // by theirs
  std::set<const Rule*> used;
  for (const std::string& name : names) {
    const Rule* const rule = rule_for(name);
    used.insert(rule);
    std::string theirs = name;
    if (rule != nullptr) theirs = rule->prefix ? rule->theirs + name.substr(rule->ours.size()) : rule->theirs;
    const auto [other, is_new] = taken.emplace(theirs, name);
    if (!is_new)
      throw UsageError(fmt::format("--names {}: expected another name for each tensor, got {} for {} and {}",
                                   path_.string(), theirs, other->second, name));
    result.emplace(name, theirs);
  }
  for (const Rule& rule : rules_) {
    if (used.contains(&rule)) continue;
    throw UsageError(
        fmt::format("--names {}: expected rules for tensors of this network, got {}{} = {}{}, which "
                    "fits none",
                    path_.string(), rule.ours, rule.prefix ? "*" : "", rule.theirs, rule.prefix ? "*" : ""));
  }
  return result;
}

}  // namespace dtrain
