// Rotary position embedding (Su et al., "RoFormer", 2021): places as turns of queries and keys.
#pragma once

#include <optional>

#include "runtime/tensor/tensor.h"

namespace dtrain {

/// LLaMA 3's stretch of a context: wavelengths above original / low_factor are `factor` times as long, those
/// below original / high_factor stay, and between the two it is interpolated.
struct RotaryScaling {
  double factor = 8;
  double low_factor = 1;
  double high_factor = 4;
  std::int64_t original_positions = 8192;

  bool operator==(const RotaryScaling&) const = default;
};

struct RotaryOptions {
  double theta = 10000;
  std::optional<RotaryScaling> scaling = std::nullopt;

  bool operator==(const RotaryOptions&) const = default;
};

/// Turns features (i, i + E / 2) of a head at position p by the angle p · theta^(-2i / E): the order of
/// Hugging Face's files. Weights for pairs (2i, 2i + 1), as Meta publishes them, are the same with their rows
/// in another order. The angles are float32, as in PyTorch; nothing here is learned or saved. Cheap to copy:
/// copies share their tables.
///
///     const RotaryEmbedding rotary(1024, 64, device);
///     const Tensor seen = scaled_dot_product_attention(rotary(query), rotary(key), value, {}, {.causal =
///     true});
class RotaryEmbedding {
 public:
  /// Tables for positions 0 … positions - 1 of heads of even width. Throws UsageError for others.
  RotaryEmbedding(std::int64_t positions, std::int64_t head_width, const std::shared_ptr<Device>& device,
                  const RotaryOptions& options = {});

  /// x […, L, E], whose tokens are at positions first … first + L - 1 → the same shape. Throws UsageError for
  /// positions beyond the tables.
  Tensor operator()(const Tensor& x, std::int64_t first = 0) const;
  /// x [B, …, L, E], whose tokens are at `positions`, i64 [B, L].
  Tensor operator()(const Tensor& x, const Tensor& positions) const;

  std::int64_t positions() const { return cos_.size(0); }
  /// Moves the tables, those of copies too.
  void move_to(const std::shared_ptr<Device>& device);

 private:
  Tensor cos_, sin_;  ///< [positions, E / 2]
};

}  // namespace dtrain
