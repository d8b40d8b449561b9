#include "parallel/pipeline/stage_module.h"

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

StageModule::StageModule(std::vector<ChainPart> parts) : parts_(std::move(parts)) {
  Names root;
  for (const ChainPart& part : parts_) {
    for (const auto& [path, module] : part.modules) root.hold(path, module);
  }
  for (const auto& [name, child] : root.children()) add_module(name, child);
}

Tensor StageModule::forward(const Tensor& x) {
  Tensor y = x;
  for (const ChainPart& part : parts_) y = part.forward(y);
  return y;
}

std::int64_t parameter_count(const ChainPart& part) {
  std::int64_t count = 0;
  for (const auto& [path, module] : part.modules) count += module->parameter_count();
  return count;
}

}  // namespace dtrain
