/* work.c - see work.h. */
#include <string.h>

#include "p2p/round/work_internal.h"
#include "proto/base/err.h"

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

/* Of the commit before the newest: what the maker's next lease began with is in
 * the newest. */
static void draw(struct work *w, uint64_t secret)
{
    const struct repeat_commit *c = &w->commit[1].what;
    uint32_t whom;

    w->draw = secret;
    if (is_chained(w, 1)) {
        w->drawn[1] = repeat_draw(c, work_place(c, &w->self), secret, &whom)
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
    struct work_commit next = *c;

    work_fill_in(w, &next);
    memmove(w->commit + 1, w->commit, (WORK_COMMITS - 1) * sizeof w->commit[0]);
    *newest = next;
    w->n_commits += w->n_commits < WORK_COMMITS;
    repeat_commit(&w->repeat, &newest->what);
    memmove(w->drawn + 1, w->drawn, (WORK_COMMITS - 1) * sizeof w->drawn[0]);
    w->drawn[0] = 0;
    draw(w, secret);
    if (w->phase == WORK_FETCHING &&
        w->about.what.round + WORK_COMMITS <= newest->what.round) {
        work_pass(w, out); /* nobody has it any more */
    }
}

/* ---- what is said -------------------------------------------------------- */

/* Our own word. */
static enum repeat_end speak(struct work *w, const struct verdict_body *v)
{
    if (v->verdict == REPEAT_BAD) {
        return repeat_accuse(&w->repeat, &w->self, &v->commit, &v->accused);
    }
    return repeat_say(&w->repeat, &w->self, &v->commit, &v->accused,
                      (enum repeat_verdict)v->verdict);
}

/* Nobody looks into what we read of that one. */
static void note_look(struct work *w, const struct peer_id *id)
{
    for (uint32_t k = 0; k < w->n_looks; k++) {
        if (id_eq(&w->looks[k], id)) {
            return;
        }
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

    word.end = speak(w, &word.body);
    if (verdict == REPEAT_BAD &&
        (word.end == REPEAT_NONE || word.end == REPEAT_WAITS)) {
        note_look(w, &c->member[accused]);
    }
    if (word.end != REPEAT_NONE && w->n_words < WORK_WORDS) {
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
    if (m->verdict == REPEAT_BAD) {
        return repeat_accuse(&w->repeat, speaker, &m->commit, &m->accused);
    }
    return m->verdict > REPEAT_BAD
               ? REPEAT_NONE
               : repeat_say(&w->repeat, speaker, &m->commit, &m->accused,
                            (enum repeat_verdict)m->verdict);
}

/* ---- a lease ------------------------------------------------------------- */

void work_give_up(struct work *w, struct out *out)
{
    struct job *job = w->phase == WORK_IDLE ? NULL : out_job(out, JOB_REPEAT);

    if (w->phase == WORK_FETCHING) {
        work_fetch_cancel(w, out);
    }
    if (job != NULL) {
        job->repeat = (struct job_repeat){.stop = true};
    }
    w->phase = WORK_IDLE;
}

void work_pass(struct work *w, struct out *out)
{
    work_give_up(w, out);
    if (w->is_case) {
        say(w, &w->about.what, w->maker, REPEAT_UNCLEAR);
    }
}

void work_unserved(struct work *w, struct out *out)
{
    w->n_unserved++;
    if (w->n_commits > 0 &&
        w->about.what.round + WORK_COMMITS >
            w->commit[0].what.round + 1) { /* ours may be one behind */
        work_name_silent(w, work_maker_id(w));
    }
    work_pass(w, out);
}

void work_stop(struct work *w, struct out *out)
{
    work_give_up(w, out);
    w->n_commits = 0;
    memset(w->drawn, 0, sizeof w->drawn);
    w->n_silent = w->n_words = w->n_known = w->n_looks = 0;
    w->repeat.n_commits = 0;
    memset(w->repeat.cases, 0, sizeof w->repeat.cases);
}

/* The moments with which the maker's next lease began, if that goes on where
 * this one ended. */
static struct hash32 after(const struct work *w, uint32_t at, uint32_t maker)
{
    const struct work_commit *next = &w->commit[at - 1];
    uint32_t i = work_place(&next->what, &w->commit[at].what.member[maker]);
    struct hash32 none = {{0}};

    return i < next->what.n && (next->what.lease >> i & 1) &&
                   next->maker[i].again && next->maker[i].moment_steps > 0
               ? next->maker[i].moments
               : none;
}

static void
begin(struct work *w, uint32_t at, uint32_t maker, bool is_case, uint64_t now)
{
    w->about = w->commit[at];
    w->maker = maker;
    w->is_case = is_case;
    w->after = after(w, at, maker);
    work_fetch_begin(w, now);
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

/* A case whose lease we can make again; the commit after it may be to come. In
 * others we can tell nothing, and say so. */
static const struct repeat_case *case_for(struct work *w)
{
    for (uint32_t i = 0; i < VIEW_MEMBERS_MAX; i++) {
        const struct repeat_case *k = &w->repeat.cases[i];

        if (!may_speak(w, k) || say_at_once(w, k)) {
            continue;
        }
        if (!k->waits && k->commit > 0) {
            return k;
        }
    }
    return NULL;
}

/* Whether the case that we look into goes on. */
static bool is_wanted(const struct work *w)
{
    for (uint32_t i = 0; i < VIEW_MEMBERS_MAX; i++) {
        const struct repeat_case *k = &w->repeat.cases[i];

        if (k->open && k->accused == w->maker &&
            hash32_eq(&w->repeat.commit[k->commit].hash, &w->about.what.hash)) {
            return true;
        }
    }
    return !w->is_case;
}

/* A drawn lease that we are busy with is begun anew when there is time. */
static void put_back(struct work *w)
{
    for (uint32_t at = 1; at < w->n_commits; at++) {
        if (w->phase != WORK_IDLE && !w->is_case &&
            hash32_eq(&w->commit[at].what.hash, &w->about.what.hash)) {
            w->drawn[at] = w->maker + 1;
        }
    }
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

/* A case comes before a lease that was only drawn. */
static void choose(struct work *w, uint64_t now_ms, struct out *out)
{
    const struct repeat_case *k = NULL;
    uint32_t at, whom;

    if (w->phase != WORK_IDLE && !is_wanted(w)) {
        work_give_up(w, out);
    }
    if (w->phase == WORK_IDLE || (w->phase != WORK_REPEATING && !w->is_case)) {
        k = case_for(w);
    }
    at = drawn_at(w);
    if (k != NULL) {
        put_back(w);
        work_give_up(w, out);
        begin(w, k->commit, k->accused, true, now_ms);
    } else if (w->phase == WORK_IDLE && at > 0) {
        whom = w->drawn[at] - 1;
        w->drawn[at] = 0;
        begin(w, at, whom, false, now_ms);
    }
}

void work_tick(struct work *w, uint64_t now_ms, struct out *out)
{
    choose(w, now_ms, out);
    work_fetch_tick(w, now_ms, out);
    if (w->phase == WORK_IDLE) { /* it was given up */
        choose(w, now_ms, out);
    }
}

/* ---- made again ---------------------------------------------------------- */

/* In a case all have one to make. */
static bool is_turn(const struct work *w, uint64_t round)
{
    const struct repeat_commit *c = &w->about.what;
    uint32_t n = c->n < WORK_TURNS ? c->n : WORK_TURNS;

    return !w->is_case || round % n == work_place(c, &w->self) % n;
}

bool work_begin_repeat(struct work *w, uint64_t round, struct out *out)
{
    struct job *job;
    uint32_t at;

    if (w->phase != WORK_WAITING || !is_turn(w, round)) {
        return w->phase == WORK_REPEATING;
    }
    at = out_bytes(out, &work_maker_of(w)->lease, sizeof(struct lease));
    job = at == UINT32_MAX ? NULL : out_job(out, JOB_REPEAT);
    if (job == NULL) {
        return false; /* later */
    }
    job->repeat = (struct job_repeat){
        .round = w->about.what.round,
        .base = hash32_u64(&w->about.base),
        .maker = *work_maker_id(w),
        .lease = {at, sizeof(struct lease)},
        .steps = work_maker_of(w)->steps,
        .moment_steps = work_maker_of(w)->moment_steps,
    };
    w->phase = WORK_REPEATING;
    return true;
}

static void know(struct work *w, uint8_t verdict)
{
    w->known[w->n_known++ % WORK_KNOWN] =
        (struct verdict_body){.round = w->about.what.round,
                              .commit = w->about.what.hash,
                              .accused = *work_maker_id(w),
                              .verdict = verdict};
}

bool work_repeated(struct work *w, const struct local_event *e, struct out *out)
{
    uint8_t verdict = e->rc == 0 ? e->repeated.verdict : REPEAT_UNCLEAR;

    if (w->phase != WORK_REPEATING ||
        e->repeated.round != w->about.what.round ||
        !id_eq(&e->repeated.maker, work_maker_id(w))) {
        return false;
    }
    work_give_up(w, out); /* it lets go of the state */
    w->n_read++;
    w->n_unclear += verdict == REPEAT_UNCLEAR;
    if (verdict == REPEAT_BAD) {
        w->n_bad++;
        work_name_silent(w, work_maker_id(w));
    }
    know(w, verdict);
    say(w, &w->about.what, w->maker, verdict);
    return true;
}
