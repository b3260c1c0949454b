/* scenarios_strangers.c - peers of nobody press a run.
 *
 * A *stranger* has an identity and a link to every peer, is in no view and says
 * what no node would say. Seeds take turns at what it says:
 *
 *   1  LEFT OUT   a view that it founded alone, and a LINEAGE that names the
 *                 receiver's view as an ancestor of it: "we went on without
 *                 you"
 *   2  AHEAD      the same view as another branch with more tokens
 *   3  CROWD      views whose members do not exist, so that they are dialled
 *   4  FLOOD      eight strangers, so much that has to be verified that nobody
 *                 would do anything else; half of them forge their signatures
 *
 * The strangers come when a view is there, a CROWD before that, and go on to
 * the end. S: no member leaves its view, nobody dials an address that a
 * stranger made up, strangers make nobody verify more than their budget, and no
 * attempt at a round fails (H: quiet, one view).
 */
#include <inttypes.h>
#include <string.h>

#include "daemon/sim/sim_internal.h"
#include "daemon/sim/world/internal.h"
#include "p2p/round/view.h"
#include "proto/base/rng.h"

#define PRESS_MS   200
#define FLOOD_MS   50
#define FLOODERS   8
#define TARGETS    16
#define MADE_UP_IP 9 /* first byte of the addresses that nobody has */

/* Signatures that a peer verifies: 200 a second of all strangers, a burst of
 * 200, half of one a second of each link, and of the members, by far enough,
 * VERIFIED_OWN_MAX in a round. */
#define VERIFIED_PER_S   (200 + FLOODERS / 2)
#define VERIFIED_BURST   (200 + 64 + FLOODERS)
#define VERIFIED_OWN_MAX 200
#define PROOFS_MAX       3 /* wrong ones of a state, before it hangs up */

enum press {
    PRESS_LEFT_OUT,
    PRESS_AHEAD,
    PRESS_CROWD,
    PRESS_FLOOD,
    PRESS_EMPTY,
    PRESS_COUNT
};

struct stranger_pen {
    struct signer pen;
    uint64_t n_verified;
};

struct stranger {
    struct sim *s;
    const struct identity *id;
    struct signer pen;
    enum press kind;
    bool forges;
    uint64_t now_ms, due_ms, n_said;
    bool up[TARGETS], has_beat[TARGETS];
    uint32_t link[TARGETS];
    struct heartbeat beat[TARGETS];
};

static void say(struct stranger *g,
                struct out *out,
                uint32_t q,
                enum message_type type,
                const void *msg)
{
    uint8_t bytes[FRAME_CONTROL_MAX];
    int n =
        msg_encode(message_schema((uint16_t)type), msg, bytes, sizeof bytes);

    if (n < 0 || !out_send(out, g->link[q], (uint16_t)type, bytes, (size_t)n)) {
        check_fail(g->s->check, "S: a stranger cannot speak");
    }
}

/* A view of its own, signed by all its members: a fork. */
static void found_alone(const struct stranger *g,
                        const struct heartbeat *of,
                        struct view_cert *c)
{
    struct ballot_body ballot = {.ballot = 1};
    struct view_member *m = &c->body.members[0];

    memset(c, 0, sizeof *c);
    c->body.run = g->s->run_id;
    c->body.mode = VIEW_FORK;
    c->body.epoch = of->epoch + 1 + g->n_said;
    memset(c->body.prev.b, 0x77, sizeof c->body.prev.b);
    c->body.round = of->round + 100;
    c->body.tokens = of->tokens + 1000000;
    memset(c->body.commit.b, 0x11, sizeof c->body.commit.b);
    c->body.n_members = 1;
    memcpy(m->public_key, g->id->public, sizeof m->public_key);
    m->joined = c->body.epoch;
    c->ballot = ballot.ballot;
    view_hash(&c->body, &ballot.view);
    c->n_sigs = 1;
    memcpy(c->sigs[0].public_key, g->id->public, 32);
    (void)message_sign(&g->pen, &ballot_body_schema, &ballot, c->sigs[0].sig);
}

/* Members that do not exist, at addresses that nobody has. */
static void add_crowd(const struct stranger *g, struct view_cert *c)
{
    uint64_t rng = g->n_said;

    while (c->body.n_members < VIEW_MEMBERS_MAX) {
        struct view_member *m = &c->body.members[c->body.n_members++];

        for (unsigned i = 0; i < sizeof m->public_key; i++) {
            m->public_key[i] = (uint8_t)rng_next(&rng);
        }
        m->address.ip[10] = m->address.ip[11] = 0xff;
        m->address.ip[12] = MADE_UP_IP;
        m->address.ip[15] = (uint8_t)c->body.n_members;
        m->address.port = 7777;
        m->joined = c->body.epoch;
    }
    (void)view_sort(&c->body);
}

/* The receiver is in it, and it has as many good signatures as there is room
 * for, all by one key. */
static void
make_costly(const struct stranger *g, struct view_cert *c, uint32_t q)
{
    struct ballot_body ballot = {.ballot = c->ballot};
    struct view_member *m = &c->body.members[c->body.n_members++];

    *m = c->body.members[0];
    memcpy(m->public_key, world_identity(g->s->world, q)->public,
           sizeof m->public_key);
    (void)view_sort(&c->body);
    c->body.mode = VIEW_MAJORITY;
    c->body.fork = false;
    view_hash(&c->body, &ballot.view);
    (void)message_sign(&g->pen, &ballot_body_schema, &ballot, c->sigs[0].sig);
    for (; c->n_sigs < VIEW_MEMBERS_MAX; c->n_sigs++) {
        c->sigs[c->n_sigs] = c->sigs[0];
    }
}

/* What costs whoever hears it a signature, or 64. */
static void flood(struct stranger *g, struct out *out, uint32_t q)
{
    const struct heartbeat *beat = &g->beat[q];
    struct goodbye bye = {.body.run = g->s->run_id, .body.peer = g->id->id};
    struct evaluated evaluated = {.body.round = beat->round};
    struct join join = {.body = {.run = g->s->run_id,
                                 .view = beat->view,
                                 .round = beat->round,
                                 .commit = beat->commit,
                                 .state = beat->state_hash}};
    struct view_cert cert;

    g->n_said++;
    (void)message_sign(&g->pen, &goodbye_body_schema, &bye.body, bye.sig);
    (void)message_sign(&g->pen, &evaluated_body_schema, &evaluated.body,
                       evaluated.sig);
    found_alone(g, beat, &cert);
    make_costly(g, &cert, q);
    if (g->forges) {
        bye.sig[7] ^= 1;
        say(g, out, q, MESSAGE_JOIN, &join);
    }
    say(g, out, q, MESSAGE_VIEW, &cert);
    say(g, out, q, MESSAGE_EVALUATED, &evaluated);
    say(g, out, q, MESSAGE_GOODBYE, &bye);
}

/* It names all that is public, is linked to all members, and signs. */
static void ask_to_join(struct stranger *g, struct out *out, uint32_t q)
{
    const struct heartbeat *beat = &g->beat[q];
    struct join m = {.body = {.run = g->s->run_id,
                              .view = beat->view,
                              .round = beat->round,
                              .commit = beat->commit,
                              .state = beat->state_hash}};
    const struct pulse ask = {.flags = PULSE_KEEP | PULSE_ASK};

    for (uint32_t p = 0; p < g->s->n; p++) {
        if (g->up[p]) {
            m.body.linked[m.body.n_linked++] =
                (uint32_t)(id_u64(&world_identity(g->s->world, p)->id) >> 32);
        }
    }
    (void)message_sign(&g->pen, &join_body_schema, &m.body, m.sig);
    say(g, out, q, MESSAGE_PULSE, &ask);
    say(g, out, q, MESSAGE_JOIN, &m);
}

static void press(struct stranger *g, struct out *out, uint32_t q)
{
    struct heartbeat beat = g->beat[q];
    struct lineage lineage = {.first_epoch = beat.epoch, .n_hashes = 1};
    struct view_cert cert;

    if (!g->has_beat[q]) {
        return;
    }
    if (g->kind == PRESS_FLOOD) {
        flood(g, out, q);
        return;
    }
    if (g->kind == PRESS_EMPTY) {
        ask_to_join(g, out, q);
        return;
    }
    g->n_said++;
    found_alone(g, &beat, &cert);
    if (g->kind == PRESS_CROWD) {
        add_crowd(g, &cert);
    }
    lineage.hashes[0] = g->kind == PRESS_LEFT_OUT ? beat.view : cert.body.prev;
    view_hash(&cert.body, &beat.view);
    beat.life = 7;
    beat.has_view = true;
    beat.epoch = cert.body.epoch;
    beat.round = cert.body.round;
    beat.tokens = cert.body.tokens;
    beat.commit = cert.body.commit;
    beat.number = (uint8_t)g->n_said;
    say(g, out, q, MESSAGE_HEARTBEAT, &beat);
    say(g, out, q, MESSAGE_VIEW, &cert);
    say(g, out, q, MESSAGE_LINEAGE, &lineage);
}

/* ---- its core ----------------------------------------------------------- */

static void dial(struct stranger *g, struct out *out, uint32_t q)
{
    struct action *a = out_add(out, ACTION_DIAL);

    a->dial = (struct action_dial){
        .request = q + 1,
        .peer = world_identity(g->s->world, q)->id,
        .address = world_address(g->s->world, q),
    };
}

static void
on_link_up(struct stranger *g, const struct event_link_up *up, struct out *out)
{
    struct hello hello = {
        .life = 7, .oldest = PROTO_OLDEST, .newest = PROTO_NEWEST};
    uint32_t q = world_find(g->s->world, &up->peer);

    if (q < g->s->n) {
        g->up[q] = true;
        g->link[q] = up->link;
        memcpy(hello.observed.ip, up->address.ip, sizeof hello.observed.ip);
        hello.observed.port = up->address.port;
        say(g, out, q, MESSAGE_HELLO, &hello);
    }
}

static void
on_recv(struct stranger *g, const struct event_recv *recv, struct out *out)
{
    uint32_t q = 0;

    while (q < g->s->n && !(g->up[q] && g->link[q] == recv->link)) {
        q++;
    }
    if (q == g->s->n) {
        return;
    }
    if (recv->message == MESSAGE_HEARTBEAT &&
        msg_decode(&heartbeat_schema, recv->bytes, recv->len, &g->beat[q]) ==
            0) {
        g->has_beat[q] = true;
    }
    if (recv->message == MESSAGE_GET_VIEW) {
        press(g, out, q);
    }
}

static void step(void *self, const struct event *e, struct out *out)
{
    struct stranger *g = self;

    out->n = out->n_bytes = out->dropped = 0;
    g->now_ms = e->now_ms;
    if (e->type == EVENT_LINK_UP) {
        on_link_up(g, &e->link_up, out);
    } else if (e->type == EVENT_RECV) {
        on_recv(g, &e->recv, out);
    }
    for (uint32_t q = 0; q < g->s->n && e->type == EVENT_LINK_DOWN; q++) {
        g->up[q] = g->up[q] && g->link[q] != e->link_down.link;
    }
    if (g->now_ms < g->due_ms) {
        return;
    }
    g->due_ms = g->now_ms + (g->kind == PRESS_FLOOD ? FLOOD_MS : PRESS_MS);
    for (uint32_t q = 0; q < g->s->n; q++) {
        if (g->up[q]) {
            press(g, out, q);
        } else {
            dial(g, out, q);
        }
    }
}

static uint64_t deadline(const void *self)
{
    return ((const struct stranger *)self)->due_ms;
}

/* ---- the scenario ------------------------------------------------------- */

static enum press kind_of(const struct sim *s)
{
    return (enum press)((s->opt.seed + PRESS_COUNT - 1) % PRESS_COUNT);
}

static void come_call(void *data, uint64_t arg)
{
    struct sim *s = data;
    struct stranger *g = &s->strangers[arg];
    struct core core = {g, step, deadline};

    g->s = s;
    g->id = world_identity(s->world, s->n + (uint32_t)arg);
    g->pen = signer_keyed(g->id);
    g->kind = kind_of(s);
    g->forges = arg % 2 == 1;
    g->due_ms = world_now(s->world);
    world_start(s->world, s->n + (uint32_t)arg, &core);
}

static int pen_sign(void *self,
                    const char *domain,
                    const void *bytes,
                    size_t len,
                    uint8_t sig[SIGN_BYTES])
{
    const struct stranger_pen *p = self;

    return p->pen.sign(p->pen.self, domain, bytes, len, sig);
}

static bool pen_verify(void *self,
                       const uint8_t public[SIGN_PUBLIC_BYTES],
                       const char *domain,
                       const void *bytes,
                       size_t len,
                       const uint8_t sig[SIGN_BYTES])
{
    struct stranger_pen *p = self;

    p->n_verified++;
    return p->pen.verify(p->pen.self, public, domain, bytes, len, sig);
}

struct signer sim_pen(struct sim *s, uint32_t peer)
{
    struct signer pen = signer_keyed(world_identity(s->world, peer));

    if (s->pens == NULL) {
        return pen;
    }
    s->pens[peer].pen = pen;
    return (struct signer){.self = &s->pens[peer],
                           .public = pen.public,
                           .sign = pen_sign,
                           .verify = pen_verify};
}

void options_strangers(struct sim *s)
{
    s->n_strangers = kind_of(s) == PRESS_FLOOD ? FLOODERS : 1;
    s->pens = world_alloc(s->n * sizeof *s->pens);
    s->quiet = true;
    s->epochs_max = 1;
}

void setup_strangers(struct sim *s)
{
    s->strangers = world_alloc(s->n_strangers * sizeof *s->strangers);
    for (uint32_t i = 0; i < s->n_strangers; i++) {
        world_call(s->world,
                   SIM_START_MS + (kind_of(s) == PRESS_CROWD ? 50 : 4000),
                   come_call, s, i);
    }
}

/* Who proves nothing three times is hung up, and comes no more. */
static void check_empty(struct sim *s)
{
    struct node_status t;

    for (uint32_t p = 0; p < s->n; p++) {
        node_status(s->nodes[p], &t);
        if (t.malformed != PROOFS_MAX) {
            check_fail(s->check,
                       "S: peer %u checked %u proofs of a stranger, not %u", p,
                       t.malformed, PROOFS_MAX);
        }
    }
}

void check_strangers(struct sim *s)
{
    uint64_t n = s->pens != NULL ? world_stats(s->world)->nowhere : 0;
    uint64_t seconds = world_now(s->world) / 1000;

    if (s->pens != NULL && kind_of(s) == PRESS_EMPTY) {
        check_empty(s);
    }
    for (uint32_t p = 0; p < s->n && s->pens != NULL; p++) {
        uint64_t most = VERIFIED_PER_S * seconds + VERIFIED_BURST +
                        VERIFIED_OWN_MAX * s->rounds;

        if (s->pens[p].n_verified > most) {
            check_fail(s->check,
                       "S: peer %u verified %" PRIu64 " signatures in %" PRIu64
                       " s, at most %" PRIu64 " are due",
                       p, s->pens[p].n_verified, seconds, most);
        }
    }
    if (n > 0) {
        check_fail(s->check,
                   "S: peers dialled %" PRIu64 " times where a stranger told "
                   "them to",
                   n);
    }
}
