/* control.c - see control.h. */
#include "tests/netlab/control.h"

#include <stdlib.h>
#include <string.h>

#include "tests/netlab/router.h"

#define WORDS_MAX 32

/* A number with one of the suffixes; factors[i] belongs to suffixes[i]. */
struct unit {
    const char *suffix;
    double factor;
};

static const struct unit rates[] = {{"gbit", 1e9}, {"mbit", 1e6}, {"kbit", 1e3},
                                    {"bit", 1},    {"", 1},       {0}};
static const struct unit times[] = {{"us", 1e3}, {"ms", 1e6}, {"s", 1e9}, {0}};
static const struct unit sizes[] = {{"mb", 1e6}, {"kb", 1e3}, {"b", 1}, {0}};
static const struct unit plain[] = {{"", 1}, {0}};

static bool quantity(const char *text, const struct unit *units, double *value)
{
    char *end;
    double n = strtod(text, &end);

    if (end == text || !(n >= 0 && n < 1e15)) {
        return false;
    }
    for (; units->suffix != NULL; units++) {
        if (strcmp(end, units->suffix) == 0) {
            *value = n * units->factor;
            return true;
        }
    }
    return n == 0 && *end == '\0' && (*value = 0, true);
}

static bool on_off(const char *text, bool *value)
{
    *value = strcmp(text, "on") == 0;
    return *value || strcmp(text, "off") == 0;
}

static bool queue_read(const char *text, struct wire_options *o)
{
    double value;

    if (quantity(text, times, &value)) {
        o->queue_ns = (int64_t)value;
        o->queue_bytes = 0;
        return true;
    }
    if (quantity(text, sizes, &value)) {
        o->queue_bytes = (uint64_t)value;
        o->queue_ns = 0;
        return true;
    }
    return false;
}

static bool
option_read(const char *key, const char *text, struct wire_options *o)
{
    double value;

    if (strcmp(key, "cut") == 0) {
        return on_off(text, &o->cut);
    }
    if (strcmp(key, "reorder") == 0) {
        return on_off(text, &o->reorder);
    }
    if (strcmp(key, "queue") == 0) {
        return queue_read(text, o);
    }
    if (strcmp(key, "rate") == 0 && quantity(text, rates, &value)) {
        o->rate_bps = (uint64_t)value;
        return true;
    }
    if (strcmp(key, "delay") == 0 && quantity(text, times, &value)) {
        o->delay_ns = (int64_t)value;
        return true;
    }
    if (strcmp(key, "jitter") == 0 && quantity(text, times, &value)) {
        o->jitter_ns = (int64_t)value;
        return true;
    }
    if (strcmp(key, "loss") == 0 && quantity(text, plain, &value)) {
        o->loss = value;
        return value <= 1;
    }
    if (strcmp(key, "overhead") == 0 && quantity(text, plain, &value)) {
        o->overhead = (uint32_t)value;
        return value <= 1000;
    }
    return false;
}

/* ---- commands: words[0] is the command -------------------------------- */

static bool options_read(struct topology *t,
                         char **words,
                         unsigned n,
                         struct wire_options *o)
{
    for (unsigned i = 0; i < n; i += 2) {
        if (i + 1 == n || !option_read(words[i], words[i + 1], o)) {
            snprintf(t->why, sizeof t->why, "cannot use '%.40s %.40s'",
                     words[i], i + 1 == n ? "" : words[i + 1]);
            return false;
        }
    }
    return true;
}

static bool link_set(struct router *r, char **words, unsigned n)
{
    struct topology *t = &r->topology;
    bool both = strcmp(words[0], "link") == 0;
    uint16_t a = topology_find(t, words[1]);
    uint16_t b = a == NOWHERE ? a : topology_find(t, words[2]);
    struct wire_options check = {0};
    struct link *way;

    if (b == NOWHERE || !options_read(t, words + 3, n - 3, &check)) {
        return false;
    }
    way = topology_link(t, a, b);
    if (way == NULL) {
        return false;
    }
    for (int i = 0; i < (both ? 2 : 1); i++) {
        struct wire_options o = way->wire.opt;

        (void)options_read(t, words + 3, n - 3, &o);
        wire_set(&way->wire, &o);
        way = topology_link(t, b, a);
    }
    return true;
}

static bool node_make(struct router *r, char **words, unsigned n, FILE *answer)
{
    struct topology *t = &r->topology;
    uint16_t node;
    double mtu = strcmp(words[0], "host") == 0 ? MTU_MAX : 0;

    if (n > 2 &&
        (!quantity(words[2], plain, &mtu) || mtu < 576 || mtu > MTU_MAX)) {
        snprintf(t->why, sizeof t->why, "an MTU is 576 to %d bytes", MTU_MAX);
        return false;
    }
    node = topology_node(t, words[1]);
    if (node == NOWHERE) {
        return false;
    }
    if (strcmp(words[0], "hub") == 0) {
        fputs("ok\n", answer);
        return true;
    }
    if (!router_space(r, node, (unsigned)mtu)) {
        t->n_nodes--;
        return false;
    }
    fprintf(answer, "ok %d\n", t->nodes[node].space_fd);
    return true;
}

static void stats(const struct router *r, FILE *answer)
{
    const struct topology *t = &r->topology;

    fputs("ok {\"wires\": [", answer);
    for (unsigned i = 0; i < t->n_links; i++) {
        const struct link *l = &t->links[i];
        const struct wire_count *c = &l->wire.count;

        fprintf(answer,
                "%s{\"from\": \"%s\", \"to\": \"%s\", \"packets\": %llu, "
                "\"bytes\": %llu, \"dropped_queue\": %llu, \"dropped_loss\": "
                "%llu, \"dropped_cut\": %llu}",
                i == 0 ? "" : ", ", t->nodes[l->from].name,
                t->nodes[l->to].name, (unsigned long long)c->packets,
                (unsigned long long)c->bytes,
                (unsigned long long)c->dropped_queue,
                (unsigned long long)c->dropped_loss,
                (unsigned long long)c->dropped_cut);
    }
    fprintf(answer,
            "], \"unrouted\": %llu, \"no_memory\": %llu, \"refused\": %llu}\n",
            (unsigned long long)r->unrouted, (unsigned long long)r->no_memory,
            (unsigned long long)r->refused);
}

static bool do_link(struct router *r, char **words, unsigned n, FILE *answer)
{
    bool done = link_set(r, words, n);

    if (done) {
        fputs("ok\n", answer);
    }
    return done;
}

static bool do_address(struct router *r, char **words, unsigned n, FILE *answer)
{
    uint16_t node = topology_find(&r->topology, words[1]);

    (void)n;
    if (node == NOWHERE || !topology_address(&r->topology, node, words[2])) {
        return false;
    }
    fputs("ok\n", answer);
    return true;
}

static bool do_stats(struct router *r, char **words, unsigned n, FILE *answer)
{
    (void)words;
    (void)n;
    stats(r, answer);
    return true;
}

/* Each answers when it is done; false: it has not, and topology.why says why */
static const struct command {
    const char *name;
    unsigned words_min, words_max;
    bool (*run)(struct router *r, char **words, unsigned n, FILE *answer);
} commands[] = {
    {"hub", 2, 2, node_make},        {"space", 2, 2, node_make},
    {"host", 2, 3, node_make},       {"address", 3, 3, do_address},
    {"link", 3, WORDS_MAX, do_link}, {"wire", 3, WORDS_MAX, do_link},
    {"stats", 1, 1, do_stats},
};

static const struct command *find(struct topology *t, char **words, unsigned n)
{
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
        const struct command *c = &commands[i];

        if (strcmp(c->name, words[0]) == 0) {
            snprintf(t->why, sizeof t->why, "'%s' has %u to %u words", c->name,
                     c->words_min, c->words_max);
            return n >= c->words_min && n <= c->words_max ? c : NULL;
        }
    }
    snprintf(t->why, sizeof t->why, "no command is called '%.40s'", words[0]);
    return NULL;
}

void control_line(struct router *r, char *line, FILE *answer)
{
    char *words[WORDS_MAX + 1], *rest;
    const struct command *c;
    unsigned n = 0;

    for (char *word = strtok_r(line, " \t\r\n", &rest);
         word != NULL && n <= WORDS_MAX;
         word = strtok_r(NULL, " \t\r\n", &rest)) {
        words[n++] = word;
    }
    if (n == 0) {
        return;
    }
    c = find(&r->topology, words, n);
    if (c == NULL || !c->run(r, words, n, answer)) {
        fprintf(answer, "error: %s\n", r->topology.why);
    }
}
