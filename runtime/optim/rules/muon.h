// Muon: steps by the orthogonal part of a matrix's momentum (Jordan et al., "Muon: An optimizer for hidden
// layers in neural networks", 2024), and AdamW for what is no matrix.
#pragma once

#include <array>

#include "runtime/optim/layerwise.h"

namespace dtrain {

/// What the rate of a matrix [O, K] is multiplied by.
enum class MuonScale {
  original,            ///< √max(1, O / K)
  match_rms_adamw,     ///< 0.2 · √max(O, K): rates and weight decay of AdamW fit (Liu et al. 2025)
  spectral_unclamped,  ///< √(O / K) (Bernstein 2025)
};

struct MuonOptions {
  double lr = 1e-3;
  double weight_decay = 0.1;  ///< decoupled
  double momentum = 0.95;
  bool nesterov = true;
  MuonScale scale = MuonScale::original;
  std::array<double, 3> coefficients = {3.4445, -4.775, 2.0315};  ///< of the Newton-Schulz iteration
  int iterations = 5;
  double eps = 1e-7;  ///< least norm that a matrix is divided by
  /// False: AdamW with the numbers below, for biases and norms, and commonly for embeddings and the last
  /// layer.
  bool adapts = true;
  double beta1 = 0.9, beta2 = 0.95, adam_eps = 1e-8;
};

/// A step of a matrix w: m += (1 - momentum) · (g - m), the direction d = g + momentum · (m - g) (or m), o =
/// what an iteration of five products makes of d, which has all singular values near 1; w = w · (1 - lr ·
/// weight_decay) - lr · scale · o. torch.optim.Muon's, but that the iteration is computed in float32 (float64
/// for float64), where PyTorch rounds to bfloat16. Of more than two dimensions, the first is the rows. State:
/// "<parameter>.exp_avg", of groups that do not adapt "<parameter>.exp_avg_sq" too, and the count of steps.
/// Parameters must be whole: a part has other singular values. Steps are not for recording.
///
///     const NamedTensors all = network.named_parameters();
///     Muon optimizer(layerwise_groups(all, names_of_vectors(all), MuonOptions{.lr = 0.02}));
class Muon : public StatefulOptimizer {
 public:
  /// Throws UsageError naming the option for values outside their range, and for a group that adapts and has
  /// a parameter of fewer than two dimensions.
  Muon(NamedTensors parameters, const MuonOptions& options);
  explicit Muon(const std::vector<ParameterGroup<MuonOptions>>& groups);

 protected:
  bool keeps(std::size_t group, std::size_t quantity) const override;
  void run(std::size_t group, std::int64_t step, const DeviceGroup& devices,
           std::span<const OptimizerSlot> slots) override;

 private:
  std::vector<MuonOptions> options_;  ///< of each group
};

/// `options` for all parameters, but AdamW for those named in `outer` (names_of_outer_parameters of the whole
/// network), of them those in `vectors` (names_of_vectors) without weight decay. Empty groups are left out.
std::vector<ParameterGroup<MuonOptions>> muon_groups(const NamedTensors& parameters,
                                                     const std::set<std::string>& outer,
                                                     const std::set<std::string>& vectors,
                                                     const MuonOptions& options);

/// x [O, K] with its singular values moved near 1 by a Newton-Schulz iteration, in x's dtype.
Tensor orthogonalized(const Tensor& x, const std::array<double, 3>& coefficients, int iterations, double eps);

}  // namespace dtrain
