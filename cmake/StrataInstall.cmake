# What `cmake --install` puts where: bin/strata and share/strata/models/demo under the prefix.

include(GNUInstallDirs)
if(TARGET strata)
  install(TARGETS strata RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  install(DIRECTORY ${CMAKE_SOURCE_DIR}/models/demo
          DESTINATION ${CMAKE_INSTALL_DATADIR}/strata/models OPTIONAL)
  install(FILES ${CMAKE_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
endif()
