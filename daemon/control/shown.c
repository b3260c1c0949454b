/* shown.c - see shown.h. */
#include "daemon/control/shown.h"

#include <stdio.h>
#include <stdlib.h>

#include "daemon/control/json.h"
#include "daemon/control/rounds_json.h"
#include "p2p/swarm/reach.h"
#include "p2p/uv/loop.h"
#include "proto/base/clock.h"
#include "proto/base/err.h"

/* Enough for a curve: a double of 17 digits says nothing more to a person. */
#define SAMPLE_DIGITS 9

int shown_open(struct shown **shown)
{
    struct shown *s = calloc(1, sizeof *s);

    if (s == NULL) {
        return LOCO_ENOMEM;
    }
    s->rounds_memory = malloc(timeline_bytes(SHOWN_ROUNDS));
    if (s->rounds_memory == NULL) {
        free(s);
        return LOCO_ENOMEM;
    }
    timeline_init(&s->rounds, s->rounds_memory, SHOWN_ROUNDS);
    history_init(&s->history);
    (void)pthread_mutex_init(&s->lock, NULL);
    *shown = s;
    return 0;
}

void shown_close(struct shown *s)
{
    if (s == NULL) {
        return;
    }
    (void)pthread_mutex_destroy(&s->lock);
    free(s->rounds_memory);
    free(s);
}

/* ---- the copy ----------------------------------------------------------- */

static int row_of(const struct shown *s, const struct peer_id *id)
{
    for (uint32_t i = 0; i < s->n_peers; i++) {
        if (id_eq(&s->peer[i].id, id)) {
            return (int)i;
        }
    }
    return -1;
}

static void copy_edges(struct shown *s, const struct node *n, uint64_t now_ms)
{
    const struct bandwidth *map = node_bandwidth(n);

    s->n_edges = 0;
    for (uint32_t i = 0; i < map->cap && s->n_edges < SHOWN_EDGES; i++) {
        const struct bandwidth_row *r = &map->row[i];
        struct bandwidth_rate rate;
        int from, to;

        if (!r->used || (from = row_of(s, &r->from)) < 0 ||
            (to = row_of(s, &r->to)) < 0) {
            continue;
        }
        rate = bandwidth_edge(map, &r->from, &r->to, now_ms);
        if (rate.confidence > 0) {
            s->edge[s->n_edges++] =
                (struct shown_edge){(uint16_t)from, (uint16_t)to,
                                    rate.bytes_per_s, rate.confidence};
        }
    }
}

bool shown_update(struct shown *s,
                  const struct node *node,
                  const struct history_look *look)
{
    struct history_look all = *look;
    bool news;

    if (pthread_mutex_trylock(&s->lock) != 0) {
        return false;
    }
    all.now_ms = shell_now_ms();
    all.wall_s = (uint64_t)wall_ms() / 1000;
    timeline_copy(&s->rounds, node_timeline(node));
    if (s->peers_ms == 0 || all.now_ms >= s->peers_ms + SHOWN_PEERS_MS) {
        s->n_peers = node_swarm(node, s->peer, NODE_SWARM_MAX, all.now_ms);
        copy_edges(s, node, all.now_ms);
        s->peers_ms = all.now_ms;
    }
    all.rounds = &s->rounds;
    all.peer = s->peer;
    all.n_peers = s->n_peers;
    news = history_update(&s->history, &all);
    (void)pthread_mutex_unlock(&s->lock);
    return news;
}

/* ---- JSON --------------------------------------------------------------- */

static char *text_of(json_t *o)
{
    char *text = json_dumps(o, JSON_COMPACT | JSON_PRESERVE_ORDER |
                                   JSON_REAL_PRECISION(SAMPLE_DIGITS));

    json_decref(o);
    return text;
}

static const char *const peer_states[PEER_STATE_COUNT] = {
    [PEER_ALIVE] = "alive",
    [PEER_SUSPECT] = "suspect",
    [PEER_DEAD] = "lost",
    [PEER_LEFT] = "left",
};

static json_t *peer_json(const struct shown *s, const struct node_peer *p)
{
    const struct history_share *share = history_share_of(&s->history, &p->id);
    char brief[ID_SHORT_MAX];
    json_t *o = json_object();

    id_short(&p->id, brief);
    json_object_set_new(o, "peer_id", json_of_id(&p->id));
    json_object_set_new(o, "short", json_string(brief));
    json_object_set_new(o, "self", json_boolean(p->self));
    json_object_set_new(o, "state",
                        json_string(p->state < PEER_STATE_COUNT
                                        ? peer_states[p->state]
                                        : "unknown"));
    json_object_set_new(o, "in_view", json_boolean(p->in_view));
    json_object_set_new(o, "convicted", json_boolean(p->convicted));
    json_object_set_new(o, "link",
                        !p->linked   ? json_null()
                        : p->relayed ? json_string("relayed")
                        : p->punched ? json_string("punched")
                        : p->inbound ? json_string("accepted")
                                     : json_string("dialled"));
    json_object_set_new(o, "reachability", json_string(reach_name(p->reach)));
    json_object_set_new(o, "round", json_of_count(p->round));
    json_object_set_new(o, "inner_step", json_of_count(p->inner_step));
    json_object_set_new(o, "tokens_per_s", json_of_count(p->tokens_per_s));
    json_object_set_new(
        o, "silent_ms",
        p->silent_ms == UINT64_MAX ? json_null() : json_of_count(p->silent_ms));
    json_object_set_new(o, "tokens",
                        json_of_count(share == NULL ? 0 : share->tokens));
    json_object_set_new(o, "rounds",
                        json_of_count(share == NULL ? 0 : share->rounds));
    return o;
}

static json_t *peers_json(const struct shown *s)
{
    json_t *o = json_object(), *peers = json_array(), *links = json_array();

    for (uint32_t i = 0; i < s->n_peers; i++) {
        json_array_append_new(peers, peer_json(s, &s->peer[i]));
    }
    for (uint32_t i = 0; i < s->n_edges; i++) {
        const struct shown_edge *e = &s->edge[i];
        json_t *one = json_array();

        json_array_append_new(one, json_of_count(e->from));
        json_array_append_new(one, json_of_count(e->to));
        json_array_append_new(one, json_of_count(e->bytes_per_s));
        json_array_append_new(one, json_of_count(e->confidence));
        json_array_append_new(links, one);
    }
    json_object_set_new(o, "peers", peers);
    json_object_set_new(o, "links", links);
    return o;
}

static json_t *event_json(const struct history_event *e)
{
    json_t *o = json_object();

    json_object_set_new(o, "number", json_of_count(e->number));
    json_object_set_new(o, "at_s", json_of_count(e->wall_s));
    json_object_set_new(o, "kind", json_string(history_kind_name(e->kind)));
    json_object_set_new(o, "round", json_of_count(e->round));
    json_object_set_new(o, "peer_id",
                        e->has_peer ? json_of_id(&e->peer) : json_null());
    json_object_set_new(o, "text", json_string(e->text));
    return o;
}

/* One value of a sample under its name; the order of the fields is that of
 * the documents. */
#define SAMPLE_FIELDS(X)                                                       \
    X(at_s, json_of_count(p->wall_s))                                          \
    X(round, json_of_count(p->round))                                          \
    X(tokens, json_of_count(p->tokens))                                        \
    X(run_tokens, json_of_count(p->run_tokens))                                \
    X(loss, json_of_real(p->loss))                                             \
    X(bits_per_byte, json_of_real(p->bits_per_byte))                           \
    X(tokens_per_s, json_of_real(p->tokens_per_s))                             \
    X(peers_alive, json_of_count(p->peers_alive))                              \
    X(bytes_sent, json_of_count(p->bytes_sent))                                \
    X(bytes_received, json_of_count(p->bytes_received))

static json_t *sample_json(const struct history_sample *p)
{
    json_t *o = json_object();

#define X(name, value) json_object_set_new(o, #name, value);
    SAMPLE_FIELDS(X)
#undef X
    return o;
}

static json_t *samples_json(const struct history *h)
{
    json_t *o = json_object();

#define X(name, value) json_object_set_new(o, #name, json_array());
    SAMPLE_FIELDS(X)
#undef X
    for (uint32_t i = 0; i < h->n_samples; i++) {
        const struct history_sample *p = &h->sample[i];

#define X(name, value) json_array_append_new(json_object_get(o, #name), value);
        SAMPLE_FIELDS(X)
#undef X
    }
    return o;
}

/* ---- documents ---------------------------------------------------------- */

char *shown_rounds(struct shown *s, uint64_t round, uint64_t last)
{
    char *text;

    (void)pthread_mutex_lock(&s->lock);
    text = rounds_json(&s->rounds, round, last, shell_now_ms());
    (void)pthread_mutex_unlock(&s->lock);
    return text;
}

char *shown_peers(struct shown *s)
{
    json_t *o;

    (void)pthread_mutex_lock(&s->lock);
    o = peers_json(s);
    (void)pthread_mutex_unlock(&s->lock);
    return text_of(o);
}

char *shown_history(struct shown *s)
{
    json_t *o = json_object(), *events = json_array();
    const struct history_event *e;

    (void)pthread_mutex_lock(&s->lock);
    json_object_set_new(o, "interval_ms",
                        json_of_count(s->history.interval_ms));
    json_object_set_new(o, "samples", samples_json(&s->history));
    for (uint64_t n = history_oldest(&s->history);
         (e = history_event_at(&s->history, n)) != NULL; n++) {
        json_array_append_new(events, event_json(e));
    }
    (void)pthread_mutex_unlock(&s->lock);
    json_object_set_new(o, "events", events);
    return text_of(o);
}

/* One server-sent event; JSON has no line breaks of its own. */
static void put(FILE *to, const char *name, uint64_t id, json_t *o)
{
    char *text = text_of(o);

    if (text != NULL && id != 0) {
        (void)fprintf(to, "id: %llu\n", (unsigned long long)id);
    }
    if (text != NULL) {
        (void)fprintf(to, "event: %s\ndata: %s\n\n", name, text);
    }
    free(text);
}

char *shown_stream(struct shown *s, struct shown_cursor *cursor)
{
    const struct history_sample *sample;
    const struct history_event *e;
    char *text = NULL;
    size_t size = 0;
    FILE *to = open_memstream(&text, &size);
    uint64_t oldest;

    if (to == NULL) {
        return NULL;
    }
    (void)pthread_mutex_lock(&s->lock);
    oldest = history_oldest(&s->history);
    /* A cursor of an earlier process is as good as none. */
    if (cursor->event > s->history.event_number) {
        cursor->event = 0;
    }
    if (cursor->event + 1 < oldest) {
        cursor->event = oldest - 1;
    }
    while ((e = history_event_at(&s->history, cursor->event + 1)) != NULL) {
        put(to, "event", e->number, event_json(e));
        cursor->event = e->number;
    }
    if (cursor->peers_ms != s->peers_ms) {
        put(to, "peers", 0, peers_json(s));
        cursor->peers_ms = s->peers_ms;
    }
    sample = history_newest(&s->history);
    if (sample != NULL && sample->number != cursor->sample) {
        put(to, "sample", 0, sample_json(sample));
        cursor->sample = sample->number;
    }
    (void)pthread_mutex_unlock(&s->lock);
    if (fclose(to) != 0) {
        free(text);
        return NULL;
    }
    return text;
}

/* ---- Prometheus --------------------------------------------------------- */

static void print_peers(const struct shown *s, FILE *to)
{
    unsigned n[PEER_STATE_COUNT] = {0};

    for (uint32_t i = 0; i < s->n_peers; i++) {
        if (s->peer[i].state < PEER_STATE_COUNT) {
            n[s->peer[i].state]++;
        }
    }
    (void)fputs("# HELP loco_peers Known peers, at most 64\n"
                "# TYPE loco_peers gauge\n",
                to);
    for (int i = 0; i < PEER_STATE_COUNT; i++) {
        (void)fprintf(to, "loco_peers{state=\"%s\"} %u\n", peer_states[i],
                      n[i]);
    }
}

char *shown_metrics(struct shown *s)
{
    char *text = NULL;
    size_t size = 0;
    FILE *to = open_memstream(&text, &size);

    if (to == NULL) {
        return NULL;
    }
    (void)pthread_mutex_lock(&s->lock);
    print_peers(s, to);
    (void)fputs("# HELP loco_round_phase_seconds_total Time in each phase of "
                "committed rounds with this peer\n"
                "# TYPE loco_round_phase_seconds_total counter\n",
                to);
    for (int i = 0; i < TIMELINE_DONE; i++) {
        (void)fprintf(to, "loco_round_phase_seconds_total{phase=\"%s\"} %.3f\n",
                      timeline_phase_name((enum timeline_phase)i),
                      (double)s->history.phase_ms[i] / 1000);
    }
    (void)fputs("# HELP loco_events_total Events, as in the dashboard's "
                "list\n"
                "# TYPE loco_events_total counter\n",
                to);
    for (int i = 0; i < HISTORY_KIND_COUNT; i++) {
        (void)fprintf(to, "loco_events_total{kind=\"%s\"} %llu\n",
                      history_kind_name((enum history_kind)i),
                      (unsigned long long)s->history.kinds[i]);
    }
    (void)pthread_mutex_unlock(&s->lock);
    if (fclose(to) != 0) {
        free(text);
        return NULL;
    }
    return text;
}
