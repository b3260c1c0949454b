/* audit.c - see audit.h. */
#include "p2p/round/audit.h"

#include "proto/base/rng.h"

#define COST_SHARE 33 /* one part in so many of the bytes of a round */
#define TRIES      64 /* draws that fall into our own slice or nowhere */
#define AGAIN_MAX  5  /* times that one draw is asked for again */
#define REST_SHIFT 4  /* the first time after wait_ms >> so much */

static void cancel(const struct audit *a, struct out *out)
{
    struct action *action = out_add(out, ACTION_CANCEL);

    if (action != NULL) {
        action->cancel.stream = STREAM_AUDIT;
        action->cancel.attempt = a->attempt;
    }
}

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

static void give_up(struct audit *a, struct out *out)
{
    if (a->phase == AUDIT_FETCHING) {
        cancel(a, out);
    }
    a->phase = AUDIT_IDLE;
}

void audit_begin(struct audit *a,
                 const struct audit_commit *c,
                 uint64_t secret,
                 struct out *out)
{
    audit_stop(a, out);
    a->has = true;
    a->commit = *c;
    a->draw = secret;
    a->left = audit_draws(&c->shape);
}

void audit_stop(struct audit *a, struct out *out)
{
    give_up(a, out);
    a->has = a->was_said = a->again = false;
    a->left = 0;
    a->heard = a->heard_twice = a->waiting = 0;
}

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

/* The rank of the member in that row; n: none. */
static uint32_t rank_of(const struct audit *a, int peer)
{
    const struct audit_commit *c = &a->commit;
    uint32_t i = 0;

    while (i < c->shape.cut.n &&
           !id_eq(&c->member[i], &a->members->peers[peer].id)) {
        i++;
    }
    return i;
}

/* The sum of this block cannot be repeated now. An accuser whose line broke may
 * say it once more. */
static void unanswered(struct audit *a)
{
    uint32_t i = a->block.source == MEMBERS_NONE ? VIEW_MEMBERS_MAX
                                                 : rank_of(a, a->block.source);

    a->n_unanswered++;
    if (i < a->commit.shape.cut.n && !(a->heard_twice >> i & 1)) {
        a->heard_twice |= 1ULL << i;
        a->heard &= ~(1ULL << i);
    }
}

static bool draw(struct audit *a, struct audit_block *b)
{
    for (int i = 0; i < TRIES; i++) {
        if (block_at(&a->commit,
                     rng_below(&a->draw, a->commit.shape.cut.elements), b)) {
            return true;
        }
    }
    return false;
}

/* Ask for contribution i to the block. */
static void ask(struct audit *a, uint32_t i, int row, struct out *out)
{
    const struct audit_commit *c = &a->commit;
    struct action *action = out_add(out, ACTION_POST_RECV);
    struct fetch msg = {
        .buffer = BUFFER_OFFER,
        .index = c->round,
        .offset = a->block.offset,
        .len = a->block.len,
        .attempt = a->attempt,
        .seg = i,
        .stream = STREAM_AUDIT,
        .root = c->offer[i],
    };

    if (action == NULL) {
        return; /* it is silent, then */
    }
    action->segment = (struct segment){
        .peer = a->members->peers[row].id,
        .attempt = a->attempt,
        .stream = STREAM_AUDIT,
        .seg = i,
        .buffer = BUFFER_OFFER,
        .index = c->round,
        .offset = a->block.offset,
        .len = a->block.len,
        .op = SEGMENT_LANE,
        .scale = c->scale[i],
        .lane = (uint8_t)i,
        .lanes = (uint8_t)c->shape.cut.n,
        .proven = true,
        .maker = c->member[i],
        .offer = c->offer[i],
    };
    members_bulk_open(a->members, out, row);
    (void)members_send(a->members, out, row, MESSAGE_FETCH, &msg);
}

/* Rows of the sources of all contributions but ours; false: one is away. */
static bool find_sources(const struct audit *a, int rows[VIEW_MEMBERS_MAX])
{
    const struct audit_commit *c = &a->commit;

    for (uint32_t i = 0; i < c->shape.cut.n; i++) {
        rows[i] = a->block.source != MEMBERS_NONE
                      ? a->block.source
                      : members_find(a->members, &c->member[i]);
        if (i != c->rank &&
            (rows[i] == MEMBERS_NONE || !members_linked(a->members, rows[i]))) {
            return false;
        }
    }
    return true;
}

/* Nobody can repeat the sum now: a draw later, an accusation never. */
static void put_off(struct audit *a)
{
    if (a->block.source == MEMBERS_NONE && a->n_again < AGAIN_MAX) {
        a->again = true;
        a->again_ms = 0;
        a->n_again++;
    } else {
        unanswered(a);
    }
}

static void fetch(struct audit *a, uint64_t now_ms, struct out *out)
{
    uint32_t n = a->commit.shape.cut.n;
    int rows[VIEW_MEMBERS_MAX];

    if (!find_sources(a, rows)) {
        put_off(a);
        return;
    }
    a->attempt++;
    a->phase = AUDIT_FETCHING;
    a->due_ms = now_ms + a->wait_ms;
    a->missing = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (i != a->commit.rank) {
            a->missing |= 1ULL << i;
            ask(a, i, rows[i], out);
        }
    }
}

/* All contributions are here. */
static void sum(struct audit *a, struct out *out)
{
    const struct audit_commit *c = &a->commit;
    struct job *job = out_job(out, JOB_AUDIT);

    a->phase = AUDIT_IDLE;
    if (job != NULL) {
        a->phase = AUDIT_SUMMING;
        job->audit = (struct job_audit){
            .round = c->round,
            .offset = a->block.offset,
            .len = a->block.len,
            .lanes = c->shape.cut.n,
            .lane = c->rank,
            .scale = c->scale[c->rank],
            .maker = c->member[c->rank],
            .offer = c->offer[c->rank],
        };
    }
}

bool audit_accuse(struct audit *a,
                  int peer,
                  const struct hash32 *commit,
                  uint64_t offset)
{
    const struct audit_commit *c = &a->commit;
    struct audit_block b;
    uint32_t i;

    if (!a->has || !hash32_eq(commit, &c->hash)) {
        return false;
    }
    i = rank_of(a, peer);
    if (i == c->shape.cut.n || (a->heard >> i & 1) ||
        !block_at(c, offset, &b) || b.owner == i) {
        return false;
    }
    a->heard |= 1ULL << i;
    a->waiting |= 1ULL << i;
    a->said[i] = offset;
    return true;
}

void audit_seg_done(struct audit *a,
                    const struct event_seg_done *ev,
                    struct out *out)
{
    if (a->phase != AUDIT_FETCHING || ev->segment.attempt != a->attempt ||
        ev->segment.seg >= a->commit.shape.cut.n) {
        return;
    }
    if (ev->rc != 0) { /* not what was announced, or the line broke */
        unanswered(a);
        give_up(a, out);
        return;
    }
    a->missing &= ~(1ULL << ev->segment.seg);
    if (a->missing == 0) {
        sum(a, out);
    }
}

/* Whether contribution i is to come from that peer. The accused has no say in
 * what its accuser sends, or a guessed attempt would save it. */
static bool was_asked(const struct audit *a, int peer, uint32_t i)
{
    return a->block.source != MEMBERS_NONE
               ? peer == a->block.source
               : id_eq(&a->members->peers[peer].id, &a->commit.member[i]);
}

void audit_refused(struct audit *a,
                   int peer,
                   const struct fetch_no *no,
                   struct out *out)
{
    uint32_t i = no->seg;

    if (a->phase == AUDIT_FETCHING && no->attempt == a->attempt &&
        i < a->commit.shape.cut.n && (a->missing >> i & 1) &&
        was_asked(a, peer, i)) {
        give_up(a, out);
        put_off(a);
    }
}

bool audit_summed(struct audit *a,
                  const struct local_event *e,
                  struct audit_block *b)
{
    if (a->phase != AUDIT_SUMMING || e->audited.round != a->commit.round ||
        e->audited.offset != a->block.offset) {
        return false;
    }
    a->phase = AUDIT_IDLE;
    *b = a->block;
    if (e->rc != 0) {
        unanswered(a);
        return false;
    }
    a->n_blocks++;
    a->n_wrong += e->audited.wrong;
    a->n_false += !e->audited.wrong && b->source != MEMBERS_NONE;
    if (e->audited.wrong) {
        a->has = false;
        a->waiting = 0;
    }
    return e->audited.wrong;
}

/* Any of those who accuse and were not looked at. False: it is not here. */
static bool take_accusation(struct audit *a)
{
    uint64_t left = a->waiting;
    uint64_t skip =
        rng_below(&a->draw, (uint64_t)__builtin_popcountll(a->waiting));
    uint32_t i;

    for (; skip > 0; skip--) {
        left &= left - 1;
    }
    i = (uint32_t)__builtin_ctzll(left);
    a->waiting &= ~(1ULL << i);
    (void)block_at(&a->commit, a->said[i], &a->block);
    a->block.source = members_find(a->members, &a->commit.member[i]);
    return a->block.source != MEMBERS_NONE;
}

/* The draw that was put off, if its time has come. */
static bool is_due_again(struct audit *a, uint64_t now_ms)
{
    if (a->again && a->again_ms == 0) {
        a->again_ms =
            now_ms + (((uint64_t)a->wait_ms << (a->n_again - 1)) >> REST_SHIFT);
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
static bool choose(struct audit *a)
{
    bool drawn = false;

    while (a->left > 0 && !drawn && !a->again &&
           (a->waiting == 0 || a->was_said)) {
        a->left--;
        drawn = draw(a, &a->drawn);
        a->block = drawn ? a->drawn : a->block;
        a->n_again = 0;
    }
    a->was_said = !drawn;
    while (!drawn && a->waiting != 0) {
        if (take_accusation(a)) {
            return true;
        }
        a->n_unanswered++;
    }
    return drawn;
}

void audit_tick(struct audit *a, uint64_t now_ms, struct out *out)
{
    if (a->phase == AUDIT_FETCHING && now_ms >= a->due_ms) {
        unanswered(a);
        give_up(a, out);
    }
    while (a->has && a->phase == AUDIT_IDLE &&
           (is_due_again(a, now_ms) || choose(a))) {
        fetch(a, now_ms, out);
    }
}

uint64_t audit_deadline(const struct audit *a)
{
    return a->phase == AUDIT_FETCHING                     ? a->due_ms
           : a->phase == AUDIT_IDLE && a->has && a->again ? a->again_ms
                                                          : CORE_NEVER;
}
