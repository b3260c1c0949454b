loco_unit(uv shell loco_uv)
loco_unit(uv bulk loco_uv)
loco_unit(uv cipher loco_uv)
loco_unit(uv pace loco_uv)
loco_unit(uv plain loco_uv)
loco_unit(uv threads loco_uv)
loco_unit(uv relay loco_uv)

# A fuzz target like those of tests/fuzz, which link no p2p/uv.
add_executable(fuzz_frame_conn unit/uv/frame_conn_fuzz.c)
target_link_libraries(fuzz_frame_conn PRIVATE loco_uv PkgConfig::CMOCKA m)
set_target_properties(fuzz_frame_conn PROPERTIES
  RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
if(LOCO_SANITIZE STREQUAL "fuzzer")
  target_link_options(fuzz_frame_conn PRIVATE -fsanitize=fuzzer)
  add_test(NAME fuzz/frame_conn COMMAND fuzz_frame_conn -max_total_time=10
    -rss_limit_mb=1024 -timeout=20
    ${CMAKE_CURRENT_LIST_DIR}/../../fuzz/corpus/frame_conn)
else()
  target_sources(fuzz_frame_conn PRIVATE fuzz/replay.c)
  add_test(NAME fuzz/frame_conn COMMAND fuzz_frame_conn
    ${CMAKE_CURRENT_LIST_DIR}/../../fuzz/corpus/frame_conn 1000)
endif()
set_tests_properties(fuzz/frame_conn PROPERTIES TIMEOUT 120)
