#include "runtime/base/files/module_file.h"

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <vector>

#include "runtime/base/error.h"
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
  const fs::path folder = fs::read_symlink("/proc/self/exe", ignored).parent_path();
  for (const fs::path& candidate : {folder / module.file, folder / "../lib" / module.file,
                                    folder / (".." DTRAIN_LIBDIR_BESIDE_BIN) / module.file,
                                    fs::path(DTRAIN_LIBDIR_INSTALLED) / module.file}) {
    if (fs::exists(candidate, ignored)) paths.push_back(candidate.string());
  }
  paths.push_back(module.file);  // the dynamic linker's own places
  return paths;
}

Unique<HandleTraits> open_file(const ModuleFile& module) {
  // NODELETE: what is behind a module outlives any one handle, and may not survive being unloaded.
  const int flags = RTLD_NOW | RTLD_NODELETE | (module.global ? RTLD_GLOBAL : RTLD_LOCAL);
  std::string reason;
  bool missing = true;
  for (const std::string& path : places(module)) {
    if (Unique<HandleTraits> handle(::dlopen(path.c_str(), flags)); handle) return handle;
    const char* text = ::dlerror();
    if (!reason.empty() || text == nullptr) continue;
    reason = text;
    missing = reason.starts_with(path);  // else it names the library that the module needs
  }
  throw UsageError("the " + std::string(module.name) + " cannot be loaded (" + reason + "); " +
                   (missing ? module.when_missing : module.when_not_usable));
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
