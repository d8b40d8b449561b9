#include "runtime/device/cuda/notices.h"

#include <algorithm>
#include <mutex>
#include <vector>

namespace dtrain::cuda {
namespace {

/// The module's, as long as the process lives: devices come and go.
struct Notices {
  std::mutex mutex;
  std::vector<std::string> said;
  NoticeListener listener;
};

Notices& notices() {
  static auto* const kept = new Notices;  // never destroyed: a device may outlive whatever ends the program
  return *kept;
}

}  // namespace

void give_notice(const std::string& text) {
  Notices& all = notices();
  const std::lock_guard lock(all.mutex);
  if (std::find(all.said.begin(), all.said.end(), text) != all.said.end()) return;
  all.said.push_back(text);
  if (all.listener) all.listener(text);
}

void listen_to_notices(NoticeListener listener) {
  Notices& all = notices();
  const std::lock_guard lock(all.mutex);
  all.listener = std::move(listener);
  if (!all.listener) return;
  for (const std::string& text : all.said) all.listener(text);
}

}  // namespace dtrain::cuda
