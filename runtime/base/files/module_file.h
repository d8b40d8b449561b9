// Modules: shared objects with parts of dtrain that stand on large libraries (CUDA, MPI), opened only when a
// job asks for them. Programs link none of those libraries: each would cost every start its time, and keep
// the program from running where the library is missing.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace dtrain {

/// What every module begins with: who built it. Its function of the name ModuleFile::head returns it.
struct ModuleHead {
  int interface = 0;
  const char* version = "";
};
using ModuleHeadFunction = const ModuleHead* (*)();

/// How a module is found and what is said where it is not.
struct ModuleFile {
  const char* name;             ///< in messages: "CUDA module"
  std::string file;             ///< "libdtrain_cuda.so"
  const char* path_variable;    ///< the environment variable that names it; then nowhere else is looked
  const char* head;             ///< "dtrain_cuda_module"
  int interface;                ///< grows with every change of what program and module share
  std::string when_missing;     ///< how to get the module itself
  std::string when_not_usable;  ///< what to do where a library that it needs is missing
  bool global = false;          ///< plugins of the library behind it want to see that library's symbols
  /// Where libraries that it needs may lie beside the places of the dynamic linker, best first; asked only
  /// where that finds one of them in none.
  std::function<std::vector<std::filesystem::path>()> library_folders = {};
  /// What to do where `missing`, some of the libraries that it says it `needed`, are nowhere; unset:
  /// when_not_usable.
  std::function<std::string(const std::vector<std::string>& missing, const std::vector<std::string>& needed)>
      when_libraries_missing = {};
};

/// Opens the module (once; it stays for the life of the process) and returns its symbol. Looks at
/// `path_variable`, beside the program, in ../lib of it, where it was installed, and where the dynamic linker
/// looks, the program's own run path included. Throws UsageError naming what is missing, all of it, and how
/// to get it, or that program and module are of different versions. Thread-safe; a few microseconds after the
/// first.
void* module_symbol(const ModuleFile& module, const char* name);

}  // namespace dtrain
