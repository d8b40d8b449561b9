#include "collectives/p2p/store_board.h"

#include <exception>

namespace dtrain {
namespace {

constexpr std::chrono::milliseconds kPatience{500};
// A store that failed this often in a row is taken for lost: a stuck one must not hold errors up again and
// again.
constexpr int kMostFailures = 2;

}  // namespace

template <class Ask>
auto StoreBoard::attempt(Ask ask) noexcept -> std::optional<decltype(ask(Deadline::never()))> {
  if (failures_ >= kMostFailures) return std::nullopt;
  try {
    auto answer = ask(Deadline::after(kPatience));
    failures_ = 0;
    return answer;
  } catch (const std::exception&) {
    ++failures_;
    return std::nullopt;
  }
}

void StoreBoard::post_note(std::string_view note) noexcept {
  attempt([&](const Deadline& deadline) {
    store_.set(note_key(rank_), note, deadline);
    return true;
  });
}

std::optional<std::string> StoreBoard::note_of(int rank) noexcept {
  return attempt([&](const Deadline& deadline) { return store_.try_get(note_key(rank), deadline); })
      .value_or(std::nullopt);
}

std::string StoreBoard::post_end(std::string_view reason) noexcept {
  return attempt([&](const Deadline& deadline) {
           return store_.compare_set(prefix_ + "/end", std::nullopt, reason, deadline);
         })
      .value_or(std::string(reason));
}

std::optional<std::string> StoreBoard::end() noexcept {
  return attempt([&](const Deadline& deadline) { return store_.try_get(prefix_ + "/end", deadline); })
      .value_or(std::nullopt);
}

}  // namespace dtrain
