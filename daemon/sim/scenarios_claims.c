/* scenarios_claims.c - a newcomer among many that name views of their own.
 *
 * A thousand *claimers*, who are in no view of the run, dial the newcomer as
 * soon as it is there; each names a view, another one each second, and
 * when it is asked for a proof
 *
 *   SILENT  says nothing
 *   DRIPS   sends one byte of a long chain at a time, a moment before it would
 *           be given up
 *   FOUNDS  proves it: a view that it founded with keys of its own
 *
 * Seeds take turns at these, and at all of them mixed. The newcomer's
 * invitation names two hosts of the run. V: it is in their view after
 * VIEW_MS_MAX, and has asked those for proofs that its invitation names.
 */
#include <inttypes.h>
#include <string.h>

#include "daemon/node/inspect.h"
#include "daemon/sim/sim_internal.h"
#include "daemon/sim/world/internal.h"
#include "p2p/round/view.h"
#include "proto/base/bytes.h"

#define CLAIMERS    1000
#define FOUNDERS    4  /* keys of a made-up view; the run wants as many */
#define FIRST_MS    40 /* all have dialled once */
#define DIAL_MS     10000
#define CLAIM_MS    1000
#define DRIP_MS     900
#define DRIP_TOTAL  200000
#define VIEW_MS_MAX 15000

enum claim_kind { CLAIM_SILENT, CLAIM_DRIPS, CLAIM_FOUNDS, CLAIM_COUNT };

struct claimer {
    struct sim *s;
    uint32_t number;
    enum claim_kind kind;
    bool up, dripping;
    uint32_t link;
    uint64_t dial_ms, claim_ms, drip_ms, n_claims;
    struct get_proof asked;
    struct view_cert cert; /* that it names */
    struct hash32 view;
};

struct claims {
    struct claimer claimer[CLAIMERS];
    uint64_t came_ms, view_ms; /* the newcomer; 0: not yet */
};

static uint32_t world_number(const struct claimer *g)
{
    return g->s->n + g->number;
}

static void
say(struct claimer *g, struct out *out, enum message_type type, const void *msg)
{
    uint8_t bytes[FRAME_CONTROL_MAX];
    int n =
        msg_encode(message_schema((uint16_t)type), msg, bytes, sizeof bytes);

    if (n < 0 || !out_send(out, g->link, (uint16_t)type, bytes, (size_t)n)) {
        check_fail(g->s->check, "V: a claimer cannot speak");
    }
}

/* A genesis of its own. */
static void found(struct claimer *g)
{
    struct view_cert *c = &g->cert;

    memset(c, 0, sizeof *c);
    c->body.run = c->body.prev = g->s->run_id;
    c->body.mode = VIEW_FOUND;
    c->body.epoch = 1;
    c->body.n_members = FOUNDERS;
    c->ballot = 1;
    for (uint32_t k = 0; k < FOUNDERS; k++) {
        uint32_t who = g->s->n + (g->number + k) % CLAIMERS;
        struct view_member *m = &c->body.members[k];

        memcpy(m->public_key, world_identity(g->s->world, who)->public,
               sizeof m->public_key);
        m->address.port = (uint16_t)(1 + g->n_claims);
        m->joined = 1;
    }
    (void)view_sort(&c->body);
    view_hash(&c->body, &g->view);
}

static void sign_all(struct claimer *g)
{
    struct view_cert *c = &g->cert;
    struct ballot_body ballot = {.ballot = c->ballot, .view = g->view};

    c->n_sigs = FOUNDERS;
    for (uint32_t k = 0; k < FOUNDERS; k++) {
        uint32_t who = g->s->n + (g->number + k) % CLAIMERS;
        const struct identity *id = world_identity(g->s->world, who);
        struct signer pen = signer_keyed(id);

        memcpy(c->sigs[k].public_key, id->public, sizeof id->public);
        (void)message_sign(&pen, &ballot_body_schema, &ballot, c->sigs[k].sig);
    }
}

static void claim(struct claimer *g, struct out *out)
{
    struct heartbeat beat = {.life = 7,
                             .configured = true,
                             .ready = true,
                             .has_view = true,
                             .state = NODE_TRAINING,
                             .epoch = 1,
                             .number = (uint8_t)g->n_claims};

    g->n_claims++;
    found(g);
    beat.view = g->view;
    say(g, out, MESSAGE_HEARTBEAT, &beat);
}

static void prove(struct claimer *g, struct out *out)
{
    struct proof part = {.view = g->view};
    int n;

    sign_all(g);
    n = msg_encode(&view_cert_schema, &g->cert, part.bytes + 4,
                   sizeof part.bytes - 4);

    if (n > 0 && hash32_eq(&g->asked.view, &g->view)) {
        put_u32(part.bytes, (uint32_t)n);
        part.total = part.n_bytes = (uint32_t)n + 4;
    }
    say(g, out, MESSAGE_PROOF, &part);
}

static void drip(struct claimer *g, struct out *out)
{
    struct proof part = {.view = g->asked.view,
                         .offset = g->asked.offset,
                         .total = DRIP_TOTAL,
                         .n_bytes = 1};

    g->dripping = false;
    say(g, out, MESSAGE_PROOF, &part);
}

static void on_recv(struct claimer *g,
                    const struct event_recv *recv,
                    uint64_t now_ms,
                    struct out *out)
{
    if (recv->message != MESSAGE_GET_PROOF ||
        msg_decode(&get_proof_schema, recv->bytes, recv->len, &g->asked) != 0) {
        return;
    }
    if (g->kind == CLAIM_FOUNDS) {
        prove(g, out);
    } else if (g->kind == CLAIM_DRIPS) {
        g->dripping = true;
        g->drip_ms = now_ms + DRIP_MS;
    }
}

static void
on_link_up(struct claimer *g, const struct event_link_up *up, struct out *out)
{
    struct hello hello = {
        .life = 7, .oldest = PROTO_OLDEST, .newest = PROTO_NEWEST};

    g->up = true;
    g->link = up->link;
    memcpy(hello.observed.ip, up->address.ip, sizeof hello.observed.ip);
    hello.observed.port = up->address.port;
    say(g, out, MESSAGE_HELLO, &hello);
    claim(g, out);
}

static void dial(struct claimer *g, struct out *out)
{
    struct action *a = out_add(out, ACTION_DIAL);
    uint32_t q = g->s->n - 1;

    a->dial = (struct action_dial){
        .request = 1,
        .peer = world_identity(g->s->world, q)->id,
        .address = world_address(g->s->world, q),
    };
}

static void step(void *self, const struct event *e, struct out *out)
{
    struct claimer *g = self;

    out->n = out->n_bytes = out->dropped = 0;
    if (e->type == EVENT_LINK_UP && !g->up) {
        on_link_up(g, &e->link_up, out);
    } else if (e->type == EVENT_LINK_DOWN && e->link_down.link == g->link) {
        g->up = g->dripping = false;
    } else if (e->type == EVENT_RECV && g->up && e->recv.link == g->link) {
        on_recv(g, &e->recv, e->now_ms, out);
    }
    if (g->up && g->dripping && e->now_ms >= g->drip_ms) {
        drip(g, out);
    }
    if (g->up && e->now_ms >= g->claim_ms) {
        g->claim_ms = e->now_ms + CLAIM_MS;
        claim(g, out);
    } else if (!g->up && e->now_ms >= g->dial_ms) {
        g->dial_ms = e->now_ms + DIAL_MS;
        dial(g, out);
    }
}

static uint64_t deadline(const void *self)
{
    const struct claimer *g = self;
    uint64_t at = g->up ? g->claim_ms : g->dial_ms;

    return g->up && g->dripping && g->drip_ms < at ? g->drip_ms : at;
}

/* ---- the scenario ------------------------------------------------------- */

static void come_call(void *data, uint64_t arg)
{
    struct sim *s = data;
    struct claimer *g = &s->claims->claimer[arg];
    struct core core = {g, step, deadline};
    uint32_t kind = (uint32_t)(s->opt.seed % (CLAIM_COUNT + 1));

    g->s = s;
    g->number = (uint32_t)arg;
    g->kind = (enum claim_kind)(kind < CLAIM_COUNT ? kind : arg % CLAIM_COUNT);
    g->dial_ms = world_now(s->world) + arg % FIRST_MS;
    world_start(s->world, world_number(g), &core);
}

static void watch_call(void *data, uint64_t arg)
{
    struct sim *s = data;
    const struct node *n = sim_newcomer(s);
    uint64_t now = world_now(s->world);

    (void)arg;
    if (n != NULL && node_parts(n).ballot->have) {
        s->claims->view_ms = now;
    } else if (now - s->claims->came_ms > VIEW_MS_MAX) {
        check_fail(s->check,
                   "V: after %u ms the newcomer is in no view: %u claimers "
                   "name views of their own",
                   VIEW_MS_MAX, CLAIMERS);
    } else {
        world_call(s->world, now + 5, watch_call, s, 0);
    }
}

void options_claims(struct sim *s)
{
    options_newcomer(s);
    s->n_strangers = CLAIMERS;
    s->quiet = true;
}

void setup_claims(struct sim *s)
{
    uint64_t at = sim_after_rounds(s, s->rounds / 6, s->rounds / 4);

    s->claims = world_alloc(sizeof *s->claims);
    s->claims->came_ms = at;
    for (uint32_t i = 0; i < CLAIMERS; i++) {
        world_call(s->world, at + 1, come_call, s, i);
    }
    world_call(s->world, at, sim_start_call, s, s->n - 1);
    world_call(s->world, at + 5, watch_call, s, 0);
    s->calm_ms = at;
}

void sim_claims_judge(struct sim *s, struct sim_result *r)
{
    if (s->claims != NULL && s->claims->view_ms > 0) {
        sim_figure(r, "view_ms",
                   (double)(s->claims->view_ms - s->claims->came_ms), SIM_MAX);
    }
}
