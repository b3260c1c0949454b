# Every tests/fuzz/NAME_fuzz.c is one decoder under attack.
#
# With AddressSanitizer and clang the target becomes a libFuzzer program, and its
# ctest "fuzz/NAME" runs it over the saved corpus and then for LOCO_FUZZ_SECONDS.
# In any other build the same file is linked with replay.c: the corpus and some
# thousand seeded mutations of it, the same in every run. Another sanitizer runs
# a tenth of the mutations: libFuzzer has sanitizers too and chooses better.
#
# Libraries follow from the folders that the file includes.
set(LOCO_FUZZ_SECONDS 2 CACHE STRING "Seconds per fuzz target in ctest")
set(LOCO_FUZZ_DIR ${CMAKE_CURRENT_LIST_DIR})
set(LOCO_FUZZ_MUTATIONS 4000)
if(LOCO_SANITIZE)
  set(LOCO_FUZZ_MUTATIONS 400)
endif()

# The libraries that FILE needs; sets OUT to "missing" where one is not built.
function(loco_fuzz_libs file out)
  set(libs)
  foreach(pair proto/:loco_proto p2p/:loco_protocols train/:loco_train
      kernels/:loco_kernels daemon/jobs/:loco_daemon_jobs
      daemon/client/:loco_daemon_client daemon/release/:loco_daemon_release
      daemon/watch/:loco_daemon_watch
      tests/unit/daemon/hand.h:loco_daemon_node
      tests/unit/daemon/crime.h:loco_daemon_jobs)
    string(REPLACE ":" ";" pair ${pair})
    list(GET pair 0 begin)
    list(GET pair 1 lib)
    file(STRINGS ${file} hits REGEX "^#include \"${begin}")
    # What needs only proto/base builds without the network, too.
    list(FILTER hits EXCLUDE REGEX "proto/base/")
    if(hits AND NOT TARGET ${lib})
      set(${out} missing PARENT_SCOPE)
      return()
    elseif(hits)
      list(APPEND libs ${lib})
    endif()
  endforeach()
  file(STRINGS ${file} hits REGEX "^#include \"daemon/settings/run_yaml.h")
  if(hits)
    if(NOT LOCO_NETWORK)
      set(${out} missing PARENT_SCOPE)
      return()
    endif()
    list(APPEND libs loco_daemon_settings)
  endif()
  file(STRINGS ${file} hits REGEX "^#include \"tests/unit/uv/toy.h")
  if(hits AND NOT TARGET loco_p2p_uv)
    set(${out} missing PARENT_SCOPE)
    return()
  elseif(hits)
    list(APPEND libs loco_p2p_uv PkgConfig::CMOCKA)
  endif()
  set(${out} ${libs} loco_proto_base PARENT_SCOPE)
endfunction()

function(loco_fuzz name file)
  loco_fuzz_libs(${file} libs)
  if(libs STREQUAL "missing")
    return()
  endif()
  set(target fuzz_${name})
  set(corpus ${LOCO_FUZZ_DIR}/corpus/${name})
  set(mutations ${LOCO_FUZZ_MUTATIONS})
  set(slow 10)
  if(name STREQUAL "frame_conn") # connections, not calls
    math(EXPR mutations "${mutations} / 4")
    set(slow 20)
  endif()
  add_executable(${target} ${file})
  target_link_libraries(${target} PRIVATE ${libs} m)
  set_target_properties(${target} PROPERTIES
    RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  if(LOCO_LIBFUZZER)
    set(found ${CMAKE_BINARY_DIR}/fuzz/${name})
    file(MAKE_DIRECTORY ${found})
    target_link_options(${target} PRIVATE -fsanitize=fuzzer)
    if(EXISTS ${corpus})
      set(seeds ${corpus})
    endif()
    add_test(NAME fuzz/${name} COMMAND ${target}
      -max_total_time=${LOCO_FUZZ_SECONDS} -rss_limit_mb=1024 -timeout=${slow}
      -artifact_prefix=${found}/crash- -print_final_stats=1 ${found} ${seeds})
    math(EXPR limit "${LOCO_FUZZ_SECONDS} + 900") # as in tests/run.sh
    set_tests_properties(fuzz/${name} PROPERTIES TIMEOUT ${limit})
  else()
    target_sources(${target} PRIVATE ${LOCO_FUZZ_DIR}/replay.c)
    add_test(NAME fuzz/${name} COMMAND ${target} ${corpus} ${mutations})
  endif()
endfunction()

file(GLOB targets CONFIGURE_DEPENDS ${LOCO_FUZZ_DIR}/*_fuzz.c)
foreach(file ${targets})
  get_filename_component(name ${file} NAME_WE)
  string(REGEX REPLACE "_fuzz$" "" name ${name})
  loco_fuzz(${name} ${file})
endforeach()

# Writes the seeds of the targets of proto and p2p/link: fuzz_corpus tests/fuzz/corpus
if(TARGET loco_proto)
  add_executable(fuzz_corpus ${LOCO_FUZZ_DIR}/make_corpus.c)
  target_link_libraries(fuzz_corpus PRIVATE loco_daemon_jobs loco_p2p_link m)
  set_target_properties(fuzz_corpus PROPERTIES
    RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  add_test(NAME fuzz/seeds COMMAND fuzz_corpus --check ${LOCO_FUZZ_DIR}/corpus)
endif()
