# The simulator: whole nodes in virtual time (tests/sim/README.md).
add_library(loco_simulator STATIC
  sim/check.c
  sim/local.c
  sim/local_buffer.c
  sim/scenarios.c
  sim/sim.c
  sim/world.c
  sim/world_bulk.c
  sim/world_link.c
  sim/world_trace.c)
target_link_libraries(loco_simulator PUBLIC loco_node loco_p2p loco_train
  loco_proto m)
add_executable(loco_sim sim/sim_main.c)
target_link_libraries(loco_sim PRIVATE loco_simulator)
set_target_properties(loco_sim PROPERTIES
  RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
