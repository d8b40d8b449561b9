# Run by cpack when the package's files are laid out: depends on the packages whose libraries the programs load. cpack's own
# way (CPACK_DEBIAN_PACKAGE_SHLIBDEPS) would count the modules too, and every user of the package would install MPI.
cmake_policy(VERSION 3.25)
find_program(shlibdeps dpkg-shlibdeps)
if(NOT shlibdeps)
  message(FATAL_ERROR "dpkg-shlibdeps is missing; the package needs it to say what it depends on. Get it with: apt install dpkg-dev")
endif()
file(GLOB programs "${CPACK_TEMPORARY_DIRECTORY}${CPACK_PACKAGING_INSTALL_PREFIX}/bin/*")
set(workplace "${CPACK_TOPLEVEL_DIRECTORY}/shlibdeps")  # dpkg-shlibdeps wants to stand in a source package
file(MAKE_DIRECTORY "${workplace}/debian")
file(WRITE "${workplace}/debian/control" "")
execute_process(COMMAND "${shlibdeps}" --ignore-missing-info -O ${programs} WORKING_DIRECTORY "${workplace}"
                OUTPUT_VARIABLE found ERROR_VARIABLE problem RESULT_VARIABLE code OUTPUT_STRIP_TRAILING_WHITESPACE)
file(REMOVE_RECURSE "${workplace}")
if(NOT code EQUAL 0 OR NOT found MATCHES "Depends=(.+)$")
  message(FATAL_ERROR "dpkg-shlibdeps: expected the packages that ${programs} depend on, got '${found}': ${problem}")
endif()
set(CPACK_DEBIAN_PACKAGE_DEPENDS "${CMAKE_MATCH_1}")
