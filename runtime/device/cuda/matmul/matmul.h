// The cuBLASLt side of matrix products: handles, plans and the workspace they share on the compute stream.
#pragma once

#include <optional>
#include <unordered_map>

#include "runtime/device/cuda/context.h"
#include "runtime/device/cuda/matmul/matmul_plans.h"
#include "runtime/device/kernel_checks.h"

namespace dtrain::cuda {

using UniqueLt = Unique<PointerTraits<cublasLtHandle_t, cublasLtDestroy>>;
using UniqueLtLayout = Unique<PointerTraits<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>>;
using UniqueLtOperation = Unique<PointerTraits<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>>;
using UniqueLtPreference = Unique<PointerTraits<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>>;

/// Used by the device's thread only.
class MatmulPlans {
 public:
  explicit MatmulPlans(const Context& context);
  /// Queues the product; false when cuBLASLt has no algorithm for the key.
  bool run(const MatmulKey& key, const void* first, const void* second, const void* bias, void* out);

 private:
  struct Plan {
    UniqueLtOperation operation;
    UniqueLtLayout first, second, out;
    cublasLtMatmulAlgo_t algorithm{};
    bool usable = false;
  };
  Plan make_plan(const MatmulKey& key, const void* bias) const;

  Context context_;
  Scratch workspace_;
  UniqueLt handle_;
  std::unordered_map<MatmulKey, Plan, MatmulKeyHash> plans_;
};

}  // namespace dtrain::cuda
