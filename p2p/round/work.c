/* work.c - see work.h.
 *
 * Pieces of a lease that is to be made again are numbered: the moments in parts
 * of at most PART elements, then WORK_DRAWS blocks of the contribution, then as
 * many of the moments after it, where these were announced.
 */
#include "p2p/round/work.h"

#include <string.h>

#include "proto/base/err.h"
#include "proto/base/rng.h"

#define PART      (128U << 10) /* elements of moments: 256 KiB */
#define AGAIN_MAX 6            /* the last one after half of wait_ms */

void work_init(struct work *w,
               struct members *members,
               const struct peer_id *self,
               uint32_t wait_ms,
               uint64_t first_attempt)
{
    memset(w, 0, sizeof *w);
    w->members = members;
    w->self = *self;
    w->wait_ms = wait_ms;
    w->attempt = first_attempt;
    repeat_init(&w->repeat);
}

/* ---- commits and what was announced -------------------------------------- */

static struct work_said *
said_of(struct work *w, const struct peer_id *id, uint64_t round)
{
    for (uint32_t i = 0; i < WORK_SAID; i++) {
        if (w->said[i].round == round && id_eq(&w->said[i].id, id)) {
            return &w->said[i];
        }
    }
    return NULL;
}

/* The place of the oldest word. */
static struct work_said *place_for(struct work *w)
{
    struct work_said *place = &w->said[0];

    for (uint32_t i = 1; i < WORK_SAID; i++) {
        place = w->said[i].round < place->round ? &w->said[i] : place;
    }
    return place;
}

void work_on_moments(struct work *w,
                     const struct peer_id *id,
                     const struct moments *m,
                     uint64_t round)
{
    struct work_said *s;

    /* It may have applied the commit before us, or after. */
    if (m->round == 0 || m->round + 1 < round || m->round > round + 1) {
        return;
    }
    s = said_of(w, id, m->round);
    if (s == NULL) { /* the first word counts */
        s = place_for(w);
        *s = (struct work_said){*id, m->round, m->root, m->steps};
    }
}

static uint32_t place_in(const struct repeat_commit *c,
                         const struct peer_id *id)
{
    uint32_t i = 0;

    while (i < c->n && !id_eq(&c->member[i], id)) {
        i++;
    }
    return i;
}

static bool was_in(const struct work *w, const struct peer_id *id)
{
    const struct repeat_commit *c = &w->commit[0].what;
    uint32_t i;

    if (w->n_commits == 0) {
        return false;
    }
    i = place_in(c, id);
    return i < c->n && (c->lease >> i & 1);
}

/* What the makers of that commit announced before it. */
static void fill_in(struct work *w, struct work_commit *c)
{
    bool next =
        w->n_commits > 0 && w->commit[0].what.round + 1 == c->what.round;

    for (uint32_t i = 0; i < c->what.n; i++) {
        const struct work_said *s =
            said_of(w, &c->what.member[i], c->what.round);
        struct work_maker *m = &c->maker[i];

        m->again = next && was_in(w, &c->what.member[i]);
        memset(&m->moments, 0, sizeof m->moments);
        if (s != NULL) {
            m->moments = s->root;
            m->moment_steps = s->steps;
        }
    }
}

static void forget_words(struct work *w, uint64_t round)
{
    for (uint32_t i = 0; i < WORK_SAID; i++) {
        if (w->said[i].round < round) {
            w->said[i].round = 0;
        }
    }
}

static void name_silent(struct work *w, const struct peer_id *id)
{
    if (w->n_silent < VIEW_MEMBERS_MAX) {
        w->silent[w->n_silent++] = *id;
    }
}

/* Who was in the commit before announced its moments then, or keeps them from
 * us. */
static void name_unannounced(struct work *w, uint32_t self)
{
    const struct work_commit *c = &w->commit[0];

    for (uint32_t i = 0; i < c->what.n; i++) {
        if (i != self && (c->what.lease >> i & 1) && c->maker[i].again &&
            hash32_is_zero(&c->maker[i].moments)) {
            name_silent(w, &c->what.member[i]);
        }
    }
}

void work_commit(struct work *w, const struct work_commit *c, uint64_t secret)
{
    uint32_t self = place_in(&c->what, &w->self);
    struct work_commit next = *c;

    fill_in(w, &next);
    memmove(w->commit + 1, w->commit, (WORK_COMMITS - 1) * sizeof w->commit[0]);
    w->commit[0] = next;
    w->n_commits += w->n_commits < WORK_COMMITS;
    repeat_commit(&w->repeat, &c->what);
    forget_words(w, c->what.round);
    name_unannounced(w, self);
    w->draw = secret;
    w->has_draw = repeat_draw(&c->what, self, secret, &w->whom);
}

/* ---- a lease --------------------------------------------------------------
 */

static void cancel(const struct work *w, struct out *out)
{
    struct action *action = out_add(out, ACTION_CANCEL);

    if (action != NULL) {
        action->cancel.stream = STREAM_WORK;
        action->cancel.attempt = w->attempt;
    }
}

static void give_up(struct work *w, struct out *out)
{
    if (w->phase == WORK_FETCHING) {
        cancel(w, out);
    }
    w->phase = WORK_IDLE;
}

void work_stop(struct work *w, struct out *out)
{
    give_up(w, out);
    w->n_commits = 0;
    w->has_draw = false;
    w->n_silent = 0;
    memset(w->said, 0, sizeof w->said);
    w->repeat.n_commits = 0;
    memset(w->repeat.cases, 0, sizeof w->repeat.cases);
}

static const struct work_maker *maker_of(const struct work *w)
{
    return &w->about.maker[w->maker];
}

static const struct peer_id *maker_id(const struct work *w)
{
    return &w->about.what.member[w->maker];
}

/* In a case we can say nothing, then. */
static void say_unclear(struct work *w)
{
    if (w->is_case) {
        (void)repeat_say(&w->repeat, &w->self, &w->about.what.hash, maker_id(w),
                         REPEAT_UNCLEAR);
    }
}

static void unserved(struct work *w, struct out *out)
{
    give_up(w, out);
    w->n_unserved++;
    if (w->n_commits > 0 &&
        w->about.what.round + WORK_COMMITS >
            w->commit[0].what.round + 1) { /* ours may be one behind */
        name_silent(w, maker_id(w));
    }
    say_unclear(w);
}

static void put_off(struct work *w, struct out *out)
{
    if (w->n_again == AGAIN_MAX) {
        unserved(w, out);
        return;
    }
    cancel(w, out);
    w->n_again++;
    w->again = true;
    w->again_ms = 0;
}

static uint64_t blocks(uint64_t elements, uint32_t block)
{
    return (elements + block - 1) / block;
}

/* Elements of the moments. */
static uint64_t n_moments(const struct work *w)
{
    return 2 * w->about.elements;
}

static uint32_t part(const struct work *w)
{
    return PART / w->about.block * w->about.block;
}

static uint32_t n_parts(const struct work *w)
{
    return (uint32_t)((n_moments(w) + part(w) - 1) / part(w));
}

/* Draw what is to be looked at. */
static void draw_blocks(struct work *w)
{
    const uint32_t block = w->about.block;

    for (uint32_t k = 0; k < WORK_DRAWS; k++) {
        w->sent_at[k] =
            rng_below(&w->draw, blocks(w->about.elements, block)) * block;
        w->after_at[k] =
            rng_below(&w->draw, blocks(n_moments(w), block)) * block;
    }
}

static void from_the_start(struct work *w, uint64_t now_ms)
{
    w->next = w->n_flying = 0;
    memset(w->flying, 0, sizeof w->flying);
    w->attempt++;
    w->due_ms = now_ms + w->wait_ms;
    w->again = false;
    w->phase = WORK_FETCHING;
}

/* Begin with the contribution of member i to a commit. False: nobody can make
 * that again. */
static bool
begin(struct work *w, const struct work_commit *c, uint32_t i, uint64_t now_ms)
{
    const struct work_said *next =
        said_of(w, &c->what.member[i], c->what.round + 1);
    const struct work_maker *m = &c->maker[i];

    w->about = *c;
    w->maker = i;
    if (hash32_is_zero(&m->moments)) {
        return false;
    }
    memset(&w->after, 0, sizeof w->after);
    if (next != NULL) {
        w->after = next->root;
    }
    draw_blocks(w);
    w->n_pieces =
        n_parts(w) + WORK_DRAWS + (hash32_is_zero(&w->after) ? 0 : WORK_DRAWS);
    w->n_again = 0;
    from_the_start(w, now_ms);
    return true;
}

/* A case in which we have not spoken, and can: the place of its commit. */
static const struct repeat_case *case_for(const struct work *w,
                                          uint32_t *commit)
{
    for (uint32_t i = 0; i < REPEAT_CASES_MAX; i++) {
        const struct repeat_case *k = &w->repeat.cases[i];
        const struct repeat_commit *c;
        uint32_t self;

        if (!k->open || k->commit >= w->n_commits) {
            continue;
        }
        c = &w->repeat.commit[k->commit];
        self = place_in(c, &w->self);
        if (self < c->n && self != k->accused && (c->full >> self & 1) &&
            !(k->said >> self & 1)) {
            *commit = k->commit;
            return k;
        }
    }
    return NULL;
}

static void choose(struct work *w, uint64_t now_ms)
{
    uint32_t commit = 0;
    const struct repeat_case *k;

    while (w->phase == WORK_IDLE && (k = case_for(w, &commit)) != NULL) {
        w->is_case = true;
        if (!begin(w, &w->commit[commit], k->accused, now_ms)) {
            say_unclear(w);
        }
    }
    if (w->phase == WORK_IDLE && w->has_draw && w->n_commits > 0) {
        w->has_draw = w->is_case = false;
        (void)begin(w, &w->commit[0], w->whom, now_ms);
    }
}

/* ---- pieces ---------------------------------------------------------------
 */

/* What piece number i is. */
static struct segment piece(const struct work *w, uint32_t i)
{
    const uint32_t block = w->about.block;
    struct segment s = {
        .peer = *maker_id(w),
        .attempt = w->attempt,
        .stream = STREAM_WORK,
        .seg = i,
        .buffer = BUFFER_MOMENTS,
        .index = w->about.what.round,
        .op = SEGMENT_COPY,
        .proven = true,
        .maker = *maker_id(w),
        .offer = maker_of(w)->moments,
    };
    uint64_t end = n_moments(w), most = part(w);

    if (i < n_parts(w)) {
        s.offset = (uint64_t)i * part(w);
    } else if (i < n_parts(w) + WORK_DRAWS) {
        s.buffer = BUFFER_OFFER;
        s.op = SEGMENT_LANE;
        s.lane = (uint8_t)(i - n_parts(w));
        s.offset = w->sent_at[s.lane];
        s.offer = maker_of(w)->offer;
        end = w->about.elements;
        most = block;
    } else {
        s.op = SEGMENT_LANE;
        s.lane = (uint8_t)(i - n_parts(w) - WORK_DRAWS);
        s.index++;
        s.offset = w->after_at[s.lane];
        s.offer = w->after;
        most = block;
    }
    s.lanes = s.op == SEGMENT_LANE ? WORK_DRAWS : 0;
    s.len = (uint32_t)(end - s.offset < most ? end - s.offset : most);
    return s;
}

static void ask(struct work *w, uint32_t i, int row, struct out *out)
{
    struct action *action = out_add(out, ACTION_POST_RECV);
    const struct segment s = piece(w, i);
    const struct fetch msg = {
        .buffer = (uint8_t)s.buffer,
        .index = s.index,
        .offset = s.offset,
        .len = s.len,
        .attempt = s.attempt,
        .seg = s.seg,
        .stream = STREAM_WORK,
        .root = s.offer,
    };

    if (action != NULL) {
        action->segment = s;
        members_bulk_open(w->members, out, row);
        (void)members_send(w->members, out, row, MESSAGE_FETCH, &msg);
    }
}

/* Keep some pieces on their way. */
static void fetch(struct work *w, struct out *out)
{
    int row = members_find(w->members, maker_id(w));

    if (row == MEMBERS_NONE || !members_linked(w->members, row)) {
        return; /* until it is due */
    }
    for (uint32_t k = 0; k < WORK_WINDOW && w->next < w->n_pieces; k++) {
        if (w->flying[k] == 0) {
            w->flying[k] = 1 + (uint64_t)w->next;
            w->n_flying++;
            ask(w, w->next++, row, out);
        }
    }
}

/* Whether that piece is on its way; then it is not any more. */
static bool take_flying(struct work *w, uint32_t piece)
{
    for (uint32_t k = 0; k < WORK_WINDOW; k++) {
        if (w->flying[k] == 1 + (uint64_t)piece) {
            w->flying[k] = 0;
            w->n_flying--;
            return true;
        }
    }
    return false;
}

void work_seg_done(struct work *w,
                   const struct event_seg_done *ev,
                   struct out *out)
{
    if (w->phase != WORK_FETCHING || w->again ||
        ev->segment.attempt != w->attempt || !take_flying(w, ev->segment.seg)) {
        return;
    }
    if (ev->rc == LOCO_EBUSY) { /* ours: the room is in use, or lacks memory */
        give_up(w, out);
        say_unclear(w);
    } else if (ev->rc != 0) { /* not what was announced, or the line broke */
        put_off(w, out);
    } else if (w->next == w->n_pieces && w->n_flying == 0) {
        w->phase = WORK_WAITING;
    } else {
        w->due_ms = 0; /* the next tick says when */
    }
}

void work_refused(struct work *w,
                  int peer,
                  const struct fetch_no *no,
                  struct out *out)
{
    if (w->phase == WORK_FETCHING && !w->again && no->attempt == w->attempt &&
        id_eq(&w->members->peers[peer].id, maker_id(w)) &&
        take_flying(w, no->seg)) {
        put_off(w, out);
    }
}

/* What was put off, if its time has come: from its first piece on. */
static bool is_due_again(struct work *w, uint64_t now_ms)
{
    if (w->again_ms == 0) {
        w->again_ms = now_ms + (w->wait_ms >> (AGAIN_MAX + 1 - w->n_again));
    }
    if (now_ms < w->again_ms) {
        return false;
    }
    from_the_start(w, now_ms);
    return true;
}

void work_tick(struct work *w, uint64_t now_ms, struct out *out)
{
    choose(w, now_ms);
    if (w->phase == WORK_WAITING && w->is_case) {
        (void)work_begin_repeat(w, out);
    }
    if (w->phase != WORK_FETCHING) {
        return;
    }
    if (w->again && !is_due_again(w, now_ms)) {
        return;
    }
    if (w->due_ms == 0) {
        w->due_ms = now_ms + w->wait_ms;
    }
    if (now_ms >= w->due_ms) {
        unserved(w, out);
        choose(w, now_ms);
    }
    if (w->phase == WORK_FETCHING) {
        fetch(w, out);
    }
}

uint64_t work_deadline(const struct work *w)
{
    return w->phase != WORK_FETCHING ? CORE_NEVER
           : w->again                ? w->again_ms
                                     : w->due_ms;
}

/* ---- made again -----------------------------------------------------------
 */

bool work_begin_repeat(struct work *w, struct out *out)
{
    struct job *job;
    uint32_t at;

    if (w->phase != WORK_WAITING) {
        return w->phase == WORK_REPEATING && !w->is_case;
    }
    at = out_bytes(out, &maker_of(w)->lease, sizeof(struct lease));
    job = at == UINT32_MAX ? NULL : out_job(out, JOB_REPEAT);
    if (job == NULL) {
        return false; /* later */
    }
    job->repeat = (struct job_repeat){
        .round = w->about.what.round,
        .maker = *maker_id(w),
        .lease = {at, sizeof(struct lease)},
        .steps = maker_of(w)->steps,
        .moment_steps = maker_of(w)->moment_steps,
    };
    w->phase = WORK_REPEATING;
    return !w->is_case;
}

/* Our own word. */
static enum repeat_end speak(struct work *w, const struct verdict_body *v)
{
    if (v->verdict == REPEAT_BAD) {
        return repeat_accuse(&w->repeat, &w->self, &v->commit, &v->accused);
    }
    return repeat_say(&w->repeat, &w->self, &v->commit, &v->accused,
                      (enum repeat_verdict)v->verdict);
}

bool work_repeated(struct work *w,
                   const struct local_event *e,
                   struct verdict_body *say,
                   enum repeat_end *end)
{
    const struct repeat_commit *c = &w->about.what;

    *end = REPEAT_NONE;
    if (w->phase != WORK_REPEATING || e->repeated.round != c->round ||
        !id_eq(&e->repeated.maker, maker_id(w))) {
        return false;
    }
    w->phase = WORK_IDLE;
    *say = (struct verdict_body){
        .round = c->round,
        .commit = c->hash,
        .accused = *maker_id(w),
        .verdict = e->rc == 0 ? e->repeated.verdict : REPEAT_UNCLEAR,
    };
    w->n_read++;
    w->n_unclear += say->verdict == REPEAT_UNCLEAR;
    if (say->verdict == REPEAT_BAD) {
        w->n_bad++;
        name_silent(w, maker_id(w));
    }
    *end = speak(w, say);
    return *end != REPEAT_NONE;
}

enum repeat_end work_on_verdict(struct work *w,
                                const struct peer_id *speaker,
                                const struct verdict_body *m)
{
    if (m->verdict == REPEAT_BAD) {
        return repeat_accuse(&w->repeat, speaker, &m->commit, &m->accused);
    }
    return m->verdict > REPEAT_BAD
               ? REPEAT_NONE
               : repeat_say(&w->repeat, speaker, &m->commit, &m->accused,
                            (enum repeat_verdict)m->verdict);
}

bool work_take_silent(struct work *w, struct peer_id *who)
{
    if (w->n_silent == 0) {
        return false;
    }
    *who = w->silent[--w->n_silent];
    return true;
}
