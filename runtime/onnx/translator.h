// From kernels to ONNX operators: what a kernel is about to do, as nodes. Kernels that are not listed here
// are refused by their name.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "runtime/device/kernels.h"
#include "runtime/onnx/values.h"

namespace dtrain::onnx {

enum class KernelId {
#define DTRAIN_KERNEL(name, kind, flops, parameters, arguments) name,
#include "runtime/device/kernels.def"
};

/// Throws UsageError: a network that does this has no ONNX form.
[[noreturn]] void refuse_operation(std::string_view name);

/// One trace.
class Translator {
 public:
  Translator() : builder_(graph_), values_(builder_) {}
  Translator(const Translator&) = delete;
  Translator& operator=(const Translator&) = delete;

  Values& values() noexcept { return values_; }
  /// The nodes so far, which this then has no more of.
  Graph take() { return std::move(graph_); }
  /// Makes what `view` holds an output of the graph.
  void give(const Port& port, const View& view);

  /// Called before the kernel runs, so that memory is as the kernel finds it.
  template <KernelId id, class... Arguments>
  void call(std::string_view name, const Arguments&... arguments) {
    kernel(Kernel<id>{}, name, arguments...);
  }

 private:
  template <KernelId id>
  struct Kernel {};
  using Name = std::string_view;

  template <KernelId id, class... Arguments>
  void kernel(Kernel<id> /*kernel*/, Name name, const Arguments&... /*arguments*/) {
    refuse_operation(name);
  }

  // ---- translate_elementwise.cc
  void kernel(Kernel<KernelId::fill>, Name, const View& out, const double& value);
  void kernel(Kernel<KernelId::copy>, Name, const View& in, const View& out);
  void kernel(Kernel<KernelId::affine>, Name, const View& in, const double& scale, const double& shift,
              const View& out);
  void kernel(Kernel<KernelId::unary>, Name, const UnaryOp& op, const View& in, const View& out);
  void kernel(Kernel<KernelId::parametric>, Name, const ParametricOp& op, const View& in, const double& a,
              const double& b, const View& out);
  void kernel(Kernel<KernelId::binary>, Name, const BinaryOp& op, const View& a, const View& b,
              const View& out);
  void kernel(Kernel<KernelId::where>, Name, const View& condition, const View& a, const View& b,
              const View& out);
  void kernel(Kernel<KernelId::accumulate>, Name, const View& in, const double& scale, const View& out);

  // ---- translate_layers.cc
  void kernel(Kernel<KernelId::rotary>, Name, const View& in, const View& cosines, const View& sines,
              const bool& interleaved, const bool& back, const View& out);
  void kernel(Kernel<KernelId::matmul>, Name, const View& a, const View& b, const View& bias,
              const Activation& activation, const bool& accumulate, const View& out);
  void kernel(Kernel<KernelId::conv2d>, Name, const Conv2dGeometry& geometry, const View& input,
              const View& weight, const View& bias, const Activation& activation, const View& output);
  void kernel(Kernel<KernelId::conv2d_backward_input>, Name, const Conv2dGeometry& geometry,
              const View& input, const View& weight, const View& output);
  void kernel(Kernel<KernelId::pool2d>, Name, const Pool2dGeometry& geometry, const View& input,
              const View& output, const View& indices);
  void kernel(Kernel<KernelId::conv2d_relu_pool2d>, Name, const Conv2dGeometry& conv,
              const Pool2dGeometry& pool, const View& input, const View& weight, const View& bias,
              const View& output, const View& mask);
  void kernel(Kernel<KernelId::batch_norm_inference>, Name, const BatchNormRule& rule,
              const BatchNormChannels& channels, const View& input, const View& residual, const View& output);
  void kernel(Kernel<KernelId::row_norm>, Name, const RowNormRule& rule, const View& input,
              const View& weight, const View& bias, const View& mean, const View& inv_std,
              const View& output);
  void kernel(Kernel<KernelId::log_softmax>, Name, const View& in, const View& out);
  void kernel(Kernel<KernelId::attention>, Name, const AttentionRule& rule, const AttentionMasks& masks,
              const View& query, const View& key, const View& value, const View& output,
              const View& log_sums);

  // ---- translate_reductions.cc
  void kernel(Kernel<KernelId::reduce>, Name, const Reduction& op, const View& in, const View& out);
  void kernel(Kernel<KernelId::argmax>, Name, const View& in, const View& out);
  void kernel(Kernel<KernelId::index_select>, Name, const View& in, const View& index, const View& out);
  void kernel(Kernel<KernelId::gather>, Name, const View& in, const int& dim, const View& index,
              const View& out);
  void kernel(Kernel<KernelId::cumsum>, Name, const View& in, const int& dim, const bool& reverse,
              const View& out);

  /// Writes the operator's result, of the shape that broadcasting `operands` gives, to `out`.
  void write_broadcast(const std::string& name, const std::vector<Value>& operands, const View& out);
  Value convolution(const Conv2dGeometry& geometry, const View& input, const View& weight, const View& bias,
                    const Dims& shape);
  std::string pooling(const Pool2dGeometry& geometry, const std::string& input);
  std::string causal_mask(const AttentionRule& rule, const View& query, const View& key);
  std::string activated(const std::string& name, Activation activation);
  std::string unary_node(UnaryOp op, const Value& x, DType dtype);
  std::string parametric_node(ParametricOp op, const Value& x, double a, double b, DType dtype);
  std::string binary_node(BinaryOp op, const Value& a, const Value& b, DType dtype);

  Graph graph_;
  Builder builder_;
  Values values_;
};

}  // namespace dtrain::onnx
