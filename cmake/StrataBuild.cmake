# How every target of Strata is built: the language level, the warnings, the sanitizers, and the
# functions that turn a folder into a library, a program or a test.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()

option(STRATA_TESTS "Build the tests" ON)
option(STRATA_FUZZ "Build the libFuzzer targets (clang)" OFF)
set(STRATA_SANITIZE "" CACHE STRING "Sanitizers: address,undefined or thread")

find_program(CCACHE ccache)
if(CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE})
endif()
find_program(MOLD mold)
if(MOLD AND NOT CMAKE_CROSSCOMPILING)  # cross compilers look for linkers of their own
  add_link_options(-fuse-ld=mold)
endif()

find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
find_package(spdlog REQUIRED)
find_package(tl-expected REQUIRED)
find_package(CLI11 REQUIRED)
find_package(Boost 1.81 REQUIRED COMPONENTS json)
find_package(SQLite3 REQUIRED)
find_package(OpenSSL REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(XXHASH REQUIRED IMPORTED_TARGET libxxhash)
pkg_check_modules(LIBEDIT REQUIRED IMPORTED_TARGET libedit)
pkg_check_modules(UTF8PROC REQUIRED IMPORTED_TARGET libutf8proc)
pkg_check_modules(URING REQUIRED IMPORTED_TARGET liburing)
add_library(xxhash ALIAS PkgConfig::XXHASH)
add_library(libedit ALIAS PkgConfig::LIBEDIT)
add_library(utf8proc ALIAS PkgConfig::UTF8PROC)
add_library(uring ALIAS PkgConfig::URING)

add_library(strata_options INTERFACE)
target_include_directories(strata_options INTERFACE ${CMAKE_SOURCE_DIR}/src)
target_link_libraries(strata_options INTERFACE Threads::Threads tl::expected)
target_compile_definitions(strata_options INTERFACE BOOST_JSON_MAX_STRUCTURED_SIZE=0xffffffff)
# No contraction: products and sums round where the code says so (docs/architecture.md, law 1).
target_compile_options(strata_options INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion -Wnon-virtual-dtor
  -Woverloaded-virtual -Wimplicit-fallthrough -Werror -ffp-contract=off -fno-math-errno)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64)$")
  set(STRATA_OTHER_KERNELS "neon")  # left out: src/compute/cpu/kernels.cpp knows what there is
else()
  # Bytes of texts compare as they do on x86, where a plain char has a sign.
  target_compile_options(strata_options INTERFACE -fsigned-char)
  set(STRATA_OTHER_KERNELS "avx")
  if(NOT CMAKE_SYSTEM_PROCESSOR MATCHES "^(aarch64|arm64)$")
    set(STRATA_OTHER_KERNELS "avx|neon")
  endif()
endif()
if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  # The warnings are g++'s; clang builds for the fuzzers, and has warnings of its own.
  target_compile_options(strata_options INTERFACE -Wno-error)
endif()
if(STRATA_SANITIZE)
  # Instrumented code confuses g++'s flow analysis; the other builds keep its warnings errors.
  target_compile_options(strata_options INTERFACE -Wno-error
    -fsanitize=${STRATA_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  target_link_options(strata_options INTERFACE -fsanitize=${STRATA_SANITIZE})
  # Kernels made of one another, with a check at each access, take a quarter of an hour a file:
  # here they stay functions (STRATA_SANITIZED), and check by calls where g++ can.
  set(kernel_options -O1 -g1 -DSTRATA_SANITIZED)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    list(APPEND kernel_options --param=asan-instrumentation-with-call-threshold=0)
  endif()
  file(GLOB kernels CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/compute/cpu/kernels_*.cpp)
  set_property(SOURCE ${kernels} APPEND PROPERTY COMPILE_OPTIONS ${kernel_options})
endif()

# strata_library(NAME LINK ...): src/NAME/**.cpp as the static library strata_NAME.
function(strata_library name)
  cmake_parse_arguments(ARG "" "" "LINK" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/${name}/*.cpp)
  list(FILTER sources EXCLUDE REGEX "/kernels_(${STRATA_OTHER_KERNELS})[a-z0-9_]*\\.cpp$")
  if(NOT sources)
    add_library(strata_${name} INTERFACE)
    target_link_libraries(strata_${name} INTERFACE strata_options ${ARG_LINK})
    return()
  endif()
  add_library(strata_${name} STATIC ${sources})
  target_link_libraries(strata_${name} PUBLIC strata_options ${ARG_LINK})
endfunction()

# strata_program(NAME FOLDER f LINK ...): src/f/*.cpp as a program.
function(strata_program name)
  cmake_parse_arguments(ARG "" "FOLDER" "LINK" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/${ARG_FOLDER}/*.cpp)
  if(NOT sources)
    return()
  endif()
  add_executable(${name} ${sources})
  target_link_libraries(${name} PRIVATE strata_options ${ARG_LINK})
endfunction()

# strata_tests(FOLDER [LINK ...]): tests/FOLDER/*_test.cpp as the program test_FOLDER, run by ctest; and each
# tests/FOLDER/NAME_main.cpp as the program FOLDER_NAME, which scripts of tests/peers use; tests of
# the folder find its path in STRATA_HELPER_NAME.
function(strata_tests folder)
  cmake_parse_arguments(ARG "" "" "LINK" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/${folder}/*_test.cpp)
  if(NOT sources)
    return()
  endif()
  find_package(GTest REQUIRED)
  add_executable(test_${folder} ${sources})
  target_include_directories(test_${folder} PRIVATE ${CMAKE_SOURCE_DIR})
  target_compile_definitions(test_${folder} PRIVATE
    STRATA_GOLDEN_DIR="${CMAKE_SOURCE_DIR}/tests/golden"
    STRATA_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
  if(TARGET strata_${folder})
    target_link_libraries(test_${folder} PRIVATE strata_${folder})
  else()
    target_link_libraries(test_${folder} PRIVATE strata_base ${ARG_LINK})
  endif()
  target_link_libraries(test_${folder} PRIVATE strata_options GTest::gtest_main GTest::gmock)
  if(TARGET strata AND (folder STREQUAL "cli"))
    add_dependencies(test_${folder} strata)
    target_compile_definitions(test_${folder} PRIVATE STRATA_PROGRAM="$<TARGET_FILE:strata>")
  endif()
  add_test(NAME ${folder} COMMAND test_${folder})
  file(GLOB helpers CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/${folder}/*_main.cpp)
  foreach(helper ${helpers})
    get_filename_component(name ${helper} NAME)
    string(REGEX REPLACE "_main\\.cpp$" "" name ${name})
    add_executable(${folder}_${name} ${helper})
    target_include_directories(${folder}_${name} PRIVATE ${CMAKE_SOURCE_DIR})
    target_link_libraries(${folder}_${name} PRIVATE strata_${folder} strata_options)
    string(TOUPPER ${name} upper)
    add_dependencies(test_${folder} ${folder}_${name})
    target_compile_definitions(test_${folder} PRIVATE
      STRATA_HELPER_${upper}="$<TARGET_FILE:${folder}_${name}>")
  endforeach()
endfunction()

# strata_fuzzers(): tests/fuzz/LAYER_SUBJECT_fuzz.cpp as the libFuzzer program
# fuzz_LAYER_SUBJECT over strata_LAYER, and fuzz_seeds, which writes what they start from. The
# preset `fuzz` sets the compiler and the sanitizers.
function(strata_fuzzers)
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/fuzz/*_fuzz.cpp)
  foreach(source ${sources})
    get_filename_component(name ${source} NAME)
    string(REGEX REPLACE "_fuzz\\.cpp$" "" name ${name})
    string(REGEX REPLACE "_.*" "" layer ${name})
    add_executable(fuzz_${name} ${source})
    target_link_libraries(fuzz_${name} PRIVATE strata_${layer} strata_options)
    target_link_options(fuzz_${name} PRIVATE -fsanitize=fuzzer)
  endforeach()
  if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    # clang takes no instruction set from a pragma: each of these sources gets what its pragma says.
    file(GLOB kernels CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/compute/cpu/kernels_avx*.cpp)
    foreach(source ${kernels})
      file(READ ${source} text)
      # One or several literals, over lines that end in a backslash.
      string(REGEX MATCH "#pragma GCC target[^)]*" target "${text}")
      string(REGEX MATCHALL "[a-z0-9.]+[a-z0-9.-]*" words "${target}")
      list(REMOVE_ITEM words pragma target)
      list(TRANSFORM words PREPEND "-m" OUTPUT_VARIABLE options)
      set_property(SOURCE ${source} APPEND PROPERTY COMPILE_OPTIONS ${options})
    endforeach()
  endif()
  add_executable(fuzz_seeds ${CMAKE_SOURCE_DIR}/tests/fuzz/seeds.cpp)
  target_include_directories(fuzz_seeds PRIVATE ${CMAKE_SOURCE_DIR})
  target_link_libraries(fuzz_seeds PRIVATE strata_engine strata_options)
endfunction()
