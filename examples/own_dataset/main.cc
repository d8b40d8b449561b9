// A data set of one's own, in files of one's own: a folder for each class, full of PGM images (8 bits, all of
// one size), told apart by a small convolutional network. Nothing but the source is new: files are listed
// once, each sample is read when it is wanted, and shifted by up to two pixels that are the same for any
// number of workers and after any restart.
//
//     dtrain-launch --nproc_per_node=2 build/own_dataset --data-dir photos --epochs 20 --lr 0.1
//
// `photos` has train/<class>/*.pgm and test/<class>/*.pgm.
#include <dtrain/dtrain.h>
#include <algorithm>
#include <filesystem>
#include <fstream>

using namespace dtrain;
namespace fs = std::filesystem;

namespace {

/// The pixels behind a PGM file's header ("P5 width height 255").
std::vector<std::uint8_t> read_pgm(const fs::path& path, std::int64_t& height, std::int64_t& width) {
  std::ifstream file(path, std::ios::binary);
  std::string magic;
  int most = 0;
  file >> magic >> width >> height >> most;
  file.get();
  if (!file || magic != "P5" || most != 255 || width < 1 || height < 1 || width > 4096 || height > 4096)
    throw DataError(path, 0, "a PGM image of 8 bits (P5, 255)", "'" + magic + "'");
  std::vector<std::uint8_t> pixels(static_cast<std::size_t>(height * width));
  if (!file.read(reinterpret_cast<char*>(pixels.data()), static_cast<std::streamsize>(pixels.size())))
    throw DataError(path, file.gcount(), std::to_string(pixels.size()) + " pixels", "the end of the file");
  return pixels;
}

class Folder final : public Source {
 public:
  Folder(const fs::path& root, bool shifts) : root_(root), shifts_(shifts) {
    if (!fs::is_directory(root))
      throw DataError(root, -1, "a folder with a folder for each class", "nothing of that kind");
    std::vector<fs::path> classes;
    for (const auto& entry : fs::directory_iterator(root)) classes.push_back(entry.path());
    std::sort(classes.begin(), classes.end());  // whatever order the disk has them in
    for (const fs::path& folder : classes) {
      std::vector<fs::path> files;
      for (const auto& entry : fs::directory_iterator(folder)) files.push_back(entry.path());
      std::sort(files.begin(), files.end());
      for (const fs::path& file : files) samples_.push_back({file, &folder - classes.data()});
    }
    if (samples_.empty()) throw DataError(root, -1, "images in the folders below", "none");
    std::int64_t height = 0, width = 0;
    read_pgm(samples_[0].file, height, width);
    fields_ = {{.name = "image", .shape = {1, height, width}},
               {.name = "label",
                .dtype = DType::i64,
                .shape = {},
                .values = static_cast<std::int64_t>(classes.size())}};
  }

  std::string name() const override { return root_.string(); }
  std::int64_t size() const noexcept override { return static_cast<std::int64_t>(samples_.size()); }
  std::span<const Field> fields() const noexcept override { return fields_; }

  void read(std::int64_t index, std::span<const View> outputs, KeyedGenerator& generator) const override {
    const Sample& sample = samples_[static_cast<std::size_t>(index)];
    std::int64_t height = 0, width = 0;
    const std::vector<std::uint8_t> pixels = read_pgm(sample.file, height, width);
    const Dims& shape = fields_[0].shape;
    if (height != shape[1] || width != shape[2])
      throw DataError(sample.file, -1, shape.to_string(), Dims{1, height, width}.to_string());
    const auto shift = [&] { return shifts_ ? std::lround(generator.uniform(-2.49F, 2.49F)) : 0; };
    const std::int64_t down = shift(), right = shift();
    float* to = outputs[0].as<float>();
    for (std::int64_t y = 0; y < height; ++y) {
      for (std::int64_t x = 0; x < width; ++x) {
        const std::int64_t from_y = y - down, from_x = x - right;
        const bool inside = from_y >= 0 && from_y < height && from_x >= 0 && from_x < width;
        *to++ =
            inside ? static_cast<float>(pixels[static_cast<std::size_t>(from_y * width + from_x)]) / 255 : 0;
      }
    }
    *outputs[1].as<std::int64_t>() = sample.label;
  }

 private:
  struct Sample {
    fs::path file;
    std::int64_t label;
  };
  fs::path root_;
  bool shifts_;
  std::vector<Sample> samples_;
  std::vector<Field> fields_;
};

class Photos final : public Task {
 public:
  std::string name() const override { return "photos"; }
  Splits open(const DataRequest& request) const override {
    const fs::path folder = request.data_dir.empty() ? fs::path(".") : fs::path(request.data_dir);
    return {std::make_shared<Folder>(folder / "train", true),
            std::make_shared<Folder>(folder / "test", false)};
  }
  std::unique_ptr<Module> build(std::span<const Field> fields, Generator& generator,
                                const std::shared_ptr<Device>& device) const override {
    const std::int64_t classes = fields[1].values;
    return std::make_unique<Sequential>(std::vector<std::shared_ptr<Module>>{
        std::make_shared<Conv2d>(1, 8, 3, generator, device), std::make_shared<ReLU>(),
        std::make_shared<AdaptiveAvgPool2d>(4, 4), std::make_shared<Flatten>(),
        std::make_shared<Linear>(8 * 4 * 4, classes, generator, device)});
  }
  Tensor loss(const Tensors& outputs, const BatchTensors& batch) const override {
    return cross_entropy(outputs[0], batch["label"]);
  }
  // Evaluation counts the loss, the samples, and those that are told right.
  std::size_t sum_count() const override { return 3; }
  void add_up(const Tensors& outputs, const BatchTensors& batch, double units,
              std::span<double> sums) const override {
    Task::add_up(outputs, batch, units, sums);
    sums[2] += sum(equal(argmax(outputs[0], 1), batch["label"]).to(DType::f32)).item();
  }
  Evaluation evaluation(std::span<const double> sums, std::int64_t samples) const override {
    return {.loss = sums[0] / sums[1], .metrics = {{"accuracy", sums[2] / static_cast<double>(samples)}}};
  }
};

}  // namespace

int main(int argc, char** argv) { return train_main(argc, argv, Photos()); }
