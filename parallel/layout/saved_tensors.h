// Between checkpoints, which look at host memory, and tensors, which may live on a GPU; and what of a
// checkpoint a rank holds.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/checkpoint/named_view.h"
#include "runtime/checkpoint/tensor_files.h"
#include "runtime/tensor/named_tensors.h"

namespace dtrain {

/// A tensor of a checkpoint as one rank has it: all of it, or a part.
struct NamedShard {
  std::string name;
  Tensor tensor;                                   ///< of the part's held_shape(); dense
  std::optional<TensorShard> part = std::nullopt;  ///< nothing: all of it
};

/// What one rank saves. The tensors share memory with the strategy.
struct RankState {
  std::vector<NamedShard> model;      ///< parameters and buffers by the module's names
  std::vector<NamedShard> optimizer;  ///< by Optimizer::named_state's
};

/// `tensors`, each whole.
std::vector<NamedShard> whole(const NamedTensors& tensors);

/// By which name a rank has what was saved as `saved`; nothing where it has it not.
using NameHere = std::function<std::optional<std::string>(const std::string& saved)>;

/// All of `files` but a sync's, on `device`, read one by one; a device other than the CPU needs one of
/// them on the host.
NamedTensors load_tensors(const TensorFiles& files, const std::shared_ptr<Device>& device);

/// Whether what was saved as `name` is `tensor`, or its state, as "fc1.weight.exp_avg" is of "fc1.weight".
bool belongs_to(std::string_view name, std::string_view tensor);
/// The same for one of `tensors`.
bool belongs_to(std::string_view name, const NamedTensors& tensors);

/// What a gradient sync keeps from step to step (GradientSync::state) stands among the optimizer's tensors,
/// its names behind this; another sync leaves it out.
inline constexpr std::string_view kSyncState = "exchange/";

/// `state` of a sync by the names that checkpoints have for it.
NamedTensors named_for_saving(NamedTensors state);
/// The sync's own name of what was saved as `saved`; nothing for what is not a sync's.
std::optional<std::string> name_in_sync(const std::string& saved);

/// `parts` where the host can read them: its own tensors themselves, of a device that runs ahead copies
/// (waits for it).
RankState on_host(RankState parts);

/// Borrowed views of parts that on_host() gave, for a snapshot.
std::vector<NamedView> views_of(const std::vector<NamedShard>& parts);

}  // namespace dtrain
