// The objects of cuDNN's graph interface: descriptors with attributes, which refer to each other and are
// finalized from the leaves up. What a graph of operations means is fusion.h's.
#pragma once

#include <cudnn.h>

#include <cstring>
#include <map>
#include <memory>
#include <vector>

#include "emulation/cudnn/fusion.h"

namespace emulation {

struct Descriptor;
using DescriptorPtr = std::shared_ptr<const Descriptor>;

struct Attribute {
  cudnnBackendAttributeType_t type;
  std::int64_t count = 0;
  std::vector<std::byte> bytes;  ///< of what is not a descriptor
  std::vector<DescriptorPtr> descriptors;
};

struct Descriptor {
  cudnnBackendDescriptorType_t type;
  bool finalized = false;
  std::map<cudnnBackendAttributeName_t, Attribute> attributes;
  std::shared_ptr<const Fusion>
      fusion;           ///< of a graph and what is made of it; null: nothing does such graphs
  FusionEngine engine;  ///< of an engine, a configuration, a plan

  /// The descriptor that an attribute refers to; null where it is not set.
  const Descriptor* descriptor(cudnnBackendAttributeName_t name) const {
    const auto found = attributes.find(name);
    if (found == attributes.end() || found->second.descriptors.empty()) return nullptr;
    return found->second.descriptors.front().get();
  }
  /// An attribute's elements; none where it is not set.
  template <class T>
  std::vector<T> values(cudnnBackendAttributeName_t name) const {
    const auto found = attributes.find(name);
    if (found == attributes.end()) return {};
    std::vector<T> result(found->second.bytes.size() / sizeof(T));
    std::memcpy(result.data(), found->second.bytes.data(), result.size() * sizeof(T));
    return result;
  }
  template <class T>
  T value(cudnnBackendAttributeName_t name, T otherwise) const {
    const auto found = attributes.find(name);
    if (found == attributes.end() || found->second.bytes.size() < sizeof(T)) return otherwise;
    T result{};
    std::memcpy(&result, found->second.bytes.data(), sizeof(T));
    return result;
  }
};

}  // namespace emulation
