/* trouble.c - see trouble.h. */
#include "daemon/settings/trouble.h"

#include "proto/base/err.h"

static const struct {
    const char *id;
    int exit_code;
} troubles[TROUBLE_COUNT] = {
#define TROUBLE(name, id, code) [TROUBLE_##name] = {id, code},
#include "daemon/settings/trouble.def"
};

const char *trouble_id(enum trouble what)
{
    return troubles[what].id;
}

int trouble_exit(enum trouble what)
{
    return troubles[what].exit_code;
}

enum trouble trouble_of_settings(int exit_code)
{
    return exit_code == LOCO_EXIT_USAGE ? TROUBLE_USAGE : TROUBLE_SETTINGS;
}
