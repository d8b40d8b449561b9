#include "emulation/nccl/reduce.h"

#include <algorithm>
#include <cstdint>

#include "emulation/math/element.h"

namespace emulation {
namespace {

template <class T>
T combine(ncclRedOp_t op, T a, T b) {
  switch (op) {
    case ncclProd:
      return static_cast<T>(a * b);
    case ncclMax:
      return std::max(a, b);
    case ncclMin:
      return std::min(a, b);
    default:  // sum and average
      return static_cast<T>(a + b);
  }
}

template <class T>
void plain(ncclRedOp_t op, void* to, const void* from, std::size_t count) {
  auto* const out = static_cast<T*>(to);
  const auto* const in = static_cast<const T*>(from);
  for (std::size_t i = 0; i < count; ++i) out[i] = combine(op, out[i], in[i]);
}

void narrow(Element type, ncclRedOp_t op, void* to, const void* from, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    const auto at = static_cast<std::int64_t>(i);
    store<float>(type, to, at, combine(op, load<float>(type, to, at), load<float>(type, from, at)));
  }
}

template <class T>
void share(void* values, std::size_t count, int ranks) {
  auto* const out = static_cast<T*>(values);
  for (std::size_t i = 0; i < count; ++i) out[i] = static_cast<T>(out[i] / static_cast<T>(ranks));
}

void share_narrow(Element type, void* values, std::size_t count, int ranks) {
  for (std::size_t i = 0; i < count; ++i) {
    const auto at = static_cast<std::int64_t>(i);
    store<float>(type, values, at, load<float>(type, values, at) / static_cast<float>(ranks));
  }
}

}  // namespace

std::size_t size_of(ncclDataType_t type) {
  switch (type) {
    case ncclInt8:
    case ncclUint8:
      return 1;
    case ncclFloat16:
    case ncclBfloat16:
      return 2;
    case ncclInt32:
    case ncclUint32:
    case ncclFloat32:
      return 4;
    case ncclInt64:
    case ncclUint64:
    case ncclFloat64:
      return 8;
    default:
      return 0;
  }
}

void reduce(ncclDataType_t type, ncclRedOp_t op, void* to, const void* from, std::size_t count) {
  switch (type) {
    case ncclInt8:
      return plain<std::int8_t>(op, to, from, count);
    case ncclUint8:
      return plain<std::uint8_t>(op, to, from, count);
    case ncclInt32:
      return plain<std::int32_t>(op, to, from, count);
    case ncclUint32:
      return plain<std::uint32_t>(op, to, from, count);
    case ncclInt64:
      return plain<std::int64_t>(op, to, from, count);
    case ncclUint64:
      return plain<std::uint64_t>(op, to, from, count);
    case ncclFloat32:
      return plain<float>(op, to, from, count);
    case ncclFloat64:
      return plain<double>(op, to, from, count);
    case ncclFloat16:
      return narrow(Element::f16, op, to, from, count);
    case ncclBfloat16:
      return narrow(Element::bf16, op, to, from, count);
    default:
      return;
  }
}

void divide(ncclDataType_t type, void* values, std::size_t count, int ranks) {
  switch (type) {
    case ncclFloat32:
      return share<float>(values, count, ranks);
    case ncclFloat64:
      return share<double>(values, count, ranks);
    case ncclFloat16:
      return share_narrow(Element::f16, values, count, ranks);
    case ncclBfloat16:
      return share_narrow(Element::bf16, values, count, ranks);
    case ncclInt32:
      return share<std::int32_t>(values, count, ranks);
    case ncclInt64:
      return share<std::int64_t>(values, count, ranks);
    default:
      return;
  }
}

}  // namespace emulation
