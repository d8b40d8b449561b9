// Windows of tokens as BERT learns from them: framed, in two segments, with words masked.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "models/text/bert_tokens.h"
#include "runtime/data/source.h"

namespace dtrain {

struct MaskedWordOptions {
  double share = 0.15;  ///< of a sample's tokens that are asked for
  /// Two segments, the second of which is in half of the samples that of another window; else one segment.
  bool pairs = true;
};

/// Of windows `tokens` [N + 1] samples with
///   tokens    i32 [N]: [CLS] words [SEP], or [CLS] words [SEP] words [SEP]
///   segments  i32 [N]: 0 up to the first [SEP], 1 behind it
///   positions i64 [M]: which of the tokens are asked for, ascending; M is share · N, rounded, at least 1
///   words     i64 [M]: what stood there, below the windows' number of values; eight in ten are [MASK] now,
///                      one is any word, one is as it was
///   next      i64 []: with pairs, 1 where the second segment is another window's
/// as in Devlin et al. 2018. All samples have the same number of masked words, so that a mean over samples is
/// one over words. What is masked in a sample is another choice in each epoch.
class MaskedWordSource final : public Source {
 public:
  /// Throws UsageError for samples that are no windows of tokens or too short, and for pairs of one window
  /// alone.
  MaskedWordSource(std::shared_ptr<const Source> windows, const BertTokens& tokens,
                   const MaskedWordOptions& options = {});

  std::string name() const override { return windows_->name(); }
  std::int64_t size() const noexcept override { return windows_->size(); }
  std::span<const Field> fields() const noexcept override { return fields_; }
  void read(std::int64_t index, std::span<const View> outputs, KeyedGenerator& generator) const override;
  std::int64_t place_of(std::int64_t index) const noexcept override { return windows_->place_of(index); }
  std::string file_of(std::int64_t index) const override { return windows_->file_of(index); }
  bool in_memory() const noexcept override { return windows_->in_memory(); }

 private:
  std::vector<std::int32_t> window(std::int64_t index, KeyedGenerator& generator) const;
  /// Writes tokens and segments; returns where the words of `text` are.
  std::vector<std::int64_t> frame(std::span<const std::int32_t> text, std::span<const View> outputs) const;
  /// Masks some of the tokens at `words`, and writes which and what they were.
  void mask(std::vector<std::int64_t> words, std::span<const View> outputs, KeyedGenerator& generator) const;

  std::shared_ptr<const Source> windows_;
  BertTokens tokens_;
  bool pairs_;
  std::int64_t length_ = 0;  ///< N
  std::int64_t masked_ = 0;  ///< M
  std::vector<Field> fields_;
};

}  // namespace dtrain
