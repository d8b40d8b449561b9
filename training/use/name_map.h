// Names of tensors here and elsewhere: which of ours is which of theirs.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace dtrain {

/// Rules from a file, of which the most exact that fits a name says what it is called elsewhere; a name that
/// none fits is the same there. The file has a rule a line, `ours = theirs`, where `ours.* = theirs.*` is for
/// every name that begins so (`* = theirs.*` for all); `#` begins a comment. A file whose name ends in .json
/// is one JSON object, {"ours": "theirs", …}, with the same rules.
class NameMap {
 public:
  /// No rules.
  NameMap() = default;
  /// Throws UsageError for a missing file, DataError (path, line) for what is no rule, a rule that is there
  /// twice.
  static NameMap read(const std::filesystem::path& path);

  /// Each of our `names` → theirs. Throws UsageError for a rule that fits none of them, and for two names
  /// that would become one.
  std::map<std::string, std::string> theirs(const std::vector<std::string>& names) const;

 private:
  struct Rule {
    std::string ours, theirs;  ///< without the star
    bool prefix = false;
  };
  void add(const std::string& ours, const std::string& theirs, const std::filesystem::path& path);
  const Rule* rule_for(const std::string& name) const;

  std::filesystem::path path_;
  std::vector<Rule> rules_;
};

}  // namespace dtrain
