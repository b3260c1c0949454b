/* scenarios_join.c - newcomers, and what can be wrong with where they fetch
 * from.
 *
 * The last peer comes half way, with an empty disk. Beside what always must
 * hold (check.h):
 *
 *   K  it fetched from several sources; whoever served something wrong is
 *      named by it, nobody else is
 *   L  what one member says of the newest commit leads it nowhere
 *   U  no piece of a shard comes from peers while it is downloaded by URL, and
 *      none at all where its URLs are fine
 *   I  what round 0 begins from is where round 0 was begun, and nowhere else
 */
#include <string.h>

#include "daemon/node/inspect.h"
#include "daemon/sim/sim_internal.h"

/* Slow links: the state takes about a second from one source, a round is made
 * meanwhile. */
void options_newcomer(struct sim *s)
{
    s->local_opt.min_peers = s->n > 2 ? s->n - 1 : 1;
    s->starters = s->n - 1;
    s->local_opt.shards_everywhere = false;
    s->local_opt.grace_ms = 8000;
}

/* Whoever it shunned is the one that served something wrong. */
static void check_named(struct sim *s)
{
    const struct node *n = sim_newcomer(s);
    const struct transfer *t = n == NULL ? NULL : node_parts(n).transfer;

    for (uint32_t i = 0; t != NULL && i < t->n_shunned; i++) {
        uint32_t who = world_find(s->world, &t->shunned[i]);

        if (!s->spoils || who != s->victim) {
            check_fail(s->check,
                       "K: peer %u, who serves what it should, is "
                       "shunned",
                       who);
        }
    }
}

static void watch_call(void *data, uint64_t arg)
{
    struct sim *s = data;
    const struct node *n = sim_newcomer(s);
    uint32_t sources =
        n == NULL ? 0 : transfer_n_sources(node_parts(n).transfer);

    (void)arg;
    s->sources_max = sources > s->sources_max ? sources : s->sources_max;
    check_named(s);
    world_call(s->world, world_now(s->world) + 5, watch_call, s, 0);
}

static uint64_t come(struct sim *s)
{
    uint64_t at = sim_after_rounds(s, s->rounds / 3, s->rounds / 2);

    world_call(s->world, at, sim_start_call, s, s->n - 1);
    world_call(s->world, at, watch_call, s, 0);
    s->calm_ms = at;
    s->victim = (uint32_t)(s->opt.seed % (s->n - 1)); /* not the newcomer */
    return at;
}

void setup_many_sources(struct sim *s)
{
    (void)come(s);
    s->quiet = true;
    s->sources_need = s->n > 3 ? 3 : s->n - 1;
}

static void spoil_call(void *data, uint64_t arg)
{
    struct sim *s = data;

    s->spoils = true;
    local_spoil(s->local, (uint32_t)arg, true);
}

void setup_bad_source(struct sim *s)
{
    uint64_t at = come(s);

    s->quiet = true;
    world_call(s->world, at, spoil_call, s, s->victim);
}

/* While the newcomer fetches: it takes some 50 to 1000 ms. */
void setup_source_dies(struct sim *s)
{
    uint64_t at = come(s) + sim_draw(s, 20, 1500);

    s->restart_after_ms = 5000;
    world_call(s->world, at, sim_strike_call, s, s->victim);
    s->calm_ms = at + s->restart_after_ms;
}

void setup_joiner_restarts(struct sim *s)
{
    uint64_t at = come(s) + sim_draw(s, 20, 1500);

    s->restart_after_ms = sim_draw(s, 100, 3000);
    world_call(s->world, at, sim_strike_call, s, s->n - 1);
    s->calm_ms = at + s->restart_after_ms;
}

/* ---- a liar ------------------------------------------------------------- */

/* The victim, a member, tells the newcomer of a round a thousand further. */
static uint32_t lie(void *self,
                    uint32_t from,
                    uint32_t to,
                    uint16_t message,
                    uint8_t *bytes,
                    uint32_t len,
                    uint32_t cap)
{
    const struct sim *s = self;
    struct heartbeat b;
    int n;

    if (s->truth || from != s->victim || to != s->n - 1 ||
        message != MESSAGE_HEARTBEAT ||
        msg_decode(&heartbeat_schema, bytes, len, &b) != 0) {
        return len;
    }
    b.round += 1000;
    b.tokens += 1000000000;
    memset(&b.commit, 0x5a, sizeof b.commit);
    memset(&b.state_hash, 0x5b, sizeof b.state_hash);
    n = msg_encode(&heartbeat_schema, &b, bytes, cap);
    return n < 0 ? len : (uint32_t)n;
}

static void silence_call(void *data, uint64_t arg)
{
    struct sim *s = data;
    struct node_status t;

    (void)arg;
    if (sim_newcomer(s) != NULL) {
        node_status(sim_newcomer(s), &t);
        if (t.rounds_committed == 0) { /* those with this peer */
            check_fail(s->check,
                       "L: a liar keeps the newcomer from joining: %s",
                       t.reason);
        }
    }
    s->truth = true;
}

void options_liar(struct sim *s)
{
    options_newcomer(s);
    s->world_opt.tamper = lie;
    s->world_opt.tamper_self = s;
}

void setup_liar(struct sim *s)
{
    uint64_t at = come(s) + 20000;

    world_call(s->world, at, silence_call, s, 0);
    s->calm_ms = at;
}

/* ---- data by URL ----------------------------------------------------------
 * Seeds take turns: all is well; each process fails twice, and nobody has the
 * data; URLs never work, and peer 0 has it; the newcomer dies on the way. */

void options_urls(struct sim *s)
{
    uint32_t kind = (uint32_t)(s->opt.seed % 4);

    options_newcomer(s);
    s->local_opt.urls = true;
    s->local_opt.url_ms = 700;
    s->local_opt.shards_nowhere = kind != 2;
    s->local_opt.url_failures = kind == 1 ? 2 : kind == 2 ? UINT32_MAX : 0;
    s->urls_only = kind == 0;
}

void setup_urls(struct sim *s)
{
    uint64_t at = come(s);

    if (s->opt.seed % 4 == 3) {
        at += sim_draw(s, 20, 3000);
        s->restart_after_ms = sim_draw(s, 100, 3000);
        world_call(s->world, at, sim_strike_call, s, s->n - 1);
        s->calm_ms = at + s->restart_after_ms;
    }
}

static void check_urls(struct sim *s)
{
    for (uint32_t q = 0; q < s->n; q++) {
        uint64_t all, both;

        local_shard_segments(s->local, q, &all, &both);
        if (both > 0 || (s->urls_only && all > 0)) {
            check_fail(s->check,
                       "U: peer %u fetched %llu segments of shards from peers, "
                       "%llu while it downloaded",
                       q, (unsigned long long)all, (unsigned long long)both);
        }
    }
}

/* ---- what round 0 begins from ---------------------------------------------
 * Peer 0 has it. Seeds take turns: the newcomer comes half way; it dies there,
 * and comes back; it comes in time, and is needed; it comes half way, all can
 * be downloaded, and for moments it sees nobody. */

void options_init(struct sim *s)
{
    uint32_t kind = (uint32_t)(s->opt.seed % 4);

    options_newcomer(s);
    s->local_opt.begins = 1;
    s->n_begin = kind == 2 ? s->n : s->starters;
    s->local_opt.min_peers = s->n_begin;
    s->local_opt.urls = s->local_opt.shards_nowhere = kind == 3;
    s->local_opt.url_ms = 700;
}

/* All links of the newcomer end. */
static void alone_call(void *data, uint64_t arg)
{
    struct sim *s = data;

    for (uint32_t q = 0; q < s->n - 1; q++) {
        world_drop_links(s->world, q, s->n - 1);
    }
    sim_fault(s);
    if (arg > 1) {
        world_call(s->world, world_now(s->world) + sim_draw(s, 100, 600),
                   alone_call, s, arg - 1);
    }
}

void setup_init(struct sim *s)
{
    uint64_t at;

    if (s->opt.seed % 4 == 2) {
        at = SIM_START_MS + sim_draw(s, 0, 6000);
        world_call(s->world, at, sim_start_call, s, s->n - 1);
        s->calm_ms = at;
        return;
    }
    at = come(s);
    if (s->opt.seed % 4 == 1) {
        at += sim_draw(s, 20, 8000);
        s->restart_after_ms = sim_draw(s, 100, 3000);
        world_call(s->world, at, sim_strike_call, s, s->n - 1);
        s->calm_ms = at + s->restart_after_ms;
    } else if (s->opt.seed % 4 == 3) {
        world_call(s->world, at + sim_draw(s, 700, 1500), alone_call, s, 4);
    }
}

static void check_beginning(struct sim *s)
{
    for (uint32_t q = 0; s->n_begin > 0 && q < s->n; q++) {
        if (local_has_beginning(s->local, q) != (q < s->n_begin)) {
            check_fail(s->check, "I: peer %u %s what round 0 begins from", q,
                       q < s->n_begin ? "has not" : "fetched");
        }
    }
}

void check_sources(struct sim *s)
{
    check_urls(s);
    check_beginning(s);
    if (s->sources_max < s->sources_need) {
        check_fail(s->check, "K: %u sources at a time, not %u", s->sources_max,
                   s->sources_need);
    }
}
