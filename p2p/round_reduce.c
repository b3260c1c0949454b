/* round_reduce.c - from a plan to the reduced bytes, and what is kept of them
 * when the attempt fails. See round.h. */
#include <string.h>

#include "p2p/round_internal.h"
#include "proto/base/err.h"

/* All bytes are here: hash them. */
static void reduced(struct round *r, struct out *out)
{
    struct action *a;

    r->phase = ROUND_HASHING;
    round_cancel(r->ring.attempt, out); /* late duplicates are dropped */
    a = out_add(out, ACTION_HASH);
    if (a != NULL) {
        a->buffer = BUFFER_RING;
        a->index = r->round;
        a->request = r->ring.attempt;
    }
}

/* The wire buffer of the attempt before is this one's. */
static void take_over(struct round *r, struct out *out)
{
    uint64_t holds = r->plan.body.members[r->rank].holds;
    struct action *a;

    if (holds > 0) {
        a = out_add(out, ACTION_INHERIT);
        if (a == NULL) {
            r->spoiled = true;
            return;
        }
        a->attempt = r->kept.attempt;
        a->request = r->ring.attempt;
        inherit_move(&r->kept, holds, r->ring.attempt);
    }
}

/* Nobody to exchange with: encode the rest, then hash. */
static void alone(struct round *r, struct out *out)
{
    struct action *a;

    r->phase = ROUND_HASHING;
    take_over(r, out);
    a = out_add(out, ACTION_HASH);
    if (a != NULL) {
        a->buffer = BUFFER_RING;
        a->index = r->round;
        a->request = r->ring.attempt;
        a->encode = true;
        a->segment.offset = inherit_total(&r->plan.body);
    }
}

void round_reduce(struct round *r, uint64_t now_ms, struct out *out)
{
    const struct plan_body *p = &r->plan.body;
    uint32_t n = p->n_members, next = (r->rank + 1) % n;
    struct ring_shape shape = {
        .elements = r->terms.n_params,
        .from = inherit_total(p),
        .block = r->terms.block,
        .segment_elements = r->terms.segment_elements,
        .chunk_segments = r->terms.chunk_segments,
        .n = n,
    };
    struct action *a;

    r->phase = ROUND_REDUCING;
    r->progress_ms = now_ms;
    r->ring_progress = 0;
    r->exposed = true;
    r->ring.attempt = round_attempt(r->epoch, r->round);
    if (n == 1) {
        alone(r, out);
        return;
    }
    ring_init(&r->ring, &shape, r->rank, p->members[r->rank].holds,
              p->members[next].holds);
    r->ring.attempt = round_attempt(r->epoch, r->round);
    r->ring.scale = (double)r->mine.tokens / (double)plan_tokens(p);
    r->ring.next = r->ballot->ids[p->members[next].index];
    r->ring.prev = r->ballot->ids[p->members[(r->rank + n - 1) % n].index];
    a = out_add(out, ACTION_BULK_OPEN);
    if (a != NULL) {
        int row = r->ballot->rows[p->members[next].index];

        a->peer = r->ring.next;
        a->address = r->members->peers[row].address;
    }
    take_over(r, out);
    if (ring_finished(&r->ring)) {
        reduced(r, out); /* all of it was inherited, and is here */
        return;
    }
    ring_pump(&r->ring, out);
}

void round_seg_done(struct round *r, const struct event *ev, struct out *out)
{
    int peer;

    if (r->phase != ROUND_REDUCING || r->frozen ||
        ev->segment.attempt != r->ring.attempt) {
        return;
    }
    if (ev->rc != 0 || ring_done(&r->ring, ev) != 0) {
        peer = members_find(r->members, &ev->segment.peer);
        r->n_broken = peer == r->broken ? r->n_broken + 1 : 1;
        r->broken = peer;
        round_change(r, ev->rc == LOCO_ENUMERIC ? "a contribution is not finite"
                                                : "a data connection failed");
        return;
    }
    if (!ring_finished(&r->ring)) {
        ring_pump(&r->ring, out);
        return;
    }
    reduced(r, out);
}

/* The attempt that ends here failed: what of it is final stays, unless the next
 * one would inherit what made this one fail. */
void round_keep(struct round *r)
{
    struct peer_id ids[VIEW_MEMBERS_MAX];

    if (r->spoiled || round_votes_differ(r)) {
        r->kept.n = 0;
        return;
    }

    if (!r->in_plan || r->plan.body.n_members < 2) {
        return; /* the buffer is as the attempt before left it */
    }
    for (uint32_t k = 0; k < r->plan.body.n_members; k++) {
        ids[k] = id_of_public(r->plan_keys[k]);
    }
    inherit_keep(&r->kept, &r->plan.body, &r->plan_hash, ids,
                 ring_final(&r->ring), r->ring.attempt);
}

void round_disinherited(struct round *r, uint64_t attempt, struct out *out)
{
    if (!r->in_plan || attempt != r->ring.attempt ||
        (r->phase != ROUND_REDUCING && r->phase != ROUND_HASHING)) {
        return;
    }
    r->spoiled = true;
    r->phase = ROUND_READY; /* neither the ring nor a hash goes on */
    round_cancel(attempt, out);
    round_change(r, "what earlier attempts had finished is gone here");
}
