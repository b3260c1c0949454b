/* cli_target.c - which daemon a command means; see cli_http.h. */
#include <stdlib.h>
#include <string.h>

#include "daemon/cli.h"
#include "daemon/cli_http.h"
#include "daemon/config.h"
#include "proto/base/err.h"

int http_target(const char *state,
                const char *control,
                struct http_daemon *daemon)
{
    char errmsg[CONFIG_ERRMSG_MAX];
    struct config config;
    char *no_arguments[] = {NULL};
    int rv;

    if (control != NULL) {
        if (strlen(control) >= HTTP_ADDRESS_MAX) {
            return cli_fail(TROUBLE_USAGE, "--control: address too long");
        }
        memcpy(daemon->address, control, strlen(control) + 1);
        http_token_of_environment(daemon);
        return 0;
    }
    if (state == NULL && config_parse(0, no_arguments, &config, errmsg) != 0) {
        return cli_fail(trouble_of_settings(config.exit_code), "%s", errmsg);
    }
    rv = http_of_state(state == NULL ? config.state : state, daemon, errmsg);
    return rv == 0 ? 0 : cli_fail(TROUBLE_NO_DAEMON, "%s", errmsg);
}
