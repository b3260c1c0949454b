/* sim_work.c - loco sim work: what an audit of work could tell from a lie.
 *
 * The run is the one that `loco sim train` makes with the same settings, as an
 * open run has them (a butterfly with a robust mean); nobody lies in it. After
 * some rounds members repeat each other's leases (train/lab/work.h).
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "daemon/cli/lab_setup.h"
#include "daemon/cli/work_table.h"
#include "p2p/round/repeat.h"
#include "proto/base/err.h"
#include "proto/base/errmsg.h"
#include "train/lab/work.h"

struct work {
    struct lab_setup setup;
    struct work_table table;
    struct work_options options;
    struct cli_list set; /* the user's */
    const char *at, *other;
    uint64_t makers, liars;
    bool json;
};

static int bad_turns(void)
{
    return cli_fail(TROUBLE_USAGE,
                    "sim work: --at is of 1 to %d numbers of rounds, each "
                    "above the one before: 2,5,10",
                    WORK_TURNS_MAX);
}

/* "2,5,10" */
static int read_turns(struct work *w)
{
    struct work_options *o = &w->options;
    const char *text = w->at;

    o->n_turns = 0;
    while (*text != '\0') {
        char *end;
        unsigned long long turn = strtoull(text, &end, 10);
        bool is_more = *end == ',' && end[1] != '\0';

        if (end == text || (*end != '\0' && !is_more) || *text == '-' ||
            o->n_turns == WORK_TURNS_MAX ||
            turn <= (o->n_turns > 0 ? o->turns[o->n_turns - 1] : 0)) {
            return bad_turns();
        }
        o->turns[o->n_turns++] = turn;
        text = end + is_more;
    }
    return o->n_turns > 0 ? 0 : bad_turns();
}

static int read_options(struct work *w)
{
    struct work_options *o = &w->options;

    o->reference = strcmp(w->other, "reference") == 0;
    o->other = BACKEND_FP32;
    if (strcmp(w->other, "rounded") == 0) {
        o->other = BACKEND_ROUNDED;
    } else if (!o->reference && !backend_dtype_named(w->other, &o->other)) {
        return cli_fail(TROUBLE_USAGE,
                        "sim work: --other is fp32, bf16, auto, rounded or "
                        "reference, not %s",
                        w->other);
    }
    o->next = repeat_next;
    o->makers = w->makers < LAB_PEERS_MAX ? (uint32_t)w->makers : 0;
    o->liars = w->liars < LAB_PEERS_MAX ? (uint32_t)w->liars : 0;
    return read_turns(w);
}

/* As an open run has it, then what the user sets. */
static int fill_sets(struct work *w)
{
    static const char *const open_run[] = {
        "sync.topology=butterfly", "sync.norm_clip=1", "sync.robust=centred",
        "lab.eval_every_tokens=0"};
    struct cli_list *set = &w->setup.a.set;
    const size_t n = sizeof open_run / sizeof open_run[0];

    if (w->set.n + n > CLI_LIST_MAX) {
        return cli_fail(TROUBLE_USAGE, "sim work: at most %zu --set",
                        CLI_LIST_MAX - n);
    }
    set->n = 0;
    for (size_t i = 0; i < n; i++) {
        set->item[set->n++] = open_run[i];
    }
    for (size_t i = 0; i < w->set.n; i++) {
        set->item[set->n++] = w->set.item[i];
    }
    return 0;
}

/* The tokens follow from the settings: up to the last audit. */
static int prepare(struct work *w)
{
    struct lab_setup *s = &w->setup;
    const struct manifest *m = &s->manifest;
    int rv = fill_sets(w);

    rv = rv != 0 ? rv : lab_setup_open(s);
    if (rv != 0) {
        return rv;
    }
    s->a.tokens = w->options.turns[w->options.n_turns - 1] * m->sync.period *
                  s->a.peers * m->inner.batch * m->inner.seq;
    return lab_setup_settings(s);
}

static void note(void *data, const struct work_reading *r)
{
    work_table_add(data, r);
}

static int run(struct work *w)
{
    struct lab_setup *s = &w->setup;
    struct work_table *t = &w->table;
    struct lab_result r = {0};
    char errmsg[ERRMSG_SIZE] = "";
    int rv;

    t->sync = s->a.sync;
    t->peers = s->a.peers;
    t->period = s->manifest.sync.period;
    t->n_turns = w->options.n_turns;
    memcpy(t->turns, w->options.turns, sizeof t->turns);
    w->options.reading = note;
    w->options.data = t;
    s->lab.work = &w->options;
    rv = lab_run(&s->lab, &r, errmsg);
    lab_result_free(&r);
    if (rv != 0) {
        return cli_fail(cli_trouble_of(rv, TROUBLE_RUN_SETTINGS),
                        "sim work: %s",
                        errmsg[0] != '\0' ? errmsg : loco_strerror(rv));
    }
    if (w->json) {
        return cli_print_json(work_table_json(t), JSON_REAL_PRECISION(7));
    }
    work_table_print(t);
    return LOCO_EXIT_OK;
}

int cli_sim_work(const struct cli_call *call)
{
    static struct work w;
    struct lab_arguments *a = &w.setup.a;
    const struct cli_option options[] = {
        {"--sync", CLI_TEXT, &a->sync, "PRESET",
         "training method (opendiloco)"},
        {"--peers", CLI_COUNT, &a->peers, "M", "number of replicas (8)"},
        {"--at", CLI_TEXT, &w.at, "N,N", "audited rounds (2,5,10,20)"},
        {"--makers", CLI_COUNT, &w.makers, "K",
         "members that are audited in each (4)"},
        {"--liars", CLI_COUNT, &w.liars, "L",
         "members that tell a common lie (3)"},
        {"--other", CLI_TEXT, &w.other, "fp32|bf16|reference",
         "products of other auditors; reference is slow (fp32)"},
        {"--model", CLI_TEXT, &a->model, "NAME|FILE",
         "model to train (quickstart-1m)"},
        {"--set", CLI_LIST, &w.set, "path=value",
         "set a key of the run, or lab.*; repeatable"},
        {"--data", CLI_TEXT, &a->data, "DIR",
         "directory that loco data pack wrote (public domain prose)"},
        {"--seed", CLI_COUNT, &a->seed, "S", "seed of weights and data (1)"},
        {"--threads", CLI_COUNT, &a->threads, "K", "processor threads (1)"},
        {"--dtype", CLI_TEXT, &a->dtype, "fp32|bf16|auto",
         "operands of matrix products (fp32)"},
        {"--json", CLI_FLAG, &w.json, NULL, "print one JSON object"},
    };
    int rv;

    w = (struct work){
        .at = "2,5,10,20", .other = "fp32", .makers = 4, .liars = 3};
    *a = (struct lab_arguments){.command = "sim work",
                                .sync = "opendiloco",
                                .model = "quickstart-1m",
                                .dtype = "fp32",
                                .peers = 8,
                                .tokens = 1,
                                .seed = 1,
                                .threads = 1};
    rv = CLI_PARSE(call, options, NULL, 0, 0);
    if (rv != CLI_GO) {
        return rv;
    }
    rv = read_options(&w);
    rv = rv != 0 ? rv : prepare(&w);
    rv = rv != 0 ? rv : run(&w);
    lab_setup_close(&w.setup);
    return rv;
}
