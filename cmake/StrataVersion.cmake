# Which build this is: --version prints it, results quote it.
#
# Included by CMakeLists.txt it makes src/cli/version.cpp see STRATA_VERSION, STRATA_COMMIT,
# STRATA_DATE (of the commit) and STRATA_FLAGS. Run as a script (cmake -P) it writes the header that defines them; the build does so
# each time, and the header changes only when its content does. Without git, or without a
# repository, the commit is "unknown".

if(CMAKE_SCRIPT_MODE_FILE)
  set(commit "unknown")
  find_program(GIT git)
  if(GIT)
    execute_process(COMMAND ${GIT} -C ${SOURCE} rev-parse --show-prefix HEAD
      OUTPUT_VARIABLE found RESULT_VARIABLE status ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
    # The prefix is empty exactly when the sources are a repository of their own, not a copy
    # somewhere inside another one.
    if(status EQUAL 0 AND found MATCHES "^\n?([0-9a-f]+)$")
      string(SUBSTRING ${CMAKE_MATCH_1} 0 12 commit)
      execute_process(COMMAND ${GIT} -C ${SOURCE} status --porcelain --untracked-files=no
        OUTPUT_VARIABLE changes ERROR_QUIET)
      execute_process(COMMAND ${GIT} -C ${SOURCE} show --no-patch --format=%cs HEAD
        OUTPUT_VARIABLE date ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
      if(changes)
        string(APPEND commit ", changed")
      endif()
    endif()
  endif()
  if(NOT date MATCHES "^[0-9]+-[0-9]+-[0-9]+$")
    set(date "")
  endif()
  set(text "#define STRATA_VERSION \"${VERSION}\"\n#define STRATA_COMMIT \"${commit}\"\n")
  string(APPEND text "#define STRATA_FLAGS \"${FLAGS}\"\n#define STRATA_DATE \"${date}\"\n")
  set(old "")
  if(EXISTS ${HEADER})
    file(READ ${HEADER} old)
  endif()
  if(NOT text STREQUAL old)
    file(WRITE ${HEADER} ${text})
  endif()
  return()
endif()

if(TARGET strata)
  string(TOUPPER ${CMAKE_BUILD_TYPE} upper)
  set(flags "${CMAKE_BUILD_TYPE} ${CMAKE_CXX_FLAGS} ${CMAKE_CXX_FLAGS_${upper}} -ffp-contract=off")
  if(STRATA_SANITIZE)
    string(APPEND flags " -fsanitize=${STRATA_SANITIZE}")
  endif()
  string(REGEX REPLACE " +" " " flags ${flags})
  string(REGEX REPLACE "[\"\\\\]" "" flags ${flags})
  set(header ${CMAKE_BINARY_DIR}/strata_build.h)
  add_custom_target(strata_build_facts BYPRODUCTS ${header}
    COMMAND ${CMAKE_COMMAND} -D SOURCE=${CMAKE_SOURCE_DIR} -D VERSION=${PROJECT_VERSION}
      -D "FLAGS=${flags}" -D HEADER=${header} -P ${CMAKE_CURRENT_LIST_FILE}
    VERBATIM)
  add_dependencies(strata strata_build_facts)
  set_source_files_properties(${CMAKE_SOURCE_DIR}/src/cli/version.cpp PROPERTIES
    COMPILE_OPTIONS "-include;${header}" OBJECT_DEPENDS ${header})
endif()
