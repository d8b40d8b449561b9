#include "training/loop/tuned_config.h"

#include <fstream>
#include <nlohmann/json.hpp>
#include <vector>

namespace dtrain {
namespace {

namespace fs = std::filesystem;

/// A run, its folder of checkpoints, or one of those.
std::vector<fs::path> runs_of(const TrainConfig& config, const RunDirectory& run) {
  std::vector<fs::path> folders = {run.path()};
  if (config.resume.kind != ResumeFrom::Kind::path) return folders;
  fs::path asked = fs::path(config.resume.path).lexically_normal();
  if (!asked.has_filename()) asked = asked.parent_path();  // of "run/"
  folders.insert(folders.end(), {asked, asked.parent_path(), asked.parent_path().parent_path()});
  return folders;
}

TunedConfig from_json(const nlohmann::json& json) {
  TunedConfig tuned;
  if (!json.is_object()) return tuned;
  for (const auto& [name, value] : json.items()) {
    if (value.is_string()) tuned[name] = value.get<std::string>();
  }
  return tuned;
}

}  // namespace

TunedConfig read_tuned_config(const TrainConfig& config, const RunDirectory& run) {
  if (config.resume.kind == ResumeFrom::Kind::nothing) return {};
  for (const fs::path& folder : runs_of(config, run)) {
    std::ifstream in(RunDirectory(folder).config());
    if (!in) continue;
    const auto json = nlohmann::json::parse(in, nullptr, false);
    return json.is_object() && json.contains("chosen") ? from_json(json["chosen"]) : TunedConfig();
  }
  return {};
}

std::string format_tuned_config(const TunedConfig& tuned) { return nlohmann::json(tuned).dump(); }

TunedConfig parse_tuned_config(const std::string& text) {
  return from_json(nlohmann::json::parse(text, nullptr, false));
}

}  // namespace dtrain
