# Run by cpack when the packages' files are laid out: each depends on the packages whose libraries it loads. cpack's own way
# (CPACK_DEBIAN_PACKAGE_SHLIBDEPS) would count the MPI module too, and every user of the package would install MPI; nor does
# it know where NVIDIA's libraries lie.
cmake_policy(VERSION 3.25)
find_program(shlibdeps dpkg-shlibdeps)
if(NOT shlibdeps)
  message(FATAL_ERROR "dpkg-shlibdeps is missing; the package needs it to say what it depends on. Get it with: apt install dpkg-dev")
endif()
if(NOT DEFINED ENV{SOURCE_DATE_EPOCH} AND CPACK_DTRAIN_SOURCE_DATE)
  set(ENV{SOURCE_DATE_EPOCH} "${CPACK_DTRAIN_SOURCE_DATE}")
endif()

# depends_of(VARIABLE FILE…): the packages that have the libraries of these files.
function(depends_of variable)
  set(workplace "${CPACK_TOPLEVEL_DIRECTORY}/shlibdeps")  # dpkg-shlibdeps wants to stand in a source package
  file(MAKE_DIRECTORY "${workplace}/debian")
  file(WRITE "${workplace}/debian/control" "")
  set(folders "")  # beside the dynamic linker's
  foreach(folder IN LISTS CPACK_DTRAIN_CUDA_LIBRARY_DIRS)
    list(APPEND folders "-l${folder}")
  endforeach()
  execute_process(COMMAND "${shlibdeps}" --ignore-missing-info ${folders} -O ${ARGN}
                  WORKING_DIRECTORY "${workplace}" OUTPUT_VARIABLE found ERROR_VARIABLE problem RESULT_VARIABLE code
                  OUTPUT_STRIP_TRAILING_WHITESPACE)
  file(REMOVE_RECURSE "${workplace}")
  if(NOT code EQUAL 0 OR NOT found MATCHES "Depends=(.+)$")
    message(FATAL_ERROR "dpkg-shlibdeps: expected the packages that ${ARGN} depend on, got '${found}': ${problem}")
  endif()
  set(${variable} "${CMAKE_MATCH_1}" PARENT_SCOPE)
endfunction()

set(version "${CPACK_PACKAGE_VERSION}")
if(CPACK_DEBIAN_PACKAGE_RELEASE)
  string(APPEND version "-${CPACK_DEBIAN_PACKAGE_RELEASE}")
endif()
foreach(package IN LISTS CPACK_COMPONENTS_ALL)
  string(TOUPPER "${package}" name)
  set(root "${CPACK_TEMPORARY_DIRECTORY}/${package}${CPACK_PACKAGING_INSTALL_PREFIX}")
  if(package STREQUAL "dtrain")
    file(GLOB files "${root}/bin/*")
    depends_of(CPACK_DEBIAN_${name}_PACKAGE_DEPENDS ${files})
  else()
    file(GLOB_RECURSE files "${root}/*.so")
    depends_of(CPACK_DEBIAN_${name}_PACKAGE_DEPENDS ${files})
    string(PREPEND CPACK_DEBIAN_${name}_PACKAGE_DEPENDS "dtrain (= ${version}), ")
  endif()
endforeach()
