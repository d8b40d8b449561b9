// Tests that are lines of text: stories, each with options for all of its rows. resumed.txt and
// refused_options.txt say how they are written.
#pragma once

#include <map>
#include <ostream>
#include <string>
#include <vector>

#include "tests/support/training.h"

namespace dtrain::test {

using Words = std::vector<std::string>;

/// "NAME: TEXT"; options are in the story's words, those behind "let" put in.
struct Row {
  std::string name, text;
};

struct Story {
  std::string name;
  Words options;
  std::vector<Row> rows;
  std::map<std::string, Words> lets;

  /// The words of `text`, what each $WORD stands for put in.
  Words words(const std::string& text) const;
  /// dtrain train with the story's options and `more`, under a launcher or, with one worker, alone; words
  /// that begin with "launcher:" are the launcher's.
  TrainingRun training(int workers, const Words& more, const std::filesystem::path& run_dir) const;
};

void PrintTo(const Story& story, std::ostream* out);
std::string name_of_story(const Story& story);

/// Throws std::runtime_error for a file without stories and std::out_of_range for a $WORD without its "let".
std::vector<Story> stories_in(const std::string& path);

/// Without spaces around it.
std::string trimmed(const std::string& text);

}  // namespace dtrain::test
