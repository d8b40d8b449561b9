// What this build of dtrain contains.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace dtrain {

/// One optional part and whether it was built in.
struct BuildFeature {
  std::string name;
  bool built = false;
  std::string purpose;
  std::string version;  ///< of the library it was built with; empty: not known
};

/// "0.1.0"
std::string build_version();
/// The optional parts, in the order of the configure table.
std::vector<BuildFeature> build_features();
bool has_feature(std::string_view name);
/// "dtrain 0.1.0 (oneDNN, Gloo, MPI)"
std::string build_description();

}  // namespace dtrain
