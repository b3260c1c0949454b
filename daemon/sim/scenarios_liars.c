/* scenarios_liars.c - a member lies in ballots and rounds.
 *
 * The *liar* is a whole node; what it says is changed on its way
 * out and signed again with its key, so it lies as a member, as the owner of
 * ballots and as a voter. Another peer, the victim, dies and comes back time
 * and again, so that there are ballots, of which the liar owns its share.
 * Seeds take turns at what it does:
 *
 *   1  FRIENDS  proposes a view of itself and of keys that nobody has
 *   2  CLAIMS   says in every promise that it has accepted such a view
 *   3  COMMITS  says in every promise that it holds a commit of the next round,
 *               which the whole view made
 *   4  DEAF     its ballots leave out what one honest member promised
 *   5  ASKS     asks every owner of a ballot for a new view, all the time
 *   6  BALLOTS  begins a ballot of its own four times a second, and ends none
 *   7  PICKS    the same with one member at a time
 *   8  SILENT   makes no plan where it is the coordinator
 *   9  PLANS    its plans say what is not true, each something else
 *  10  TWO_PLANS  half of the members get another plan
 *  11  OMITS    it does not hear what one honest member is ready with
 *  12  RELAYS   two others speak over it; it changes all that they say
 *
 * and, where liar.kind says so:
 *
 *  13  TWO_VIEWS  signs two values of a ballot, shows one to each half of the
 *                 others, and is gone
 *
 * V: nobody enters a view with a key that is no peer's or a commit that nobody
 * made, or without an honest peer that lives. L: of the rounds
 * that there are without it 80 % are made where it asks for views, 75 % where
 * it makes the plan of one of five. E as ever.
 */
#include <inttypes.h>
#include <string.h>

#include "daemon/node/inspect.h"
#include "daemon/sim/liars.h"
#include "daemon/sim/world/internal.h"
#include "p2p/round/view.h"
#include "proto/base/rng.h"

#define STRIKES         4    /* at least, */
#define LIES            3    /* and until it has lied so often, */
#define MOST            14   /* or there have been so many */
#define STRIKE_MS       9000 /* between two */
#define BACK_MS         2500
#define LOOK_MS         250
#define CALM_AT_LAST_MS 400000 /* after which a run of questions is over */

static const struct hash32 made_up = {{0x5a, 0x5a, 0x5a}};

void liars_sign(const struct sim *s,
                const struct msg_schema *schema,
                const void *body,
                uint8_t *sig)
{
    struct signer pen = signer_keyed(world_identity(s->world, s->liar->who));

    (void)message_sign(&pen, schema, body, sig);
}

/* All but the liar become keys that nobody has. */
static void invent(const struct sim *s, struct view_body *v)
{
    const uint8_t *own = world_identity(s->world, s->liar->who)->public;
    uint64_t rng = s->opt.seed ^ s->liar->n_lies;

    for (uint32_t i = 0; i < v->n_members; i++) {
        for (unsigned k = 0;
             k < 32 && memcmp(v->members[i].public_key, own, 32) != 0; k++) {
            v->members[i].public_key[k] = (uint8_t)rng_next(&rng);
        }
    }
    (void)view_sort(v);
}

static void propose(const struct sim *s, uint64_t ballot, struct standing *of)
{
    struct ballot_body body = {.ballot = ballot};

    invent(s, &of->proposal.value);
    view_hash(&of->proposal.value, &body.view);
    liars_sign(s, &ballot_body_schema, &body, of->sig);
}

/* The last ballot below that one which is the liar's; 0: there is none. */
static uint64_t
own_ballot(const struct sim *s, const struct view_body *v, uint64_t below)
{
    int self = view_index(v, &world_identity(s->world, s->liar->who)->id);

    while (below > 0 && (int)view_ballot_owner(v, --below) != self) {
    }
    return below;
}

/* The promise says that the liar accepted, in that ballot, a view of itself and
 * of friends. */
static bool claim(const struct sim *s, struct promise *m)
{
    const struct node *node = s->nodes[s->liar->who];
    const struct ballot *b = node == NULL ? NULL : node_parts(node).ballot;
    struct statement *said = &m->body.said;
    struct proposal *p = &m->accepted[0].proposal;

    if (b == NULL || !b->have || m->body.mode != VIEW_MAJORITY) {
        return false;
    }
    memset(p, 0, sizeof *p);
    p->ballot = own_ballot(s, &b->cert.body, m->body.ballot);
    p->value = b->cert.body;
    p->value.epoch++;
    p->value.prev = b->hash;
    p->value.mode = VIEW_MAJORITY;
    propose(s, p->ballot, &m->accepted[0]);
    m->n_accepted = 1;
    said->has_accepted = true;
    said->accepted_ballot = p->ballot;
    view_hash(&p->value, &said->accepted_view);
    liars_sign(s, &promise_body_schema, &m->body, m->sig);
    return true;
}

static bool invent_commit(const struct sim *s, struct promise *m)
{
    m->body.said.round++;
    m->body.said.tokens += 1000000;
    m->body.said.commit = made_up;
    /* Of all, or of none that could deny it. */
    m->body.said.made_by = s->liar->n_lies % 2 == 0 ? UINT64_MAX : ~31ULL;
    m->body.said.closing = CLOSING_NONE;
    liars_sign(s, &promise_body_schema, &m->body, m->sig);
    return true;
}

static uint32_t lie(void *self,
                    uint32_t from,
                    uint32_t to,
                    uint16_t message,
                    uint8_t *bytes,
                    uint32_t len,
                    uint32_t cap)
{
    struct sim *s = self;
    struct liar *g = s->liar;
    int n = (int)len;

    if (g == NULL || s->truth) {
        return len;
    }
    if (liars_round(g) || g->kind == LIE_TWO_VIEWS) {
        n = liars_round(g)
                ? liars_round_lie(s, from, to, message, bytes, len, cap)
                : liars_two(s, from, to, message, bytes, len, cap);
        return n < 0 ? len : (uint32_t)n;
    }
    if (g->kind == LIE_FRIENDS && from == g->who && message == MESSAGE_ACCEPT &&
        msg_decode(&accept_schema, bytes, len, &g->accept) == 0 &&
        g->accept.mode == VIEW_MAJORITY) {
        propose(s, g->accept.ballot, &g->accept.of);
        n = msg_encode(&accept_schema, &g->accept, bytes, cap);
        g->n_lies++;
    } else if ((g->kind == LIE_CLAIMS || g->kind == LIE_COMMITS) &&
               from == g->who && message == MESSAGE_PROMISE &&
               msg_decode(&promise_schema, bytes, len, &g->promise) == 0 &&
               g->promise.body.mode == VIEW_MAJORITY &&
               (g->kind == LIE_CLAIMS ? claim(s, &g->promise)
                                      : invent_commit(s, &g->promise))) {
        n = msg_encode(&promise_schema, &g->promise, bytes, cap);
        g->n_lies++;
    } else if ((g->kind == LIE_BALLOTS || g->kind == LIE_PICKS) &&
               from == g->who && message == MESSAGE_ACCEPT &&
               msg_decode(&accept_schema, bytes, len, &g->accept) == 0) {
        g->accept.epoch++; /* its ballots freeze others and end in nothing */
        n = msg_encode(&accept_schema, &g->accept, bytes, cap);
    } else if (g->kind == LIE_DEAF && from == g->ignored && to == g->who &&
               message == MESSAGE_PROMISE &&
               msg_decode(&promise_schema, bytes, len, &g->promise) == 0) {
        g->promise.sig[0] ^= 1; /* it has not come */
        n = msg_encode(&promise_schema, &g->promise, bytes, cap);
        g->n_lies++;
    }
    return n < 0 ? len : (uint32_t)n;
}

/* ---- what must hold ----------------------------------------------------- */

static const struct ballot *view_of(const struct sim *s, uint32_t peer)
{
    const struct ballot *b =
        s->nodes[peer] == NULL ? NULL : node_parts(s->nodes[peer]).ballot;

    return b == NULL || !b->have ? NULL : b;
}

/* Peer q, who is honest, is in a view of peers, and of all that live. */
static void look_at(struct sim *s, uint32_t q)
{
    const struct ballot *b = view_of(s, q);

    if (b == NULL || q == s->liar->who) {
        return;
    }
    if (hash32_eq(&b->cert.body.commit, &made_up)) {
        check_fail(s->check, "V: the view of peer %u has a commit of nobody",
                   q);
    }
    for (uint32_t i = 0; i < b->cert.body.n_members; i++) {
        if (world_find(s->world, &b->ids[i]) >= s->n) {
            check_fail(s->check, "V: peer %u is in a view with a key of nobody",
                       q);
        }
    }
    for (uint32_t p = 0; p < s->n; p++) {
        if (p != s->victim && p != s->liar->who &&
            s->liar->kind != LIE_TWO_VIEWS &&
            view_index(&b->cert.body, &world_identity(s->world, p)->id) < 0) {
            check_fail(s->check, "V: peer %u is left out", p);
        }
    }
}

static void look_call(void *data, uint64_t arg)
{
    struct sim *s = data;

    (void)arg;
    for (uint32_t i = 0; i < s->n; i++) {
        look_at(s, i);
    }
    if (!s->done) {
        world_call(s->world, world_now(s->world) + LOOK_MS, look_call, s, 0);
    }
}

/* The victim dies, until there were enough ballots. */
void liars_strike_call(void *data, uint64_t arg)
{
    struct sim *s = data;
    struct liar *g = s->liar;

    if ((g->n_strikes >= STRIKES && g->n_lies >= LIES) ||
        (g->kind == LIE_TWO_VIEWS && g->n_lies > 0)) {
        s->truth = true;
        s->calm_ms = world_now(s->world);
        return;
    }
    if (g->n_strikes++ == MOST) {
        check_fail(s->check, "V: the liar had no occasion to lie");
        return;
    }
    sim_strike_call(s, arg);
    world_call(s->world, world_now(s->world) + STRIKE_MS, liars_strike_call, s,
               arg);
}

/* ---- the scenario ------------------------------------------------------- */

/* Rounds are counted before it begins to lie and afterwards. */
static bool is_counted(const struct liar *g)
{
    return liars_ask(g) || liars_round(g);
}

void options_liars(struct sim *s)
{
    s->world_opt.tamper = lie;
    s->world_opt.tamper_self = s;
    s->restart_after_ms = BACK_MS;
    s->liar = world_alloc(sizeof *s->liar);
    s->liar->s = s;
    s->liar->kind = (enum lie)((s->opt.seed + LIE_COUNT - 1) % LIE_COUNT);
}

/* The settings are known. */
void sim_liars_made(struct sim *s)
{
    if (s->liar == NULL) {
        return;
    }
    if (s->lie > 0) {
        s->liar->kind = (enum lie)(s->lie - 1);
    }
    if (is_counted(s->liar)) {
        liars_count_options(s);
    }
    if (liars_round(s->liar)) {
        liars_round_options(s);
    }
}

void setup_liars(struct sim *s)
{
    uint64_t at = SIM_START_MS + 6000;

    s->liar->who = (s->victim + 1) % s->n;
    s->liar->ignored = (s->victim + 2) % s->n;
    world_call(s->world, at, look_call, s, 0);
    world_call(s->world, at,
               is_counted(s->liar) ? liars_count_call : liars_strike_call, s,
               s->victim);
    s->calm_ms = at + CALM_AT_LAST_MS + (uint64_t)MOST * STRIKE_MS;
}
