/* liars_ask.c - a member asks for a new view all the time; see
 * scenarios_liars.c.
 *
 * It runs a whole node and says more than that says: SUSPECT to every owner of
 * a ballot, or PREPARE in each ballot that is its own, to all or to one member
 * at a time. Nobody of the others is lost meanwhile.
 */
#include <string.h>

#include "daemon/node/inspect.h"
#include "daemon/sim/liars.h"
#include "daemon/sim/world/internal.h"
#include "p2p/round/view.h"

#define ASK_MS  250
#define PICK_MS 3000

bool liars_ask(const struct liar *g)
{
    return g->kind >= LIE_ASKS && g->kind <= LIE_PICKS;
}

/* ---- what it says ------------------------------------------------------- */

static void say(struct liar *g,
                struct out *out,
                int row,
                enum message_type type,
                const void *msg)
{
    const struct members *m = node_parts(g->node).members;
    uint8_t bytes[FRAME_CONTROL_MAX];
    int n =
        msg_encode(message_schema((uint16_t)type), msg, bytes, sizeof bytes);

    for (uint32_t i = 0; i < m->n_links_used && n >= 0; i++) {
        const struct members_link *l = &m->links[i];

        if (l->used && !l->closing && l->peer == row) {
            g->n_lies +=
                out_send(out, l->link, (uint16_t)type, bytes, (size_t)n);
            return;
        }
    }
}

/* The next ballot of that member. */
static uint64_t next_of(const struct ballot *b, uint32_t member)
{
    uint64_t ballot = b->next_ballot;

    if (b->has_promised && b->promised >= ballot) {
        ballot = b->promised + 1;
    }
    while (view_ballot_owner(&b->cert.body, ballot) != member) {
        ballot++;
    }
    return ballot;
}

static struct asker asker_of(const struct liar *g, const struct ballot *b)
{
    struct node_parts parts = node_parts(g->node);
    struct suspect_body body = {.epoch = b->cert.body.epoch,
                                .view = b->hash,
                                .round = parts.round->round};
    struct asker m = {.member = (uint8_t)b->self_index, .round = body.round};
    struct signer pen = signer_keyed(world_identity(g->s->world, g->who));

    (void)message_sign(&pen, &suspect_body_schema, &body, m.sig);
    return m;
}

static void ask(struct liar *g, struct out *out)
{
    const struct ballot *b = node_parts(g->node).ballot;
    struct suspect s = {.epoch = b->cert.body.epoch, .view = b->hash};
    struct prepare p = {.epoch = s.epoch,
                        .view = s.view,
                        .mode = VIEW_MAJORITY,
                        .urgent = true};
    uint32_t n = b->cert.body.n_members;

    if (!b->have || n < 2 ||
        !view_is_full(&b->cert.body, (uint32_t)b->self_index)) {
        return; /* who is on probation owns no ballots */
    }
    s.by = asker_of(g, b);
    p.ballot = next_of(b, (uint32_t)b->self_index);
    p.n_shown = 1;
    p.shown[0] = s.by;
    for (uint32_t i = 0; i < n; i++) {
        bool picked = i == g->now_ms / PICK_MS % n;

        if ((int)i == b->self_index || !view_is_full(&b->cert.body, i)) {
            continue;
        }
        s.ballot = next_of(b, i);
        if (g->kind == LIE_ASKS) {
            say(g, out, b->rows[i], MESSAGE_SUSPECT, &s);
        } else if (g->kind == LIE_BALLOTS || picked) {
            say(g, out, b->rows[i], MESSAGE_PREPARE, &p);
        }
    }
}

/* ---- its process -------------------------------------------------------- */

static void step(void *self, const struct event *event, struct out *out)
{
    struct liar *g = self;

    node_step(g->node, event, out);
    g->now_ms = event->now_ms;
    if (event->now_ms < g->due_ms) {
        return;
    }
    g->due_ms = event->now_ms + ASK_MS;
    if (g->began_ms != 0 && !g->s->truth) {
        ask(g, out);
    }
}

static uint64_t deadline(const void *self)
{
    const struct liar *g = self;
    uint64_t due = node_deadline(g->node);

    return g->due_ms < due ? g->due_ms : due;
}

struct core liars_core(struct liar *g, struct node *node)
{
    g->node = node;
    return (struct core){.self = g, .step = step, .deadline = deadline};
}
