#include "collectives/p2p/subgroup.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace dtrain::p2p {

int Subgroup::rank_of(int old_rank) const {
  return static_cast<int>(std::find(members.begin(), members.end(), old_rank) - members.begin());
}

Subgroup agree_on_subgroup(Communicator& whole, std::string_view name, int number, int color, int key,
                           const Deadline& deadline) {
  std::array<std::int32_t, 2> mine = {color, key};
  std::vector<std::int32_t> all(2 * static_cast<std::size_t>(whole.size()));
  whole.all_gather({mine.data(), 2, DType::i32}, {all.data(), all.size(), DType::i32}, "split")
      ->wait(deadline);
  const auto color_of = [&](int rank) { return all[2 * static_cast<std::size_t>(rank)]; };
  const auto key_of = [&](int rank) { return all[2 * static_cast<std::size_t>(rank) + 1]; };
  Subgroup part{{}, fmt::format("{}/{}.{}", name, number, color)};
  for (int rank = 0; rank < whole.size(); ++rank) {
    if (color_of(rank) == color) part.members.push_back(rank);
  }
  std::stable_sort(part.members.begin(), part.members.end(),
                   [&](int a, int b) { return key_of(a) < key_of(b); });
  return part;
}

}  // namespace dtrain::p2p
