// A network as an ONNX file: its forward pass is run twice on a CPU that notes every kernel, and what was
// noted becomes nodes. A network of anybody's own is exported as the built-in ones are, as long as it is made
// of operations that have an ONNX form; one that has none is refused by name. What is exported: float32
// evaluation, for any number of samples.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "runtime/tensor/named_tensors.h"

namespace dtrain {

/// The operator set and IR version of files that export_onnx() makes.
inline constexpr std::int64_t kOnnxOpset = 17;

/// One input: [samples, …shape].
struct OnnxInput {
  std::string name;
  DType dtype = DType::f32;
  Dims shape;
  std::int64_t values = 0;  ///< integers lie in [0, values); 0: only 0 is tried
};

struct OnnxRequest {
  std::string name;  ///< of the graph
  std::vector<OnnxInput> inputs;
  std::vector<std::string> outputs;  ///< names of what the network gives; of those beyond: output1, …
  std::map<std::string, std::string> description =
      {};  ///< goes into the file's metadata; "producer_version": dtrain's
};

/// A CPU to build the network on that is to be exported.
std::shared_ptr<Device> make_trace_device();

/// The .onnx file, as bytes. `device` is from make_trace_device(), `weights` (the network's state_dict) are
/// on it and become initializers under their names, those that `forward` uses. `forward` is called twice,
/// without gradients, with inputs of another number of samples each time, in the order of request.inputs, and
/// gives tensors with the samples first. An input that it does not use is left out.
/// Throws UsageError naming an operation without an ONNX form, and for a forward pass whose operations depend
/// on the number of samples or on their values.
///
///     const auto device = make_trace_device();
///     Net network(generator, device);
///     network.eval();
///     const std::string file = export_onnx(device, network.state_dict(),
///         {.name = "net", .inputs = {{.name = "x", .shape = {784}}}, .outputs = {"logits"}},
///         [&](const Tensors& x) { return Tensors{network(x[0])}; });
std::string export_onnx(const std::shared_ptr<Device>& device, const NamedTensors& weights,
                        const OnnxRequest& request, const std::function<Tensors(const Tensors&)>& forward);

}  // namespace dtrain
