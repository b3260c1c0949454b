if(LOCO_NETWORK)
  loco_unit(daemon memory_limit loco_daemon)
  loco_unit(daemon trainer loco_daemon)
  loco_unit(daemon node loco_node)
  loco_unit(daemon config loco_daemon)
  loco_unit(daemon status_json loco_daemon)
  loco_unit(daemon control loco_daemon)
  loco_unit(daemon bench loco_bench)
  loco_unit(daemon model loco_model PkgConfig::JANSSON)
  target_sources(test_daemon_model PRIVATE
    ${CMAKE_CURRENT_LIST_DIR}/../../../daemon/model_file.c
    ${CMAKE_CURRENT_LIST_DIR}/../../../daemon/nearest.c)
endif()
