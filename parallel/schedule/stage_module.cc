#include "parallel/schedule/stage_module.h"

#include <algorithm>
#include <map>

#include "runtime/base/error.h"

namespace dtrain {
namespace {

/// Only carries names: "blocks" above "blocks.3".
class Names final : public Module {
 public:
  Tensor forward(const Tensor& /*x*/) override {
    throw UsageError("pipeline: a folder of names was called; expected the stage to be called");
  }
  void hold(const std::string& path, const std::shared_ptr<Module>& module) {
    const auto dot = path.find('.');
    if (dot == std::string::npos) {
      add_module(path, module);
      return;
    }
    std::shared_ptr<Names>& inner = inner_[path.substr(0, dot)];
    if (!inner) inner = add_module(path.substr(0, dot), std::make_shared<Names>());
    inner->hold(path.substr(dot + 1), module);
  }

 private:
  std::map<std::string, std::shared_ptr<Names>> inner_;
};

}  // namespace

StageModule::StageModule(std::vector<Chunk> chunks) : chunks_(std::move(chunks)) {
  Names root;
  for (const Chunk& chunk : chunks_) {
    for (const LayerUnit& part : chunk) {
      for (const auto& [path, module] : part.modules) root.hold(path, module);
    }
  }
  for (const auto& [name, child] : root.children()) add_module(name, child);
}

Tensor StageModule::run(std::size_t chunk, const Tensor& x, const Tensors& beside) const {
  return through(chunks_.at(chunk), x, beside);
}

Tensors StageModule::forward_all(const Tensors& inputs) {
  if (inputs.empty()) throw UsageError("pipeline: expected a network's inputs, got none");
  const Tensors beside = beside_first(inputs);
  Tensor y = inputs.front();
  for (std::size_t chunk = 0; chunk < chunks_.size(); ++chunk) y = run(chunk, y, beside);
  return {y};
}

std::size_t StageModule::chunk_of(const std::string& parameter) const {
  for (std::size_t chunk = 0; chunk < chunks_.size(); ++chunk) {
    for (const LayerUnit& part : chunks_[chunk]) {
      for (const auto& [path, module] : part.modules) {
        if (parameter.starts_with(path + ".")) return chunk;
      }
    }
  }
  throw UsageError("pipeline: expected a parameter of this stage, got " + parameter);
}

std::int64_t parameter_count(const LayerUnit& part) {
  std::int64_t count = 0;
  for (const auto& [path, module] : part.modules) count += module->parameter_count();
  return count;
}

std::vector<double> costs_of(const std::vector<LayerUnit>& chain) {
  double total = 0;
  for (const LayerUnit& part : chain) total += static_cast<double>(parameter_count(part));
  std::vector<double> costs;
  for (const LayerUnit& part : chain) {
    costs.push_back(static_cast<double>(parameter_count(part)) / std::max(total, 1.0) +
                    1.0 / static_cast<double>(chain.size()));
  }
  return costs;
}

}  // namespace dtrain
