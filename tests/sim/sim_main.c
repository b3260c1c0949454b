/* sim_main.c - tests/loco_sim: `loco sim` as a program of its own, for a build
 * that tests the simulator and nothing else. */
#include "daemon/cli/cli.h"
#include "proto/base/err.h"
#include "proto/sign.h"

int main(int argc, char **argv)
{
    const struct cli_command command = {
        "sim", "SCENARIO", "Run a scenario in virtual time",
        "loco_sim kill-each --peers 4 --seed 7", cli_sim};
    struct cli_call call = {
        .command = &command, .argc = argc - 1, .argv = argv + 1};

    return sign_start() == 0 ? cli_sim(&call) : LOCO_EXIT_FAILURE;
}
