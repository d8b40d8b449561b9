// cuDNN's graph interface: descriptors are made, given attributes, finalized and asked, and plans executed.
#include "emulation/cudnn/backend.h"

#include <algorithm>

#include "emulation/cudnn/handles.h"
#include "emulation/cudnn/queue.h"
#include "emulation/cudnn/support.h"

namespace emulation {
namespace {

using Type = cudnnBackendDescriptorType_t;
using Name = cudnnBackendAttributeName_t;

/// What a cudnnBackendDescriptor_t points to. What refers to a descriptor keeps it when its handle is gone.
struct Handle {
  std::shared_ptr<Descriptor> descriptor;
};

Handle* handle_of(void* descriptor) { return static_cast<Handle*>(descriptor); }

struct Rule {
  Type type;
  int first, last;  ///< of its attributes' numbers
  std::vector<Name> needed;
};

const std::vector<Rule>& rules() {
  static const std::vector<Rule> all = {
      {CUDNN_BACKEND_TENSOR_DESCRIPTOR,
       900,
       999,
       {CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_ATTR_TENSOR_STRIDES,
        CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT}},
      {CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR,
       100,
       199,
       {CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_ATTR_CONVOLUTION_DILATIONS,
        CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS,
        CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS}},
      {CUDNN_BACKEND_POINTWISE_DESCRIPTOR,
       0,
       99,
       {CUDNN_ATTR_POINTWISE_MODE, CUDNN_ATTR_POINTWISE_MATH_PREC}},
      {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
       700,
       705,
       {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA,
        CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
        CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y}},
      {CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR,
       750,
       769,
       {CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, CUDNN_ATTR_OPERATION_POINTWISE_XDESC,
        CUDNN_ATTR_OPERATION_POINTWISE_YDESC}},
      {CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR,
       770,
       779,
       {CUDNN_ATTR_OPERATION_GENSTATS_MODE, CUDNN_ATTR_OPERATION_GENSTATS_MATH_PREC,
        CUDNN_ATTR_OPERATION_GENSTATS_XDESC, CUDNN_ATTR_OPERATION_GENSTATS_SUMDESC,
        CUDNN_ATTR_OPERATION_GENSTATS_SQSUMDESC}},
      {CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR,
       800,
       899,
       {CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_ATTR_OPERATIONGRAPH_OPS}},
      {CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR,
       200,
       299,
       {CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_ATTR_ENGINEHEUR_MODE}},
      {CUDNN_BACKEND_ENGINE_DESCRIPTOR,
       1300,
       1399,
       {CUDNN_ATTR_ENGINE_OPERATION_GRAPH, CUDNN_ATTR_ENGINE_GLOBAL_INDEX}},
      {CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, 300, 399, {CUDNN_ATTR_ENGINECFG_ENGINE}},
      {CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR,
       400,
       499,
       {CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG}},
      {CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR,
       1000,
       1099,
       {CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS}}};
  return all;
}

const Rule* rule_of(Type type) {
  const auto found =
      std::find_if(rules().begin(), rules().end(), [type](const Rule& rule) { return rule.type == type; });
  return found == rules().end() ? nullptr : &*found;
}

bool belongs(const Descriptor& descriptor, Name name) {
  const Rule* const rule = rule_of(descriptor.type);
  return rule->first <= static_cast<int>(name) && static_cast<int>(name) <= rule->last;
}

/// Bytes of an element of what is not a descriptor; 0 for types that nothing here has.
std::size_t size_of_element(cudnnBackendAttributeType_t type) {
  switch (type) {
    case CUDNN_TYPE_HANDLE:
    case CUDNN_TYPE_VOID_PTR:
      return sizeof(void*);
    case CUDNN_TYPE_INT64:
    case CUDNN_TYPE_DOUBLE:
      return 8;
    case CUDNN_TYPE_BOOLEAN:
      return sizeof(bool);
    case CUDNN_TYPE_FLOAT:
    case CUDNN_TYPE_DATA_TYPE:
    case CUDNN_TYPE_CONVOLUTION_MODE:
    case CUDNN_TYPE_HEUR_MODE:
    case CUDNN_TYPE_POINTWISE_MODE:
    case CUDNN_TYPE_GENSTATS_MODE:
    case CUDNN_TYPE_NUMERICAL_NOTE:
      return 4;
    default:
      return 0;
  }
}

cudnnStatus_t finalize_graph(Descriptor& graph) {
  std::vector<const Descriptor*> operations;
  for (const DescriptorPtr& operation : graph.attributes.at(CUDNN_ATTR_OPERATIONGRAPH_OPS).descriptors)
    operations.push_back(operation.get());
  graph.fusion = recognize(operations);
  return CUDNN_STATUS_SUCCESS;  // that nothing does a graph shows when it is asked who would
}

/// The engine that is asked for by its number; NOT_SUPPORTED where nothing does the graph.
cudnnStatus_t finalize_engine(Descriptor& engine) {
  engine.fusion = engine.descriptor(CUDNN_ATTR_ENGINE_OPERATION_GRAPH)->fusion;
  const auto index = engine.value<std::int64_t>(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, -1);
  if (!engine.fusion) return CUDNN_STATUS_NOT_SUPPORTED;
  for (const FusionEngine& one : engines(*engine.fusion)) {
    if (one.index != index) continue;
    engine.engine = one;
    return CUDNN_STATUS_SUCCESS;
  }
  return CUDNN_STATUS_NOT_SUPPORTED;
}

cudnnStatus_t take_engine(Descriptor& descriptor, Name from) {
  const Descriptor* const source = descriptor.descriptor(from);
  if (source == nullptr) return CUDNN_STATUS_BAD_PARAM;
  descriptor.fusion = source->fusion;
  descriptor.engine = source->engine;
  const bool is_plan = descriptor.type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR;
  return is_plan && source->engine.is_only_proposed ? CUDNN_STATUS_NOT_SUPPORTED : CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t finalize(Descriptor& descriptor) {
  for (const Name name : rule_of(descriptor.type)->needed) {
    if (!descriptor.attributes.contains(name)) return CUDNN_STATUS_BAD_PARAM;
  }
  switch (descriptor.type) {
    case CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR:
      return finalize_graph(descriptor);
    case CUDNN_BACKEND_ENGINE_DESCRIPTOR:
      return finalize_engine(descriptor);
    case CUDNN_BACKEND_ENGINECFG_DESCRIPTOR:
      return take_engine(descriptor, CUDNN_ATTR_ENGINECFG_ENGINE);
    case CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR:
      return take_engine(descriptor, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
    default:
      return CUDNN_STATUS_SUCCESS;
  }
}

/// A finalized configuration of an engine of the graph.
std::shared_ptr<Descriptor> make_configuration(const DescriptorPtr& graph, const FusionEngine& engine) {
  const auto made =
      std::make_shared<Descriptor>(Descriptor{CUDNN_BACKEND_ENGINE_DESCRIPTOR, true, {}, {}, {}});
  made->attributes[CUDNN_ATTR_ENGINE_OPERATION_GRAPH] = {CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, {}, {graph}};
  made->fusion = graph->fusion;
  made->engine = engine;
  const auto configuration =
      std::make_shared<Descriptor>(Descriptor{CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, true, {}, {}, {}});
  configuration->attributes[CUDNN_ATTR_ENGINECFG_ENGINE] = {CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, {}, {made}};
  configuration->fusion = made->fusion;
  configuration->engine = engine;
  return configuration;
}

/// What a heuristic proposes: all modes but the fallback's, which knows no fusions, propose the same.
std::vector<std::shared_ptr<Descriptor>> proposals(const Descriptor& heuristic) {
  const auto& graph = heuristic.attributes.at(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH).descriptors.front();
  const auto mode = heuristic.value(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_HEUR_MODE_FALLBACK);
  if (!graph->fusion || mode == CUDNN_HEUR_MODE_FALLBACK) return {};
  std::vector<std::shared_ptr<Descriptor>> found;
  for (const FusionEngine& engine : engines(*graph->fusion))
    found.push_back(make_configuration(graph, engine));
  return found;
}

/// Hands out descriptors: how many there are, and as many as there is room for, in handles that are there.
cudnnStatus_t give(const std::vector<std::shared_ptr<Descriptor>>& all, std::int64_t room,
                   std::int64_t* count, void* handles) {
  if (count != nullptr) *count = static_cast<std::int64_t>(all.size());
  if (handles == nullptr) return CUDNN_STATUS_SUCCESS;
  for (std::size_t i = 0; i < all.size() && static_cast<std::int64_t>(i) < room; ++i) {
    Handle* const handle = handle_of(static_cast<void**>(handles)[i]);
    if (handle == nullptr || handle->descriptor->type != all[i]->type) return CUDNN_STATUS_BAD_PARAM;
    handle->descriptor = all[i];
  }
  return CUDNN_STATUS_SUCCESS;
}

template <class T>
cudnnStatus_t give_values(const std::vector<T>& all, std::int64_t room, std::int64_t* count, void* to) {
  if (count != nullptr) *count = static_cast<std::int64_t>(all.size());
  const auto given = std::min(all.size(), static_cast<std::size_t>(std::max<std::int64_t>(room, 0)));
  if (to != nullptr && given > 0) std::memcpy(to, all.data(), given * sizeof(T));
  return CUDNN_STATUS_SUCCESS;
}

/// Where a plan's arrays are in a variant pack.
class Places {
 public:
  explicit Places(const Descriptor& pack)
      : ids_(pack.values<std::int64_t>(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS)),
        places_(pack.values<void*>(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS)) {}
  void* of(std::int64_t id) const {
    const auto found = std::find(ids_.begin(), ids_.end(), id);
    const auto at = static_cast<std::size_t>(found - ids_.begin());
    return at < places_.size() ? places_[at] : nullptr;
  }
  /// Each array is there, and lies as its tensor promised.
  bool fit(const Fusion& fusion) const {
    const auto ids = fusion.ids();
    return ids_.size() == places_.size() && std::all_of(ids.begin(), ids.end(), [&](std::int64_t id) {
             return of(id) != nullptr && reinterpret_cast<std::uintptr_t>(of(id)) %
                                                 static_cast<std::uintptr_t>(fusion.alignment) ==
                                             0;
           });
  }

 private:
  std::vector<std::int64_t> ids_;
  std::vector<void*> places_;
};

Work work_of(const Fusion& fusion) {
  const Convolution& c = fusion.convolution;
  const auto channels = static_cast<std::uint64_t>(c.output.extent[1]);
  Work work{"cudnnBackendExecute", bytes_of(c.input) + bytes_of(c.filter),
            bytes_of(c.output) + 2 * sizeof(float) * channels};
  if (fusion.has_bias) work.read_bytes += size_of(fusion.bias_type) * channels;
  work.operations = 2.0 * static_cast<double>(c.output.count()) *
                    static_cast<double>(c.filter.count() / c.filter.extent[0]);
  work.arithmetic = arithmetic_of(c);
  return work;
}

cudnnStatus_t execute(cudnnHandle_t handle, const Descriptor& plan, const Descriptor& pack) {
  if (!plan.finalized || !pack.finalized || !plan.fusion) return CUDNN_STATUS_BAD_PARAM;
  const auto& fusion = plan.fusion;
  const Places places(pack);
  const auto workspace = pack.value<void*>(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, nullptr);
  if (!places.fit(*fusion) || (plan.engine.workspace_bytes > 0 && workspace == nullptr))
    return CUDNN_STATUS_BAD_PARAM;
  const FusionArrays arrays{places.of(fusion->input),
                            places.of(fusion->filter),
                            fusion->has_bias ? places.of(fusion->bias) : nullptr,
                            places.of(fusion->output),
                            static_cast<float*>(places.of(fusion->sum)),
                            static_cast<float*>(places.of(fusion->squares))};
  return queue(handle, work_of(*fusion), [fusion, engine = plan.engine, arrays, workspace] {
    // What a kernel leaves in its workspace, so that one who uses it for something else learns of it.
    if (workspace != nullptr) std::memset(workspace, 0xFF, static_cast<std::size_t>(engine.workspace_bytes));
    run(*fusion, engine, arrays);
  });
}

}  // namespace
}  // namespace emulation

using emulation::Descriptor;
using emulation::handle_of;

extern "C" {

cudnnStatus_t CUDNNWINAPI cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type,
                                                       cudnnBackendDescriptor_t* descriptor) {
  if (descriptor == nullptr) return CUDNN_STATUS_BAD_PARAM;
  if (emulation::rule_of(type) == nullptr) return CUDNN_STATUS_NOT_SUPPORTED;
  *descriptor = new emulation::Handle{std::make_shared<Descriptor>(Descriptor{type, false, {}, nullptr, {}})};
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t CUDNNWINAPI cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor) {
  delete handle_of(descriptor);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t CUDNNWINAPI cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor) {
  if (descriptor == nullptr) return CUDNN_STATUS_BAD_PARAM;
  Descriptor& given = *handle_of(descriptor)->descriptor;
  if (given.finalized) return CUDNN_STATUS_BAD_PARAM;
  const cudnnStatus_t status = emulation::finalize(given);
  given.finalized = status == CUDNN_STATUS_SUCCESS;
  return status;
}

cudnnStatus_t CUDNNWINAPI cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor,
                                                   cudnnBackendAttributeName_t name,
                                                   cudnnBackendAttributeType_t type, int64_t count,
                                                   const void* elements) {
  if (descriptor == nullptr || count < 1 || elements == nullptr) return CUDNN_STATUS_BAD_PARAM;
  Descriptor& given = *handle_of(descriptor)->descriptor;
  if (given.finalized) return CUDNN_STATUS_NOT_INITIALIZED;  // its documentation has it so
  if (!emulation::belongs(given, name)) return CUDNN_STATUS_BAD_PARAM;
  emulation::Attribute attribute{type, count, {}, {}};
  if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR) {
    for (int64_t i = 0; i < count; ++i) {
      const auto* const other = handle_of(static_cast<void* const*>(elements)[i]);
      if (other == nullptr || !other->descriptor->finalized) return CUDNN_STATUS_BAD_PARAM;
      attribute.descriptors.push_back(other->descriptor);
    }
  } else {
    const std::size_t size = emulation::size_of_element(type);
    if (size == 0) return CUDNN_STATUS_NOT_SUPPORTED;
    const auto* const bytes = static_cast<const std::byte*>(elements);
    attribute.bytes.assign(bytes, bytes + size * static_cast<std::size_t>(count));
  }
  given.attributes.insert_or_assign(name, std::move(attribute));
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t CUDNNWINAPI cudnnBackendGetAttribute(const cudnnBackendDescriptor_t descriptor,
                                                   cudnnBackendAttributeName_t name,
                                                   cudnnBackendAttributeType_t, int64_t room, int64_t* count,
                                                   void* elements) {
  if (descriptor == nullptr) return CUDNN_STATUS_BAD_PARAM;
  const Descriptor& given = *handle_of(descriptor)->descriptor;
  if (!given.finalized) return CUDNN_STATUS_NOT_INITIALIZED;
  switch (name) {
    case CUDNN_ATTR_ENGINEHEUR_RESULTS:
      return emulation::give(emulation::proposals(given), room, count, elements);
    case CUDNN_ATTR_ENGINECFG_ENGINE: {
      const auto& engine = given.attributes.at(CUDNN_ATTR_ENGINECFG_ENGINE).descriptors.front();
      return emulation::give({std::const_pointer_cast<Descriptor>(engine)}, room, count, elements);
    }
    case CUDNN_ATTR_ENGINE_NUMERICAL_NOTE:
      return emulation::give_values(given.engine.notes, room, count, elements);
    case CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE:
      return emulation::give_values(std::vector{given.engine.workspace_bytes}, room, count, elements);
    default:
      return CUDNN_STATUS_NOT_SUPPORTED;
  }
}

cudnnStatus_t CUDNNWINAPI cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
                                              cudnnBackendDescriptor_t pack) {
  if (handle == nullptr || plan == nullptr || pack == nullptr) return CUDNN_STATUS_BAD_PARAM;
  return emulation::execute(handle, *handle_of(plan)->descriptor, *handle_of(pack)->descriptor);
}

}  // extern "C"
