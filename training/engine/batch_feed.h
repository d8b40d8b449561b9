// Brings batches to the training device. On a GPU they travel on a copy stream while the step before is still
// computing.
#pragma once

#include <array>
#include <memory>

#include "training/batch_tensors.h"

namespace dtrain {

/// Used by one thread. The caller keeps a batch until the compute stream is past whatever uses its tensors.
class BatchFeed {
 public:
  explicit BatchFeed(const std::shared_ptr<Device>& device);

  /// The batch as tensors; on the CPU they are the batch's own memory and keep it alive.
  BatchTensors take(const Batch& batch);
  /// The same, into tensors of the batch's fields, shapes and layout that exist already.
  void take_into(const Batch& batch, const BatchTensors& to);

 private:
  /// Where a batch lands; free again once it was copied on to its tensors.
  struct Landing {
    Tensor memory;  ///< u8
    std::unique_ptr<Event> arrived, free;
  };
  Landing& next_landing(std::size_t bytes);

  std::shared_ptr<Device> device_;
  std::unique_ptr<Stream> copies_;
  std::array<Landing, 2> landings_;  ///< one fills while the other is read
  std::size_t next_ = 0;
};

}  // namespace dtrain
