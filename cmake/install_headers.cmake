# Run by the installation: copies `public_headers` from `source_dir` below `include_dir`/dtrain. In the tree headers
# include each other as "runtime/…"; installed, as <dtrain/runtime/…>, so that a user's include path gets no folder called
# models/ or training/.
cmake_policy(VERSION 3.25)
foreach(header IN LISTS public_headers)
  file(READ "${source_dir}/${header}" text)
  string(REGEX MATCHALL "\n#include \"[^\"]+\"" includes "\n${text}")
  foreach(include IN LISTS includes)
    string(REGEX REPLACE "\n#include \"([^\"]+)\"" "\\1" included "${include}")
    if(NOT included IN_LIST public_headers)
      message(FATAL_ERROR "${header} is public and includes ${included}, which cmake/DtrainInstall.cmake keeps internal")
    endif()
  endforeach()
  string(REGEX REPLACE "\n#include \"([^\"]+)\"" "\n#include <dtrain/\\1>" text "${text}")
  file(WRITE "${include_dir}/dtrain/${header}" "${text}")
  file(CHMOD "${include_dir}/dtrain/${header}" PERMISSIONS OWNER_READ OWNER_WRITE GROUP_READ WORLD_READ)
endforeach()
list(LENGTH public_headers count)
message(STATUS "Installed ${count} headers below ${include_dir}/dtrain")
