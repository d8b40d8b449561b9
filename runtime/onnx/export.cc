#include "runtime/onnx/export.h"

#include <fmt/format.h>

#include "runtime/autograd/grad_mode.h"
#include "runtime/base/error.h"
#include "runtime/onnx/trace_device.h"

namespace dtrain {
namespace {

static_assert(kOnnxOpset == onnx::kOpset);

// Numbers of samples that are no extent of anything else, as far as that can be.
constexpr std::int64_t kSamplesA = 3, kSamplesB = 5;

onnx::Port port_of(const std::string& name, const View& view) {
  return {name, onnx::element_type(view.dtype), {view.shape.begin(), view.shape.end()}};
}

/// [samples, …] of any values; other ones for another number of samples.
Tensor some_input(const OnnxInput& input, std::int64_t samples, const std::shared_ptr<Device>& device) {
  Dims shape = {samples};
  for (const std::int64_t extent : input.shape) shape.push_back(extent);
  Generator generator(static_cast<std::uint64_t>(samples));
  const Tensor random = Tensor::rand(shape, generator, device);
  if (is_floating(input.dtype)) return random.to(input.dtype);
  auto integers = random.to_vector<double>();
  std::vector<std::int64_t> values;
  for (const double value : integers)
    values.push_back(static_cast<std::int64_t>(value * static_cast<double>(input.values)));
  return Tensor::from_data(values, shape, device).to(input.dtype);
}

std::string output_name(const OnnxRequest& request, std::size_t number) {
  return number < request.outputs.size() ? request.outputs[number] : fmt::format("output{}", number);
}

/// Ends a trace, whatever happens in it.
struct Tracing {
  Tracing(onnx::TraceDevice& traced, onnx::Translator& translator) : device(traced) {
    device.begin(translator);
  }
  ~Tracing() { device.end(); }
  Tracing(const Tracing&) = delete;
  Tracing& operator=(const Tracing&) = delete;
  onnx::TraceDevice& device;
};

onnx::Graph trace(onnx::TraceDevice& device, const std::shared_ptr<Device>& shared,
                  const NamedTensors& weights, const OnnxRequest& request,
                  const std::function<Tensors(const Tensors&)>& forward, std::int64_t samples) {
  onnx::Translator translator;
  for (const auto& [name, weight] : weights) translator.values().define_weight(name, weight);
  Tensors inputs;
  for (const OnnxInput& input : request.inputs) {
    inputs.push_back(some_input(input, samples, shared));
    const View& view = inputs.back().view();
    translator.values().define_input(port_of(input.name, view), view);
  }
  Tensors outputs;
  const Tracing tracing(device, translator);
  outputs = forward(inputs);
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const View& view = outputs[i].view();
    if (view.rank() == 0 || view.shape[0] != samples) {
      throw UsageError(fmt::format("export: expected outputs with the samples first, got {} for {} samples",
                                   outputs[i].describe(), samples));
    }
    translator.give(port_of(output_name(request, i), view), view);
  }
  return translator.take();
}

}  // namespace

std::shared_ptr<Device> make_trace_device() {
  return std::make_shared<onnx::TraceDevice>(make_device("cpu"));
}

std::string export_onnx(const std::shared_ptr<Device>& device, const NamedTensors& weights,
                        const OnnxRequest& request, const std::function<Tensors(const Tensors&)>& forward) {
  auto* const traced = dynamic_cast<onnx::TraceDevice*>(device.get());
  if (traced == nullptr)
    throw UsageError("export: expected a network on a device of make_trace_device(), got one on " +
                     device->name());
  const NoGrad no_grad;
  onnx::Graph first = trace(*traced, device, weights, request, forward, kSamplesA);
  const onnx::Graph second = trace(*traced, device, weights, request, forward, kSamplesB);
  return onnx::serialize(onnx::for_any_batch(std::move(first), kSamplesA, second, kSamplesB), request.name,
                         request.description);
}

}  // namespace dtrain
