# Finds utf8proc: target utf8proc::utf8proc, UTF8PROC_VERSION. The archive where it is there, so that programs need nothing
# more to run.
find_path(UTF8PROC_INCLUDE_DIR utf8proc.h)
find_library(UTF8PROC_LIBRARY NAMES libutf8proc.a utf8proc)
mark_as_advanced(UTF8PROC_INCLUDE_DIR UTF8PROC_LIBRARY)

if(UTF8PROC_INCLUDE_DIR)
  file(STRINGS "${UTF8PROC_INCLUDE_DIR}/utf8proc.h" utf8proc_version REGEX "#define UTF8PROC_VERSION_(MAJOR|MINOR) ")
  string(REGEX REPLACE ".*MAJOR *([0-9]+).*MINOR *([0-9]+).*" "\\1.\\2" UTF8PROC_VERSION "${utf8proc_version}")
endif()
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(DtrainUTF8PROC REQUIRED_VARS UTF8PROC_LIBRARY UTF8PROC_INCLUDE_DIR
                                  VERSION_VAR UTF8PROC_VERSION)
if(DtrainUTF8PROC_FOUND AND NOT TARGET utf8proc::utf8proc)
  add_library(utf8proc::utf8proc UNKNOWN IMPORTED)
  set_target_properties(utf8proc::utf8proc PROPERTIES IMPORTED_LOCATION "${UTF8PROC_LIBRARY}"
                        INTERFACE_INCLUDE_DIRECTORIES "${UTF8PROC_INCLUDE_DIR}")
endif()
