#include "parallel/share.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "parallel/span_of.h"
#include "runtime/base/error.h"

namespace dtrain {
namespace {

std::string describe(const NamedTensors& tensors) {
  auto list = nlohmann::json::array();
  for (const auto& [name, tensor] : tensors) {
    list.push_back({{"name", name},
                    {"dtype", static_cast<int>(tensor.dtype())},
                    {"shape", std::vector<std::int64_t>(tensor.shape().begin(), tensor.shape().end())}});
  }
  return list.dump();
}

NamedTensors allocate(const std::string& description, const std::shared_ptr<Device>& device) {
  NamedTensors tensors;
  for (const auto& item : nlohmann::json::parse(description)) {
    const auto shape = item.at("shape").get<std::vector<std::int64_t>>();
    tensors.emplace_back(item.at("name").get<std::string>(),
                         Tensor::empty(Dims(shape), device, static_cast<DType>(item.at("dtype").get<int>())));
  }
  return tensors;
}

}  // namespace

std::string broadcast_text(Communicator& communicator, std::string text, const Deadline& deadline) {
  std::int64_t size = static_cast<std::int64_t>(text.size());
  communicator.broadcast({.data = &size, .count = 1, .dtype = DType::i64}, 0, "length of a text")
      ->wait(deadline);
  text.resize(static_cast<std::size_t>(size));
  if (size > 0)
    communicator.broadcast({.data = text.data(), .count = text.size(), .dtype = DType::u8}, 0, "text")
        ->wait(deadline);
  return text;
}

std::map<std::string, std::string> broadcast_entries(Communicator& communicator,
                                                     const std::map<std::string, std::string>& entries,
                                                     const Deadline& deadline) {
  std::string text;
  nlohmann::json::to_msgpack(entries, text);  // which takes any bytes
  return nlohmann::json::from_msgpack(broadcast_text(communicator, std::move(text), deadline));
}

std::vector<std::string> gather_texts(Communicator& communicator, const std::string& own,
                                      const Deadline& deadline) {
  const auto size = static_cast<std::size_t>(communicator.size());
  std::int64_t length = static_cast<std::int64_t>(own.size());
  std::vector<std::int64_t> lengths(size);
  communicator.all_gather({&length, 1, DType::i64}, {lengths.data(), size, DType::i64}, "text lengths")
      ->wait(deadline);
  const auto longest = static_cast<std::size_t>(*std::max_element(lengths.begin(), lengths.end()));
  std::vector<std::string> texts(size);
  if (longest == 0) return texts;
  std::vector<std::uint8_t> mine(longest), all(longest * size);
  std::copy(own.begin(), own.end(), mine.begin());
  communicator.all_gather({mine.data(), longest, DType::u8}, {all.data(), all.size(), DType::u8}, "texts")
      ->wait(deadline);
  for (std::size_t rank = 0; rank < size; ++rank)
    texts[rank].assign(all.begin() + static_cast<std::ptrdiff_t>(rank * longest),
                       all.begin() + static_cast<std::ptrdiff_t>(rank * longest) + lengths[rank]);
  return texts;
}

NamedTensors broadcast_tensors(Communicator& communicator, const NamedTensors& tensors,
                               const std::shared_ptr<Device>& device, const Deadline& deadline) {
  const bool root = communicator.rank() == 0;
  const std::string description = broadcast_text(communicator, root ? describe(tensors) : "", deadline);
  NamedTensors result = root ? tensors : allocate(description, device);
  for (const auto& [name, tensor] : result) {
    if (tensor.numel() == 0) continue;
    communicator.broadcast(span_of(tensor), 0, name)->wait(deadline);
    tensor.mark_modified();
  }
  return result;
}

}  // namespace dtrain
