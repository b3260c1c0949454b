/* sim_main.c - loco_sim SCENARIO [options]: run scenarios from a shell. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/err.h"
#include "proto/sign.h"
#include "tests/sim/membership.h"
#include "tests/sim/sim.h"

struct args {
    struct sim_options sim;
    uint64_t seeds, sweep;
    bool json, twice;
};

static int usage(void)
{
    const char *help, *name;

    fprintf(stderr,
            "usage: loco_sim SCENARIO [--peers N] [--seed S] [--seeds N]\n"
            "                [--rounds R] [--wire fp32|bf16|fp16] [--at K]\n"
            "                [--sweep STRIDE] [--twice] [--json] [--trace]\n"
            "  --seeds N   run seeds S .. S+N-1\n"
            "  --at K      the victim's action (kill-each, freeze, restart)\n"
            "  --sweep N   every N-th action of the victim in turn\n"
            "  --twice     run each seed twice and compare the traces\n"
            "scenarios:\n");
    for (unsigned k = 0; (name = sim_scenario_name(k, &help)) != NULL; k++) {
        fprintf(stderr, "  %-14s %s\n", name, help);
    }
    return LOCO_EXIT_USAGE;
}

static int number(const char *text, uint64_t *out)
{
    char *end;

    errno = 0;
    *out = strtoull(text, &end, 0);
    return errno == 0 && end != text && *end == '\0' ? 0 : LOCO_EINVAL;
}

static int value_of(struct args *a, const char *name, const char *text)
{
    uint64_t x = 0;

    if (strcmp(name, "--wire") == 0) {
        a->sim.wire = text;
        return 0;
    }
    if (number(text, &x) != 0) {
        return LOCO_EINVAL;
    }
    if (strcmp(name, "--peers") == 0) {
        a->sim.peers = (uint32_t)x;
    } else if (strcmp(name, "--seed") == 0) {
        a->sim.seed = x;
    } else if (strcmp(name, "--seeds") == 0) {
        a->seeds = x;
    } else if (strcmp(name, "--rounds") == 0) {
        a->sim.rounds = x;
    } else if (strcmp(name, "--at") == 0) {
        a->sim.at = x;
    } else if (strcmp(name, "--sweep") == 0) {
        a->sweep = x;
    } else {
        return LOCO_EINVAL;
    }
    return 0;
}

static int parse(int argc, char **argv, struct args *a)
{
    *a = (struct args){.sim = {.seed = 1}, .seeds = 1};
    if (argc < 2) {
        return LOCO_EINVAL;
    }
    a->sim.scenario = argv[1];
    for (int i = 2; i < argc; i++) {
        if (strcmp(argv[i], "--json") == 0) {
            a->json = true;
        } else if (strcmp(argv[i], "--trace") == 0) {
            a->sim.print_trace = true;
        } else if (strcmp(argv[i], "--twice") == 0) {
            a->twice = true;
        } else if (i + 1 == argc || value_of(a, argv[i], argv[i + 1]) != 0) {
            return LOCO_EINVAL;
        } else {
            i++;
        }
    }
    return 0;
}

static void print(const struct args *a, const struct sim_result *r)
{
    const char *form =
        a->json ? "{\"scenario\": \"%s\", \"seed\": %" PRIu64
                  ", \"trace_hash\": \"%016" PRIx64
                  "\", \"invariants_checked\": %" PRIu64
                  ", \"violations\": %" PRIu64 ", \"rounds\": %" PRIu64
                  ", \"commits\": %" PRIu64 ", \"inherited\": %" PRIu64
                  ", \"aborted\": %" PRIu64 ", \"virtual_ms\": %" PRIu64
                  ", \"steps\": %" PRIu64 ", \"messages\": %" PRIu64
                  ", \"segments\": %" PRIu64
                  ", \"detected_ms_max\": %u, \"malformed\": %" PRIu64
                  ", \"at\": %" PRIu64 "}\n"
                : "%s seed %" PRIu64 " trace %016" PRIx64 " checked %" PRIu64
                  " violations %" PRIu64 " rounds %" PRIu64 " commits %" PRIu64
                  " inherited %" PRIu64 " aborted %" PRIu64 " virtual %" PRIu64
                  " ms steps %" PRIu64 " messages %" PRIu64 " segments %" PRIu64
                  " detected %u ms malformed %" PRIu64 " at %" PRIu64 "\n";

    /* Both forms are literals above. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    printf(form, a->sim.scenario, a->sim.seed, r->trace_hash,
           r->invariants_checked, r->violations, r->rounds, r->commits,
           r->inherited, r->aborted, r->virtual_ms, r->steps, r->messages,
           r->segments, r->detected_ms_max, r->malformed, r->at);
#pragma GCC diagnostic pop
    fflush(stdout);
}

/* One seed (and action); 0 or the exit code. */
static int one(const struct args *a, struct sim_result *r)
{
    struct sim_result again;
    int rc = sim_run(&a->sim, r);

    if (rc < 0) {
        fprintf(stderr, "loco_sim: %s\n", loco_strerror(rc));
        return rc == LOCO_EINVAL ? LOCO_EXIT_USAGE : LOCO_EXIT_FAILURE;
    }
    print(a, r);
    if (rc == 0 && a->twice) {
        rc = sim_run(&a->sim, &again);
        if (rc == 0 && again.trace_hash != r->trace_hash) {
            fprintf(stderr, "loco_sim: the same seed gave another trace\n");
            rc = 1;
        }
    }
    return rc == 0 ? 0 : LOCO_EXIT_FAILURE;
}

static int sweep(struct args *a, struct sim_result *r)
{
    uint64_t last, runs = 0;
    int rc;

    a->sim.at = 0;
    rc = one(a, r);
    last = r->victim_actions;
    for (uint64_t at = 1; at <= last; at += a->sweep) {
        struct sim_result result;
        int rv;

        a->sim.at = at;
        rv = sim_run(&a->sim, &result);
        runs++;
        if (rv != 0) {
            print(a, &result);
            rc = LOCO_EXIT_FAILURE;
        }
    }
    printf("%s seed %" PRIu64 ": %" PRIu64 " actions swept\n", a->sim.scenario,
           a->sim.seed, runs);
    a->sim.at = 0;
    return rc;
}

int main(int argc, char **argv)
{
    struct sim_result result;
    struct args a;
    int rc = 0;

    if (argc > 1 && (strcmp(argv[1], "membership") == 0 ||
                     strcmp(argv[1], "partition") == 0)) {
        return sign_start() != 0 ? LOCO_EXIT_FAILURE
                                 : membership_main(argc - 1, argv + 1);
    }
    if (parse(argc, argv, &a) != 0) {
        return usage();
    }
    if (sign_start() != 0) {
        return LOCO_EXIT_FAILURE;
    }
    for (uint64_t k = 0; k < a.seeds; k++) {
        int rv = a.sweep > 0 ? sweep(&a, &result) : one(&a, &result);

        rc = rv != 0 ? rv : rc;
        if (rv == LOCO_EXIT_USAGE) {
            return usage();
        }
        a.sim.seed++;
    }
    return rc;
}
