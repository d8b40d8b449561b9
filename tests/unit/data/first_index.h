// Whether a kept list of pictures was used, or made again in its place.
#pragma once

#include <filesystem>

namespace dtrain::test {

/// The one file in a folder, to which a second name keeps it apart from one that replaces it.
class FirstIndex {
 public:
  FirstIndex(const std::filesystem::path& directory, const std::filesystem::path& second_name)
      : path_(std::filesystem::directory_iterator(directory)->path()) {
    std::filesystem::create_hard_link(path_, second_name);
  }
  bool is_there() const { return std::filesystem::hard_link_count(path_) == 2; }

 private:
  std::filesystem::path path_;
};

}  // namespace dtrain::test
