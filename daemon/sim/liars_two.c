/* liars_two.c - the owner of a ballot signs two values; see scenarios_liars.c.
 *
 * It says two things of itself in its own promise, so there are two values, and
 * shows one to each half of the others. Each half and the liar are more than
 * half of a view of three: two views of one epoch follow it. Then the liar is
 * gone for ever, and the halves, who hear each other, must go on together.
 */
#include <string.h>

#include "daemon/node/inspect.h"
#include "daemon/sim/liars.h"
#include "daemon/sim/world/internal.h"
#include "p2p/round/view.h"

#define GONE_MS 300 /* the second view has come by then */

/* Every other one of those who are honest. */
static bool is_second(const struct sim *s, uint32_t peer)
{
    uint32_t before = 0;

    for (uint32_t i = 0; i < peer; i++) {
        before += i != s->liar->who && i != s->victim;
    }
    return peer != s->liar->who && peer != s->victim && before % 2 == 1;
}

/* The same, but that the liar is at another port. */
static bool other_value(struct sim *s, struct accept *a)
{
    const uint8_t *key = world_identity(s->world, s->liar->who)->public;
    struct proposal *p = &a->of.proposal;
    struct promise_body body = {.epoch = a->epoch,
                                .view = a->view,
                                .mode = a->mode,
                                .ballot = p->ballot};
    struct ballot_body named = {.ballot = a->ballot};
    const struct node *node = s->nodes[s->liar->who];
    const struct ballot *b = node == NULL ? NULL : node_parts(node).ballot;
    int self = view_index_key(&p->value, key);

    if (b == NULL || self < 0 || a->ballot != p->ballot ||
        !hash32_eq(&b->hash, &a->view)) {
        return false;
    }
    for (uint32_t i = 0; i < p->n_promises; i++) {
        struct promised *m = &p->promises[i];

        if (memcmp(b->cert.body.members[m->member].public_key, key, 32) == 0 &&
            m->said.address.port != 0) {
            m->said.address.port ^= 0x100;
            p->value.members[self].address.port = m->said.address.port;
            body.said = m->said;
            liars_sign(s, &promise_body_schema, &body, m->sig);
            view_hash(&p->value, &named.view);
            liars_sign(s, &ballot_body_schema, &named, a->of.sig);
            return true;
        }
    }
    return false;
}

static void keep_other(struct sim *s, const struct accept *a)
{
    struct liar *g = s->liar;
    const uint8_t *key = world_identity(s->world, s->liar->who)->public;

    memset(&g->other, 0, sizeof g->other);
    g->other.body = a->of.proposal.value;
    g->other.ballot = a->ballot;
    g->other.n_partings = a->of.proposal.n_partings;
    memcpy(g->other.partings, a->of.proposal.partings,
           sizeof g->other.partings);
    memcpy(g->other.sigs[0].public_key, key, 32);
    memcpy(g->other.sigs[0].sig, a->of.sig, SIGN_BYTES);
    g->other.n_sigs = 1;
    view_hash(&g->other.body, &g->other_hash);
}

static void
keep_signature(struct sim *s, uint32_t from, const struct accepted *m)
{
    struct liar *g = s->liar;
    const uint8_t *key = world_identity(s->world, from)->public;
    struct view_signature *to = &g->other.sigs[g->other.n_sigs];

    if (m->body.ballot != g->other.ballot ||
        !hash32_eq(&m->body.view, &g->other_hash)) {
        return;
    }
    for (uint32_t i = 0; i < g->other.n_sigs; i++) {
        if (memcmp(g->other.sigs[i].public_key, key, 32) == 0) {
            return;
        }
    }
    memcpy(to->public_key, key, 32);
    memcpy(to->sig, m->sig, SIGN_BYTES);
    g->other.n_sigs++;
}

static void gone_call(void *data, uint64_t arg)
{
    struct sim *s = data;

    s->truth = true;
    s->restart_after_ms = 0;
    check_allow_forks(s->check); /* neither half is enough */
    sim_strike_call(s, arg);
}

/* The certificate of the second value, if there is one yet. */
static void show_other(struct sim *s, struct view_cert *cert)
{
    struct liar *g = s->liar;

    if (g->other.n_sigs < 2) {
        cert->body.epoch = 1; /* nothing new, that is */
        return;
    }
    *cert = g->other;
    if (g->n_lies++ == 0) {
        world_call(s->world, world_now(s->world) + GONE_MS, gone_call, s,
                   g->who);
    }
}

int liars_two(struct sim *s,
              uint32_t from,
              uint32_t to,
              uint16_t message,
              uint8_t *bytes,
              uint32_t len,
              uint32_t cap)
{
    struct liar *g = s->liar;
    struct accepted m;
    int n = (int)len;

    if (from == g->who && is_second(s, to) && message == MESSAGE_ACCEPT &&
        msg_decode(&accept_schema, bytes, len, &g->accept) == 0 &&
        g->accept.mode == VIEW_MAJORITY && other_value(s, &g->accept)) {
        if (g->other.ballot != g->accept.ballot ||
            g->other.body.epoch != g->accept.of.proposal.value.epoch) {
            keep_other(s, &g->accept);
        }
        n = msg_encode(&accept_schema, &g->accept, bytes, cap);
    } else if (to == g->who && is_second(s, from) &&
               message == MESSAGE_ACCEPTED &&
               msg_decode(&accepted_schema, bytes, len, &m) == 0) {
        keep_signature(s, from, &m);
    } else if (from == g->who && is_second(s, to) && message == MESSAGE_VIEW &&
               msg_decode(&view_cert_schema, bytes, len, &g->cert) == 0 &&
               g->cert.ballot == g->other.ballot &&
               g->cert.body.epoch == g->other.body.epoch) {
        show_other(s, &g->cert);
        n = msg_encode(&view_cert_schema, &g->cert, bytes, cap);
    }
    return n;
}
