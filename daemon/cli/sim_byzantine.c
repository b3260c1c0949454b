/* sim_byzantine.c - loco sim byzantine: every lie against every defence.
 *
 * A cell of the table is the run that `loco sim train` makes with the same
 * settings, without evaluations on the way; lab_setup.h reads both commands'
 * settings. Rounds go by a butterfly in every column, also where none clips,
 * so that the columns differ in their defence alone. The honest ones alone make
 * as many steps with the same batch: fewer tokens in all.
 */
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include <jansson.h>

#include "daemon/cli/byzantine_table.h"
#include "daemon/cli/lab_setup.h"
#include "proto/base/err.h"
#include "proto/base/errmsg.h"

#define SETS_OWN 7 /* room in the list for what the table sets */

struct byzantine {
    struct lab_setup setup;
    struct byzantine_table table;
    struct cli_list set; /* the user's */
    const char *lies, *defences;
    uint64_t peers, liars, rounds, seeds, seed;
    uint64_t done, cases;
    bool json;
};

/* ---- what to run -------------------------------------------------------- */

/* Set has[i] for every name in "a,b"; false with the bad name in `bad`. */
static bool choose(
    const char *list, const char *(*name)(int), int n, bool *has, char bad[32])
{
    while (*list != '\0') {
        size_t len = strcspn(list, ",");
        int i = 0;

        while (i < n &&
               (strlen(name(i)) != len || strncmp(name(i), list, len) != 0)) {
            i++;
        }
        if (i == n) {
            (void)snprintf(bad, 32, "%.*s", (int)(len < 31 ? len : 31), list);
            return false;
        }
        has[i] = true;
        list += len + (list[len] == ',');
    }
    return true;
}

static int choose_rows(struct byzantine *b)
{
    struct byzantine_table *t = &b->table;
    char bad[32], names[128];

    for (int i = 0; i < LAB_LIE_COUNT; i++) {
        t->has_row[i] = b->lies == NULL;
    }
    t->has_row[BYZANTINE_NOBODY] = true;
    t->has_row[BYZANTINE_ALONE] = true;
    if (b->lies == NULL ||
        choose(b->lies, byzantine_row_name, LAB_LIE_COUNT, t->has_row, bad)) {
        return 0;
    }
    lab_lie_names(names, sizeof names);
    return cli_fail(TROUBLE_USAGE, "sim byzantine: --lies is of %s, not \"%s\"",
                    names, bad);
}

static int choose_columns(struct byzantine *b)
{
    struct byzantine_table *t = &b->table;
    char bad[32] = "";

    for (int i = 0; i < BYZANTINE_DEFENCES; i++) {
        t->has_column[i] = b->defences == NULL;
    }
    if (b->defences != NULL &&
        !choose(b->defences, byzantine_defence_name, BYZANTINE_DEFENCES,
                t->has_column, bad)) {
        return cli_fail(TROUBLE_USAGE,
                        "sim byzantine: --defences is of mean, clip and "
                        "centred, not \"%s\"",
                        bad);
    }
    if (!isnan(t->most) && !t->has_column[BYZANTINE_CENTRED]) {
        return cli_fail(TROUBLE_USAGE,
                        "sim byzantine: --most judges centred, which is not "
                        "among --defences");
    }
    return 0;
}

/* What the table itself sets is not for --set. */
static int check_sets(const struct byzantine *b)
{
    static const char *const own[][2] = {{"lab.liars", "--liars"},
                                         {"lab.lie", "--lies"},
                                         {"sync.robust", "--defences"}};
    char path[DOC_PATH_MAX];

    if (b->set.n + SETS_OWN > CLI_LIST_MAX) {
        return cli_fail(TROUBLE_USAGE, "sim byzantine: at most %d --set",
                        CLI_LIST_MAX - SETS_OWN);
    }
    for (size_t i = 0; i < b->set.n; i++) {
        if (cli_set_split("sim byzantine", b->set.item[i], path) == NULL) {
            return LOCO_EXIT_USAGE;
        }
        for (size_t k = 0; k < sizeof own / sizeof own[0]; k++) {
            if (strcmp(path, own[k][0]) == 0) {
                return cli_fail(TROUBLE_USAGE,
                                "sim byzantine: %s is the table's: use %s",
                                path, own[k][1]);
            }
        }
    }
    return 0;
}

static int check(struct byzantine *b)
{
    int rv;

    if (b->liars == 0 || b->liars >= b->peers || b->peers > LAB_PEERS_MAX ||
        b->rounds == 0 || b->seeds == 0) {
        return cli_fail(TROUBLE_USAGE,
                        "sim byzantine: --liars is 1 to --peers less one, "
                        "--peers at most %d, --rounds and --seeds at least 1",
                        LAB_PEERS_MAX);
    }
    rv = choose_rows(b);
    rv = rv != 0 ? rv : choose_columns(b);
    return rv != 0 ? rv : check_sets(b);
}

/* ---- one run ------------------------------------------------------------ */

static void add_set(struct lab_setup *s, const char *item)
{
    s->a.set.item[s->a.set.n++] = item;
}

/* The list of --set of one cell: what a user may change, the user's, the
 * cell's. The text lives in `room`. */
static void
fill_sets(struct byzantine *b, int row, int column, char room[2][64])
{
    struct lab_setup *s = &b->setup;
    bool lied = row < LAB_LIE_COUNT;

    s->a.set.n = 0;
    add_set(s, "sync.topology=butterfly");
    add_set(s, "sync.norm_clip=1");
    add_set(s, "lab.eval_every_tokens=0");
    for (size_t i = 0; i < b->set.n; i++) {
        add_set(s, b->set.item[i]);
    }
    if (column == BYZANTINE_MEAN) {
        add_set(s, "sync.norm_clip=0");
    } else if (column == BYZANTINE_CENTRED) {
        add_set(s, "sync.robust=centred");
    }
    (void)snprintf(room[0], sizeof room[0], "lab.liars=%llu",
                   lied ? (unsigned long long)b->liars : 0);
    add_set(s, room[0]);
    (void)snprintf(room[1], sizeof room[1], "lab.lie=%s",
                   byzantine_row_name(lied ? row : 0));
    add_set(s, room[1]);
}

/* Options of a cell; its tokens follow from the settings. */
static int prepare(struct byzantine *b, int row, int column, uint64_t seed)
{
    struct lab_setup *s = &b->setup;
    const struct manifest *m = &s->manifest;
    char room[2][64];
    int rv;

    fill_sets(b, row, column, room);
    s->a.peers = row == BYZANTINE_ALONE ? b->peers - b->liars : b->peers;
    s->a.seed = seed;
    s->a.tokens = 1;
    rv = lab_setup_settings(s);
    if (rv != 0) {
        return rv;
    }
    s->a.tokens = b->rounds * m->sync.period * s->a.peers * m->inner.batch *
                  m->inner.seq / m->stages;
    rv = lab_setup_settings(s);
    if (column != BYZANTINE_MEAN) {
        b->table.radius = (double)s->lab.clip;
    }
    if (row == BYZANTINE_NOBODY) {
        b->table.tokens = s->a.tokens;
    }
    if (rv == 0 && column != BYZANTINE_MEAN && !(s->lab.clip > 0)) {
        return cli_fail(TROUBLE_RUN_SETTINGS,
                        "sim byzantine: clip and centred need "
                        "sync.norm_clip=1 or another radius above 0");
    }
    return rv;
}

static int run_case(struct byzantine *b, int row, int column, uint64_t seed)
{
    struct lab_result r = {0};
    char errmsg[ERRMSG_SIZE] = "";
    double bits = NAN;
    int rv = prepare(b, row, column, seed);

    if (rv != 0) {
        return rv;
    }
    rv = lab_run(&b->setup.lab, &r, errmsg);
    if (rv == 0) {
        bits = r.bits_per_byte;
    } else if (rv != LOCO_ENUMERIC) {
        lab_result_free(&r);
        return cli_fail(cli_trouble_of(rv, TROUBLE_RUN_SETTINGS),
                        "sim byzantine: %s",
                        errmsg[0] != '\0' ? errmsg : loco_strerror(rv));
    }
    byzantine_add(&b->table.cell[row][column], bits);
    (void)fprintf(stderr, "%llu of %llu: %s, %s, seed %llu: ",
                  (unsigned long long)++b->done, (unsigned long long)b->cases,
                  byzantine_row_name(row), byzantine_defence_name(column),
                  (unsigned long long)seed);
    (void)fprintf(stderr, isfinite(bits) ? "%.4g\n" : "diverged\n", bits);
    lab_result_free(&r);
    return 0;
}

/* ---- all runs ----------------------------------------------------------- */

/* One row after the other, the honest ones first. */
static int run_rows(struct byzantine *b)
{
    const struct byzantine_table *t = &b->table;
    int rv = 0;

    for (int i = 0; i < BYZANTINE_ROWS && rv == 0; i++) {
        int row = byzantine_shown(i);

        for (int k = 0; k < BYZANTINE_DEFENCES && rv == 0; k++) {
            for (uint64_t n = 0; n < b->seeds && rv == 0; n++) {
                rv = t->has_row[row] && t->has_column[k]
                         ? run_case(b, row, k, b->seed + n)
                         : 0;
            }
        }
    }
    return rv;
}

static void count_cases(struct byzantine *b)
{
    uint64_t rows = 0, columns = 0;

    for (int i = 0; i < BYZANTINE_ROWS; i++) {
        rows += b->table.has_row[i];
    }
    for (int i = 0; i < BYZANTINE_DEFENCES; i++) {
        columns += b->table.has_column[i];
    }
    b->cases = rows * columns * b->seeds;
}

/* The cells above --most, each in a sentence. */
static int judge(const struct byzantine_table *t)
{
    int rv = LOCO_EXIT_OK;

    for (int row = 0; row < LAB_LIE_COUNT; row++) {
        if (byzantine_above(t, row, BYZANTINE_CENTRED)) {
            rv =
                cli_fail(TROUBLE_INVARIANT,
                         "sim byzantine: %s, centred: %+.1f %%, more than "
                         "%g %%",
                         byzantine_row_name(row),
                         byzantine_percent(t, row, BYZANTINE_CENTRED), t->most);
        }
    }
    return rv;
}

static int run_table(struct byzantine *b)
{
    struct byzantine_table *t = &b->table;
    int rv;

    count_cases(b);
    t->sync = b->setup.a.sync;
    t->peers = b->peers;
    t->liars = b->liars;
    t->rounds = b->rounds;
    rv = run_rows(b);
    if (rv != 0) {
        return rv;
    }
    if (b->json) {
        rv = cli_print_json(byzantine_json(t), JSON_REAL_PRECISION(9));
    } else {
        byzantine_print(t);
    }
    return rv != 0 ? rv : judge(t);
}

int cli_sim_byzantine(const struct cli_call *call)
{
    static struct byzantine b;
    struct lab_arguments *a = &b.setup.a;
    const struct cli_option options[] = {
        {"--sync", CLI_TEXT, &a->sync, "PRESET", "training method (muon-avg)"},
        {"--peers", CLI_COUNT, &b.peers, "M", "number of replicas (8)"},
        {"--liars", CLI_COUNT, &b.liars, "L", "how many of them lie (3)"},
        {"--rounds", CLI_COUNT, &b.rounds, "N", "rounds of each run (20)"},
        {"--lies", CLI_TEXT, &b.lies, "NAME,NAME", "rows of the table (all)"},
        {"--defences", CLI_TEXT, &b.defences, "NAME,NAME",
         "columns, of mean, clip and centred (all)"},
        {"--most", CLI_REAL, &b.table.most, "PERCENT",
         "exit 1 if a lie does more damage to centred"},
        {"--model", CLI_TEXT, &a->model, "NAME|FILE",
         "model to train (quickstart-1m)"},
        {"--set", CLI_LIST, &b.set, "path=value",
         "set a key of the run, or lab.*; repeatable"},
        {"--data", CLI_TEXT, &a->data, "DIR",
         "directory that loco data pack wrote (public domain prose)"},
        {"--seed", CLI_COUNT, &b.seed, "S", "the first seed (1)"},
        {"--seeds", CLI_COUNT, &b.seeds, "N",
         "run seeds S .. S+N-1, show mean and spread (1)"},
        {"--threads", CLI_COUNT, &a->threads, "K", "processor threads (1)"},
        {"--dtype", CLI_TEXT, &a->dtype, "fp32|bf16|auto",
         "operands of matrix products (auto)"},
        {"--json", CLI_FLAG, &b.json, NULL, "print one JSON object"},
    };
    int rv;

    b = (struct byzantine){
        .peers = 8, .liars = 3, .rounds = 20, .seeds = 1, .seed = 1};
    b.table.most = NAN;
    *a = (struct lab_arguments){.command = "sim byzantine",
                                .sync = "muon-avg",
                                .model = "quickstart-1m",
                                .dtype = "auto",
                                .peers = 1,
                                .tokens = 1,
                                .seed = 1,
                                .threads = 1};
    rv = CLI_PARSE(call, options, NULL, 0, 0);
    if (rv != CLI_GO) {
        return rv;
    }
    rv = check(&b);
    rv = rv != 0 ? rv : lab_setup_open(&b.setup);
    rv = rv != 0 ? rv : run_table(&b);
    lab_setup_close(&b.setup);
    return rv;
}
