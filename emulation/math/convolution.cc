#include "emulation/math/convolution.h"

#include <algorithm>
#include <vector>

#include "emulation/math/gemm.h"

namespace emulation {
namespace {

constexpr std::int64_t kMostValues = std::int64_t{1} << 22;  // of patches at a time

/// One group of a convolution, a few images at a time.
struct Part {
  Part(const Convolution& convolution, int index) : c(convolution), group(index) {
    channels = c.filter.extent[1];
    outputs = c.filter.extent[0] / c.groups;
    height = c.filter.extent[2];
    width = c.filter.extent[3];
    taps = channels * height * width;
    pixels = c.output.extent[2] * c.output.extent[3];
    images = std::clamp<std::int64_t>(kMostValues / std::max<std::int64_t>(pixels * taps, 1), 1,
                                      c.input.extent[0]);
  }

  /// Calls `f(patch element, input element)` for those inside the image; [row, taps] in the order height,
  /// width, channel.
  template <class F>
  void for_patches(std::int64_t from, std::int64_t count, F f) const {
    const auto& in = c.input;
    for (std::int64_t row = 0; row < count * pixels; ++row) {
      const std::int64_t n = from + row / pixels, place = row % pixels;
      const std::int64_t oh = place / c.output.extent[3], ow = place % c.output.extent[3];
      for (std::int64_t kh = 0; kh < height; ++kh) {
        const std::int64_t h = oh * c.stride[0] - c.pad[0] + kh * c.dilation[0];
        if (h < 0 || h >= in.extent[2]) continue;
        for (std::int64_t kw = 0; kw < width; ++kw) {
          const std::int64_t w = ow * c.stride[1] - c.pad[1] + kw * c.dilation[1];
          if (w < 0 || w >= in.extent[3]) continue;
          const std::int64_t at =
              n * in.step[0] + group * channels * in.step[1] + h * in.step[2] + w * in.step[3];
          f(row * taps + (kh * width + kw) * channels, at);
        }
      }
    }
  }

  void gather(const void* x, std::int64_t from, std::int64_t count, std::vector<float>& patches) const {
    patches.assign(static_cast<std::size_t>(count * pixels * taps), 0.0F);
    for_patches(from, count, [&](std::int64_t to, std::int64_t at) {
      for (std::int64_t i = 0; i < channels; ++i) {
        const auto value = load<float>(c.input.type, x, at + i * c.input.step[1]);
        patches[static_cast<std::size_t>(to + i)] = c.tf32 ? round_to_tf32(value) : value;
      }
    });
  }

  /// This group's filter as [outputs, taps].
  std::vector<float> gather_filter(const void* w) const {
    std::vector<float> filter(static_cast<std::size_t>(outputs * taps));
    for_filter([&](std::int64_t to, std::int64_t at) {
      const auto value = load<float>(c.filter.type, w, at);
      filter[static_cast<std::size_t>(to)] = c.tf32 ? round_to_tf32(value) : value;
    });
    return filter;
  }
  template <class F>
  void for_filter(F f) const {
    const auto& s = c.filter.step;
    std::int64_t to = 0;
    for (std::int64_t o = 0; o < outputs; ++o) {
      for (std::int64_t kh = 0; kh < height; ++kh) {
        for (std::int64_t kw = 0; kw < width; ++kw) {
          for (std::int64_t i = 0; i < channels; ++i) {
            f(to++, (group * outputs + o) * s[0] + i * s[1] + kh * s[2] + kw * s[3]);
          }
        }
      }
    }
  }

  /// Calls `f(output, element of the output array)` for row `row` of the images from `from`.
  template <class F>
  void for_outputs(std::int64_t from, std::int64_t row, F f) const {
    const auto& s = c.output.step;
    const std::int64_t n = from + row / pixels, place = row % pixels;
    const std::int64_t base = n * s[0] + place / c.output.extent[3] * s[2] +
                              place % c.output.extent[3] * s[3] + group * outputs * s[1];
    for (std::int64_t o = 0; o < outputs; ++o) f(o, base + o * s[1]);
  }

  /// The output's gradient as [rows, outputs].
  std::vector<float> gather_outputs(const void* dy, std::int64_t from, std::int64_t count) const {
    std::vector<float> rows(static_cast<std::size_t>(count * pixels * outputs));
    for (std::int64_t row = 0; row < count * pixels; ++row) {
      for_outputs(from, row, [&](std::int64_t o, std::int64_t at) {
        const auto value = load<float>(c.output.type, dy, at);
        rows[static_cast<std::size_t>(row * outputs + o)] = c.tf32 ? round_to_tf32(value) : value;
      });
    }
    return rows;
  }

  const Convolution& c;
  std::int64_t group, channels, outputs, height, width, taps, pixels, images;
};

Matrix dense(const std::vector<float>& values, std::int64_t row_step, std::int64_t column_step) {
  return {Element::f32, values.data(), row_step, column_step, false};
}

void write(Element type, void* to, std::int64_t at, float value, float alpha, float beta) {
  value *= alpha;
  if (beta != 0) value += beta * load<float>(type, to, at);
  store<float>(type, to, at, value);
}

}  // namespace

void convolve(const Convolution& c, float alpha, const void* x, const void* w, float beta, void* y,
              const void* bias, bool relu) {
  std::vector<float> patches, sums;
  for (int group = 0; group < c.groups; ++group) {
    const Part part(c, group);
    const std::vector<float> filter = part.gather_filter(w);
    for (std::int64_t from = 0; from < c.input.extent[0]; from += part.images) {
      const std::int64_t count = std::min(part.images, c.input.extent[0] - from), rows = count * part.pixels;
      part.gather(x, from, count, patches);
      sums.resize(static_cast<std::size_t>(rows * part.outputs));
      multiply(rows, part.outputs, part.taps, dense(patches, part.taps, 1), dense(filter, 1, part.taps),
               sums.data(), false);
      for (std::int64_t row = 0; row < rows; ++row) {
        part.for_outputs(from, row, [&](std::int64_t o, std::int64_t at) {
          float value = alpha * sums[static_cast<std::size_t>(row * part.outputs + o)];
          if (beta != 0) value += beta * load<float>(c.output.type, y, at);
          if (bias != nullptr) value += load<float>(c.output.type, bias, group * part.outputs + o);
          if (relu && value < 0) value = 0;
          store<float>(c.output.type, y, at, value);
        });
      }
    }
  }
}

void convolve_back_to_input(const Convolution& c, float alpha, const void* w, const void* dy, float beta,
                            void* dx) {
  const auto& in = c.input;
  std::vector<float> sums, patches;
  for (int group = 0; group < c.groups; ++group) {
    const Part part(c, group);
    const std::vector<float> filter = part.gather_filter(w);
    for (std::int64_t from = 0; from < in.extent[0]; from += part.images) {
      const std::int64_t count = std::min(part.images, in.extent[0] - from), rows = count * part.pixels;
      patches.resize(static_cast<std::size_t>(rows * part.taps));
      const std::vector<float> gradient = part.gather_outputs(dy, from, count);
      multiply(rows, part.taps, part.outputs, dense(gradient, part.outputs, 1), dense(filter, part.taps, 1),
               patches.data(), false);
      const std::int64_t plane = in.extent[2] * in.extent[3];
      sums.assign(static_cast<std::size_t>(count * plane * part.channels), 0.0F);
      const auto for_inputs = [&](auto f) {
        for (std::int64_t i = 0; i < count * plane * part.channels; ++i) {
          const std::int64_t channel = i % part.channels, pixel = i / part.channels;
          const std::int64_t n = from + pixel / plane, h = pixel % plane / in.extent[3],
                             x = pixel % in.extent[3];
          f(i, n * in.step[0] + (group * part.channels + channel) * in.step[1] + h * in.step[2] +
                   x * in.step[3]);
        }
      };
      // Patches land in [n, h, w, channel] whatever order the array has.
      Convolution flat = c;
      flat.input.step[0] = plane * part.channels;
      flat.input.step[1] = 1;
      flat.input.step[2] = in.extent[3] * part.channels;
      flat.input.step[3] = part.channels;
      Part landing(flat, group);
      const std::int64_t shift = group * part.channels + from * flat.input.step[0];
      landing.for_patches(from, count, [&](std::int64_t patch, std::int64_t at) {
        for (std::int64_t i = 0; i < part.channels; ++i) {
          sums[static_cast<std::size_t>(at - shift + i)] += patches[static_cast<std::size_t>(patch + i)];
        }
      });
      for_inputs([&](std::int64_t i, std::int64_t at) {
        write(in.type, dx, at, sums[static_cast<std::size_t>(i)], alpha, beta);
      });
    }
  }
}

void convolve_back_to_filter(const Convolution& c, float alpha, const void* x, const void* dy, float beta,
                             void* dw) {
  std::vector<float> patches;
  for (int group = 0; group < c.groups; ++group) {
    const Part part(c, group);
    std::vector<float> sums(static_cast<std::size_t>(part.outputs * part.taps), 0.0F);
    for (std::int64_t from = 0; from < c.input.extent[0]; from += part.images) {
      const std::int64_t count = std::min(part.images, c.input.extent[0] - from), rows = count * part.pixels;
      part.gather(x, from, count, patches);
      const std::vector<float> gradient = part.gather_outputs(dy, from, count);
      multiply(part.outputs, part.taps, rows, dense(gradient, 1, part.outputs), dense(patches, part.taps, 1),
               sums.data(), true);
    }
    part.for_filter([&](std::int64_t from, std::int64_t at) {
      write(c.filter.type, dw, at, sums[static_cast<std::size_t>(from)], alpha, beta);
    });
  }
}

}  // namespace emulation
