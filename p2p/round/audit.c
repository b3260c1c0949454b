/* audit.c - a commit, its draws, and what others say. See audit.h. */
#include "p2p/round/audit_internal.h"

#include "proto/base/rng.h"

#define COST_SHARE     33 /* one part in so many of the bytes of a round */
#define TRIES          64 /* draws that fall into our own slice or nowhere */
#define REST_SHIFT     5  /* a draw comes again after patience >> so much */
#define PATIENCE_SHARE 8  /* of the time that a round takes */
#define SPREAD_SHARE   2  /* of that time the first part has all draws */
#define LEAST_SHARE    8  /* of wait_ms: the least patience */
#define LAST_WAITS     2  /* so many after all draws vain sayers are heard */

void audit_init(struct audit *a,
                struct members *members,
                uint32_t wait_ms,
                uint64_t first_attempt)
{
    *a = (struct audit){
        .members = members, .wait_ms = wait_ms, .attempt = first_attempt};
}

/* A round moves two vectors in and out of each member, a draw n blocks. */
uint32_t audit_draws(const struct butterfly_shape *s)
{
    uint64_t draws =
        2 * s->cut.elements / COST_SHARE / ((uint64_t)s->cut.block * s->cut.n);

    draws = draws < AUDIT_DRAWS_MAX ? draws : AUDIT_DRAWS_MAX;
    return draws > 0 ? (uint32_t)draws : 1;
}

/* When to draw, and how long to wait for answers. */
static void pace(struct audit *a, uint64_t now_ms, uint64_t round_ms)
{
    uint64_t least = a->wait_ms / LEAST_SHARE;
    uint64_t time =
        a->took_ms != 0 && a->took_ms < round_ms ? a->took_ms : round_ms;
    uint64_t patience = time / PATIENCE_SHARE;

    a->took_ms = round_ms;
    patience = patience > least ? patience : least;
    a->patience_ms = time == 0 || patience > a->wait_ms ? a->wait_ms : patience;
    a->gap_ms = time / SPREAD_SHARE / a->left;
    a->next_ms = now_ms + rng_below(&a->draw, a->gap_ms + 1);
    a->last_ms = now_ms + time / SPREAD_SHARE + LAST_WAITS * a->patience_ms;
}

void audit_begin(struct audit *a,
                 const struct audit_commit *c,
                 uint64_t secret,
                 uint64_t now_ms,
                 uint64_t round_ms,
                 struct out *out)
{
    audit_stop(a, out);
    a->has = true;
    a->commit = *c;
    a->draw = secret;
    a->left = a->unserved_left = audit_draws(&c->shape);
    pace(a, now_ms, round_ms);
}

void audit_stop(struct audit *a, struct out *out)
{
    audit_give_up(a, out);
    a->has = a->was_said = a->again = a->is_own = false;
    a->has_word = a->was_word = false;
    a->left = a->unserved_left = 0;
    a->heard_twice = a->silent = a->known = a->last = 0;
    a->wrong.heard = a->wrong.waiting = 0;
    a->unserved.heard = a->unserved.waiting = 0;
}

/* ---- blocks ---------------------------------------------------------------
 */

/* The block that begins at or before that element; false: it is nobody's, or
 * our own. */
static bool
block_at(const struct audit_commit *c, uint64_t element, struct audit_block *b)
{
    const struct ring_shape *cut = &c->shape.cut;
    uint64_t end;

    if (element >= cut->elements) {
        return false;
    }
    b->offset = element / cut->block * cut->block;
    end = b->offset + cut->block;
    end = end < cut->elements ? end : cut->elements;
    b->len = (uint32_t)(end - b->offset);
    b->owner = butterfly_owner(&c->shape, b->offset);
    b->source = MEMBERS_NONE;
    return b->owner < cut->n && b->owner != c->rank;
}

uint32_t audit_rank_of(const struct audit *a, int peer)
{
    const struct audit_commit *c = &a->commit;
    uint32_t i = 0;

    while (i < c->shape.cut.n &&
           !id_eq(&c->member[i], &a->members->peers[peer].id)) {
        i++;
    }
    return i;
}

/* ---- what others say ------------------------------------------------------
 */

bool audit_on_accuse(struct audit *a, int peer, const struct accuse *m)
{
    const struct audit_commit *c = &a->commit;
    struct audit_words *w = m->silent > 0 ? &a->unserved : &a->wrong;
    struct audit_block b;
    uint32_t i;

    if (!a->has || !hash32_eq(&m->commit, &c->hash)) {
        return false;
    }
    i = audit_rank_of(a, peer);
    if (i == c->shape.cut.n || (w->heard & AUDIT_BIT(i)) ||
        !block_at(c, m->offset, &b) || b.owner == i ||
        m->silent > c->shape.cut.n || m->silent == i + 1 ||
        m->silent == c->rank + 1) {
        return false;
    }
    w->heard |= AUDIT_BIT(i);
    w->waiting |= AUDIT_BIT(i);
    w->at[i] = m->offset;
    if (m->silent > 0) {
        a->whom[i] = (uint8_t)(m->silent - 1);
        a->last |= rests_mask(&a->vain, &c->member[i], 1, c->round) << i;
    }
    return true;
}

/* Any one of these that wait: the member who said it. */
static uint32_t
take_word(struct audit *a, struct audit_words *w, uint64_t waiting)
{
    uint64_t left = waiting;
    uint64_t skip = rng_below(&a->draw, (uint64_t)__builtin_popcountll(left));
    uint32_t i;

    for (; skip > 0; skip--) {
        left &= left - 1;
    }
    i = (uint32_t)__builtin_ctzll(left);
    w->waiting &= ~AUDIT_BIT(i);
    (void)block_at(&a->commit, w->at[i], &a->block);
    return i;
}

/* False: the accuser, who has all contributions to the block, is not here. */
static bool take_accusation(struct audit *a)
{
    uint32_t i = take_word(a, &a->wrong, a->wrong.waiting);

    a->block.source = members_find(a->members, &a->commit.member[i]);
    a->n_unanswered += a->block.source == MEMBERS_NONE;
    return a->block.source != MEMBERS_NONE;
}

/* Words of silence that may be looked at now: those that come last not while
 * others wait. */
static uint64_t unserved_words(const struct audit *a, uint64_t now_ms)
{
    uint64_t waiting = a->unserved.waiting, first = waiting & ~a->last;

    if (a->again || a->unserved_left == 0) {
        return 0;
    }
    return first != 0 || now_ms < a->last_ms ? first : waiting;
}

/* False: we know that already. */
static bool take_unserved(struct audit *a, uint64_t waiting)
{
    uint32_t i = take_word(a, &a->unserved, waiting);

    if (a->known & AUDIT_BIT(a->whom[i])) {
        return false;
    }
    a->unserved_left--;
    a->sayer = i;
    a->drawn = a->block;
    a->is_own = false;
    a->n_again = 0;
    return true;
}

/* ---- which block is next --------------------------------------------------
 */

static bool draw(struct audit *a, uint64_t now_ms)
{
    a->left--;
    a->next_ms = now_ms + a->gap_ms;
    a->is_own = true;
    a->n_again = 0;
    for (int i = 0; i < TRIES; i++) {
        if (block_at(&a->commit,
                     rng_below(&a->draw, a->commit.shape.cut.elements),
                     &a->drawn)) {
            a->block = a->drawn;
            return true;
        }
    }
    return false;
}

/* The draw that was put off, if its time has come. */
static bool is_due_again(struct audit *a, uint64_t now_ms)
{
    if (a->again && a->again_ms == 0) {
        a->again_ms =
            now_ms + ((a->patience_ms << (a->n_again - 1)) >> REST_SHIFT);
    }
    if (!a->again || now_ms < a->again_ms) {
        return false;
    }
    a->again = false;
    a->block = a->drawn;
    return true;
}

/* The next block to look at; false: there is none. While a draw is put off only
 * accusations are looked at. */
static bool choose(struct audit *a, uint64_t now_ms)
{
    for (;;) {
        bool may_draw = a->left > 0 && !a->again && now_ms >= a->next_ms;
        uint64_t unserved = unserved_words(a, now_ms);
        bool accused = a->wrong.waiting != 0 &&
                       (unserved == 0 || rng_below(&a->draw, 2) == 0);

        if (!may_draw && unserved == 0 && !accused) {
            return false;
        }
        a->was_said = !may_draw || ((unserved != 0 || accused) && !a->was_said);
        if (!a->was_said ? draw(a, now_ms)
            : accused    ? take_accusation(a)
                         : take_unserved(a, unserved)) {
            return true;
        }
    }
}

void audit_tick(struct audit *a, uint64_t now_ms, struct out *out)
{
    if (a->phase == AUDIT_FETCHING && now_ms >= a->due_ms) {
        audit_time_out(a, out);
    }
    while (a->has && a->phase == AUDIT_IDLE &&
           (is_due_again(a, now_ms) || choose(a, now_ms))) {
        audit_fetch(a, now_ms, out);
    }
}

uint64_t audit_deadline(const struct audit *a)
{
    uint64_t due;

    if (a->phase == AUDIT_FETCHING) {
        return a->due_ms;
    }
    if (a->phase != AUDIT_IDLE || !a->has) {
        return CORE_NEVER;
    }
    due = a->again ? a->again_ms : a->left > 0 ? a->next_ms : CORE_NEVER;
    return unserved_words(a, UINT64_MAX) != 0 && a->last_ms < due ? a->last_ms
                                                                  : due;
}
