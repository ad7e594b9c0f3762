# What `cmake --install` puts where: bin/strata, share/strata/models/demo, manual pages and the
# completions of shells under the prefix.

include(GNUInstallDirs)
if(TARGET strata)
  install(TARGETS strata RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  install(DIRECTORY ${CMAKE_SOURCE_DIR}/models/demo
          DESTINATION ${CMAKE_INSTALL_DATADIR}/strata/models OPTIONAL)
  # The program writes its pages and completions itself; one for another machine cannot, here.
  if(NOT CMAKE_CROSSCOMPILING)
    set(made ${CMAKE_BINARY_DIR}/made)
    install(CODE "
      file(MAKE_DIRECTORY \"${made}/man\")
      execute_process(COMMAND \"$<TARGET_FILE:strata>\" man --write \"${made}/man\"
        COMMAND_ERROR_IS_FATAL ANY)
      foreach(shell bash zsh fish)
        execute_process(COMMAND \"$<TARGET_FILE:strata>\" completion \${shell}
          OUTPUT_FILE \"${made}/strata.\${shell}\" COMMAND_ERROR_IS_FATAL ANY)
      endforeach()")
    install(DIRECTORY ${made}/man/ DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
    install(FILES ${made}/strata.bash RENAME strata
            DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
    install(FILES ${made}/strata.zsh RENAME _strata
            DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
    install(FILES ${made}/strata.fish
            DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
  endif()
  install(FILES ${CMAKE_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
endif()
