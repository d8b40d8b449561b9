// A text file, byte by byte, as windows of tokens: what a language model learns from.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/data/sources/split.h"

namespace dtrain {

/// Samples are `tokens` int32 [context + 1], values 0 to 255: window i holds the bytes from i · context on,
/// so that each byte but the first is asked for once.
class TextSource final : public Source {
 public:
  /// Throws UsageError for a context below 1, and for a text that is shorter than one window.
  TextSource(std::string name, std::shared_ptr<const std::string> text, std::int64_t context);

  std::string name() const override { return name_; }
  std::int64_t size() const noexcept override { return size_; }
  std::span<const Field> fields() const noexcept override { return fields_; }
  void read(std::int64_t index, std::span<const View> outputs, KeyedGenerator& generator) const override;
  bool in_memory() const noexcept override { return true; }

 private:
  std::string name_;
  std::shared_ptr<const std::string> text_;
  std::int64_t context_, size_;
  std::vector<Field> fields_;
};

}  // namespace dtrain
