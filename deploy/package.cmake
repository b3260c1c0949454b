# package.cmake - what `cmake --install` puts where, and `cpack -G DEB`.
#
# The package is made from a release build: cmake --build build && cd build &&
# cpack. Man pages and completions come from build/pages.
include(GNUInstallDirs)
set(DEPLOY ${CMAKE_SOURCE_DIR}/deploy)
set(PAGES ${CMAKE_BINARY_DIR}/pages)
set(DOCS share/doc/loco)

install(TARGETS loco locod RUNTIME DESTINATION bin)
# For loops of people's own: the library, its header, and for pkg-config.
install(TARGETS libloco LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
  PUBLIC_HEADER DESTINATION include)
if(TARGET libloco_static)
  install(FILES ${CMAKE_BINARY_DIR}/libloco.a
    DESTINATION ${CMAKE_INSTALL_LIBDIR})
endif()
configure_file(${CMAKE_SOURCE_DIR}/daemon/client/loco.pc.in
  ${CMAKE_BINARY_DIR}/loco.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/loco.pc
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
configure_file(${DEPLOY}/debian/changelog.in
  ${CMAKE_BINARY_DIR}/debian/changelog @ONLY)
# -n: no time stamps, so that the same build gives the same bytes.
configure_file(${CMAKE_SOURCE_DIR}/daemon/client/libloco.3.in
  ${PAGES}/libloco.3 @ONLY)
foreach(page loco.1 libloco.3 locod.yaml.5 locod.8)
  add_custom_command(OUTPUT ${PAGES}/${page}.gz
    COMMAND gzip -9nkf ${PAGES}/${page} DEPENDS ${PAGES}/${page})
  list(APPEND LOCO_GZIPPED ${PAGES}/${page}.gz)
  string(REGEX MATCH "[1358]$" section ${page})
  install(FILES ${PAGES}/${page}.gz DESTINATION share/man/man${section})
endforeach()
add_custom_command(OUTPUT ${CMAKE_BINARY_DIR}/debian/changelog.gz
  COMMAND gzip -9nkf ${CMAKE_BINARY_DIR}/debian/changelog
  DEPENDS ${CMAKE_BINARY_DIR}/debian/changelog)
add_custom_target(package_files ALL
  DEPENDS ${LOCO_GZIPPED} ${CMAKE_BINARY_DIR}/debian/changelog.gz)
add_dependencies(package_files pages)

install(FILES ${PAGES}/loco.bash RENAME loco
  DESTINATION share/bash-completion/completions)
install(FILES ${PAGES}/_loco DESTINATION share/zsh/vendor-completions)
install(FILES ${PAGES}/loco.fish DESTINATION share/fish/vendor_completions.d)
install(FILES ${DEPLOY}/copyright ${CMAKE_BINARY_DIR}/debian/changelog.gz
  DESTINATION ${DOCS})
install(FILES ${DEPLOY}/prometheus.yml ${DEPLOY}/prometheus-rules.yml
  ${DEPLOY}/grafana.json DESTINATION ${DOCS}/examples)
# Absolute: outside of every prefix, as Debian has them.
install(FILES ${DEPLOY}/locod.service DESTINATION /lib/systemd/system)
# Both may hold an invitation; postinst gives the first one to group loco.
install(FILES ${DEPLOY}/locod.yaml DESTINATION /etc/loco
  PERMISSIONS OWNER_READ OWNER_WRITE GROUP_READ)
install(FILES ${DEPLOY}/locod.default RENAME locod DESTINATION /etc/default
  PERMISSIONS OWNER_READ OWNER_WRITE GROUP_READ)

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME loco)
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGE_CONTACT "the loco authors <loco@example.org>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY
  "train one language model together over the internet")
set(CPACK_DEBIAN_PACKAGE_DESCRIPTION
  "A daemon (locod) that takes part in a training run with any number of other
 machines, which may come and go at any time, and the command (loco) that
 people type. No central server: any peer may vanish.")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_SET_DESTDIR OFF)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_PRIORITY optional)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
# For those that link libloco; triggers calls ldconfig, so that they find it.
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS_POLICY ">=")
set(CPACK_DEBIAN_PACKAGE_DEPENDS adduser)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION TRUE)
set(CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA ${DEPLOY}/debian/postinst
  ${DEPLOY}/debian/prerm ${DEPLOY}/debian/postrm ${DEPLOY}/debian/conffiles
  ${DEPLOY}/debian/triggers)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS
  OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ
  WORLD_EXECUTE)
include(CPack)
