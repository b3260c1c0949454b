# The router of the network laboratory and the unit test of its pure parts. The
# tests that need root are in tests/netlab/netlab.py.
if(CMAKE_SYSTEM_NAME STREQUAL "Linux")
  set(netlab_model netlab/packet.c netlab/topology.c netlab/wire.c)

  add_executable(loco_netlab netlab/router.c netlab/control.c ${netlab_model})
  target_include_directories(loco_netlab PRIVATE ${CMAKE_SOURCE_DIR})

  add_executable(test_netlab_model netlab/model_test.c ${netlab_model})
  target_include_directories(test_netlab_model PRIVATE ${CMAKE_SOURCE_DIR})
  target_link_libraries(test_netlab_model PRIVATE PkgConfig::CMOCKA)
  add_test(NAME unit/netlab/model COMMAND test_netlab_model)

  set_target_properties(loco_netlab test_netlab_model PROPERTIES
    RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
endif()
