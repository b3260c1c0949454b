/* sim.c - `loco sim SCENARIO`: scenarios in virtual time; see sim.h.
 *
 * One object on stdout with --json, also for many seeds: figures are folded
 * (sums, means, worst cases), `trace_hash` is that of all traces in turn, and
 * `failed_seeds` names what to run again. Progress goes to stderr where that is
 * a terminal. The same function is main of tests/loco_sim.
 */
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "daemon/cli/cli.h"
#include "daemon/sim/sim.h"
#include "proto/base/codec_type.h"
#include "proto/base/err.h"
#include "proto/base/rng.h"

#define FAILED_MAX 64 /* seeds that are named */

struct sum {
    struct sim_result all;
    uint64_t seeds;
    uint64_t failed[FAILED_MAX];
    uint64_t n_failed;
};

struct run {
    struct sim_options opt;
    uint64_t peers, seed, seeds, rounds, at, sweep;
    bool json, twice, trace;
    struct cli_list set;
    struct sum sum;
};

/* ---- progress ----------------------------------------------------------- */

static void show_progress(void *data, double part)
{
    const struct run *run = data;
    double done = ((double)run->sum.seeds + part) / (double)run->seeds;

    if (isatty(STDERR_FILENO)) {
        fprintf(stderr, "\r%s: %3.0f%%  seed %" PRIu64 " ", run->opt.scenario,
                100 * (done < 1 ? done : 1), run->opt.seed);
        (void)fflush(stderr);
    }
}

static void clear_progress(void)
{
    if (isatty(STDERR_FILENO)) {
        fputs("\r\x1b[K", stderr);
    }
}

/* ---- results ------------------------------------------------------------ */

static void fold(struct sum *sum, const struct sim_result *r, uint64_t seed)
{
    struct sim_result *all = &sum->all;
    uint64_t words[] = {all->trace_hash, r->trace_hash};

    all->trace_hash = sum->seeds == 0 ? r->trace_hash : rng_mix(words, 2);
    all->invariants_checked += r->invariants_checked;
    all->violations += r->violations;
    if (r->violations > 0) {
        if (sum->n_failed < FAILED_MAX) {
            sum->failed[sum->n_failed] = seed;
        }
        sum->n_failed++;
    }
    for (uint32_t i = 0; i < r->n_figures; i++) {
        const struct sim_figure *f = &r->figure[i];
        struct sim_figure *to = NULL;

        for (uint32_t k = 0; k < all->n_figures && to == NULL; k++) {
            to = strcmp(all->figure[k].name, f->name) == 0 ? &all->figure[k]
                                                           : NULL;
        }
        if (to == NULL) {
            sim_figure(all, f->name, f->value, f->fold);
        } else if (f->fold == SIM_MIN) {
            to->value = f->value < to->value ? f->value : to->value;
        } else if (f->fold == SIM_MAX) {
            to->value = f->value > to->value ? f->value : to->value;
        } else if (f->fold == SIM_SUM) {
            to->value += f->value;
        } else { /* seeds that lack the figure do not count */
            to->value += (f->value - to->value) / (double)(sum->seeds + 1);
        }
    }
    sum->seeds++;
}

static double cpu_seconds(long *rss_kb)
{
    struct rusage use;

    (void)getrusage(RUSAGE_SELF, &use);
    *rss_kb = use.ru_maxrss;
    return (double)use.ru_utime.tv_sec + (double)use.ru_utime.tv_usec * 1e-6;
}

static void print_json(const struct run *run)
{
    const struct sum *sum = &run->sum;
    long rss_kb;
    double cpu = cpu_seconds(&rss_kb);

    printf("{\"scenario\": \"%s\", \"seed\": %" PRIu64 ", \"seeds\": %" PRIu64
           ", \"trace_hash\": \"%016" PRIx64
           "\", \"invariants_checked\": %" PRIu64 ", \"violations\": %" PRIu64
           ", \"failed_seeds\": [",
           run->opt.scenario, run->seed, sum->seeds, sum->all.trace_hash,
           sum->all.invariants_checked, sum->all.violations);
    for (uint64_t i = 0; i < sum->n_failed && i < FAILED_MAX; i++) {
        printf("%s%" PRIu64, i > 0 ? ", " : "", sum->failed[i]);
    }
    printf("]");
    for (uint32_t i = 0; i < sum->all.n_figures; i++) {
        printf(", \"%s\": %.12g", sum->all.figure[i].name,
               sum->all.figure[i].value);
    }
    printf(", \"cpu_seconds\": %.2f, \"max_rss_bytes\": %ld}\n", cpu,
           rss_kb * 1024);
}

static void print_text(const struct run *run)
{
    const struct sum *sum = &run->sum;
    long rss_kb;
    double cpu = cpu_seconds(&rss_kb);

    printf("%s: seed %" PRIu64, run->opt.scenario, run->seed);
    if (sum->seeds > 1) {
        printf(" to %" PRIu64, run->seed + sum->seeds - 1);
    }
    printf(", trace %016" PRIx64 "\n%" PRIu64 " invariants checked, %" PRIu64
           " violations",
           sum->all.trace_hash, sum->all.invariants_checked,
           sum->all.violations);
    for (uint64_t i = 0; i < sum->n_failed && i < FAILED_MAX; i++) {
        printf("%s%" PRIu64, i > 0 ? ", " : ": seeds ", sum->failed[i]);
    }
    printf("\n\n");
    for (uint32_t i = 0; i < sum->all.n_figures; i++) {
        const struct sim_figure *f = &sum->all.figure[i];

        printf("  %-22s %.*f\n", f->name,
               f->value == (double)(int64_t)f->value ? 0 : 3, f->value);
    }
    printf("  %-22s %.1f\n  %-22s %ld\n", "cpu_seconds", cpu, "max_rss_bytes",
           rss_kb * 1024);
}

/* ---- running ------------------------------------------------------------ */

/* 0, 1 after a violation, or an exit code in *exit_code and -1. */
static int once(struct run *run, struct sim_result *r, int *exit_code)
{
    int rc = sim_run(&run->opt, r);

    clear_progress();
    if (rc < 0) {
        *exit_code = cli_fail(
            rc == LOCO_EINVAL ? TROUBLE_USAGE
                              : cli_trouble_of(rc, TROUBLE_RUN_SETTINGS),
            "sim: %s",
            r->violation[0] != '\0' ? r->violation : loco_strerror(rc));
        return -1;
    }
    if (rc > 0) {
        (void)cli_fail(TROUBLE_INVARIANT, "sim: seed %" PRIu64 ": %s",
                       run->opt.seed, r->violation);
    }
    return rc;
}

/* One seed; with --sweep all its actions, with --twice twice. */
static int one_seed(struct run *run, int *exit_code)
{
    static struct sim_result r, again;
    uint64_t last;

    if (once(run, &r, exit_code) < 0) {
        return -1;
    }
    fold(&run->sum, &r, run->opt.seed);
    if (run->twice && once(run, &again, exit_code) >= 0 &&
        again.trace_hash != r.trace_hash) {
        run->sum.all.violations++;
        (void)cli_fail(TROUBLE_INVARIANT,
                       "sim: seed %" PRIu64 " gave another trace",
                       run->opt.seed);
    }
    last = run->sweep > 0 ? r.victim_actions : 0;
    for (uint64_t at = 1; at <= last; at += run->sweep) {
        run->opt.at = at;
        if (once(run, &again, exit_code) < 0) {
            return -1;
        }
        run->sum.all.violations += again.violations;
        run->sum.all.invariants_checked += again.invariants_checked;
    }
    run->opt.at = run->at;
    return 0;
}

static void list(void)
{
    const char *help, *name;

    printf("\nscenarios:\n");
    for (unsigned k = 0; (name = sim_scenario_name(k, &help)) != NULL; k++) {
        printf("  %-14s %s\n", name, help);
    }
}

static int run_all(struct run *run)
{
    int exit_code = LOCO_EXIT_OK;

    run->opt.peers = (uint32_t)run->peers;
    run->opt.rounds = run->rounds;
    run->opt.at = run->at;
    run->opt.print_trace = run->trace;
    run->opt.set = run->set.item;
    run->opt.n_set = run->set.n;
    run->opt.progress = show_progress;
    run->opt.progress_data = run;
    for (uint64_t k = 0; k < run->seeds; k++) {
        run->opt.seed = run->seed + k;
        if (k > 0) {
            show_progress(run, 0);
        }
        if (one_seed(run, &exit_code) != 0) {
            return exit_code;
        }
    }
    if (run->json) {
        print_json(run);
    } else {
        print_text(run);
    }
    return run->sum.all.violations > 0 ? LOCO_EXIT_FAILURE : LOCO_EXIT_OK;
}

int cli_sim(const struct cli_call *call)
{
    static struct run run;
    struct cli_list words = {0};
    const struct cli_option options[] = {
        {"--peers", CLI_COUNT, &run.peers, "N",
         "number of peers (the scenario's)"},
        {"--seed", CLI_COUNT, &run.seed, "S", "the first seed (1)"},
        {"--seeds", CLI_COUNT, &run.seeds, "N", "run seeds S .. S+N-1 (1)"},
        {"--set", CLI_LIST, &run.set, "PATH=X",
         "change a setting; a wrong path lists them"},
        {"--json", CLI_FLAG, &run.json, NULL, "one JSON object"},
        {"--twice", CLI_FLAG, &run.twice, NULL,
         "run each seed twice and compare the traces"},
        {"--trace", CLI_FLAG, &run.trace, NULL, "every event, to stderr"},
        {"--rounds", CLI_COUNT, &run.rounds, "R", "whole nodes: rounds"},
        {"--wire", CLI_TEXT, &run.opt.wire, codec_names, "whole nodes (bf16)"},
        {"--exchange", CLI_TEXT, &run.opt.exchange, "NAME",
         "whole nodes: ring or butterfly (what the wire can do)"},
        {"--at", CLI_COUNT, &run.at, "K",
         "the victim's action (kill-each, freeze, restart)"},
        {"--sweep", CLI_COUNT, &run.sweep, "STRIDE",
         "every STRIDE-th action of the victim in turn"},
    };
    int rc;

    run = (struct run){.seed = 1, .seeds = 1};
    rc = CLI_PARSE(call, options, &words, 1, 1);
    if (rc == LOCO_EXIT_OK && call->on_option == NULL) {
        list();
    }
    if (rc != CLI_GO) {
        return rc;
    }
    if (run.seeds == 0 || run.peers > 1000000) {
        return cli_fail(TROUBLE_USAGE,
                        "sim: --seeds wants 1 or more, --peers at most a "
                        "million; see loco sim --help");
    }
    run.opt.scenario = words.item[0];
    return run_all(&run);
}
