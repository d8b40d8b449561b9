// Atomic functions of kernels. Threads take turns and give theirs up only where they wait, so plain updates
// are atomic. Included by emulated_cuda.h.
#pragma once

template <class T, class V>
T atomicAdd(T* at, V value) {
  const T before = *at;
  *at = static_cast<T>(before + static_cast<T>(value));
  return before;
}
template <class T, class V>
T atomicSub(T* at, V value) {
  const T before = *at;
  *at = static_cast<T>(before - static_cast<T>(value));
  return before;
}
template <class T, class V>
T atomicMax(T* at, V value) {
  const T before = *at;
  if (static_cast<T>(value) > before) *at = static_cast<T>(value);
  return before;
}
template <class T, class V>
T atomicMin(T* at, V value) {
  const T before = *at;
  if (static_cast<T>(value) < before) *at = static_cast<T>(value);
  return before;
}
template <class T, class V>
T atomicExch(T* at, V value) {
  const T before = *at;
  *at = static_cast<T>(value);
  return before;
}
template <class T, class V, class W>
T atomicCAS(T* at, V expected, W value) {
  const T before = *at;
  if (before == static_cast<T>(expected)) *at = static_cast<T>(value);
  return before;
}

/// Counts up to `limit`, then from 0 again.
inline unsigned atomicInc(unsigned* at, unsigned limit) {
  const unsigned before = *at;
  *at = before >= limit ? 0 : before + 1;
  return before;
}
/// Counts down to 0, then from `limit` again.
inline unsigned atomicDec(unsigned* at, unsigned limit) {
  const unsigned before = *at;
  *at = before == 0 || before > limit ? limit : before - 1;
  return before;
}
template <class T, class V>
T atomicAnd(T* at, V value) {
  const T before = *at;
  *at = before & static_cast<T>(value);
  return before;
}
template <class T, class V>
T atomicOr(T* at, V value) {
  const T before = *at;
  *at = before | static_cast<T>(value);
  return before;
}
template <class T, class V>
T atomicXor(T* at, V value) {
  const T before = *at;
  *at = before ^ static_cast<T>(value);
  return before;
}
