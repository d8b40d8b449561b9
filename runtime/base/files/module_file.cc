#include "runtime/base/files/module_file.h"

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/base/files/needed_libraries.h"
#include "runtime/base/unique.h"

namespace dtrain {
namespace {

namespace fs = std::filesystem;

struct HandleTraits {
  using Handle = void*;
  static Handle invalid() noexcept { return nullptr; }
  static void close(Handle handle) noexcept { ::dlclose(handle); }
};

std::vector<std::string> places(const ModuleFile& module) {
  const char* const chosen = std::getenv(module.path_variable);
  if (chosen != nullptr && *chosen != '\0') return {chosen};
  std::vector<std::string> paths;
  std::error_code ignored;
  const fs::path program = fs::read_symlink("/proc/self/exe", ignored), folder = program.parent_path();
  std::vector<fs::path> folders = {folder, folder / "../lib", folder / (".." DTRAIN_LIBDIR_BESIDE_BIN),
                                   fs::path(DTRAIN_LIBDIR_INSTALLED)};
  static const std::vector<fs::path> kRunPath = needed_libraries(program).run_path;
  folders.insert(folders.end(), kRunPath.begin(), kRunPath.end());
  for (const fs::path& place : folders) {
    if (const fs::path file = place / module.file; file.is_absolute() && fs::exists(file, ignored))
      paths.push_back(file.string());
  }
  paths.push_back(module.file);  // the dynamic linker's own places
  return paths;
}

// NODELETE: what is behind a module outlives any one handle, and may not survive being unloaded.
Unique<HandleTraits> open_at(const std::string& path, bool global = false) {
  return Unique<HandleTraits>(
      ::dlopen(path.c_str(), RTLD_NOW | RTLD_NODELETE | (global ? RTLD_GLOBAL : RTLD_LOCAL)));
}

struct MissingLibrary {
  std::string name, problem;  ///< "not found", or why the file that was found cannot be opened
};

/// Opens what the file says it needs and the dynamic linker does not find alone, from its run path and
/// `folders`: the linker then takes what is open already. Returns what could not be opened from any of them.
std::vector<MissingLibrary> open_needed(const NeededLibraries& needed, const std::vector<fs::path>& folders) {
  std::vector<fs::path> places = needed.run_path;
  places.insert(places.end(), folders.begin(), folders.end());
  std::vector<MissingLibrary> missing;
  for (const std::string& name : needed.names) {
    bool opened = static_cast<bool>(open_at(name));
    std::string problem = "not found";
    for (auto place = places.begin(); place != places.end() && !opened; ++place) {
      std::error_code ignored;
      const fs::path file = *place / name;
      if (!fs::exists(file, ignored)) continue;
      opened = static_cast<bool>(open_at(file.string()));
      const char* const text = opened ? nullptr : ::dlerror();
      if (text != nullptr) problem = text;
    }
    if (!opened) missing.push_back({name, problem});
  }
  return missing;
}

[[noreturn]] void refuse(const ModuleFile& module, const std::string& reason, const std::string& what_to_do) {
  throw UsageError("the " + std::string(module.name) + " cannot be loaded (" + reason + "); " + what_to_do);
}

Unique<HandleTraits> open_file(const ModuleFile& module) {
  std::string reason, problem_file;
  for (const std::string& path : places(module)) {
    if (auto handle = open_at(path, module.global)) return handle;
    const char* text = ::dlerror();
    if (!reason.empty() || text == nullptr) continue;
    reason = text;
    if (!reason.starts_with(path)) problem_file = path;  // it names the library that the module needs
  }
  if (problem_file.empty()) refuse(module, reason, module.when_missing);
  if (module.when_libraries_missing == nullptr) refuse(module, reason, module.when_not_usable);
  const NeededLibraries needed = needed_libraries(problem_file);
  const std::vector<MissingLibrary> missing =
      open_needed(needed, module.library_folders ? module.library_folders() : std::vector<fs::path>{});
  if (!missing.empty()) {
    std::string text;
    std::vector<std::string> names;
    for (const MissingLibrary& library : missing) {
      text += (text.empty() ? "it needs " : ", ") + library.name + ": " + library.problem;
      names.push_back(library.name);
    }
    refuse(module, text, module.when_libraries_missing(names, needed.names));
  }
  if (auto handle = open_at(problem_file, module.global)) return handle;
  const char* text = ::dlerror();
  refuse(module, text == nullptr ? reason : text, module.when_not_usable);
}

void* find(const ModuleFile& module, void* handle, const char* name) {
  void* symbol = ::dlsym(handle, name);
  if (symbol == nullptr) {
    throw UsageError("the " + std::string(module.name) + " has no part '" + name +
                     "': it was built without the library for it; the table at the end of configure says "
                     "which and how to get it");
  }
  return symbol;
}

}  // namespace

void* module_symbol(const ModuleFile& module, const char* name) {
  const Unique<HandleTraits> handle = open_file(module);
  const ModuleHead& head = *reinterpret_cast<ModuleHeadFunction>(find(module, handle.get(), module.head))();
  if (head.interface != module.interface || std::string_view(head.version) != DTRAIN_VERSION) {
    throw UsageError("the " + std::string(module.name) + " is of dtrain " + head.version + " (interface " +
                     std::to_string(head.interface) + "), this program of " DTRAIN_VERSION " (interface " +
                     std::to_string(module.interface) + "); build and install both together");
  }
  return find(module, handle.get(), name);
}

}  // namespace dtrain
