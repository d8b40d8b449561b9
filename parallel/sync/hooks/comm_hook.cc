#include "parallel/sync/hooks/comm_hook.h"

#include "parallel/layout/saved_tensors.h"

namespace dtrain {

NamedTensors saved_state(const CommHook* exchange) {
  if (exchange == nullptr) return {};
  NamedTensors state = exchange->state();
  for (auto& [name, tensor] : state) name.insert(0, kHookState);
  return state;
}

}  // namespace dtrain
