// The data seam: samples by index, each made of named fields. Loaders, samplers and tasks see only this.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/keyed_random.h"
#include "runtime/device/view.h"

namespace dtrain {

/// One part of a sample.
struct Field {
  std::string name;  ///< "image", "label", "tokens", "x", "y"; unique in its source, not empty
  DType dtype = DType::f32;
  Dims shape = {};          ///< of one sample: [3, 224, 224] (C, H, W), [1025]; [] is a single value
  std::int64_t values = 0;  ///< integers lie in [0, values), as classes and vocabularies do; 0: any
  /// What the elements of a vector are called, as a table's columns are; UTF-8; empty: nothing. Data whose
  /// columns come in another order are other data.
  std::vector<std::string> columns = {};
  /// What the values 0, 1, … are called, as classes are; UTF-8; empty: nothing.
  std::vector<std::string> value_names = {};
  /// What a network should subtract from the elements of a vector, and then divide them by, so that columns
  /// of different units count alike: one for each element, deviations above 0; empty: nothing.
  std::vector<float> mean = {}, deviation = {};
  /// What a network should take for elements of a vector that are NaN, as a table's missing values are: one
  /// for each element; empty: no element is NaN.
  std::vector<float> fill = {};
  /// Whether integers may also be -1, none of the values: a pixel without a class, say. Losses ignore it.
  bool has_none = false;
  /// Samples have lengths of their own, as sentences do: each has shape[0] rows at most, and the field of
  /// this name, int64 [], says how many. read() need not write the others: they become `padding_value`. A
  /// batch has as many rows as its longest sample, at least one. Empty: all samples have shape[0] rows.
  std::string length_field = {};
  double padding_value = 0;

  bool operator==(const Field&) const = default;
  /// "image float32 [3, 224, 224]"
  std::string to_string() const;
};

/// How the bytes of a picture became numbers, channel by channel: (byte / 255 - mean) / deviation.
struct PixelNumbers {
  std::array<float, 3> mean = {0, 0, 0}, deviation = {1, 1, 1};
};

/// Samples with random access, all of them made of the same fields. Implementations are immutable: every
/// function may be called from any number of threads at once.
///
///     class Squares final : public dtrain::Source {
///      public:
///       std::string name() const override { return "squares"; }
///       std::int64_t size() const noexcept override { return 1000; }
///       std::span<const dtrain::Field> fields() const noexcept override { return fields_; }
///       void read(std::int64_t index, std::span<const dtrain::View> outputs,
///                 dtrain::KeyedGenerator& generator) const override {
///         const float x = static_cast<float>(index) / 1000 + generator.uniform(-0.01F, 0.01F);
///         *outputs[0].as<float>() = x;
///         *outputs[1].as<float>() = x * x;
///       }
///      private:
///       std::vector<dtrain::Field> fields_{{.name = "x"}, {.name = "y"}};
///     };
class Source {
 public:
  virtual ~Source() = default;

  /// For messages: "fashion-mnist train (/usr/share/datasets/fashion-mnist)".
  virtual std::string name() const = 0;
  virtual std::int64_t size() const noexcept = 0;
  /// What a sample is made of: at least one field, the same as long as the source lives.
  virtual std::span<const Field> fields() const noexcept = 0;

  /// Writes sample `index`, in [0, size()), unchecked. `outputs` has one view for each field, in order, of
  /// the field's dtype and shape, in memory that is the caller's and uninitialised; the elements are dense,
  /// in row-major order or, for an image that is wanted channels-last, pixel by pixel: the strides say so.
  /// Whatever is random about the sample comes from `generator`, which is keyed by (seed, epoch, index), so
  /// that it is the same for any number of workers and after any restart. A sample that has to be read from
  /// disk may throw DataError or SystemError.
  virtual void read(std::int64_t index, std::span<const View> outputs, KeyedGenerator& generator) const = 0;

  /// Which sample of the files, from 0, sample `index` is: for messages and logs. A source made of another
  /// one hands the question on.
  virtual std::int64_t place_of(std::int64_t index) const noexcept { return index; }

  /// The file of its own that sample `index` is read from, "cats/3.jpg", or its archive and its name in
  /// there, "s.tar:cats/3.jpg", for people and logs; may be read from the disk. Empty: samples share their
  /// files, as the rows of a table do, or have none. A source made of another one hands the question on.
  virtual std::string file_of(std::int64_t index) const {
    static_cast<void>(index);
    return {};
  }

  /// Whether read() only copies from memory, so that all samples may be looked at where of others, which are
  /// read from files or computed, only some are. A source made of another one hands the question on.
  virtual bool in_memory() const noexcept { return false; }

  /// True: the field numbered `field`, f32, holds nothing but b / 255 with b from 0 to 255, and read() writes
  /// the bytes b themselves where it is handed a view of dtype u8. Batches for GPUs then take a quarter of
  /// the memory and of the bus, and the GPU divides. A source made of another one says so only if it leaves
  /// the outputs to it.
  virtual bool has_bytes(std::size_t field) const noexcept {
    static_cast<void>(field);
    return false;
  }

  /// The same samples as training sees them in epoch number `epoch` (from 0), their fields perhaps of other
  /// extents than fields() says: pictures whose size grows along a run. Null: as they are here, as most
  /// sources' are in every epoch. A source made of another one hands the question on.
  virtual std::shared_ptr<const Source> at_epoch(std::int64_t epoch) const {
    static_cast<void>(epoch);
    return nullptr;
  }

  /// How the field numbered `field`, an image [C, H, W], is shown to people; nothing: nobody knows. A source
  /// made of another one hands the question on.
  virtual std::optional<PixelNumbers> pixel_numbers(std::size_t field) const noexcept {
    return has_bytes(field) ? std::optional(PixelNumbers()) : std::nullopt;
  }
};

/// source->at_epoch(), or `source` itself where that is null.
std::shared_ptr<const Source> in_epoch(const std::shared_ptr<const Source>& source, std::int64_t epoch);

/// What sample `index` is called in messages: "3", or "3 (17 of the file)" where its place there is another.
std::string place_name(const Source& source, std::int64_t index);

/// The field of that name; null where there is none.
const Field* find_field(std::span<const Field> fields, std::string_view name) noexcept;

/// "image float32 [1, 28, 28], label int64 []"
std::string describe(std::span<const Field> fields);

/// Throws UsageError, naming source and field, unless there is at least one field, names are unique and not
/// empty, extents are at least 1, a batch of it fits a tensor's rank, `values` is 0 or bounds integers, there
/// are as many `columns` as elements, or none, and `length_field` names an int64 [] of the same sample.
void check_fields(const Source& source);

/// source.read() for the loader: what reading a sample throws keeps its type (Error where it is none of
/// ours), and its message gets source and index in front. Rows beyond a sample's own length are padded; a
/// length outside [0, shape[0]] is an Error.
void read_sample(const Source& source, std::int64_t index, std::span<const View> outputs,
                 KeyedGenerator& generator);

}  // namespace dtrain
