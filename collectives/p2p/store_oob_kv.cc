#include "collectives/p2p/store_oob_kv.h"

#include <exception>

namespace dtrain {
namespace {

constexpr std::chrono::milliseconds kPatience{500};
// A store that failed this often in a row is taken for lost: a stuck one must not hold errors up again and
// again.
constexpr int kMostFailures = 2;

}  // namespace

template <class Ask>
auto StoreOobKv::attempt(Ask ask) noexcept -> std::optional<decltype(ask(Deadline::never()))> {
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

void StoreOobKv::put_record(std::string_view record) noexcept {
  attempt([&](const Deadline& deadline) {
    store_.set(record_key(rank_), record, deadline);
    return true;
  });
}

std::optional<std::string> StoreOobKv::record_of(int rank) noexcept {
  return attempt([&](const Deadline& deadline) { return store_.try_get(record_key(rank), deadline); })
      .value_or(std::nullopt);
}

std::string StoreOobKv::put_failure(std::string_view reason) noexcept {
  return attempt([&](const Deadline& deadline) {
           return store_.compare_set(prefix_ + "/end", std::nullopt, reason, deadline);
         })
      .value_or(std::string(reason));
}

std::optional<std::string> StoreOobKv::failure() noexcept {
  return attempt([&](const Deadline& deadline) { return store_.try_get(prefix_ + "/end", deadline); })
      .value_or(std::nullopt);
}

}  // namespace dtrain
