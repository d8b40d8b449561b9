// Gradients of weights and biases by Winograd's algorithm: products of transformed inputs and gradients,
// added up over all tiles.
#include <algorithm>
#include <cstring>
#include <vector>

#include "runtime/device/cpu/convolution/winograd.h"
#include "runtime/device/cpu/convolution/winograd_tiles.h"

namespace dtrain::cpu {
namespace {

/// Tiles whose weight gradients are added up in registers: what is transformed for them stays in the caches.
std::int64_t tiles_of_sums(const WinogradLoops& loops) noexcept {
  return loops.tile == kSmallTile ? 128 : 32;
}
/// Channels whose sums, and tiles, fit the second-level cache where all of them do not.
constexpr std::int64_t kSumRows = 64;

/// What a weight's gradient is a product of, transformed tile by tile: some channels of the input, some
/// outputs.
class AcrossTiles {
 public:
  AcrossTiles(const WinogradLoops& loops, const View& input, std::int64_t channels, const View& grad_output,
              std::int64_t outputs)
      : loops_(loops),
        input_(input),
        grad_output_(grad_output),
        channels_(channels),
        outputs_(outputs),
        tiles_(loops.tile, input) {}

  std::int64_t count() const noexcept { return tiles_.count(); }

  /// The tiles of one sum from `first` on, into the first rows of v and z; returns how many, filled up to
  /// whole words with zeros. `bias_sums` receives the gradients' sums by output.
  std::int64_t transform(std::int64_t first, const void* zeros, const TapWords& v, const TapWords& z,
                         float* bias_sums) const {
    const std::int64_t count = fill_up(std::min(tiles_of_sums(loops_), tiles_.count() - first), loops_.pack);
    std::vector<const void*> pixels;
    tiles_.pixels(input_, first, count, loops_.window(), 1, zeros, pixels);
    loops_.input_across(count, channels_, pixels.data(), v);
    tiles_.pixels(grad_output_, first, count, loops_.tile, 0, zeros, pixels);
    std::memset(bias_sums, 0, static_cast<std::size_t>(outputs_) * sizeof(float));
    loops_.gradient_across(count, outputs_, pixels.data(), z, bias_sums);
    return count;
  }

 private:
  const WinogradLoops& loops_;
  const View input_, grad_output_;
  const std::int64_t channels_, outputs_;
  const Tiles tiles_;
};

/// A piece of a weight's gradient while it is added up: `rows` channels, `columns` outputs.
class FilterGradient {
 public:
  FilterGradient(const WinogradLoops& loops, const TapWords& sums, std::int64_t rows, std::int64_t columns,
                 const View& grad_weight)
      : loops_(loops), sums_(sums), rows_(rows), columns_(columns), grad_weight_(grad_weight) {
    std::memset(sums_.data, 0,
                static_cast<std::size_t>(TapArrays(loops).floats(rows_, columns_)) * sizeof(float));
  }

  void add(const TapWords& v, const TapWords& z, std::int64_t depth) const {
    for (std::int64_t tap = 0; tap < loops_.taps(); ++tap) {
      loops_.add_product(rows_, depth, columns_, v.at(tap, 0), v.pitch, z.at(tap, 0), z.pitch,
                         sums_.at(tap, 0), sums_.pitch);
    }
  }
  /// Where the piece begins: its first channel and output.
  void write(std::int64_t channel, std::int64_t output) const {
    const std::int64_t channels = grad_weight_.shape[1];
    loops_.filter_gradient({columns_, channels * kFilterCells, rows_, kFilterCells, false}, sums_,
                           grad_weight_.as<float>() + (output * channels + channel) * kFilterCells);
  }

 private:
  const WinogradLoops& loops_;
  const TapWords sums_;
  const std::int64_t rows_, columns_;
  const View& grad_weight_;
};

/// Gradients of the weight and the bias; every element is added up tile by tile, by any thread.
class WeightGradient {
 public:
  WeightGradient(const View& input, const View& grad_output, const View& grad_weight, const View& grad_bias,
                 WinogradScratch& scratch)
      : loops_(gradient_loops(input)),
        arrays_(loops_),
        input_(input),
        grad_output_(grad_output),
        grad_weight_(grad_weight),
        grad_bias_(grad_bias),
        scratch_(scratch),
        channels_(input.shape[1]),
        outputs_(grad_output.shape[1]),
        tiles_(Tiles(loops_.tile, input).count()) {
    scratch.own.prepare();
  }

  // Of the tiles and the sums, the larger is gone through by pieces that stay in the caches.
  void run() const {
    const std::int64_t rows = fill_up(tiles_, loops_.pack) / loops_.pack;
    if (rows * (channels_ + outputs_) <= channels_ * outputs_) return run_by_pieces(rows);
    // Every block transforms its channels and outputs itself: as few blocks as there are workers.
    const std::int64_t workers = worker_count(), most = outputs_ / kChannelStep;
    const std::int64_t across = std::min(workers, most);
    const std::int64_t down = std::clamp<std::int64_t>(workers / across, 1, channels_ / kChannelStep);
    const std::int64_t width = fill_up((outputs_ + across - 1) / across, kChannelStep);
    const std::int64_t height = fill_up((channels_ + down - 1) / down, kChannelStep);
    const std::int64_t columns = (outputs_ + width - 1) / width, lines = (channels_ + height - 1) / height;
    const double block_ns = tile_ns(loops_, height, width) * static_cast<double>(tiles_);
    for_chunks(lines * columns, block_ns, [&](std::int64_t block, int worker) {
      const std::int64_t channel = block / columns * height, output = block % columns * width;
      add_block(channel, std::min(height, channels_ - channel), output, std::min(width, outputs_ - output),
                scratch_.own.of(worker));
    });
  }

 private:
  void add_block(std::int64_t channel, std::int64_t channels, std::int64_t output, std::int64_t outputs,
                 Scratch& scratch) const {
    const std::int64_t rows = tiles_of_sums(loops_) / loops_.pack, most = std::max(channels, outputs);
    ScratchPieces pieces(scratch,
                         arrays_.floats(rows, channels) + arrays_.floats(rows, outputs) +
                             arrays_.floats(channels, outputs) + most + outputs,
                         5);
    const TapWords v = arrays_.take(pieces, rows, channels), z = arrays_.take(pieces, rows, outputs);
    const FilterGradient gradient(loops_, arrays_.take(pieces, channels, outputs), channels, outputs,
                                  grad_weight_);
    const void* zeros = take_zeros(pieces, most);
    float* bias_sums = pieces.take(outputs);
    const AcrossTiles across(loops_, from_channel(input_, channel), channels,
                             from_channel(grad_output_, output), outputs);
    std::vector<double> bias_totals(static_cast<std::size_t>(outputs), 0.0);
    for (std::int64_t first = 0; first < tiles_; first += tiles_of_sums(loops_)) {
      gradient.add(v, z, across.transform(first, zeros, v, z, bias_sums) / loops_.pack);
      for (std::int64_t o = 0; o < outputs; ++o) bias_totals[static_cast<std::size_t>(o)] += bias_sums[o];
    }
    gradient.write(channel, output);
    if (channel == 0) write_bias(output, bias_totals);
  }

  /// All tiles first, of which there are few, then the sums piece by piece.
  void run_by_pieces(std::int64_t rows) const {
    const std::int64_t groups = (tiles_ + tiles_of_sums(loops_) - 1) / tiles_of_sums(loops_),
                       most = std::max(channels_, outputs_);
    ScratchPieces pieces(scratch_.shared,
                         arrays_.floats(rows, channels_) + arrays_.floats(rows, outputs_) + most +
                             groups * fill_up(outputs_, 16),
                         4);
    const TapWords v = arrays_.take(pieces, rows, channels_), z = arrays_.take(pieces, rows, outputs_);
    const void* zeros = take_zeros(pieces, most);
    float* bias_sums = pieces.take(groups * outputs_);
    const AcrossTiles across(loops_, input_, channels_, grad_output_, outputs_);
    for_chunks(groups, static_cast<double>(tiles_of_sums(loops_) * most) * 4, [&](std::int64_t group, int) {
      const std::int64_t row = group * tiles_of_sums(loops_) / loops_.pack;
      across.transform(group * tiles_of_sums(loops_), zeros, v.below(row), z.below(row),
                       bias_sums + group * outputs_);
    });
    std::vector<double> bias_totals(static_cast<std::size_t>(outputs_), 0.0);
    for (std::int64_t i = 0; i < groups * outputs_; ++i)
      bias_totals[static_cast<std::size_t>(i % outputs_)] += bias_sums[i];
    write_bias(0, bias_totals);
    add_pieces(v, z, rows);
  }

  void add_pieces(const TapWords& v, const TapWords& z, std::int64_t rows) const {
    const std::int64_t height = channels_ % kSumRows == 0 ? kSumRows : kChannelStep;
    const std::int64_t columns = outputs_ / kChannelStep;
    const double piece_ns = tile_ns(loops_, height, kChannelStep) * static_cast<double>(tiles_);
    for_chunks(channels_ / height * columns, piece_ns, [&](std::int64_t piece, int worker) {
      const std::int64_t channel = piece / columns * height, output = piece % columns * kChannelStep;
      ScratchPieces own(scratch_.own.of(worker), arrays_.floats(height, kChannelStep), 1);
      const FilterGradient gradient(loops_, arrays_.take(own, height, kChannelStep), height, kChannelStep,
                                    grad_weight_);
      gradient.add(v.right_of(channel), z.right_of(output), rows);
      gradient.write(channel, output);
    });
  }

  void write_bias(std::int64_t output, const std::vector<double>& totals) const {
    if (grad_bias_.data == nullptr) return;
    for (std::size_t o = 0; o < totals.size(); ++o)
      grad_bias_.as<float>()[output + static_cast<std::int64_t>(o)] = static_cast<float>(totals[o]);
  }

  const WinogradLoops& loops_;
  const TapArrays arrays_;
  const View &input_, &grad_output_, &grad_weight_, &grad_bias_;
  WinogradScratch& scratch_;
  const std::int64_t channels_, outputs_, tiles_;
};

}  // namespace

void winograd_backward_weight(const View& input, const View& grad_output, const View& grad_weight,
                              const View& grad_bias, WinogradScratch& scratch) {
  WeightGradient(input, grad_output, grad_weight, grad_bias, scratch).run();
}

}  // namespace dtrain::cpu
