// Numbers and names as people read them. Pure; internal to runtime/metrics.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace dtrain {

/// "8,516", "0.6297", "1.2e-05": at most four significant digits, thousands apart.
std::string number_text(double value);
/// "1,234,567".
std::string count_text(std::int64_t value);
/// "82.6 MiB".
std::string bytes_text(double bytes);
/// "168 ms", "15.0 s", "2 min 03 s", "1 h 05 min".
std::string seconds_text(double seconds);
/// 0.7533 as "75.33 %".
std::string percent_text(double share);

/// A key of summary.json or of a metric in words: "peak_resident_bytes" as "Peak resident". Its unit is in
/// the value.
std::string name_in_words(std::string_view key);
/// A value of such a key with the unit that the key's end names (_bytes, _seconds, _milliseconds).
std::string value_in_words(std::string_view key, double value);

}  // namespace dtrain
