// What a user may want to know of how this module does things: that a library refused, and what stands in for
// it. Nothing here is an error.
#pragma once

#include <functional>
#include <string>

namespace dtrain::cuda {

using NoticeListener = std::function<void(const std::string&)>;

/// Tells the listener of `text`, once in the life of the process. Thread-safe.
void give_notice(const std::string& text);
/// From now on `listener` is told (null: nobody), first of what was said before. Called back from whichever
/// thread gives notice.
void listen_to_notices(NoticeListener listener);

}  // namespace dtrain::cuda
