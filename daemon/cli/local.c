/* local.c - loco keys, config, quickstart: this machine's files. */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "daemon/cli/cli.h"
#include "daemon/settings/config.h"
#include "daemon/settings/run_yaml.h"
#include "daemon/settings/state_dir.h"
#include "proto/base/err.h"
#include "proto/base/errmsg.h"
#include "proto/base/file.h"

/* ---- keys --------------------------------------------------------------- */

int cli_keys(const struct cli_call *call)
{
    const char *state = NULL;
    bool json = false;
    const struct cli_option options[] = {
        {"--state", CLI_TEXT, &state, "DIR", "the daemon's state directory"},
        {"--json", CLI_FLAG, &json, NULL, "print one JSON object"},
    };
    char path[FILE_PATH_MAX], errmsg[LOCO_ERRMSG_MAX];
    char hex[ID_HEX_MAX], brief[ID_SHORT_MAX];
    struct identity id;
    int rv = CLI_PARSE(call, options, NULL, 0, 0);

    rv = rv == CLI_GO ? cli_state(&state) : rv;
    if (rv != CLI_GO) {
        return rv;
    }
    if (file_path_join(path, state, STATE_DIR_KEY, errmsg) != 0 ||
        identity_load(&id, path, errmsg) != 0) {
        return cli_fail(TROUBLE_IDENTITY, "%s", errmsg);
    }
    id_hex(&id.id, hex);
    id_short(&id.id, brief);
    identity_wipe(&id);
    (void)printf(json ? "{\"peer_id\":\"%s\",\"short\":\"%s\"}\n" : "%s  %s\n",
                 hex, brief);
    return LOCO_EXIT_OK;
}

/* ---- config ------------------------------------------------------------- */

/* The settings that `locod` would run with, given the same arguments. */
static int settings(const struct cli_call *call, struct config *config)
{
    char errmsg[CONFIG_ERRMSG_MAX];
    char *argv[CLI_LIST_MAX + 1] = {call->argv[0]};
    static const struct cli_option none[] = {{"", CLI_FLAG, NULL, NULL, ""}};

    if (call->on_option != NULL) {
        return LOCO_EXIT_OK; /* those of locod, not ours */
    }
    if (call->argc > CLI_LIST_MAX) {
        return cli_fail(TROUBLE_USAGE, "too many arguments");
    }
    memcpy(argv + 1, call->argv, (size_t)call->argc * sizeof *argv);
    if (config_parse(call->argc + 1, argv, config, errmsg) != 0) {
        return cli_fail(trouble_of_settings(config->exit_code), "%s", errmsg);
    }
    if (config->help) {
        (void)cli_parse(call, none, 0, NULL, 0, 0);
        (void)printf("\noptions of locod:\n");
        config_print_options(stdout);
        return LOCO_EXIT_OK;
    }
    return CLI_GO;
}

static int print_settings(const struct cli_call *call, bool sources)
{
    struct config config = {0};
    char text[CONFIG_TEXT_MAX];
    int rv = settings(call, &config);

    if (rv != CLI_GO) {
        return rv;
    }
    for (int i = 0; i < CONFIG_OPTION_COUNT; i++) {
        config_text(&config, (enum config_option)i, text);
        /* Quoted: an address reads as a mapping otherwise. */
        (void)printf("%s: \"%s\"", config_name((enum config_option)i), text);
        (void)printf(sources ? "  # %s\n" : "\n",
                     config_source_name(config.source[i]));
    }
    if (sources && config.file[0] != '\0') {
        (void)printf("# file: %s\n", config.file);
    }
    return LOCO_EXIT_OK;
}

int cli_config_show(const struct cli_call *call)
{
    return print_settings(call, false);
}

int cli_config_sources(const struct cli_call *call)
{
    return print_settings(call, true);
}

int cli_config_validate(const struct cli_call *call)
{
    struct config config;
    int rv = settings(call, &config);

    return rv == CLI_GO ? LOCO_EXIT_OK : rv;
}

/* ---- quickstart --------------------------------------------------------- */

int cli_quickstart(const struct cli_call *call)
{
    char path[FILE_PATH_MAX], errmsg[ERRMSG_SIZE];
    char *argv[CLI_LIST_MAX + 3] = {"sh", path};

    if (call->on_option != NULL) {
        return LOCO_EXIT_OK;
    }
    if (call->argc > CLI_LIST_MAX) {
        return cli_fail(TROUBLE_USAGE, "quickstart: too many arguments");
    }
    if (cli_tree_file(path, "deploy/quickstart.sh", errmsg) != 0) {
        return cli_fail(TROUBLE_PROGRAM,
                        "quickstart: %s: it needs the source tree", errmsg);
    }
    memcpy(argv + 2, call->argv, (size_t)call->argc * sizeof *argv);
    (void)execvp("sh", argv);
    return cli_fail(TROUBLE_PROGRAM, "quickstart: sh: %s", strerror(errno));
}
