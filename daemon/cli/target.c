/* target.c - which daemon a command means, and what it answers; which source
 * tree this program is of. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/cli/answer.h"
#include "daemon/cli/cli.h"
#include "daemon/settings/config.h"
#include "daemon/visit/http.h"
#include "proto/base/err.h"
#include "proto/base/errmsg.h"
#include "proto/base/file.h"

int cli_state(const char **state)
{
    static struct config config;
    char errmsg[CONFIG_ERRMSG_MAX], *none[] = {NULL};

    if (*state == NULL && config_parse(0, none, &config, errmsg) != 0) {
        return cli_fail(trouble_of_settings(config.exit_code), "%s", errmsg);
    }
    *state = *state == NULL ? config.state : *state;
    return CLI_GO;
}

int cli_target_find(const struct cli_target *t, struct http_daemon *daemon)
{
    const char *state = t->state;
    char errmsg[CONFIG_ERRMSG_MAX];
    int rv;

    if (t->control != NULL) {
        if (strlen(t->control) >= HTTP_ADDRESS_MAX) {
            return cli_fail(TROUBLE_USAGE,
                            "--control: the address is too long");
        }
        memcpy(daemon->address, t->control, strlen(t->control) + 1);
        http_token_of_environment(daemon);
        return CLI_GO;
    }
    rv = cli_state(&state);
    if (rv != CLI_GO) {
        return rv;
    }
    rv = http_of_state(state, daemon, errmsg);
    return rv == 0 ? CLI_GO : cli_fail(TROUBLE_NO_DAEMON, "%s", errmsg);
}

int cli_ask(const struct cli_target *t,
            const char *path,
            char **body,
            json_t **answer)
{
    char errmsg[HTTP_ERRMSG_MAX];
    struct http_daemon daemon;
    int rv = cli_target_find(t, &daemon);

    if (rv != CLI_GO) {
        return rv;
    }
    if (http_get(&daemon, path, body, errmsg) != 0) {
        return cli_fail(TROUBLE_NO_DAEMON, "%s", errmsg);
    }
    *answer = json_loads(*body, 0, NULL);
    if (!json_is_object(*answer)) {
        json_decref(*answer);
        free(*body);
        return cli_fail(TROUBLE_ANSWER,
                        "the daemon's answer to GET %s is no JSON object",
                        path);
    }
    return CLI_GO;
}

int cli_tree_file(char *path, const char *name, char *errmsg)
{
    char program[FILE_PATH_MAX], folder[FILE_PATH_MAX];
    ssize_t len = readlink("/proc/self/exe", program, sizeof program - 1);

    if (len < 0) {
        return errmsg_fail(errmsg, LOCO_EIO, "/proc/self/exe: %s",
                           strerror(errno));
    }
    program[len] = '\0';
    file_folder(folder, program);
    folder[strlen(folder) - 1] = '\0';
    file_beside(path, folder, name);
    return access(path, R_OK) == 0 ? 0
                                   : errmsg_fail(errmsg, LOCO_ENOENT, "%s: %s",
                                                 path, strerror(errno));
}

const char *
cli_set_split(const char *command, const char *item, char path[DOC_PATH_MAX])
{
    const char *equals = strchr(item, '=');

    if (equals == NULL || equals - item >= DOC_PATH_MAX) {
        (void)cli_fail(TROUBLE_USAGE,
                       "%s: --set %.80s: write path=value, as in "
                       "sync.period=20",
                       command, item);
        return NULL;
    }
    (void)snprintf(path, DOC_PATH_MAX, "%.*s", (int)(equals - item), item);
    return equals + 1;
}

bool cli_is_set(const struct cli_list *set, const char *path)
{
    size_t len = strlen(path);

    for (size_t i = 0; i < set->n; i++) {
        if (strncmp(set->item[i], path, len) == 0 && set->item[i][len] == '=') {
            return true;
        }
    }
    return false;
}
