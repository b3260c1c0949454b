/* trouble.h - what can keep `locod` or `loco` from doing what it was asked.
 *
 * One row of trouble.def each: a name for the code, an id for people and the
 * exit code. Whatever either program says before it gives up ends with the id
 * in brackets, so that deploy/TROUBLESHOOTING.md can say more than a line does.
 * An id never changes its meaning; a new one is a new row there and here.
 */
#ifndef LOCO_DAEMON_SETTINGS_TROUBLE_H
#define LOCO_DAEMON_SETTINGS_TROUBLE_H

enum trouble {
#define TROUBLE(name, id, code) TROUBLE_##name,
#include "daemon/settings/trouble.def"
    TROUBLE_COUNT
};

const char *trouble_id(enum trouble what);

/* Of proto/base/err.h. */
int trouble_exit(enum trouble what);

/* What config_parse failed of, by its exit code. */
enum trouble trouble_of_settings(int exit_code);

#endif
