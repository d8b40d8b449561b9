#include "runtime/metrics/run_directory.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "runtime/base/error.h"
#include "runtime/base/files/durable_file.h"

namespace dtrain {
namespace {

namespace fs = std::filesystem;

}  // namespace

RunDirectory RunDirectory::create(const fs::path& path, std::uint64_t bytes_needed) {
  RunDirectory run(path);
  try {
    check_writable(path, bytes_needed);
    check_writable(run.checkpoints(), 0);
    check_writable(run.logs(), 0);
  } catch (const UsageError& error) {
    throw UsageError(std::string("run directory: ") + error.what());
  } catch (const SystemError& error) {
    throw with_context("run directory", error);
  }
  return run;
}

fs::path RunDirectory::default_path(const std::string& model, std::time_t now, const fs::path& parent) {
  std::tm local{};
  ::localtime_r(&now, &local);
  char stamp[32];
  std::strftime(stamp, sizeof stamp, "%Y%m%d-%H%M%S", &local);
  std::string name = fmt::format("{}-{}", stamp, model);
  std::ranges::replace_if(  // a model may be named by a path
      name, [](unsigned char c) { return std::isalnum(c) == 0 && c != '-' && c != '_' && c != '.'; }, '-');
  fs::path path = parent / name;
  std::error_code error;
  for (int copy = 2; fs::exists(path, error); ++copy) path = parent / fmt::format("{}-{}", name, copy);
  return path;
}

void RunDirectory::write_config(const std::string& json_text) const {
  replace_file(config(), json_text.ends_with('\n') ? json_text : json_text + "\n");
}

void RunDirectory::write_summary(const std::string& json_text) const {
  replace_file(summary(), json_text.ends_with('\n') ? json_text : json_text + "\n");
}

std::filesystem::path newest_run(const std::filesystem::path& folder) {
  namespace fs = std::filesystem;
  fs::path newest;
  fs::file_time_type at;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const auto written = fs::last_write_time(RunDirectory(entry.path()).metrics(), error);
    if (error || (!newest.empty() && written <= at)) continue;
    newest = entry.path();
    at = written;
  }
  return newest;
}

}  // namespace dtrain
