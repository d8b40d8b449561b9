// Everyone counts up; the last one opens the gate for all.
#include "cluster/store/store_barrier.h"

#include <fmt/format.h>

#include "runtime/base/error.h"

namespace dtrain {
namespace {

constexpr std::chrono::milliseconds kCountGrace{300};

// How many have come; for the error, so nothing here may replace it.
std::string arrived_text(Store& store, const std::string& counter) {
  try {
    return store.try_get(counter, Deadline::after(kCountGrace)).value_or("0");
  } catch (const Error&) {
    return "an unknown number";
  }
}

}  // namespace

void barrier(Store& store, std::string_view name, int count, const Deadline& deadline) {
  const std::string counter = fmt::format("barrier/{}/arrived", name);
  const std::string gate = fmt::format("barrier/{}/open", name);
  const std::int64_t arrived = store.add(counter, 1, deadline);
  if (arrived > count)
    throw UsageError(
        fmt::format("barrier '{}': expected {} peers, got one more; was the name used before?", name, count));
  if (arrived == count) return store.set(gate, "1", deadline);
  try {
    store.wait({gate}, deadline);
  } catch (const PeerError& error) {
    throw PeerError(fmt::format("barrier '{}': {} of {} peers have arrived; {}", name,
                                arrived_text(store, counter), count, error.what()),
                    error.failure());
  }
}

}  // namespace dtrain
