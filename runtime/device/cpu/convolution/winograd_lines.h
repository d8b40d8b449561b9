// The transforms of Winograd's algorithm in one dimension, for vectors `V` of any length: kIn values `step`
// apart become kOut values. Included where winograd_loops_impl.h is.
#pragma once

/// Lavin and Gray's F(2 x 2, 3 x 3): points 0, 1, -1, ∞.
struct SmallTile {
  static constexpr int kTile = 2, kWindow = 4;
  /// Where A g Aᵀ has the sum of g.
  static constexpr int kSumTap = 5;

  struct Input {
    static constexpr int kIn = 4, kOut = 4;
    static void run(const V* x, int step, V* y, int to_step) {
      y[0] = x[0] - x[2 * step];
      y[to_step] = x[step] + x[2 * step];
      y[2 * to_step] = x[2 * step] - x[step];
      y[3 * to_step] = x[step] - x[3 * step];
    }
  };
  struct Output {
    static constexpr int kIn = 4, kOut = 2;
    static void run(const V* x, int step, V* y, int to_step) {
      y[0] = (x[0] + x[step]) + x[2 * step];
      y[to_step] = (x[step] - x[2 * step]) - x[3 * step];
    }
  };
  struct Gradient {
    static constexpr int kIn = 2, kOut = 4;
    static void run(const V* x, int step, V* y, int to_step) {
      y[0] = x[0];
      y[to_step] = x[0] + x[step];
      y[2 * to_step] = x[0] - x[step];
      y[3 * to_step] = V{} - x[step];
    }
  };
  struct Filter {
    static constexpr int kIn = 3, kOut = 4;
    static void run(const V* x, int step, V* y, int to_step) {
      const V ends = x[0] + x[2 * step];
      y[0] = x[0];
      y[to_step] = 0.5F * (ends + x[step]);
      y[2 * to_step] = 0.5F * (ends - x[step]);
      y[3 * to_step] = x[2 * step];
    }
  };
  struct FilterGradient {
    static constexpr int kIn = 4, kOut = 3;
    static void run(const V* x, int step, V* y, int to_step) {
      const V mean = 0.5F * (x[step] + x[2 * step]);
      y[0] = x[0] + mean;
      y[to_step] = 0.5F * (x[step] - x[2 * step]);
      y[2 * to_step] = mean + x[3 * step];
    }
  };
};

/// F(4 x 4, 3 x 3) with the points 0, ±√½, ±√2, ∞, whose products and sums lose a third of the digits that
/// those of 0, ±1, ±2, ∞ lose (decision 070).
struct LargeTile {
  static constexpr int kTile = 4, kWindow = 6;
  static constexpr int kSumTap = -1;  // none has it
  static constexpr float kLow = 0.70710678F, kHigh = 1.41421356F;

  struct Input {
    static constexpr int kIn = 6, kOut = 6;
    static void run(const V* x, int step, V* y, int to_step) {
      const V low_even = x[4 * step] - 2 * x[2 * step], low_odd = kLow * (x[3 * step] - 2 * x[step]);
      const V high_even = x[4 * step] - 0.5F * x[2 * step], high_odd = kHigh * (x[3 * step] - 0.5F * x[step]);
      y[0] = (x[0] + x[4 * step]) - 2.5F * x[2 * step];
      y[to_step] = low_even + low_odd;
      y[2 * to_step] = low_even - low_odd;
      y[3 * to_step] = high_even + high_odd;
      y[4 * to_step] = high_even - high_odd;
      y[5 * to_step] = (x[step] + x[5 * step]) - 2.5F * x[3 * step];
    }
  };
  struct Output {
    static constexpr int kIn = 6, kOut = 4;
    static void run(const V* x, int step, V* y, int to_step) {
      const V low_sum = x[step] + x[2 * step], low_rest = x[step] - x[2 * step];
      const V high_sum = x[3 * step] + x[4 * step], high_rest = x[3 * step] - x[4 * step];
      y[0] = x[0] + (low_sum + high_sum);
      y[to_step] = kLow * low_rest + kHigh * high_rest;
      y[2 * to_step] = 0.5F * low_sum + 2 * high_sum;
      y[3 * to_step] = (0.5F * kLow) * low_rest + ((2 * kHigh) * high_rest + x[5 * step]);
    }
  };
  struct Gradient {
    static constexpr int kIn = 4, kOut = 6;
    static void run(const V* x, int step, V* y, int to_step) {
      const V low_even = x[0] + 0.5F * x[2 * step], low_odd = kLow * (x[step] + 0.5F * x[3 * step]);
      const V high_even = x[0] + 2 * x[2 * step], high_odd = kHigh * (x[step] + 2 * x[3 * step]);
      y[0] = x[0];
      y[to_step] = low_even + low_odd;
      y[2 * to_step] = low_even - low_odd;
      y[3 * to_step] = high_even + high_odd;
      y[4 * to_step] = high_even - high_odd;
      y[5 * to_step] = x[3 * step];
    }
  };
  struct Filter {
    static constexpr int kIn = 3, kOut = 6;
    static void run(const V* x, int step, V* y, int to_step) {
      const V low_even = (-2.0F / 3) * (x[0] + 0.5F * x[2 * step]), low_odd = (2.0F / 3 * kLow) * x[step];
      const V high_even = (1.0F / 6) * (x[0] + 2 * x[2 * step]), high_odd = (kHigh / 6) * x[step];
      y[0] = x[0];
      y[to_step] = low_even - low_odd;
      y[2 * to_step] = low_even + low_odd;
      y[3 * to_step] = high_even + high_odd;
      y[4 * to_step] = high_even - high_odd;
      y[5 * to_step] = x[2 * step];
    }
  };
  struct FilterGradient {
    static constexpr int kIn = 6, kOut = 3;
    static void run(const V* x, int step, V* y, int to_step) {
      const V low_sum = x[step] + x[2 * step], low_rest = x[2 * step] - x[step];
      const V high_sum = x[3 * step] + x[4 * step], high_rest = x[3 * step] - x[4 * step];
      y[0] = x[0] + ((1.0F / 6) * high_sum - (2.0F / 3) * low_sum);
      y[to_step] = (2.0F / 3 * kLow) * low_rest + (kHigh / 6) * high_rest;
      y[2 * to_step] = (1.0F / 3) * (high_sum - low_sum) + x[5 * step];
    }
  };
};
