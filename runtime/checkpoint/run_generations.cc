#include "runtime/checkpoint/run_generations.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "runtime/base/check.h"
#include "runtime/base/fd.h"
#include "runtime/base/files/durable_file.h"
#include "runtime/checkpoint/input_file.h"

namespace dtrain {
namespace {

namespace fs = std::filesystem;

constexpr const char* kName = "starts.jsonl";

// All of the file; empty where there is none.
std::string text_of(const fs::path& path) {
  std::string text;
  with_patience([&] {
    const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!fd && errno == ENOENT) return;
    if (!fd) throw SystemError("open " + path.string(), errno);
    text = read_whole(fd.get(), path);
  });
  return text;
}

// A last line that a kill has torn is ended, so that it does not take this one with it.
void append_line(const fs::path& path, const std::string& line) {
  const UniqueFd fd(static_cast<int>(check(
      Sys{::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666)}, "open " + path.string())));
  const std::string before = read_whole(fd.get(), path);
  const bool torn = !before.empty() && before.back() != '\n';
  append_whole(fd.get(), (torn ? "\n" : "") + line + "\n", path);
  sync_file(fd.get(), path);
  sync_directory(path.parent_path());
}

}  // namespace

RunGenerations RunGenerations::read(const fs::path& checkpoints) {
  RunGenerations generations;
  std::istringstream lines(text_of(checkpoints / kName));
  for (std::string line; std::getline(lines, line);) {
    const auto entry = nlohmann::json::parse(line, nullptr, false);
    if (!entry.is_object()) continue;
    const auto number = entry.find("start"), step = entry.find("after_step");
    if (number == entry.end() || step == entry.end()) continue;
    if (!number->is_number_integer() || !step->is_number_integer()) continue;
    generations.after_step_[number->get<std::int64_t>()] = step->get<std::int64_t>();
  }
  return generations;
}

std::int64_t RunGenerations::superseded_by(std::int64_t start, std::int64_t step) const noexcept {
  for (auto later = after_step_.upper_bound(start); later != after_step_.end(); ++later) {
    if (later->second < step) return later->first;
  }
  return 0;
}

std::int64_t RunGenerations::begin(const fs::path& checkpoints, std::int64_t step) const {
  const std::int64_t number = newest() + 1;
  // Twice the same line says no more than once.
  with_patience([&] {
    append_line(checkpoints / kName, fmt::format(R"({{"start":{},"after_step":{}}})", number, step));
  });
  return number;
}

}  // namespace dtrain
