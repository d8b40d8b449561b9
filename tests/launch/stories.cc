#include "tests/launch/stories.h"

#include <algorithm>
#include <fstream>
#include <sstream>
#include <stdexcept>

namespace dtrain::test {

Words Story::words(const std::string& text) const {
  Words all;
  std::istringstream in(text);
  for (std::string word; in >> word;) {
    if (word[0] != '$') {
      all.push_back(word);
      continue;
    }
    const Words& behind = lets.at(word);
    all.insert(all.end(), behind.begin(), behind.end());
  }
  return all;
}

TrainingRun Story::training(int workers, const Words& more, const std::filesystem::path& run_dir) const {
  TrainingRun run{.start = workers == 1 ? Start::alone : Start::launcher,
                  .world = workers,
                  .launcher_arguments = {},
                  .arguments = options,
                  .run_dir = run_dir,
                  .options = limited_to(std::chrono::seconds(100))};
  run.arguments.insert(run.arguments.end(), {"--data-dir", run_dir.parent_path().string()});
  constexpr std::string_view kLauncher = "launcher:";
  for (const std::string& word : more) {
    const bool launcher = word.starts_with(kLauncher);
    (launcher ? run.launcher_arguments : run.arguments)
        .push_back(launcher ? word.substr(kLauncher.size()) : word);
  }
  return run;
}

void PrintTo(const Story& story, std::ostream* out) { *out << story.name; }

std::string name_of_story(const Story& story) {
  std::string name = story.name;
  std::replace(name.begin(), name.end(), ' ', '_');
  return name;
}

std::vector<Story> stories_in(const std::string& path) {
  std::vector<Story> stories;
  Story next;  // its lets are those of all that follow
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line[0] == '#') continue;
    if (line.starts_with("let ")) {
      const std::size_t equals = line.find(" = ");
      next.lets[line.substr(4, equals - 4)] = next.words(line.substr(equals + 3));
      continue;
    }
    const std::size_t colon = line.find(": ");
    const std::string name = trimmed(line.substr(0, colon)), text = line.substr(colon + 2);
    if (line[0] == ' ') {
      stories.back().rows.push_back({name, text});
      continue;
    }
    next.name = name;
    next.options = next.words(text);
    stories.push_back(next);
  }
  if (stories.empty()) throw std::runtime_error("no story in " + path);
  return stories;
}

std::string trimmed(const std::string& text) {
  const std::size_t begin = text.find_first_not_of(' ');
  return begin == std::string::npos ? "" : text.substr(begin, text.find_last_not_of(' ') + 1 - begin);
}

}  // namespace dtrain::test
