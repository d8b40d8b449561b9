#include "launcher/output/filtered_log.h"

#include <algorithm>
#include <utility>

#include "launcher/output/lines.h"
#include "launcher/output/log_lock.h"

namespace dtrain::launcher {

FilteredLog::FilteredLog(const std::string& path, std::vector<std::string> texts, const std::string& mark)
    : texts_(std::move(texts)), file_(open_log_file(path), "log file " + path) {
  lock_ = lock_log_file(path);
  if (is_continued(lock_)) file_.append(mark);
}

void FilteredLog::take(std::string_view prefix, std::string_view piece, bool unfinished, std::string& line) {
  line.append(piece.substr(0, kMaxLineBytes - std::min(kMaxLineBytes, line.size())));
  if (unfinished) return;
  const std::string whole = std::exchange(line, {});
  const bool wanted = std::any_of(texts_.begin(), texts_.end(), [&](const std::string& text) {
    return whole.find(text) != std::string::npos;
  });
  if (wanted) file_.append(std::string(prefix) + whole + "\n");
}

}  // namespace dtrain::launcher
