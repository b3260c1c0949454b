/* work.c - see work.h. */
#include <string.h>

#include "p2p/round/work_internal.h"
#include "proto/base/err.h"

_Static_assert(REPEAT_COMMITS >= WORK_TURNS * (1 + REPEAT_CASES_MAX),
               "each member has its turn in each case");

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
    w->active = WORK_ROOMS;
    repeat_init(&w->repeat);
}

/* ---- commits ------------------------------------------------------------- */

static bool is_chained(const struct work *w, uint32_t at)
{
    return at > 0 && at < w->n_commits &&
           w->commit[at].what.round + 1 == w->commit[at - 1].what.round;
}

static bool has_own_case(const struct work *w)
{
    for (uint32_t i = 0; i < VIEW_MEMBERS_MAX; i++) {
        const struct repeat_case *k = &w->repeat.cases[i];

        if (k->open &&
            id_eq(&w->repeat.commit[k->commit].member[k->accuser], &w->self)) {
            return true;
        }
    }
    return false;
}

/* One whose work was read as bad before, if that of commit[1] can be made
 * again: its place + 1; 0: none. */
static uint32_t look_again(struct work *w)
{
    const struct repeat_commit *c = &w->commit[1].what;

    if (has_own_case(w) ||
        !repeat_may_accuse(&w->repeat, &w->self, w->commit[0].what.round)) {
        return 0;
    }
    for (uint32_t k = 0; k < w->n_looks; k++) {
        uint32_t i = work_place(c, &w->looks[k]);

        if (i < c->n && (c->lease >> i & 1)) {
            w->looks[k] = w->looks[--w->n_looks];
            return i + 1;
        }
    }
    return 0;
}

/* Of the commit before the newest: the maker may hold a commit later than we,
 * and has that one. */
static void draw(struct work *w, uint64_t secret)
{
    struct repeat_commit c = w->commit[1].what;
    uint32_t whom;

    w->draw = secret;
    if (is_chained(w, 1)) {
        c.lease &= ~convicts_mask(&w->convicts, c.member, c.n);
        w->drawn[1] = repeat_draw(&c, work_place(&c, &w->self), secret, &whom)
                          ? whom + 1
                          : look_again(w);
    }
}

void work_commit(struct work *w,
                 const struct work_commit *c,
                 uint64_t secret,
                 struct out *out)
{
    struct work_commit *newest = &w->commit[0];

    memmove(w->commit + 1, w->commit, (WORK_COMMITS - 1) * sizeof w->commit[0]);
    *newest = *c;
    w->n_commits += w->n_commits < WORK_COMMITS;
    repeat_commit(&w->repeat, &newest->what);
    memmove(w->drawn + 1, w->drawn, (WORK_COMMITS - 1) * sizeof w->drawn[0]);
    w->drawn[0] = 0;
    draw(w, secret);
    for (uint32_t k = 0; k < WORK_ROOMS; k++) {
        struct work_task *t = &w->task[k];

        if (t->phase == WORK_FETCHING &&
            t->about.what.round + WORK_COMMITS <= newest->what.round) {
            work_pass(w, t, out); /* nobody has it any more */
        }
    }
}

/* ---- what is said -------------------------------------------------------- */

/* Whether a case that we open comes to something: where others cannot look into
 * it any more, or the accused leaves, it ends in nothing, and we pay. */
static bool is_of_use(const struct work *w, const struct verdict_body *v)
{
    return repeat_age(&w->repeat, &v->commit) < REPEAT_FRESH &&
           !convicts_has(&w->convicts, &v->accused);
}

/* Who is convicted is out: what else it did needs no case. */
static enum repeat_end
ended(struct work *w, enum repeat_end end, const struct peer_id *accused)
{
    if (end == REPEAT_CONVICTED) {
        repeat_close(&w->repeat, accused);
    }
    return end;
}

/* Our own word. */
static enum repeat_end speak(struct work *w, const struct verdict_body *v)
{
    enum repeat_end end;

    if (v->verdict != REPEAT_BAD) {
        end = repeat_say(&w->repeat, &w->self, &v->commit, &v->accused,
                         (enum repeat_verdict)v->verdict);
    } else if (is_of_use(w, v) ||
               repeat_is_open(&w->repeat, &v->commit, &v->accused)) {
        end = repeat_accuse(&w->repeat, &w->self, &v->commit, &v->accused);
    } else {
        end = REPEAT_NONE;
    }
    return ended(w, end, &v->accused);
}

/* Nobody looks into what we read of that one. */
static void note_look(struct work *w, const struct peer_id *id)
{
    for (uint32_t k = 0; k < w->n_looks; k++) {
        if (id_eq(&w->looks[k], id)) {
            return;
        }
    }
    if (convicts_has(&w->convicts, id)) {
        return;
    }
    if (w->n_looks < WORK_LOOKS) {
        w->looks[w->n_looks++] = *id;
    }
}

/* Where it is part of a case, or opens one. */
static void say(struct work *w,
                const struct repeat_commit *c,
                uint32_t accused,
                uint8_t verdict)
{
    struct work_word word = {.body = {.round = c->round,
                                      .commit = c->hash,
                                      .accused = c->member[accused],
                                      .verdict = verdict}};

    if (w->n_words == WORK_WORDS) { /* what counts is told to the others */
        return;
    }
    word.end = speak(w, &word.body);
    word.counted = w->repeat.counted;
    if (verdict == REPEAT_BAD &&
        (word.end == REPEAT_NONE || word.end == REPEAT_WAITS)) {
        note_look(w, &c->member[accused]);
    }
    if (word.end != REPEAT_NONE) {
        w->words[w->n_words++] = word;
    }
}

bool work_take_word(struct work *w, struct work_word *word)
{
    if (w->n_words == 0) {
        return false;
    }
    *word = w->words[0];
    memmove(w->words, w->words + 1, --w->n_words * sizeof w->words[0]);
    return true;
}

bool work_take_silent(struct work *w, struct peer_id *who)
{
    if (w->n_silent == 0) {
        return false;
    }
    *who = w->silent[--w->n_silent];
    return true;
}

enum repeat_end work_on_verdict(struct work *w,
                                const struct peer_id *speaker,
                                const struct verdict_body *m)
{
    const struct repeat_commit *c = repeat_commit_of(&w->repeat, &m->commit);
    enum repeat_end end;

    /* What is signed of another round is no part of a conviction. */
    if (c == NULL || c->round != m->round || m->verdict > REPEAT_BAD) {
        return REPEAT_NONE;
    }
    end = m->verdict == REPEAT_BAD
              ? repeat_accuse(&w->repeat, speaker, &m->commit, &m->accused)
              : repeat_say(&w->repeat, speaker, &m->commit, &m->accused,
                           (enum repeat_verdict)m->verdict);
    return ended(w, end, &m->accused);
}

/* ---- a lease ------------------------------------------------------------- */

void work_give_up(struct work *w, struct work_task *t, struct out *out)
{
    struct job *job;

    work_fetch_end(w, t, out); /* first: no piece may open a room again */
    job = t->phase == WORK_IDLE ? NULL : out_job(out, JOB_REPEAT);
    if (job != NULL) {
        job->repeat = (struct job_repeat){.stop = true,
                                          .round = t->about.what.round,
                                          .base = hash32_u64(&t->about.base),
                                          .maker = *work_maker_id(t)};
    }
    t->phase = WORK_IDLE;
    t->again = false;
}

void work_pass(struct work *w, struct work_task *t, struct out *out)
{
    work_give_up(w, t, out);
    if (t->is_case) {
        say(w, &t->about.what, t->maker, REPEAT_UNCLEAR);
    }
}

void work_unserved(struct work *w, struct work_task *t, struct out *out)
{
    w->n_unserved++;
    if (w->n_commits > 0 &&
        t->about.what.round + WORK_COMMITS >
            w->commit[0].what.round + 1) { /* ours may be one behind */
        work_name_silent(w, work_maker_id(t));
    }
    work_pass(w, t, out);
}

void work_convict(struct work *w, const struct peer_id *id)
{
    (void)convicts_add(&w->convicts, id);
    for (uint32_t k = 0; k < w->n_looks;) {
        if (id_eq(&w->looks[k], id)) {
            w->looks[k] = w->looks[--w->n_looks];
        } else {
            k++;
        }
    }
}

void work_stop(struct work *w, struct out *out)
{
    for (uint32_t k = 0; k < WORK_ROOMS; k++) {
        work_give_up(w, &w->task[k], out);
    }
    w->n_commits = 0;
    memset(w->drawn, 0, sizeof w->drawn);
    w->n_silent = w->n_words = w->n_known = w->n_looks = 0;
    w->repeat.n_commits = 0;
    memset(w->repeat.cases, 0, sizeof w->repeat.cases);
}

static struct work_task *free_task(struct work *w)
{
    for (uint32_t k = 0; k < WORK_ROOMS; k++) {
        if (w->task[k].phase == WORK_IDLE) {
            return &w->task[k];
        }
    }
    return NULL;
}

static void begin(struct work *w,
                  struct work_task *t,
                  uint32_t at,
                  uint32_t maker,
                  bool is_case)
{
    t->about = w->commit[at];
    t->maker = maker;
    t->is_case = is_case;
    work_fetch_begin(w, t);
}

/* Whether we have not spoken in that case, and can. */
static bool may_speak(const struct work *w, const struct repeat_case *k)
{
    const struct repeat_commit *c = &w->repeat.commit[k->commit];
    uint32_t self = k->open ? work_place(c, &w->self) : c->n;

    return self < c->n && self != k->accused && (c->full >> self & 1) &&
           !(k->said >> self & 1);
}

/* NULL: nothing. */
static const struct verdict_body *what_we_read(const struct work *w,
                                               const struct hash32 *commit,
                                               const struct peer_id *accused)
{
    for (uint32_t k = 0; k < WORK_KNOWN && k < w->n_known; k++) {
        if (hash32_eq(&w->known[k].commit, commit) &&
            id_eq(&w->known[k].accused, accused)) {
            return &w->known[k];
        }
    }
    return NULL;
}

/* What needs no repeat: we made one, or cannot make any. */
static bool say_at_once(struct work *w, const struct repeat_case *k)
{
    const struct repeat_commit *c = &w->repeat.commit[k->commit];
    const struct verdict_body *v =
        what_we_read(w, &c->hash, &c->member[k->accused]);
    bool gone = k->waits ? k->commit >= REPEAT_FRESH
                         : k->commit > 0 && !is_chained(w, k->commit);

    if (v != NULL || gone) {
        say(w, c, k->accused, v != NULL ? v->verdict : REPEAT_UNCLEAR);
    }
    return v != NULL || gone;
}

/* Whether a room is of that lease. One that was drawn is part of the case when
 * that is looked into, and not before: cases that wait would take all rooms. */
static bool is_looked_into(struct work *w, const struct repeat_case *k)
{
    for (uint32_t i = 0; i < WORK_ROOMS; i++) {
        struct work_task *t = &w->task[i];

        if (t->phase != WORK_IDLE && t->maker == k->accused &&
            hash32_eq(&w->repeat.commit[k->commit].hash, &t->about.what.hash)) {
            t->is_case = t->is_case || !k->waits;
            return true;
        }
    }
    return false;
}

/* A case whose lease we can make again; the commit after it may be to come. In
 * others we can tell nothing, and say so. */
static const struct repeat_case *case_for(struct work *w)
{
    for (uint32_t i = 0; i < VIEW_MEMBERS_MAX; i++) {
        const struct repeat_case *k = &w->repeat.cases[i];

        if (!may_speak(w, k) || is_looked_into(w, k) || say_at_once(w, k)) {
            continue; /* what is here may be served no more */
        }
        if (!k->waits && k->commit > 0) {
            return k;
        }
    }
    return NULL;
}

/* Whether the case that we look into goes on; or what we drew is of use. */
static bool is_wanted(const struct work *w, const struct work_task *t)
{
    for (uint32_t i = 0; i < VIEW_MEMBERS_MAX; i++) {
        const struct repeat_case *k = &w->repeat.cases[i];

        if (k->open && k->accused == t->maker &&
            hash32_eq(&w->repeat.commit[k->commit].hash, &t->about.what.hash)) {
            return true;
        }
    }
    return !t->is_case && !convicts_has(&w->convicts, work_maker_id(t));
}

/* Whether a lease is looked into that was only drawn. */
static bool has_drawn(const struct work *w)
{
    for (uint32_t k = 0; k < WORK_ROOMS; k++) {
        if (w->task[k].phase != WORK_IDLE && !w->task[k].is_case) {
            return true;
        }
    }
    return false;
}

/* The oldest commit of which a lease was drawn that is still served; 0: none.
 */
static uint32_t drawn_at(const struct work *w)
{
    for (uint32_t at = WORK_COMMITS - 2; at > 0; at--) {
        if (w->drawn[at] > 0 && is_chained(w, at)) {
            return at;
        }
    }
    return 0;
}

static void choose(struct work *w, struct out *out)
{
    struct work_task *t;
    uint32_t at;

    for (uint32_t i = 0; i < WORK_ROOMS; i++) {
        if (w->task[i].phase != WORK_IDLE && !is_wanted(w, &w->task[i])) {
            work_give_up(w, &w->task[i], out);
        }
    }
    while ((t = free_task(w)) != NULL) {
        const struct repeat_case *k = case_for(w);

        if (k == NULL) {
            break;
        }
        begin(w, t, k->commit, k->accused, true);
    }
    at = drawn_at(w);
    if (t != NULL && at > 0 && !has_drawn(w)) {
        begin(w, t, at, w->drawn[at] - 1, false);
        w->drawn[at] = 0;
    }
}

void work_tick(struct work *w, uint64_t now_ms, struct out *out)
{
    choose(w, out);
    work_fetch_tick(w, now_ms, out);
    if (w->active == WORK_ROOMS) { /* one was given up */
        choose(w, out);
        work_fetch_tick(w, now_ms, out);
    }
}

/* ---- made again ---------------------------------------------------------- */

/* In a case all have one to make. */
static bool
is_turn(const struct work *w, const struct work_task *t, uint64_t round)
{
    const struct repeat_commit *c = &t->about.what;
    uint32_t n = c->n < WORK_TURNS ? c->n : WORK_TURNS;

    return !t->is_case || round % n == work_place(c, &w->self) % n;
}

static struct work_task *in_phase(struct work *w, enum work_phase phase)
{
    for (uint32_t k = 0; k < WORK_ROOMS; k++) {
        if (w->task[k].phase == phase) {
            return &w->task[k];
        }
    }
    return NULL;
}

/* A case first, and of two the older one: where all make the same one again, it
 * ends early, and half of the members have their next turn for the other. */
static bool is_sooner(const struct work_task *a, const struct work_task *b)
{
    if (a->is_case != b->is_case) {
        return a->is_case;
    }
    return a->about.what.round != b->about.what.round
               ? a->about.what.round < b->about.what.round
               : a->maker < b->maker;
}

/* What can be made again in that round; NULL: nothing. */
static struct work_task *for_round(struct work *w, uint64_t round)
{
    struct work_task *best = NULL;

    for (uint32_t k = 0; k < WORK_ROOMS; k++) {
        struct work_task *t = &w->task[k];

        if (t->phase == WORK_WAITING && is_turn(w, t, round) &&
            (best == NULL || is_sooner(t, best))) {
            best = t;
        }
    }
    return best;
}

bool work_is_repeating(const struct work *w)
{
    for (uint32_t k = 0; k < WORK_ROOMS; k++) {
        if (w->task[k].phase == WORK_REPEATING) {
            return true;
        }
    }
    return false;
}

bool work_begin_repeat(struct work *w, uint64_t round, struct out *out)
{
    struct work_task *t = for_round(w, round);
    struct job *job;
    uint32_t at;

    if (work_is_repeating(w) || t == NULL) {
        return work_is_repeating(w);
    }
    at = out_bytes(out, &work_maker_of(t)->lease, sizeof(struct lease));
    job = at == UINT32_MAX ? NULL : out_job(out, JOB_REPEAT);
    if (job == NULL) {
        return false; /* later */
    }
    job->repeat = (struct job_repeat){
        .round = t->about.what.round,
        .base = hash32_u64(&t->about.base),
        .maker = *work_maker_id(t),
        .lease = {at, sizeof(struct lease)},
        .steps = work_maker_of(t)->steps,
        .moment_steps = work_maker_of(t)->moment_steps,
        .leads = work_maker_of(t)->leads,
    };
    t->phase = WORK_REPEATING;
    return true;
}

static void know(struct work *w, const struct work_task *t, uint8_t verdict)
{
    w->known[w->n_known++ % WORK_KNOWN] =
        (struct verdict_body){.round = t->about.what.round,
                              .commit = t->about.what.hash,
                              .accused = *work_maker_id(t),
                              .verdict = verdict};
}

bool work_repeated(struct work *w, const struct local_event *e, struct out *out)
{
    uint8_t verdict = e->rc == 0 ? e->repeated.verdict : REPEAT_UNCLEAR;
    struct work_task *t = in_phase(w, WORK_REPEATING);

    if (t == NULL || e->repeated.round != t->about.what.round ||
        !id_eq(&e->repeated.maker, work_maker_id(t))) {
        return false;
    }
    if (e->rc == LOCO_EBUSY) { /* one that was stopped is not over yet */
        t->phase = WORK_WAITING;
        return true;
    }
    work_give_up(w, t, out); /* it lets go of the state */
    w->n_read++;
    w->n_unclear += verdict == REPEAT_UNCLEAR;
    if (verdict == REPEAT_BAD) {
        w->n_bad++;
        work_name_silent(w, work_maker_id(t));
    }
    know(w, t, verdict);
    say(w, &t->about.what, t->maker, verdict);
    return true;
}
