# The simulator: whole nodes in virtual time (tests/sim/README.md).
add_library(loco_simulator STATIC
  sim/check.c
  sim/check_replay.c
  sim/check_tokens.c
  sim/check_tree.c
  sim/local.c
  sim/local_buffer.c
  sim/local_state.c
  sim/local_train.c
  sim/membership.c
  sim/membership_faults.c
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

# loco_sim_test(NAME SCENARIO ARGS...): the ctest "sim/NAME".
function(loco_sim_test name)
  add_test(NAME sim/${name} COMMAND loco_sim ${ARGN})
  set_tests_properties(sim/${name} PROPERTIES TIMEOUT 300)
endfunction()

loco_sim_test(same_seed_same_trace plain --seeds 3 --twice)
loco_sim_test(same_seed_same_trace_in_churn churn --seed 1 --twice)
loco_sim_test(plain_bf16 plain --seeds 8)
loco_sim_test(plain_fp16 plain --peers 3 --seeds 2 --wire fp16)
loco_sim_test(plain_fp32 plain --peers 7 --seeds 2 --wire fp32)
loco_sim_test(plain_alone plain --peers 1 --seeds 2)
loco_sim_test(plain_sixteen plain --peers 16 --rounds 3 --seeds 2)
foreach(n 2 3 4 5 8)
  loco_sim_test(kill_each_${n} kill-each --peers ${n} --rounds 4 --seeds 60)
endforeach()
loco_sim_test(kill_each_16 kill-each --peers 16 --rounds 2 --seeds 10)
loco_sim_test(kill_sweep kill-each --peers 3 --rounds 2 --sweep 3)
foreach(scenario freeze restart join split-2-2 split-3-1 lone-survivor
    all-restart two-peers slow drops lossy)
  string(REPLACE "-" "_" name ${scenario})
  loco_sim_test(${name} ${scenario} --seeds 40)
endforeach()
loco_sim_test(split_of_five split-2-2 --peers 5 --seeds 20)
loco_sim_test(churn churn --seeds 30)
loco_sim_test(fast_join fast-join --seeds 20)
loco_sim_test(swarm_of_twenty thousand --peers 20 --seeds 2)
foreach(scenario no-edge lose-edge lose-bulk)
  string(REPLACE "-" "_" name ${scenario})
  loco_sim_test(${name} ${scenario} --seeds 20)
  loco_sim_test(${name}_of_three ${scenario} --peers 3 --seeds 20)
endforeach()
loco_sim_test(membership_small membership --peers 100 --seeds 2)
loco_sim_test(membership_alone membership --peers 40 --group 1 --seeds 2)
loco_sim_test(membership_with_loss membership --peers 60
  --loss-per-million 50000 --seeds 2)
loco_sim_test(partition_of_halves partition --peers 60)
loco_sim_test(partition_of_thirds partition --peers 60 --parts 3)
loco_sim_test(partition_one_way partition --peers 60 --parts 1)

# The world alone.
add_executable(test_sim_world sim/world_test.c)
target_link_libraries(test_sim_world PRIVATE loco_simulator PkgConfig::CMOCKA)
set_target_properties(test_sim_world PROPERTIES
  RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
add_test(NAME sim/world COMMAND test_sim_world)
set_tests_properties(sim/world PROPERTIES TIMEOUT 60)
