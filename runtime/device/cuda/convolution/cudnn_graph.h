// A convolution by cuDNN's graph interface, with what only that fuses into it: the bias, and each channel's
// sum and sum of squares, gathered while the output is written. The plain C functions of cudnn.h.
#pragma once

#include <cudnn.h>

#include <optional>
#include <string>
#include <vector>

#include "runtime/device/cuda/check.h"
#include "runtime/device/cuda/convolution/convolutions.h"

namespace dtrain::cuda {

using UniqueBackend = Unique<PointerTraits<cudnnBackendDescriptor_t, cudnnBackendDestroyDescriptor>>;

/// What is computed: the plan's key, and the bias' dtype where there is one.
struct ConvSumsKey {
  ConvKey convolution;
  std::optional<DType> bias;
  bool operator==(const ConvSumsKey&) const = default;
};
struct ConvSumsKeyHash {
  std::size_t operator()(const ConvSumsKey& key) const noexcept;
};

/// A plan with what it was made of. `plan` is null where cuDNN has no engine that will do, and `refusal` says
/// what it answered.
struct ConvSumsPlan {
  std::vector<UniqueBackend> parts;
  UniqueBackend plan;
  std::size_t workspace_bytes = 0;
  std::string refusal = "it names no engine";
};

/// Arrays of a run, all aligned to kSumsAlignment.
struct ConvSumsArrays {
  const void *input, *weight, *bias;  ///< bias null where the key has none
  void* output;
  float *sums, *squares;  ///< [O] each
};
constexpr std::size_t kSumsAlignment = 16;

/// The first plan that cuDNN's heuristic names whose result does not depend on the order of threads, sums in
/// full precision, and wants at most `most_workspace_bytes`. Nothing is tried out: nothing runs, so that
/// whatever fails here (a compiler that cuDNN wants and does not find) is a refusal.
ConvSumsPlan plan_conv_sums(cudnnHandle_t handle, const ConvSumsKey& key, std::size_t most_workspace_bytes);

/// Queues it on the handle's stream. False, having queued nothing, where cuDNN refuses after all. Throws
/// DeviceError for a real failure.
bool run_conv_sums(cudnnHandle_t handle, const ConvSumsPlan& plan, const ConvSumsArrays& arrays,
                   void* workspace);

}  // namespace dtrain::cuda
