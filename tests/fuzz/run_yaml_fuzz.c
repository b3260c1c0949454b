/* run_yaml_fuzz.c - any text as run.yaml; every refusal has its sentence. The
 * file is local, but people paste what others send them. */
#include <stdlib.h>

#include "daemon/settings/run_yaml.h"
#include "proto/base/err.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct run_yaml run;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char errmsg[LOCO_ERRMSG_MAX] = "";
    int rv = run_yaml_parse((const char *)data, size, "run.yaml",
                            RUN_YAML_SIGNED, &run, errmsg);

    if (rv != 0 && errmsg[0] == '\0') {
        abort();
    }
    return 0;
}
