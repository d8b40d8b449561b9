// Convolutions other than conv2d, as torch.nn.functional has them. They run on the kernels of conv2d, on
// every device and in every dtype that these take.
#pragma once

#include <array>
#include <cstdint>

#include "runtime/device/kernels.h"
#include "runtime/tensor/tensor.h"

namespace dtrain {

struct Conv1dGeometry {
  std::int64_t stride = 1, pad = 0, dilation = 1, groups = 1;
};

struct Conv3dGeometry {
  std::int64_t stride_d = 1, stride_h = 1, stride_w = 1;
  std::int64_t pad_d = 0, pad_h = 0, pad_w = 0;
  std::int64_t dilation_d = 1, dilation_h = 1, dilation_w = 1;
  std::int64_t groups = 1;
};

/// x [N, C, L], w [O, C / groups, K], bias [O] or undefined → [N, O, (L + 2·pad - dilation·(K - 1) - 1) /
/// stride
/// + 1].
Tensor conv1d(const Tensor& x, const Tensor& w, const Tensor& bias, const Conv1dGeometry& geometry = {});

/// x [N, C, D, H, W], w [O, C / groups, KD, KH, KW], bias [O] or undefined → [N, O, OD, OH, OW]. The KD
/// frames that an output frame is made of become channels of one two-dimensional convolution: it needs KD
/// times the memory of x.
Tensor conv3d(const Tensor& x, const Tensor& w, const Tensor& bias, const Conv3dGeometry& geometry = {});

/// The gradient of conv2d with respect to its input, as a layer: x [N, C, H, W], w [C, O / groups, KH, KW],
/// bias [O] or undefined → [N, O, (H - 1)·stride - 2·pad + dilation·(KH - 1) + output_padding + 1, …].
/// output_padding chooses among the inputs that conv2d maps to one size; smaller than stride or dilation.
Tensor conv_transpose2d(const Tensor& x, const Tensor& w, const Tensor& bias,
                        const Conv2dGeometry& geometry = {}, std::int64_t output_padding_h = 0,
                        std::int64_t output_padding_w = 0);

/// The same of volumes: x [N, C, D, H, W], w [C, O / groups, KD, KH, KW] → [N, O, OD, OH, OW]; output_padding
/// of frames, rows and columns. Each frame becomes KD, which overlap: it needs KD times the memory of the
/// result.
Tensor conv_transpose3d(const Tensor& x, const Tensor& w, const Tensor& bias,
                        const Conv3dGeometry& geometry = {},
                        const std::array<std::int64_t, 3>& output_padding = {0, 0, 0});

/// The same of sequences: x [N, C, L], w [C, O / groups, K] → [N, O, (L - 1)·stride - 2·pad + dilation·(K -
/// 1) + output_padding + 1].
Tensor conv_transpose1d(const Tensor& x, const Tensor& w, const Tensor& bias,
                        const Conv1dGeometry& geometry = {}, std::int64_t output_padding = 0);

}  // namespace dtrain
