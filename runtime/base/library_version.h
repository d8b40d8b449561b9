// Versions of libraries: the one a program was built with and the one that was found when it ran.
#pragma once

#include <compare>
#include <string>

namespace dtrain {

/// All 0: not known, or not there.
struct Version {
  int major = 0, minor = 0, patch = 0;

  bool known() const noexcept { return major != 0 || minor != 0 || patch != 0; }
  /// "13.0", "9.13.1": the last number only where it is not 0.
  std::string text() const {
    std::string numbers = std::to_string(major);
    numbers.append(".").append(std::to_string(minor));
    if (patch != 0) numbers.append(".").append(std::to_string(patch));
    return numbers;
  }
  auto operator<=>(const Version&) const = default;
};

struct LibraryVersion {
  std::string name;  ///< "cuDNN"
  Version built;     ///< of the headers, when the program was compiled
  Version loaded;    ///< of the library that runs
  std::string file;  ///< where it was loaded from; empty: it is part of the program
};

}  // namespace dtrain
