#include "runtime/device/cpu/dense/onednn_plan.h"

#include <cstring>

namespace dtrain::cpu::onednn {
namespace {

constexpr std::size_t kAlignment = 64;

}  // namespace

std::size_t Plan::reserve(std::size_t bytes) {
  const std::size_t offset = scratch_bytes_;
  scratch_bytes_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
  return offset;
}

void Plan::add(int id, Direction direction, const dnnl::memory::desc& user,
               const dnnl::memory::desc& wanted) {
  Argument argument{direction, dnnl::memory(user, engine_, nullptr), {}, {}, 0};
  argument.wanted = argument.user;
  if (user != wanted) {
    argument.wanted = dnnl::memory(wanted, engine_, nullptr);
    argument.offset_bytes = reserve(wanted.get_size());
    argument.reorder = direction == Direction::in ? dnnl::reorder(argument.user, argument.wanted)
                                                  : dnnl::reorder(argument.wanted, argument.user);
  }
  bound_.emplace(id, argument.wanted);
  arguments_.push_back(std::move(argument));
}

void Plan::add_scratchpad(const dnnl::memory::desc& desc) {
  if (desc.get_size() == 0) return;
  scratchpad_ = dnnl::memory(desc, engine_, nullptr);
  scratchpad_offset_bytes_ = reserve(desc.get_size());
  bound_.emplace(DNNL_ARG_SCRATCHPAD, scratchpad_);
}

void Plan::run(dnnl::stream& stream, std::span<void* const> data, std::byte* scratch) {
  if (clears_) std::memset(scratch, 0, scratch_bytes_);
  for (std::size_t i = 0; i < arguments_.size(); ++i) {
    Argument& argument = arguments_[i];
    argument.user.set_data_handle(data[i]);
    if (!argument.reorder) {
      if (clears_ && argument.direction == Direction::out) {
        std::memset(data[i], 0, argument.user.get_desc().get_size());
      }
      continue;
    }
    argument.wanted.set_data_handle(scratch + argument.offset_bytes);
    if (argument.direction == Direction::in) {
      argument.reorder.execute(stream, {{DNNL_ARG_FROM, argument.user}, {DNNL_ARG_TO, argument.wanted}});
    }
  }
  if (scratchpad_) scratchpad_.set_data_handle(scratch + scratchpad_offset_bytes_);
  primitive_.execute(stream, bound_);
  for (const Argument& argument : arguments_) {
    if (!argument.reorder || argument.direction == Direction::in) continue;
    argument.reorder.execute(stream, {{DNNL_ARG_FROM, argument.wanted}, {DNNL_ARG_TO, argument.user}});
  }
  stream.wait();
}

}  // namespace dtrain::cpu::onednn
