# The web app: strata_web_app() makes the library strata_web_app, which holds its compressed files.
#
# npm works in the build folder, on a copy of web/: its packages are fetched again only when
# package-lock.json has changed, the app is bundled again only when something in web/ has, and what
# the compiler reads changes only when a file of the app does. STRATA_WEB=OFF needs no npm; the
# program then has no app.

option(STRATA_WEB "Build the web app into the program (needs npm)" ON)

function(strata_web_app)
  set(source ${CMAKE_BINARY_DIR}/web_app_files.cpp)
  if(STRATA_WEB)
    find_program(NPM npm)
    find_program(NODE node)
    if(NOT NPM OR NOT NODE)
      message(FATAL_ERROR "The web app is built with node and npm, and one of them is missing. "
        "Install both, or configure with -DSTRATA_WEB=OFF: a program without the app.")
    endif()
    set(folder ${CMAKE_BINARY_DIR}/web)
    set(manifests ${CMAKE_SOURCE_DIR}/web/package.json ${CMAKE_SOURCE_DIR}/web/package-lock.json)
    file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/web/src/*)
    list(APPEND sources ${CMAKE_SOURCE_DIR}/web/build.mjs ${CMAKE_SOURCE_DIR}/web/index.html
      ${CMAKE_SOURCE_DIR}/web/icon.svg ${CMAKE_SOURCE_DIR}/web/tsconfig.json)
    add_custom_command(OUTPUT ${folder}/packages.stamp
      COMMAND ${CMAKE_COMMAND} -E make_directory ${folder}
      COMMAND ${CMAKE_COMMAND} -E copy ${manifests} ${folder}
      COMMAND ${CMAKE_COMMAND} -E chdir ${folder}
        ${NPM} ci --omit=dev --ignore-scripts --no-audit --no-fund --loglevel=error
      COMMAND ${CMAKE_COMMAND} -E touch ${folder}/packages.stamp
      DEPENDS ${manifests}
      COMMENT "Fetching the web app's packages" VERBATIM)
    add_custom_command(OUTPUT ${source}
      COMMAND ${CMAKE_COMMAND} -E rm -rf ${folder}/src
      COMMAND ${CMAKE_COMMAND} -E copy_directory ${CMAKE_SOURCE_DIR}/web/src ${folder}/src
      COMMAND ${CMAKE_COMMAND} -E copy ${CMAKE_SOURCE_DIR}/web/build.mjs
        ${CMAKE_SOURCE_DIR}/web/index.html ${CMAKE_SOURCE_DIR}/web/icon.svg
        ${CMAKE_SOURCE_DIR}/web/tsconfig.json ${folder}
      COMMAND ${NODE} ${folder}/build.mjs --quiet ${source}
      DEPENDS ${sources} ${folder}/packages.stamp
      COMMENT "Bundling the web app" VERBATIM)
  else()
    file(CONFIGURE OUTPUT ${source} CONTENT [[
#include "server/web_app.h"
std::span<const strata::server::WebFile> strata::server::embedded_web_app() {
  return {};
}
]] @ONLY)
  endif()
  add_library(strata_web_app STATIC ${source})
  target_link_libraries(strata_web_app PUBLIC strata_options)
endfunction()
