/* lab_files.c - tables in, CSV out; see lab_files.h. */
#include "daemon/cli/lab_files.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/err.h"
#include "proto/base/errmsg.h"

#define LINE_MAX_BYTES 256
#define BITS_PER_MBIT  1e6
#define WORDS_MAX      5

/* ---- tables ------------------------------------------------------------- */

struct table {
    FILE *file;
    const char *path;
    unsigned line;
    char text[LINE_MAX_BYTES];
    char *words[WORDS_MAX];
    size_t n_words;
};

/* The next line with words; 1, 0 at the end, or an error. */
static int table_next(struct table *t, char *errmsg)
{
    while (fgets(t->text, sizeof t->text, t->file) != NULL) {
        char *save = NULL, *word, *hash;
        size_t len = strlen(t->text);

        t->line++;
        if (len + 1 == sizeof t->text && t->text[len - 1] != '\n') {
            return errmsg_fail(errmsg, LOCO_EFORMAT,
                               "%s:%u: the line is longer than %d bytes",
                               t->path, t->line, LINE_MAX_BYTES - 2);
        }
        hash = strchr(t->text, '#');
        if (hash != NULL) {
            *hash = '\0';
        }
        t->n_words = 0;
        word = strtok_r(t->text, " \t\r\n", &save);
        for (; word != NULL; word = strtok_r(NULL, " \t\r\n", &save)) {
            if (t->n_words == WORDS_MAX) {
                return errmsg_fail(errmsg, LOCO_EFORMAT,
                                   "%s:%u: more than %d columns", t->path,
                                   t->line, WORDS_MAX);
            }
            t->words[t->n_words++] = word;
        }
        if (t->n_words > 0) {
            return 1;
        }
    }
    return ferror(t->file)
               ? errmsg_fail(errmsg, LOCO_EIO, "%s: cannot read", t->path)
               : 0;
}

/* Hand each line of a file to `take`, until one is wrong. */
static int
table_read(const char *path,
           int (*take)(const struct table *t, void *data, char *errmsg),
           void *data,
           char *errmsg)
{
    struct table t = {.path = path, .file = fopen(path, "r")};
    int rv;

    if (t.file == NULL) {
        return errmsg_fail(errmsg, LOCO_ENOENT, "%s: %s", path,
                           strerror(errno));
    }
    while ((rv = table_next(&t, errmsg)) > 0) {
        rv = take(&t, data, errmsg);
        if (rv != 0) {
            break;
        }
    }
    (void)fclose(t.file);
    return rv;
}

/* A finite number of at least `least`. */
static int number_of(const struct table *t,
                     const char *word,
                     double least,
                     double *out,
                     char *errmsg)
{
    char *end;
    double v = strtod(word, &end);

    if (end == word || *end != '\0' || !isfinite(v) || v < least) {
        return errmsg_fail(errmsg, LOCO_EFORMAT,
                           "%s:%u: \"%.40s\" is not a number of at least %g",
                           t->path, t->line, word, least);
    }
    *out = v;
    return 0;
}

static int
peer_of(const struct table *t, const char *word, uint32_t *out, char *errmsg)
{
    double v = 0;
    int rv = number_of(t, word, 0, &v, errmsg);

    if (rv == 0 && (v >= LAB_PEERS_MAX || v != floor(v))) {
        rv = errmsg_fail(errmsg, LOCO_EFORMAT,
                         "%s:%u: peers are numbered 0 to %d", t->path, t->line,
                         LAB_PEERS_MAX - 1);
    }
    *out = rv == 0 ? (uint32_t)v : 0;
    return rv;
}

/* ---- machines ----------------------------------------------------------- */

static int link_line(const struct table *t, void *data, char *errmsg)
{
    struct lab_machine m = {0}, *machines = data;
    double up = 0, down = 0, delay = 0;
    uint32_t peer = 0;
    int all = strcmp(t->words[0], "*") == 0, rv;

    if (t->n_words != 5) {
        return errmsg_fail(errmsg, LOCO_EFORMAT,
                           "%s:%u: write PEER|* TOKENS_PER_S UP_MBIT DOWN_MBIT "
                           "DELAY_MS",
                           t->path, t->line);
    }
    rv = all ? 0 : peer_of(t, t->words[0], &peer, errmsg);
    rv =
        rv != 0 ? rv : number_of(t, t->words[1], 1e-3, &m.tokens_per_s, errmsg);
    rv = rv != 0 ? rv : number_of(t, t->words[2], 0, &up, errmsg);
    rv = rv != 0 ? rv : number_of(t, t->words[3], 0, &down, errmsg);
    rv = rv != 0 ? rv : number_of(t, t->words[4], 0, &delay, errmsg);
    if (rv != 0) {
        return rv;
    }
    m.up_bytes_per_s = up * BITS_PER_MBIT / 8;
    m.down_bytes_per_s = down * BITS_PER_MBIT / 8;
    m.delay_s = delay / 1e3;
    for (uint32_t i = 0; i < LAB_PEERS_MAX; i++) {
        if (all || i == peer) {
            machines[i] = m;
        }
    }
    return 0;
}

int lab_links_read(const char *path,
                   struct lab_machine machines[LAB_PEERS_MAX],
                   char *errmsg)
{
    for (uint32_t i = 0; i < LAB_PEERS_MAX; i++) {
        machines[i] = (struct lab_machine){10000, 100 * BITS_PER_MBIT / 8,
                                           100 * BITS_PER_MBIT / 8, 0.02};
    }
    return path == NULL ? 0 : table_read(path, link_line, machines, errmsg);
}

/* ---- comings and goings ------------------------------------------------- */

struct script {
    struct lab_event *events;
    size_t n;
};

static int member_line(const struct table *t, void *data, char *errmsg)
{
    static const char *const kinds[] = {[LAB_JOIN] = "join",
                                        [LAB_LEAVE] = "leave",
                                        [LAB_DIE] = "die",
                                        [LAB_SPEED] = "speed"};
    struct script *s = data;
    struct lab_event *e = &s->events[s->n];
    double tokens = 0;
    size_t kind = 0;
    int rv;

    if (s->n == LAB_EVENTS_MAX) {
        return errmsg_fail(errmsg, LOCO_EFORMAT, "%s: more than %d lines",
                           t->path, LAB_EVENTS_MAX);
    }
    while (t->n_words >= 3 && kind < 4 &&
           strcmp(kinds[kind], t->words[1]) != 0) {
        kind++;
    }
    if (t->n_words < 3 || kind == 4 || t->n_words != 3 + (kind == LAB_SPEED)) {
        return errmsg_fail(errmsg, LOCO_EFORMAT,
                           "%s:%u: write TOKENS join|leave|die PEER, or TOKENS "
                           "speed PEER TOKENS_PER_S",
                           t->path, t->line);
    }
    *e = (struct lab_event){.kind = (enum lab_event_kind)kind};
    rv = number_of(t, t->words[0], 0, &tokens, errmsg);
    rv = rv != 0 ? rv : peer_of(t, t->words[2], &e->peer, errmsg);
    if (rv == 0 && kind == LAB_SPEED) {
        rv = number_of(t, t->words[3], 1e-3, &e->value, errmsg);
    }
    e->at_tokens = tokens < 1e18 ? (uint64_t)tokens : UINT64_MAX;
    s->n += rv == 0;
    return rv;
}

static int earlier(const void *a, const void *b)
{
    const struct lab_event *x = a, *y = b;

    return (x->at_tokens > y->at_tokens) - (x->at_tokens < y->at_tokens);
}

int lab_members_read(const char *path,
                     struct lab_event events[LAB_EVENTS_MAX],
                     size_t *n,
                     char *errmsg)
{
    struct script s = {.events = events};
    int rv = path == NULL ? 0 : table_read(path, member_line, &s, errmsg);

    *n = s.n;
    qsort(events, *n, sizeof *events, earlier);
    return rv;
}

/* ---- CSV ---------------------------------------------------------------- */

int lab_csv_write(const char *path, const struct lab_result *r, char *errmsg)
{
    FILE *f = fopen(path, "w");
    int bad;

    if (f == NULL) {
        return errmsg_fail(errmsg, LOCO_EIO, "%s: %s", path, strerror(errno));
    }
    (void)fprintf(f, "tokens,rounds,virtual_s,loss,bits_per_byte,bytes_sent,"
                     "peers\n");
    for (size_t i = 0; i < r->n_points; i++) {
        const struct lab_point *p = &r->points[i];

        (void)fprintf(f, "%llu,%llu,%.3f,%.6f,", (unsigned long long)p->tokens,
                      (unsigned long long)p->turns, p->virtual_s, p->loss);
        if (!isnan(p->bits_per_byte)) {
            (void)fprintf(f, "%.6f", p->bits_per_byte);
        }
        (void)fprintf(f, ",%llu,%u\n", (unsigned long long)p->bytes_sent,
                      p->peers);
    }
    bad = ferror(f);
    bad |= fclose(f);
    return bad == 0
               ? 0
               : errmsg_fail(errmsg, LOCO_EIO, "%s: %s", path, strerror(errno));
}
