#include "training/start/same_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <string_view>

#include "parallel/share.h"
#include "runtime/base/error.h"

namespace dtrain {
namespace {

std::map<std::string, std::string> shared_options(const Options& options) {
  std::map<std::string, std::string> shared;
  for (const auto& [name, value] : options.all()) {
    if (value.agreement != Agreement::own) shared[name] = value.text;
  }
  return shared;
}

/// What differs first, in words; empty: nothing.
std::string difference(const std::map<std::string, std::string>& own,
                       const std::map<std::string, std::string>& first, int rank) {
  const auto said = [](const std::map<std::string, std::string>& options, const std::string& name) {
    const auto found = options.find(name);
    return found == options.end() ? "nothing" : fmt::format("'{}'", found->second);
  };
  std::map<std::string, std::string> names = own;
  names.insert(first.begin(), first.end());
  for (const auto& [name, value] : names) {
    if (said(own, name) == said(first, name)) continue;
    return fmt::format(
        "--{}: expected {}, as rank 0 has it, got {} on rank {}; start all workers with the "
        "same options",
        name, said(first, name), said(own, name), rank);
  }
  return "";
}

}  // namespace

void check_same_options(const Options& options, Communicator& workers, const Deadline& deadline) {
  const std::map<std::string, std::string> own = shared_options(options);
  const std::string words = difference(own, broadcast_entries(workers, own, deadline), workers.rank());
  if (words.empty()) return;
  workers.abort(words);
  throw UsageError(words);
}

}  // namespace dtrain
