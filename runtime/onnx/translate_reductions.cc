// Sums and their like, and elements found by an index; and what is at the ends of a trace.
#include <fmt/format.h>

#include "runtime/base/error.h"
#include "runtime/onnx/translator.h"

namespace dtrain::onnx {

void refuse_operation(std::string_view name) {
  throw UsageError(
      fmt::format("export: the network's forward pass uses {}, which has no ONNX form here; docs/export.md "
                  "lists the operations "
                  "that have one",
                  name));
}

void Translator::give(const Port& port, const View& view) {
  graph_.nodes.push_back({"Identity", {values_.read_whole(view)}, {port.name}, {}});
  graph_.outputs.push_back(port);
}

void Translator::kernel(Kernel<KernelId::reduce>, Name, const Reduction& op, const View& in,
                        const View& out) {
  Extents axes;
  for (int dim = 0; dim < in.rank(); ++dim) {
    if (in.shape[dim] != out.shape[dim]) axes.push_back(dim);
  }
  const std::string x = values_.read_whole(in);
  if (axes.empty()) return values_.write(out, builder_.node("Identity", {x}));
  const std::pair<std::string, AttributeValue> keep{"keepdims", std::int64_t{1}};
  if (op == Reduction::sum)
    return values_.write(out, builder_.node("ReduceSum", {x, builder_.sizes(axes)}, {keep}));
  const char* const type = op == Reduction::mean  ? "ReduceMean"
                           : op == Reduction::max ? "ReduceMax"
                                                  : "ReduceMin";
  values_.write(out, builder_.node(type, {x}, {{"axes", axes}, keep}));
}

void Translator::kernel(Kernel<KernelId::argmax>, Name, const View& in, const View& out) {
  values_.write(out, builder_.node("ArgMax", {values_.read_whole(in)},
                                   {{"axis", std::int64_t{-1}}, {"keepdims", std::int64_t{1}}}));
}

void Translator::kernel(Kernel<KernelId::index_select>, Name, const View& in, const View& index,
                        const View& out) {
  values_.write(out, builder_.node("Gather", {values_.read_whole(in), values_.read_whole(index)},
                                   {{"axis", std::int64_t{0}}}));
}

void Translator::kernel(Kernel<KernelId::gather>, Name, const View& in, const int& dim, const View& index,
                        const View& out) {
  values_.write(out, builder_.node("GatherElements", {values_.read_whole(in), values_.read_whole(index)},
                                   {{"axis", std::int64_t{dim}}}));
}

void Translator::kernel(Kernel<KernelId::cumsum>, Name, const View& in, const int& dim, const bool& reverse,
                        const View& out) {
  values_.write(out, builder_.node("CumSum", {values_.read_whole(in), builder_.number(DType::i64, dim)},
                                   {{"reverse", std::int64_t{reverse ? 1 : 0}}}));
}

}  // namespace dtrain::onnx
