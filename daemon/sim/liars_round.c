/* liars_round.c - a member lies as the coordinator of rounds, and as the one
 * over which two others speak; see scenarios_liars.c.
 */
#include <string.h>

#include "daemon/node/inspect.h"
#include "daemon/sim/liars.h"
#include "daemon/sim/world/internal.h"
#include "p2p/round/view.h"

#define LIES_OF_PLANS 7 /* in turn, a round each */

bool liars_round(const struct liar *g)
{
    return g->kind >= LIE_SILENT && g->kind <= LIE_RELAYS;
}

/* Two honest members have no connection: they speak over the others. */
static bool apart(void *self, uint32_t from, uint32_t to, bool bulk)
{
    const struct sim *s = self;
    uint32_t a = s->liar->ignored, b = (a + 1) % s->n;

    (void)bulk;
    return (from == a && to == b) || (from == b && to == a);
}

void liars_round_options(struct sim *s)
{
    s->world_opt.frames_contradict = s->liar->kind == LIE_TWO_PLANS;
    if (s->liar->kind == LIE_RELAYS) {
        s->world_opt.cut = apart;
        s->world_opt.cut_self = s;
    }
}

/* ---- plans -------------------------------------------------------------- */

/* Something is not true, the same for all. */
static void falsify(struct plan_body *p)
{
    switch (p->round % LIES_OF_PLANS) {
    case 0:
        p->base.b[0] ^= 1;
        break;
    case 1:
        p->state.b[0] ^= 1;
        break;
    case 2:
        p->tokens_before += 1000000;
        break;
    case 3:
        p->members[p->n_members - 1].tokens += 1000000;
        break;
    case 4: /* as if it had leases, or other ones */
        p->n_ledgers = 1;
        p->ledgers[0].next += 1000;
        break;
    case 5:
        p->n_members = 1;
        break;
    default:
        p->view.b[0] ^= 1;
        break;
    }
}

static void reverse(struct plan_body *p)
{
    for (uint32_t i = 0, k = p->n_members - 1; i < k; i++, k--) {
        struct plan_member m = p->members[i];

        p->members[i] = p->members[k];
        p->members[k] = m;
    }
}

static int index_of(const struct sim *s, const struct liar *g, uint32_t peer)
{
    const struct ballot *b = node_parts(s->nodes[g->who]).ballot;

    return view_index(&b->cert.body, &world_identity(s->world, peer)->id);
}

/* Half of the members get another plan of the same round: in another order, or
 * without somebody of the other half. */
static bool fork_plan(struct sim *s, const struct liar *g, uint32_t to)
{
    struct plan_body *p = &s->liar->plan.body;
    int out = index_of(s, g, (g->who + 1) % s->n);
    uint32_t n = 0;

    if ((to + s->n - g->who) % s->n <= s->n / 2) {
        return false;
    }
    if (p->round % 2 == 0) {
        reverse(p);
        return true;
    }
    for (uint32_t k = 0; k < p->n_members; k++) {
        if (p->members[k].index != out) {
            p->members[n++] = p->members[k];
        }
    }
    p->n_members = n;
    return true;
}

static bool lie_in_plan(struct sim *s, struct liar *g, uint32_t to)
{
    if (g->kind == LIE_SILENT) {
        g->plan.sig[0] ^= 1; /* it has not come */
        return true;
    }
    if (g->kind == LIE_TWO_PLANS && !fork_plan(s, g, to)) {
        return false;
    }
    if (g->kind == LIE_PLANS) {
        falsify(&g->plan.body);
    }
    liars_sign(s, &plan_body_schema, &g->plan.body, g->plan.sig);
    return true;
}

/* ---- what two others say over it ---------------------------------------- */

/* Nothing comes through as it was said. */
static void spoil(struct liar *g)
{
    switch (g->n_lies % 4) {
    case 0:
        g->forward.bytes[g->forward.n_bytes / 2] ^= 1;
        break;
    case 1:
        g->forward.body.number++;
        break;
    case 2:
        g->forward.n_bytes /= 2;
        break;
    default:
        g->forward.sig[0] ^= 1;
        break;
    }
}

static int lie_as_relay(struct liar *g,
                        uint16_t message,
                        uint8_t *bytes,
                        uint32_t len,
                        uint32_t cap)
{
    if (message == MESSAGE_PULSE &&
        msg_decode(&pulse_schema, bytes, len, &g->pulse) == 0) {
        g->pulse.hears = UINT64_MAX; /* so others speak over it */
        return msg_encode(&pulse_schema, &g->pulse, bytes, cap);
    }
    if (message == MESSAGE_FORWARD &&
        msg_decode(&forward_schema, bytes, len, &g->forward) == 0) {
        spoil(g);
        g->n_lies++;
        return msg_encode(&forward_schema, &g->forward, bytes, cap);
    }
    return (int)len;
}

int liars_round_lie(struct sim *s,
                    uint32_t from,
                    uint32_t to,
                    uint16_t message,
                    uint8_t *bytes,
                    uint32_t len,
                    uint32_t cap)
{
    struct liar *g = s->liar;

    if (g->began_ms == 0) {
        return (int)len;
    }
    if (g->kind == LIE_RELAYS) {
        return from == g->who ? lie_as_relay(g, message, bytes, len, cap)
                              : (int)len;
    }
    if (g->kind == LIE_OMITS) {
        if (from != g->ignored || to != g->who || message != MESSAGE_READY ||
            msg_decode(&ready_schema, bytes, len, &g->ready) != 0) {
            return (int)len;
        }
        g->ready.sig[0] ^= 1; /* so that one is in no plan of its own */
        g->n_lies++;
        return msg_encode(&ready_schema, &g->ready, bytes, cap);
    }
    if (from != g->who || message != MESSAGE_PLAN ||
        msg_decode(&plan_schema, bytes, len, &g->plan) != 0 ||
        !lie_in_plan(s, g, to)) {
        return (int)len;
    }
    g->n_lies++;
    return msg_encode(&plan_schema, &g->plan, bytes, cap);
}
