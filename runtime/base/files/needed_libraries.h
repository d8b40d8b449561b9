// Which libraries a shared object says it needs: what the dynamic linker reads, so that all that is missing
// can be told at once instead of one library a try.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace dtrain {

/// The dynamic section of a shared object (System V ABI, "Dynamic Section").
struct NeededLibraries {
  std::vector<std::string> names;               ///< DT_NEEDED, in its order: "libcudnn.so.9"
  std::vector<std::filesystem::path> run_path;  ///< DT_RUNPATH or DT_RPATH, $ORIGIN replaced
};

/// Of the 64-bit ELF file `path`, in this machine's byte order. Both lists are empty where it is another kind
/// of file, cut short, or cannot be read: what is wrong with it is told by who opens it.
NeededLibraries needed_libraries(const std::filesystem::path& path);

}  // namespace dtrain
