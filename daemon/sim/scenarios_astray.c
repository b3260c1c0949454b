/* scenarios_astray.c - members whose contributions go another way than those of
 * the others, and that others name for it.
 *
 * From a round on less than half of the members lie in what they contribute:
 * the victim and those after it. An honest machine sees that in one round of
 * four (train/sync/stray.h needs some rounds, too), and names the member; the
 * machines of liars name all that are honest, in each round. Seeds take turns:
 *
 *   0  that is all
 *   1  liars hear no word about who strays: the plans that they make would have
 *      none, and nobody follows these
 *   2  a liar names all others to everybody but the one who makes the plan
 *
 * Y: no commit has a liar that at least half of all members had named for its
 * round and the two before, unless an attempt at that round failed before; an
 * honest member is missing in one round of eight at most, and liars have a part
 * in half at most.
 */
#include "daemon/node/inspect.h"
#include "daemon/sim/sim_internal.h"
#include "daemon/sim/world/internal.h"
#include "p2p/round/rests.h"

#define LOOK_MS 100
#define ROUNDS  3  /* that follow each other */
#define LEAST   30 /* rounds that are needed to judge */

static uint32_t n_liars(const struct sim *s)
{
    return (s->n - 1) / 2;
}

static bool lies(const struct sim *s, uint32_t peer)
{
    return (peer + s->n - s->victim) % s->n < n_liars(s);
}

/* As `peer` sees it. */
static bool makes_plan(const struct sim *s, uint32_t peer, uint32_t other)
{
    struct node_parts p = node_parts(s->nodes[peer]);
    const struct view_body *v = &p.ballot->cert.body;

    return p.ballot->have &&
           world_find(s->world,
                      &p.ballot->ids[view_coordinator(v, p.round->round)]) ==
               other;
}

/* The words of that READY, as they come to `to`. */
static bool
retell(const struct sim *s, uint32_t from, uint32_t to, uint64_t *words)
{
    if (s->opt.seed % 3 == 1 && lies(s, to)) {
        *words = 0;
        return true;
    }
    if (s->opt.seed % 3 == 2 && lies(s, from) && !makes_plan(s, from, to)) {
        *words = UINT64_MAX;
        return true;
    }
    return false;
}

static uint32_t tell(void *self,
                     uint32_t from,
                     uint32_t to,
                     uint16_t message,
                     uint8_t *bytes,
                     uint32_t len,
                     uint32_t cap)
{
    struct sim *s = self;
    struct signer pen = signer_keyed(world_identity(s->world, from));
    struct ready m;
    int n;

    if (message != MESSAGE_READY || !s->astray.begun ||
        msg_decode(&ready_schema, bytes, len, &m) != 0 ||
        !retell(s, from, to, &m.body.astray)) {
        return len;
    }
    n = message_sign(&pen, &ready_body_schema, &m.body, m.sig) != 0
            ? -1
            : msg_encode(&ready_schema, &m, bytes, cap);
    return n < 0 ? len : (uint32_t)n;
}

/* How many honest members name that peer for the round. */
static uint32_t n_naming(const struct sim *s, uint32_t peer, uint64_t round)
{
    const struct peer_id *id = &world_identity(s->world, peer)->id;
    uint32_t n = 0;

    for (uint32_t q = 0; q < s->n; q++) {
        n += s->nodes[q] != NULL && !lies(s, q) &&
             rests_mask(&node_parts(s->nodes[q]).strays->rests, id, 1, round);
    }
    return n;
}

static bool is_out(const struct sim *s, uint32_t peer, uint64_t round)
{
    for (uint64_t back = 0; back < ROUNDS; back++) {
        uint64_t r = round > back ? round - back : 0;

        if (2 * n_naming(s, peer, r) < s->n) {
            return false;
        }
    }
    return true;
}

static void judge_commit(struct sim *s, const struct node_commit *c)
{
    bool in[VIEW_MEMBERS_MAX] = {false}, liar = false, missing = false;
    bool again = c->epoch != s->astray.epoch; /* the view is another one */

    for (uint32_t k = 0; k < c->n; k++) {
        in[world_find(s->world, &c->member[k])] = true;
    }
    for (uint32_t q = 0; q < s->n; q++) {
        liar = liar || (in[q] && lies(s, q));
        missing = missing || (!in[q] && !lies(s, q));
        if (in[q] && lies(s, q) && !again && is_out(s, q, c->round)) {
            check_fail(s->check,
                       "Y: round %llu has peer %u, which strays and is named",
                       (unsigned long long)c->round, q);
        }
    }
    s->astray.epoch = c->epoch;
    s->astray.n_rounds++;
    s->astray.n_with += liar;
    s->astray.n_missing += missing;
}

static void look_call(void *data, uint64_t arg)
{
    struct sim *s = data;
    const struct node_commit *c = sim_newest_but(s, s->victim);

    (void)arg;
    if (c != NULL && c->round > s->astray.round) {
        s->astray.round = c->round;
        judge_commit(s, c);
    }
    if (!s->done) {
        world_call(s->world, world_now(s->world) + LOOK_MS, look_call, s, 0);
    }
}

static void begin_call(void *data, uint64_t arg)
{
    struct sim *s = data;

    for (uint32_t q = 0; q < s->n; q++) {
        local_lie(s->local, q, lies(s, q));
        local_accuse(s->local, q, lies(s, q));
    }
    s->astray.begun = true;
    sim_fault(s);
    look_call(s, arg);
}

void options_astray(struct sim *s)
{
    s->local_opt.watches = true;
    s->world_opt.tamper = tell;
    s->world_opt.frames_contradict = true;
    s->world_opt.tamper_self = s;
}

void setup_astray(struct sim *s)
{
    uint64_t at = sim_after_rounds(s, 2, 6);

    s->calm_ms = at;
    world_call(s->world, at, begin_call, s, 0);
}

void check_astray(struct sim *s)
{
    const uint32_t n = s->astray.n_rounds;

    if (!s->astray.begun || n < LEAST) {
        return;
    }
    if (8 * s->astray.n_missing > n) {
        check_fail(s->check,
                   "Y: an honest member is missing in %u of %u rounds",
                   s->astray.n_missing, n);
    }
    if (2 * s->astray.n_with > n) {
        check_fail(s->check, "Y: liars have a part in %u of %u rounds",
                   s->astray.n_with, n);
    }
}
