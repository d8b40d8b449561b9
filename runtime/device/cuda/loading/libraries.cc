#include "runtime/device/cuda/loading/libraries.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <string_view>
#include <utility>

namespace dtrain::cuda {
namespace {

namespace fs = std::filesystem;

bool is_folder(const fs::path& path) {
  std::error_code ignored;  // one that may not be looked at is none for us
  return fs::is_directory(path, ignored);
}

/// The folders in `folder`, by name; none where it is not there.
std::vector<fs::path> folders_in(const fs::path& folder) {
  std::vector<fs::path> found;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    if (is_folder(entry->path())) found.push_back(entry->path());
  }
  std::ranges::sort(found);
  return found;
}

/// Of the wheels of each Python in `prefix`, the newest Python first.
void add_wheels(const fs::path& prefix, std::vector<fs::path>& folders) {
  std::vector<fs::path> pythons = folders_in(prefix / "lib");
  std::erase_if(pythons,
                [](const fs::path& python) { return !python.filename().string().starts_with("python3"); });
  // "python3.9" comes before "python3.11".
  std::ranges::sort(pythons, std::greater{}, [](const fs::path& python) {
    const std::string name = python.filename().string();
    return std::pair(name.size(), name);
  });
  for (const fs::path& python : pythons) {
    for (const char* const packages : {"site-packages", "dist-packages"}) {
      for (const fs::path& wheel : folders_in(python / packages / "nvidia")) {
        if (is_folder(wheel / "lib")) folders.push_back(wheel / "lib");
      }
    }
  }
}

void add_toolkit(const fs::path& toolkit, std::vector<fs::path>& folders) {
  for (const char* const folder : {"lib64", "lib"}) {
    if (is_folder(toolkit / folder)) folders.push_back(toolkit / folder);
  }
}

/// A library of NVIDIA's: what its file's name begins with, and its packages; "@" stands for CUDA's release.
struct Library {
  std::string_view stem, wheel, deb;
};
constexpr Library kLibraries[] = {{"libcublasLt.so.", "nvidia-cublas-cu@", "libcublas-@-0"},
                                  {"libcudnn.so.9", "nvidia-cudnn-cu@", "libcudnn9-cuda-@"},
                                  {"libnccl.so.2", "nvidia-nccl-cu@", "libnccl2"}};
constexpr std::string_view kCublas = kLibraries[0].stem;

std::string with_release(std::string_view package, const std::string& release) {
  std::string name(package);
  // The wheels of CUDA 13 that are CUDA's own are called after no release.
  if (package == kLibraries[0].wheel && release != "12") return "nvidia-cublas";
  if (const auto at = name.find('@'); at != name.npos) name.replace(at, 1, release);
  return name;
}

/// "13"; where the module says nothing of it, what a module is built with today.
std::string release_of(const std::vector<std::string>& needed) {
  for (const std::string& name : needed) {
    if (name.starts_with(kCublas)) return name.substr(kCublas.size());
  }
  return "13";
}

}  // namespace

std::vector<fs::path> library_folders(const fs::path& program_folder, const Environment& environment,
                                      const fs::path& root) {
  std::vector<fs::path> folders;
  add_wheels(program_folder.parent_path(), folders);
  for (const char* const variable : {"VIRTUAL_ENV", "CONDA_PREFIX"}) {
    if (const std::string* const prefix = find_variable(environment, variable)) add_wheels(*prefix, folders);
  }
  for (const char* const prefix : {"usr/local", "usr"}) add_wheels(root / prefix, folders);
  for (const char* const variable : {"CUDA_PATH", "CUDA_HOME"}) {
    if (const std::string* const toolkit = find_variable(environment, variable))
      add_toolkit(*toolkit, folders);
  }
  add_toolkit(root / "usr/local/cuda", folders);
  std::vector<fs::path> once;
  for (const fs::path& folder : folders) {
    if (std::ranges::find(once, folder) == once.end()) once.push_back(folder);
  }
  return once;
}

std::string how_to_get_libraries(const std::vector<std::string>& missing,
                                 const std::vector<std::string>& needed) {
  const std::string release = release_of(needed);
  std::string wheels, debs, others;
  for (const std::string& name : missing) {
    const auto* const library =
        std::ranges::find_if(kLibraries, [&](const Library& known) { return name.starts_with(known.stem); });
    if (library == std::end(kLibraries)) {
      others += (others.empty() ? "" : ", ") + name;
      continue;
    }
    wheels += fmt::format(" {}", with_release(library->wheel, release));
    debs += fmt::format(" {}", with_release(library->deb, release));
  }
  std::string text;
  if (!wheels.empty()) {
    text = fmt::format(
        "install what is missing, with \"pip install{}\" in the Python environment of dtrain or with \"apt "
        "install{}\" "
        "from NVIDIA's repository",
        wheels, debs);
  }
  if (!others.empty())
    text += fmt::format("{} the package that has {}", text.empty() ? "install" : ", and", others);
  return text + "; or add the folder that has it to LD_LIBRARY_PATH, or use device cpu";
}

}  // namespace dtrain::cuda
