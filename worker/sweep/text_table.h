// A table for people at a terminal.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace dtrain {

/// Rows of cells, each column as wide as its widest.
class TextTable {
 public:
  void row(std::vector<std::string> cells, std::string rest = {}) {
    widths_.resize(std::max(widths_.size(), cells.size()));
    for (std::size_t i = 0; i < cells.size(); ++i) widths_[i] = std::max(widths_[i], cells[i].size());
    rows_.emplace_back(std::move(cells), std::move(rest));
  }

  std::string text() const {
    std::string text;
    for (const auto& [cells, rest] : rows_) {
      std::string line;
      for (std::size_t i = 0; i < cells.size(); ++i)
        line += fmt::format("{}{:>{}}", i == 0 ? "" : "  ", cells[i], widths_[i]);
      if (!rest.empty()) line += "  " + rest;
      text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
    }
    return text;
  }

 private:
  std::vector<std::pair<std::vector<std::string>, std::string>> rows_;
  std::vector<std::size_t> widths_;
};

}  // namespace dtrain
