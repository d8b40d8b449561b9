// Operators of tensors and numbers: names for the functions of ops.h, which this is a part of.
#pragma once

#include "runtime/tensor/number.h"
#include "runtime/tensor/tensor.h"

namespace dtrain {

Tensor neg(const Tensor& x);
Tensor add(const Tensor& a, const Tensor& b);
Tensor sub(const Tensor& a, const Tensor& b);
Tensor mul(const Tensor& a, const Tensor& b);
Tensor div(const Tensor& a, const Tensor& b);
Tensor add(const Tensor& a, Number b);
Tensor sub(const Tensor& a, Number b);
Tensor mul(const Tensor& a, Number b);
Tensor div(const Tensor& a, Number b);
/// In one pass, where neg() and add() take two.
Tensor sub(Number a, const Tensor& b);
/// reciprocal(b) · a, as PyTorch computes it.
Tensor div(Number a, const Tensor& b);

inline Tensor operator-(const Tensor& x) { return neg(x); }
inline Tensor operator+(const Tensor& a, const Tensor& b) { return add(a, b); }
inline Tensor operator-(const Tensor& a, const Tensor& b) { return sub(a, b); }
inline Tensor operator*(const Tensor& a, const Tensor& b) { return mul(a, b); }
inline Tensor operator/(const Tensor& a, const Tensor& b) { return div(a, b); }
inline Tensor operator+(const Tensor& a, Number b) { return add(a, b); }
inline Tensor operator-(const Tensor& a, Number b) { return sub(a, b); }
inline Tensor operator*(const Tensor& a, Number b) { return mul(a, b); }
inline Tensor operator/(const Tensor& a, Number b) { return div(a, b); }
inline Tensor operator+(Number a, const Tensor& b) { return add(b, a); }
inline Tensor operator-(Number a, const Tensor& b) { return sub(a, b); }
inline Tensor operator*(Number a, const Tensor& b) { return mul(b, a); }
inline Tensor operator/(Number a, const Tensor& b) { return div(a, b); }

// ---- comparisons, element by element: bool, never differentiable. A NaN is unequal to everything, itself
// too. The two sides broadcast; integers beside a fraction are compared as float32, as PyTorch does.
Tensor operator==(const Tensor& a, const Tensor& b);
Tensor operator!=(const Tensor& a, const Tensor& b);
Tensor operator>(const Tensor& a, const Tensor& b);
Tensor operator>=(const Tensor& a, const Tensor& b);
inline Tensor operator<(const Tensor& a, const Tensor& b) { return b > a; }
inline Tensor operator<=(const Tensor& a, const Tensor& b) { return b >= a; }
Tensor operator==(const Tensor& a, Number b);
Tensor operator!=(const Tensor& a, Number b);
Tensor operator>(const Tensor& a, Number b);
Tensor operator>=(const Tensor& a, Number b);
Tensor operator<(const Tensor& a, Number b);
Tensor operator<=(const Tensor& a, Number b);
inline Tensor operator==(Number a, const Tensor& b) { return b == a; }
inline Tensor operator!=(Number a, const Tensor& b) { return b != a; }
inline Tensor operator>(Number a, const Tensor& b) { return b < a; }
inline Tensor operator>=(Number a, const Tensor& b) { return b <= a; }
inline Tensor operator<(Number a, const Tensor& b) { return b > a; }
inline Tensor operator<=(Number a, const Tensor& b) { return b >= a; }

}  // namespace dtrain
