# cmake --install: the program, its manual page and completions (which it prints itself), configurations, licence.
# cpack -G DEB -B DIR --config build/release/CPackConfig.cmake: the same as a Debian package.
include(GNUInstallDirs)
if(NOT TRIREME_ISA STREQUAL "all")
  install(CODE "message(WARNING \"built with TRIREME_ISA=${TRIREME_ISA}: slow on other processors; run scripts/build.sh before you install or package\")")
endif()
install(TARGETS trireme RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(DIRECTORY configs DESTINATION ${CMAKE_INSTALL_DATADIR}/trireme)
install(FILES README.md CHANGELOG.md SECURITY.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} RENAME copyright)

# trireme_install_printed(DIRECTORY FILE argument...): what the program prints for the arguments.
function(trireme_install_printed directory file)
  set(printed ${PROJECT_BINARY_DIR}/printed/${file})
  install(CODE "
    execute_process(COMMAND \"$<TARGET_FILE:trireme>\" ${ARGN} OUTPUT_FILE \"${printed}\" RESULT_VARIABLE code)
    if(NOT code EQUAL 0)
      message(FATAL_ERROR \"trireme ${ARGN} ended with \${code}\")
    endif()")
  install(FILES ${printed} DESTINATION ${directory})
endfunction()
file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/printed)
trireme_install_printed(${CMAKE_INSTALL_MANDIR}/man1 trireme.1 man)
trireme_install_printed(${CMAKE_INSTALL_DATADIR}/bash-completion/completions trireme completion bash)
trireme_install_printed(${CMAKE_INSTALL_DATADIR}/zsh/site-functions _trireme completion zsh)
trireme_install_printed(${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d trireme.fish completion fish)

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME trireme)
set(CPACK_PACKAGE_CONTACT "The Trireme authors <maintainers@trireme.invalid>")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)  # dpkg-shlibdeps: the packages of the libraries that it is linked with
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS "openmpi-bin, libjs-dygraphs")  # mpirun for --ranks; charts of HTML reports
include(CPack)
