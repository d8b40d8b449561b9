#include "runtime/data/images/moved.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <numbers>

namespace dtrain {
namespace {

constexpr double kDegree = std::numbers::pi / 180;

/// As Python's round(x, 15): by way of decimal digits.
double rounded_to_15(double x) { return std::strtod(fmt::format("{:.15f}", x).c_str(), nullptr); }

/// As torchvision's inverse of a shear by degrees about `center` and a shift.
AffineMap sheared(double shear_x, double shear_y, double center_x, double center_y, double x, double y) {
  const double sx = shear_x * kDegree, sy = shear_y * kDegree, turn = 0.0 - sy;
  const double a = std::cos(turn) / std::cos(sy);
  const double b = -std::cos(turn) * std::tan(sx) / std::cos(sy);
  const double c = std::sin(turn) / std::cos(sy);
  const double d = -std::sin(turn) * std::tan(sx) / std::cos(sy) + 1.0;
  AffineMap map{d, -b, 0, -c, a, 0};
  map.c += map.a * (-center_x - x) + map.b * (-center_y - y);
  map.f += map.d * (-center_x - x) + map.e * (-center_y - y);
  map.c += center_x;
  map.f += center_y;
  return map;
}

AffineMap turned(double degrees, PictureSize size) {
  const double angle = -(degrees * kDegree), x = size.width / 2.0, y = size.height / 2.0;
  AffineMap map{rounded_to_15(std::cos(angle)),  rounded_to_15(std::sin(angle)), 0,
                rounded_to_15(-std::sin(angle)), rounded_to_15(std::cos(angle)), 0};
  map.c = map.a * -x + map.b * -y + 0.0;
  map.f = map.d * -x + map.e * -y + 0.0;
  map.c += x;
  map.f += y;
  return map;
}

/// In [0, 360), as Python's %.
double whole_turn(double degrees) {
  const double rest = std::fmod(degrees, 360.0);
  return rest < 0 ? rest + 360.0 : rest;
}

double between(int a, int b, double share) { return a + (b - a) * share; }

/// The pixel at (x, y), which lies inside.
void interpolate(const PictureView& from, double x, double y, std::uint8_t* out) {
  x -= 0.5;
  y -= 0.5;
  const int left = static_cast<int>(std::floor(x)), top = static_cast<int>(std::floor(y));
  const double dx = x - left, dy = y - top;
  const std::uint8_t* upper = from.row(std::max(top, 0));
  const std::uint8_t* lower = from.row(std::min(top + 1, from.height - 1));
  const int first = 3 * std::max(left, 0), second = 3 * std::min(left + 1, from.width - 1);
  for (int c = 0; c < 3; ++c) {
    const double above = between(upper[first + c], upper[second + c], dx);
    const double below = between(lower[first + c], lower[second + c], dx);
    out[c] = static_cast<std::uint8_t>(above + (below - above) * dy);
  }
}

/// Of a square: counter-clockwise by a quarter of a turn, or clockwise.
void quarter_turn(const PictureView& from, bool clockwise, Picture& to) {
  const int last = from.width - 1;
  for (int y = 0; y < from.height; ++y) {
    std::uint8_t* out = to.row(y);
    for (int x = 0; x < from.width; ++x, out += 3)
      std::copy_n(clockwise ? from.row(last - x) + 3 * y : from.row(x) + 3 * (last - y), 3, out);
  }
}

void half_turn(const PictureView& from, Picture& to) {
  for (int y = 0; y < from.height; ++y) {
    std::uint8_t* out = to.row(from.height - 1 - y) + 3 * (from.width - 1);
    for (int x = 0; x < from.width; ++x, out -= 3) std::copy_n(from.row(y) + 3 * x, 3, out);
  }
}

}  // namespace

AffineMap affine_map(const PictureOp& op, PictureSize size) {
  const double x = size.width * 0.5, y = size.height * 0.5;
  const double shear = std::atan(op.amount) * (180 / std::numbers::pi);
  switch (op.kind) {
    case PictureOpKind::shear_x:
      return sheared(shear, 0, 0, 0, 0, 0);
    case PictureOpKind::shear_y:
      return sheared(0, shear, 0, 0, 0, 0);
    case PictureOpKind::translate_x:
      return sheared(0, 0, x, y, std::trunc(op.amount), 0);
    case PictureOpKind::translate_y:
      return sheared(0, 0, x, y, 0, std::trunc(op.amount));
    default:
      return turned(whole_turn(op.amount), size);
  }
}

void move_pixels(const PictureView& from, const AffineMap& map, Picture& to) {
  to.resize({from.width, from.height});
  for (int row = 0; row < from.height; ++row) {
    std::uint8_t* out = to.row(row);
    const double down = row + 0.5;
    for (int column = 0; column < from.width; ++column, out += 3) {
      const double right = column + 0.5;
      const double x = map.a * right + map.b * down + map.c, y = map.d * right + map.e * down + map.f;
      if (x < 0 || x >= from.width || y < 0 || y >= from.height) {
        std::fill_n(out, 3, std::uint8_t{0});
      } else {
        interpolate(from, x, y, out);
      }
    }
  }
}

void rotate(const PictureView& from, double degrees, Picture& to) {
  const double angle = whole_turn(degrees);
  const bool square = from.width == from.height;
  to.resize({from.width, from.height});
  if (angle == 180) return half_turn(from, to);
  if (square && (angle == 90 || angle == 270)) return quarter_turn(from, angle == 270, to);
  move_pixels(from, turned(angle, {from.width, from.height}), to);
}

}  // namespace dtrain
