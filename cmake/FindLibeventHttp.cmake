# Finds libevent's core and its HTTP server: target Libevent::http, LIBEVENT_VERSION. As archives where they are there, so
# that the program needs nothing more to run; none of it wants OpenSSL.
find_path(LIBEVENT_INCLUDE_DIR event2/http.h)
find_library(LIBEVENT_CORE_LIBRARY NAMES libevent_core.a event_core)
find_library(LIBEVENT_EXTRA_LIBRARY NAMES libevent_extra.a event_extra)
mark_as_advanced(LIBEVENT_INCLUDE_DIR LIBEVENT_CORE_LIBRARY LIBEVENT_EXTRA_LIBRARY)

if(LIBEVENT_INCLUDE_DIR)
  file(GLOB libevent_configs "${LIBEVENT_INCLUDE_DIR}/event2/event-config.h"
       "/usr/include/${CMAKE_LIBRARY_ARCHITECTURE}/event2/event-config.h")
  foreach(config IN LISTS libevent_configs)
    file(STRINGS "${config}" libevent_version REGEX "#define EVENT__VERSION \"")
    string(REGEX REPLACE ".*\"([0-9.]+).*" "\\1" LIBEVENT_VERSION "${libevent_version}")
  endforeach()
endif()
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(LibeventHttp REQUIRED_VARS LIBEVENT_EXTRA_LIBRARY LIBEVENT_CORE_LIBRARY LIBEVENT_INCLUDE_DIR
                                  VERSION_VAR LIBEVENT_VERSION)
if(LibeventHttp_FOUND AND NOT TARGET Libevent::http)
  add_library(Libevent::core UNKNOWN IMPORTED)
  set_target_properties(Libevent::core PROPERTIES IMPORTED_LOCATION "${LIBEVENT_CORE_LIBRARY}"
                        INTERFACE_INCLUDE_DIRECTORIES "${LIBEVENT_INCLUDE_DIR}")
  add_library(Libevent::http UNKNOWN IMPORTED)
  set_target_properties(Libevent::http PROPERTIES IMPORTED_LOCATION "${LIBEVENT_EXTRA_LIBRARY}"
                        INTERFACE_LINK_LIBRARIES Libevent::core)
endif()
