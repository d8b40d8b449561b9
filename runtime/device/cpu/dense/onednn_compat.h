// The one place that knows how oneDNN 2.x and 3.x differ: 2.x builds a primitive descriptor from an operation
// descriptor, 3.x from the engine and the arguments themselves.
#pragma once

#include <oneapi/dnnl/dnnl.hpp>

namespace dtrain::cpu::onednn {

struct ConvArguments {
  dnnl::memory::desc src, weights, bias, dst;  ///< bias may be empty
  dnnl::memory::dims strides, dilates, pad_left, pad_right;
};

inline dnnl::convolution_forward::primitive_desc conv_forward(const dnnl::engine& engine,
                                                              const ConvArguments& a,
                                                              const dnnl::primitive_attr& attr) {
  constexpr auto kKind = dnnl::prop_kind::forward_training;
  constexpr auto kDirect = dnnl::algorithm::convolution_direct;
#if DNNL_VERSION_MAJOR >= 3
  return {engine, kKind,     kDirect,   a.src,      a.weights,   a.bias,
          a.dst,  a.strides, a.dilates, a.pad_left, a.pad_right, attr};
#else
  return {{kKind, kDirect, a.src, a.weights, a.bias, a.dst, a.strides, a.dilates, a.pad_left, a.pad_right},
          attr,
          engine};
#endif
}

inline dnnl::convolution_backward_data::primitive_desc conv_backward_data(
    const dnnl::engine& engine, const ConvArguments& a, const dnnl::primitive_attr& attr,
    const dnnl::convolution_forward::primitive_desc& forward) {
  constexpr auto kDirect = dnnl::algorithm::convolution_direct;
#if DNNL_VERSION_MAJOR >= 3
  return {engine,    kDirect,    a.src,       a.weights, a.dst, a.strides,
          a.dilates, a.pad_left, a.pad_right, forward,   attr};
#else
  return {{kDirect, a.src, a.weights, a.dst, a.strides, a.dilates, a.pad_left, a.pad_right},
          attr,
          engine,
          forward};
#endif
}

inline dnnl::convolution_backward_weights::primitive_desc conv_backward_weights(
    const dnnl::engine& engine, const ConvArguments& a, const dnnl::primitive_attr& attr,
    const dnnl::convolution_forward::primitive_desc& forward) {
  constexpr auto kDirect = dnnl::algorithm::convolution_direct;
#if DNNL_VERSION_MAJOR >= 3
  return {engine,    kDirect,   a.src,      a.weights,   a.bias,  a.dst,
          a.strides, a.dilates, a.pad_left, a.pad_right, forward, attr};
#else
  return {{kDirect, a.src, a.weights, a.bias, a.dst, a.strides, a.dilates, a.pad_left, a.pad_right},
          attr,
          engine,
          forward};
#endif
}

/// `bias` may be empty.
inline dnnl::matmul::primitive_desc matmul(const dnnl::engine& engine, const dnnl::memory::desc& src,
                                           const dnnl::memory::desc& weights, const dnnl::memory::desc& bias,
                                           const dnnl::memory::desc& dst, const dnnl::primitive_attr& attr) {
#if DNNL_VERSION_MAJOR >= 3
  return {engine, src, weights, bias, dst, attr};
#else
  return {{src, weights, bias, dst}, attr, engine};
#endif
}

}  // namespace dtrain::cpu::onednn
