# SPDX-License-Identifier: Apache-2.0
# Manual pages and completion scripts, which the program prints from its own table of arguments.
set(manual ${CMAKE_BINARY_DIR}/manual)
set(completions ${CMAKE_BINARY_DIR}/completions)
# Counted builds would write a profile into the source folder.
set(snug ${CMAKE_COMMAND} -E env LLVM_PROFILE_FILE=${CMAKE_BINARY_DIR}/packaging.profraw $<TARGET_FILE:snug_cli>)
add_custom_command(OUTPUT ${completions}/stamp DEPENDS snug_cli VERBATIM
                   COMMAND ${CMAKE_COMMAND} -E rm -rf ${manual} ${completions}
                   COMMAND ${CMAKE_COMMAND} -E make_directory ${manual} ${completions}
                   COMMAND ${snug} manual ${manual}
                   COMMAND ${snug} completion bash > ${completions}/snug
                   COMMAND ${snug} completion zsh > ${completions}/_snug
                   COMMAND ${snug} completion fish > ${completions}/snug.fish
                   COMMAND ${CMAKE_COMMAND} -E touch ${completions}/stamp)
add_custom_target(snug_manual ALL DEPENDS ${completions}/stamp)

install(DIRECTORY ${manual}/ DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
install(FILES ${completions}/snug DESTINATION ${CMAKE_INSTALL_DATAROOTDIR}/bash-completion/completions)
install(FILES ${completions}/_snug DESTINATION ${CMAKE_INSTALL_DATAROOTDIR}/zsh/site-functions)
install(FILES ${completions}/snug.fish DESTINATION ${CMAKE_INSTALL_DATAROOTDIR}/fish/vendor_completions.d)

# What the Python package has beside its Python: the library, the program (python/_snug_command starts it), and the plug-ins where the library looks for them.
add_custom_target(snug_wheel)
add_dependencies(snug_wheel snug_cli)
install(TARGETS snug_cli RUNTIME DESTINATION snug COMPONENT wheel EXCLUDE_FROM_ALL)
install(FILES $<TARGET_FILE:snug_shared> RENAME $<TARGET_SONAME_FILE_NAME:snug_shared> DESTINATION snug COMPONENT wheel EXCLUDE_FROM_ALL)
foreach(library snug_shared snug_cuda ${SNUG_MPI_PLUGINS})
  if(TARGET ${library})
    add_dependencies(snug_wheel ${library})
  endif()
  if(TARGET ${library} AND NOT library STREQUAL snug_shared)
    install(TARGETS ${library} LIBRARY DESTINATION snug COMPONENT wheel EXCLUDE_FROM_ALL)
  endif()
endforeach()
