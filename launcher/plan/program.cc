// Finds programs as a shell would, plus the built-in one.
#include "launcher/plan/program.h"

#include <sys/auxv.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstring>
#include <fstream>
#include <optional>
#include <string_view>

#include "cluster/detect/program_note.h"
#include "runtime/base/check.h"
#include "runtime/base/error.h"

namespace dtrain::launcher {
namespace {

bool is_file(const std::string& path, struct stat& status) {
  return ::stat(path.c_str(), &status) == 0 && !S_ISDIR(status.st_mode);
}

bool is_executable(const std::string& path) {
  struct stat status {};
  return is_file(path, status) && ::access(path.c_str(), X_OK) == 0;
}

bool same_file(const std::string& a, const std::string& b) {
  struct stat first {
  }, second{};
  return is_file(a, first) && is_file(b, second) && first.st_dev == second.st_dev &&
         first.st_ino == second.st_ino;
}

// What the kernel would run for a script: the first line names it, up to 256 bytes.
void check_interpreter(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  char head[256] = "";
  file.read(head, sizeof head);
  std::string_view line(head, static_cast<std::size_t>(file.gcount()));
  if (!line.starts_with("#!")) return;
  line = line.substr(2, line.find('\n') - 2);
  const bool from_windows = line.ends_with('\r');
  if (from_windows) line.remove_suffix(1);
  const std::size_t begin = std::min(line.find_first_not_of(" \t"), line.size());
  const std::string interpreter(line.substr(begin, line.find_first_of(" \t", begin) - begin));
  if (from_windows)
    throw UsageError("PROGRAM: the first line of " + path + " names the interpreter '" + interpreter +
                     "' and ends in a carriage return, as on Windows, which the kernel takes as part of the "
                     "name; remove them: sed -i 's/\\r$//' " +
                     path);
  if (!interpreter.empty() && ::access(interpreter.c_str(), X_OK) != 0)
    throw UsageError("PROGRAM: the first line of " + path + " names the interpreter '" + interpreter +
                     "', which cannot be run here: " + std::strerror(errno));
}

std::string find_executable(const std::string& name, const Environment& environment) {
  if (name.empty()) throw UsageError("PROGRAM: expected the name of a program, got an empty string");
  struct stat status {};
  if (name.find('/') != std::string::npos) {
    if (is_executable(name)) return name;
    if (::stat(name.c_str(), &status) != 0) throw UsageError("PROGRAM: there is no file '" + name + "'");
    throw UsageError("PROGRAM: '" + name +
                     (S_ISDIR(status.st_mode) ? "' is a folder" : "' is not executable") +
                     "; expected a program, a .py file, or -m and a module");
  }
  const std::string path = variable_or(environment, "PATH", "/usr/local/bin:/usr/bin:/bin");
  if (const auto found = search_path(name, path)) return *found;
  std::string advice;
  if (is_file(name, status)) advice = "; for the file of that name in this folder, use ./" + name;
  throw UsageError("PROGRAM: '" + name + "' was not found in PATH (" + path + ")" + advice);
}

bool is_python_file(const std::string& name) { return name.size() > 3 && name.ends_with(".py"); }

Program python_program(const LaunchOptions& options, const Environment& environment) {
  const std::string& name = options.program.front();
  struct stat status {};
  if (!options.module && !is_file(name, status)) throw UsageError("PROGRAM: there is no file '" + name + "'");
  const std::string python = variable_or(environment, "PYTHON_EXEC", "python3");
  Program program;
  program.path = find_executable(python, environment);
  program.argv = {python, "-u"};
  if (options.module) program.argv.push_back("-m");
  program.argv.insert(program.argv.end(), options.program.begin(), options.program.end());
  return program;
}

Program builtin_program(const LaunchOptions& options, const std::string& beside) {
  if (!is_executable(beside))
    throw UsageError("PROGRAM: the built-in program was expected at " + beside +
                     " and is not there; build or install dtrain, or name a program to run");
  Program program{beside, {"dtrain"}, true};
  auto first = options.program.begin();
  const bool left_out = options.program.empty() || first->starts_with("-");
  if (left_out) {
    program.argv.push_back("train");
  } else {
    ++first;
  }
  program.argv.insert(program.argv.end(), first, options.program.end());
  return program;
}

}  // namespace

std::optional<std::string> search_path(const std::string& name, const std::string& path) {
  std::size_t from = 0;
  while (from <= path.size()) {
    const std::size_t to = std::min(path.find(':', from), path.size());
    const std::string folder = to == from ? "." : path.substr(from, to - from);
    if (is_executable(folder + "/" + name)) return folder + "/" + name;
    from = to + 1;
  }
  return std::nullopt;
}

Program resolve_program(const LaunchOptions& options, const Environment& environment,
                        const std::string& own_folder) {
  const std::string beside = own_folder + "/dtrain";
  if (options.module && options.program.empty())
    throw UsageError("--module: expected the name of a Python module after the options, got nothing");
  if (options.run_path && (options.module || options.program.empty()))
    throw UsageError(options.module ? "--run-path and --module exclude each other: a file, or a module"
                                    : "--run-path: expected a Python file after the options, got nothing");
  if (options.module || options.run_path ||
      (!options.no_python && !options.program.empty() && is_python_file(options.program[0])))
    return python_program(options, environment);
  if (options.program.empty() || options.program[0].starts_with("-") || options.program[0] == "dtrain")
    return builtin_program(options, beside);
  Program program;
  program.path = find_executable(options.program[0], environment);
  program.argv = options.program;
  check_interpreter(program.path);
  program.uses_dtrain = same_file(program.path, beside) || has_program_note(program.path);
  return program;
}

std::string folder_of_this_binary() {
  std::string path(PATH_MAX, '\0');
  const ssize_t length = ::readlink("/proc/self/exe", path.data(), path.size());
  if (length > 0)
    path.resize(static_cast<std::size_t>(length));
  else  // without /proc: the path by which this program was started
    path = reinterpret_cast<const char*>(::getauxval(AT_EXECFN));
  return path.substr(0, path.rfind('/'));
}

}  // namespace dtrain::launcher
