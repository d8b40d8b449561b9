#include "emulation/machine/faults.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <stdexcept>

namespace emulation {
namespace {

struct Known {
  std::string_view name;
  Place place;
  bool has_number = false;
};
constexpr std::array kKnown = {Known{"launch=illegal-address", Place::launch},
                               Known{"launch=ecc", Place::launch},
                               Known{"launch=lost", Place::launch},
                               Known{"memory=out", Place::memory},
                               Known{"collective=hang", Place::collective},
                               Known{"collective=fail", Place::collective},
                               Known{"connect=hang", Place::connect},
                               Known{"connect=die", Place::connect},
                               Known{"recording=die", Place::recording},
                               Known{"memory=above", Place::memory, true},
                               Known{"speed=slow", Place::speed, true},
                               Known{"links=slow", Place::links, true}};

/// The number behind `mark`, which is cut off; false for something else there.
template <class Number>
bool cut_number(std::string_view& item, char mark, Number& number) {
  const std::size_t at = item.rfind(mark);
  if (at == std::string_view::npos) return true;
  const std::string_view digits = item.substr(at + 1);
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  item = item.substr(0, at);
  return error == std::errc{} && end == digits.data() + digits.size();
}

}  // namespace

Faults::Faults(std::string_view text) {
  while (!text.empty()) {
    const std::size_t comma = std::min(text.find(','), text.size());
    const std::string_view whole = text.substr(0, comma);
    text.remove_prefix(std::min(comma + 1, text.size()));
    std::string_view item = whole;
    Fault fault{};
    const bool numbers = cut_number(item, '#', fault.gpu) && cut_number(item, '@', fault.at) &&
                         cut_number(item, ':', fault.number);
    const auto known =
        std::find_if(kKnown.begin(), kKnown.end(), [&](const Known& k) { return k.name == item; });
    if (!numbers || known == kKnown.end() || fault.at == 0 || known->has_number != (fault.number != 0))
      throw std::invalid_argument(std::string(whole));
    fault.place = known->place;
    fault.what = item.substr(item.find('=') + 1);
    faults_.push_back(std::move(fault));
  }
}

double Faults::slowness(Place place, int gpu) const {
  double times = 1;
  for (const Fault& fault : faults_) {
    if (fault.place == place && (fault.gpu < 0 || fault.gpu == gpu))
      times = static_cast<double>(fault.number);
  }
  return times;
}

std::string_view Faults::next(Place place, int gpu, std::uint64_t bytes) {
  if (faults_.empty()) return {};
  const std::lock_guard lock(mutex_);
  std::string_view now;
  for (Fault& fault : faults_) {
    if (fault.place != place || (fault.gpu >= 0 && fault.gpu != gpu)) continue;
    if (fault.number != 0 ? bytes > fault.number : ++fault.seen == fault.at) now = fault.what;
  }
  return now;
}

}  // namespace emulation
