// The agent's store.
#include "tests/fuzz/targets_torch_store.h"

#include <algorithm>
#include <string>

#include "launcher/agent_store/torch_store.h"
#include "tests/fuzz/require.h"

namespace dtrain::fuzz {
namespace {

using launcher::TorchStore;

struct Answers {
  std::string replies;
  bool good = true;
  bool operator==(const Answers&) const = default;
};

// Small enough for inputs to reach them.
constexpr TorchStore::Limits kLimits{.key_bytes = 64,
                                     .value_bytes = 256,
                                     .keys = 16,
                                     .message_bytes = 4096,
                                     .reply_bytes = 128,
                                     .kept_bytes = 8192,
                                     .buffer_bytes = 65536};

// `bytes` from one client in pieces of `step`.
Answers converse(std::string_view bytes, std::size_t step) {
  TorchStore store(kLimits);
  store.join(1);
  Answers answers;
  const auto take = [&] {
    while (answers.good && !store.replies(1).empty()) {
      answers.replies += store.replies(1).substr(0, 50);
      answers.good = store.took(1, std::min<std::size_t>(50, store.replies(1).size()));
    }
  };
  for (std::size_t at = 0; at < bytes.size() && answers.good; at += step) {
    answers.good = store.feed(1, bytes.substr(at, step));
    take();
  }
  store.leave(1);
  store.clear();
  require(store.bytes() == 0, "nothing is left of a client and its values");
  return answers;
}

}  // namespace

void torch_store(std::string_view input) {
  if (input.size() > kLimits.message_bytes) return;
  const std::string hello("\0\xce\xf7\x85\x3c", 5);
  converse(input, input.size() + 1);
  const std::string known = hello + std::string(input);
  const Answers whole = converse(known, known.size()), cut = converse(known, 1);
  require(whole.good == cut.good, "cuts do not matter to who is cut off");
  require(!whole.good || whole.replies == cut.replies, "nor to the answers");
}

}  // namespace dtrain::fuzz
