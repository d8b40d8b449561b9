#include "training/loop/tuned_config.h"

#include <fstream>
#include <nlohmann/json.hpp>
#include <vector>

namespace dtrain {
namespace {

namespace fs = std::filesystem;

/// A run, its folder of checkpoints, or one of those.
std::vector<fs::path> runs_of(const TrainConfig& recipe, const RunDirectory& run) {
  std::vector<fs::path> folders = {run.path()};
  if (recipe.resume.kind != ResumeFrom::Kind::path) return folders;
  fs::path asked = fs::path(recipe.resume.path).lexically_normal();
  if (!asked.has_filename()) asked = asked.parent_path();  // of "run/"
  folders.insert(folders.end(), {asked, asked.parent_path(), asked.parent_path().parent_path()});
  return folders;
}

Choices from_json(const nlohmann::json& json) {
  Choices choices;
  if (!json.is_object()) return choices;
  for (const auto& [name, value] : json.items()) {
    if (value.is_string()) choices[name] = value.get<std::string>();
  }
  return choices;
}

}  // namespace

Choices read_choices(const TrainConfig& recipe, const RunDirectory& run) {
  if (recipe.resume.kind == ResumeFrom::Kind::nothing) return {};
  for (const fs::path& folder : runs_of(recipe, run)) {
    std::ifstream in(RunDirectory(folder).config());
    if (!in) continue;
    const auto config = nlohmann::json::parse(in, nullptr, false);
    return config.is_object() && config.contains("chosen") ? from_json(config["chosen"]) : Choices();
  }
  return {};
}

std::string format_choices(const Choices& choices) { return nlohmann::json(choices).dump(); }

Choices parse_choices(const std::string& text) {
  return from_json(nlohmann::json::parse(text, nullptr, false));
}

}  // namespace dtrain
