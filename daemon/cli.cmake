# The `loco` command. Without the network it has `bench train` only.
add_executable(loco cli.c cli_args.c cli_bench.c memory_limit.c model_file.c
  nearest.c trouble.c)
target_link_libraries(loco PRIVATE loco_train)

if(LOCO_NETWORK)
  pkg_check_modules(YAML REQUIRED IMPORTED_TARGET yaml-0.1)

  # Models and files on this machine.
  add_library(loco_model STATIC file_hash.c model.c model_card.c
    model_export.c model_source.c model_stages.c)
  target_link_libraries(loco_model PUBLIC loco_train loco_proto)

  # What the laboratory reads and writes.
  add_library(loco_lab STATIC lab_files.c lab_plot.c lab_text.c)
  target_link_libraries(loco_lab PUBLIC loco_method PkgConfig::JANSSON)

  # The collective engine without a trainer.
  add_library(loco_bench STATIC bench_allreduce.c bench_machine.c bench_wire.c
    bench_rank.c bench_vector.c leaves.c)
  target_link_libraries(loco_bench PUBLIC loco_node loco_uv loco_train)

  # What is wrong with this machine: the judge is pure, probes are not.
  add_library(loco_doctor STATIC cli_http.c contact.c control_tokens.c dialogue.c doctor.c
    doctor_local.c doctor_manifest.c doctor_net.c doctor_probe.c run_needs.c)
  target_compile_definitions(loco_doctor PRIVATE
    LOCO_HAS_CUDA=$<BOOL:${LOCO_CUDA}>)
  target_link_libraries(loco_doctor PUBLIC loco_uv loco_run_yaml loco_model
    loco_method PkgConfig::CURL PkgConfig::JANSSON PkgConfig::SODIUM
    Threads::Threads ${CMAKE_DL_LIBS})

  target_sources(loco PRIVATE cli_access.c cli_bench_allreduce.c cli_config_set.c
    cli_data.c cli_data_fetch.c
    cli_describe.c cli_doctor.c cli_eval.c cli_generate.c cli_invite.c cli_join.c cli_keys.c
    cli_local.c cli_model.c cli_peers.c cli_rounds.c cli_run.c cli_run_show.c
    cli_sim_train.c cli_sim_wallclock.c cli_source.c cli_stages.c cli_status.c cli_target.c
    cli_tokens.c cli_top.c cli_top_live.c config.c courtesy.c stage_fetch.c
    stage_fetch_state.c stage_fetch_visit.c words.c)
  target_compile_definitions(loco PRIVATE LOCO_NETWORK)
  target_link_libraries(loco PRIVATE loco_simulator loco_bench loco_doctor
    loco_download loco_lab loco_run_yaml loco_model
    PkgConfig::CURL PkgConfig::JANSSON PkgConfig::SODIUM PkgConfig::YAML)

  # Man pages and completions, made by the program from its own tables.
  if(NOT LOCO_SANITIZE AND NOT CMAKE_CROSSCOMPILING)
    set(LOCO_PAGES ${CMAKE_BINARY_DIR}/pages)
    file(MAKE_DIRECTORY ${LOCO_PAGES})
    foreach(page "manual 1 loco.1" "manual 5 locod.yaml.5" "manual 8 locod.8"
        "completion bash loco.bash" "completion zsh _loco"
        "completion fish loco.fish")
      separate_arguments(page)
      list(GET page 2 file)
      list(REMOVE_AT page 2)
      add_custom_command(OUTPUT ${LOCO_PAGES}/${file}
        COMMAND loco ${page} > ${LOCO_PAGES}/${file} DEPENDS loco VERBATIM)
      list(APPEND pages ${LOCO_PAGES}/${file})
    endforeach()
    add_custom_target(pages ALL DEPENDS ${pages})
  endif()
endif()
