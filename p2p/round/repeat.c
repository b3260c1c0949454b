/* repeat.c - see repeat.h. */
#include "p2p/round/repeat.h"

#include <math.h>
#include <string.h>

#include "proto/base/rng.h"

/* ---- readings ----------------------------------------------------------- */

static bool is_finite(const struct repeat_reading *r)
{
    return isfinite(r->cosine) && isfinite(r->own) && isfinite(r->length) &&
           isfinite(r->best) && isfinite(r->best_own);
}

/* Comparisons with what is no number are false. */
static bool goes_on(const struct repeat_reading *r)
{
    return (!r->has_after || (r->after >= REPEAT_AFTER &&
                              r->after_stretch <= REPEAT_AFTER_STRETCH)) &&
           (!r->has_next || r->next <= 1);
}

double repeat_next(double apart, double agree)
{
    return apart / (REPEAT_NEXT + REPEAT_NEXT_AGREE * agree);
}

static bool is_good(const struct repeat_reading *r)
{
    return r->cosine >= REPEAT_NEAR * r->best &&
           r->own >= REPEAT_OWN * r->best_own && r->length <= REPEAT_LENGTH &&
           r->length * REPEAT_LENGTH >= 1 && goes_on(r);
}

static bool is_far(const struct repeat_reading *r)
{
    return r->steady >= REPEAT_WILD && r->own < REPEAT_FAR * r->best_own;
}

enum repeat_verdict repeat_judge(const struct repeat_reading *r)
{
    if (!is_finite(r) || r->best < REPEAT_CLEAR || r->best_own < REPEAT_CLEAR) {
        return REPEAT_UNCLEAR;
    }
    if (is_good(r)) {
        /* Whose text is of another kind than ours has moments of other lengths,
         * so that this is no proof; but it is no good work either. */
        return r->has_stretch && !(r->stretch <= REPEAT_STRETCH)
                   ? REPEAT_UNCLEAR
                   : REPEAT_GOOD;
    }
    if (!r->has_steady) {
        return REPEAT_AGAIN;
    }
    if (r->steady >= REPEAT_STEADY || is_far(r)) {
        return REPEAT_BAD;
    }
    if (r->begins) {
        return REPEAT_UNCLEAR;
    }
    return !r->has_calm             ? REPEAT_AGAIN
           : r->calm >= REPEAT_CALM ? REPEAT_BAD
                                    : REPEAT_UNCLEAR;
}

/* ---- draws -------------------------------------------------------------- */

bool repeat_draw(const struct repeat_commit *c,
                 uint32_t self,
                 uint64_t secret,
                 uint32_t *whom)
{
    uint64_t rng = secret;
    uint64_t left = self < c->n ? c->lease & ~(1ULL << self) : 0;
    uint64_t every = c->every == 0 ? REPEAT_EVERY : c->every;

    if (left == 0 || !(c->full >> self & 1) ||
        __builtin_popcountll(c->full) < REPEAT_FULL_MIN ||
        rng_below(&rng, every) != 0) {
        return false;
    }
    for (uint64_t skip = rng_below(&rng, (uint64_t)__builtin_popcountll(left));
         skip > 0; skip--) {
        left &= left - 1;
    }
    *whom = (uint32_t)__builtin_ctzll(left);
    return true;
}

/* ---- accounts ----------------------------------------------------------- */

static const struct repeat_account *account_of(const struct repeat *r,
                                               const struct peer_id *id)
{
    for (uint32_t i = 0; i < REPEAT_ACCOUNTS; i++) {
        if (r->account[i].n_failed > 0 && id_eq(&r->account[i].id, id)) {
            return &r->account[i];
        }
    }
    return NULL;
}

/* Where its next failure is written: its own account, a free one, or that of
 * who may accuse first. */
static struct repeat_account *place_for(struct repeat *r,
                                        const struct peer_id *id)
{
    const struct repeat_account *own = account_of(r, id);
    struct repeat_account *place = &r->account[0];

    if (own != NULL) {
        return &r->account[own - r->account];
    }
    for (uint32_t i = 1; i < REPEAT_ACCOUNTS; i++) {
        if (r->account[i].next_round < place->next_round) {
            place = &r->account[i];
        }
    }
    *place = (struct repeat_account){.id = *id};
    return place;
}

static void charge(struct repeat *r, const struct peer_id *id)
{
    struct repeat_account *a = place_for(r, id);

    a->next_round = r->commit[0].round + ((uint64_t)REPEAT_WAIT << a->n_failed);
    a->n_failed += a->n_failed < REPEAT_WAIT_BITS;
}

bool repeat_may_accuse(const struct repeat *r,
                       const struct peer_id *id,
                       uint64_t round)
{
    const struct repeat_account *a = account_of(r, id);

    return a == NULL || round >= a->next_round;
}

/* ---- cases -------------------------------------------------------------- */

void repeat_init(struct repeat *r)
{
    memset(r, 0, sizeof *r);
}

/* Whether one more case can be looked into. */
static bool has_room(const struct repeat *r)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < VIEW_MEMBERS_MAX; i++) {
        n += r->cases[i].open && !r->cases[i].waits;
    }
    return n < REPEAT_CASES_MAX;
}

/* Of those that wait, and can still be looked into, the oldest; NULL: none. */
static struct repeat_case *next_case(struct repeat *r)
{
    struct repeat_case *next = NULL;

    for (uint32_t i = 0; i < VIEW_MEMBERS_MAX; i++) {
        struct repeat_case *k = &r->cases[i];

        if (k->open && k->waits && k->commit < REPEAT_FRESH &&
            (next == NULL || k->commit > next->commit)) {
            next = k;
        }
    }
    return next;
}

static void settle(struct repeat *r, struct repeat_case *c)
{
    struct repeat_case *next;

    c->open = false;
    r->settled[c->commit] |= 1ULL << c->accused;
    next = has_room(r) ? next_case(r) : NULL;
    if (next != NULL) {
        next->waits = false;
    }
}

/* Nobody could look into a case that waited all the time. */
static void dismiss(struct repeat *r, struct repeat_case *c)
{
    settle(r, c);
    if (!c->waits) {
        charge(r, &r->commit[c->commit].member[c->accuser]);
    }
}

/* Whether nobody speaks about that commit any more after commit c. Counted in
 * rounds: who missed some would have commits that others forgot long ago. */
static bool
is_old(const struct repeat *r, uint32_t i, const struct repeat_commit *c)
{
    return i + 1 >= REPEAT_COMMITS ||
           r->commit[i].round + REPEAT_COMMITS <= c->round;
}

void repeat_commit(struct repeat *r, const struct repeat_commit *c)
{
    for (uint32_t i = 0; i < VIEW_MEMBERS_MAX; i++) {
        struct repeat_case *k = &r->cases[i];

        if (k->open && is_old(r, k->commit, c)) {
            dismiss(r, k);
        }
        k->commit += k->open;
    }
    while (r->n_commits > 0 && is_old(r, r->n_commits - 1, c)) {
        r->n_commits--;
    }
    memmove(r->commit + 1, r->commit,
            (REPEAT_COMMITS - 1) * sizeof r->commit[0]);
    memmove(r->settled + 1, r->settled,
            (REPEAT_COMMITS - 1) * sizeof r->settled[0]);
    r->settled[0] = 0;
    r->commit[0] = *c;
    r->n_commits++;
}

/* Place of a member in a commit; n: none. */
static uint32_t place_of(const struct repeat_commit *c,
                         const struct peer_id *id)
{
    uint32_t i = 0;

    while (i < c->n && !id_eq(&c->member[i], id)) {
        i++;
    }
    return i;
}

/* Place of a commit; n_commits: none. */
static uint32_t find_commit(const struct repeat *r, const struct hash32 *hash)
{
    uint32_t i = 0;

    while (i < r->n_commits && !hash32_eq(&r->commit[i].hash, hash)) {
        i++;
    }
    return i;
}

uint32_t repeat_age(const struct repeat *r, const struct hash32 *commit)
{
    uint32_t i = find_commit(r, commit);

    return i < r->n_commits ? i : REPEAT_COMMITS;
}

const struct repeat_commit *repeat_commit_of(const struct repeat *r,
                                             const struct hash32 *hash)
{
    uint32_t i = find_commit(r, hash);

    return i < r->n_commits ? &r->commit[i] : NULL;
}

static struct repeat_case *
find_case(struct repeat *r, uint32_t commit, uint32_t accused)
{
    for (uint32_t i = 0; i < VIEW_MEMBERS_MAX; i++) {
        struct repeat_case *k = &r->cases[i];

        if (k->open && k->commit == commit && k->accused == accused) {
            return k;
        }
    }
    return NULL;
}

bool repeat_is_open(const struct repeat *r,
                    const struct hash32 *commit,
                    const struct peer_id *accused)
{
    for (uint32_t i = 0; i < VIEW_MEMBERS_MAX; i++) {
        const struct repeat_case *k = &r->cases[i];

        if (k->open && hash32_eq(&r->commit[k->commit].hash, commit) &&
            id_eq(&r->commit[k->commit].member[k->accused], accused)) {
            return true;
        }
    }
    return false;
}

void repeat_close(struct repeat *r, const struct peer_id *accused)
{
    for (uint32_t i = 0; i < VIEW_MEMBERS_MAX; i++) {
        struct repeat_case *k = &r->cases[i];

        if (k->open &&
            id_eq(&r->commit[k->commit].member[k->accused], accused)) {
            settle(r, k);
        }
    }
}

/* A free place; NULL: none is, or one of this accuser is open. */
static struct repeat_case *free_case(struct repeat *r,
                                     const struct peer_id *accuser)
{
    struct repeat_case *place = NULL;

    for (uint32_t i = 0; i < VIEW_MEMBERS_MAX; i++) {
        struct repeat_case *k = &r->cases[i];

        if (!k->open) {
            place = k;
        } else if (id_eq(&r->commit[k->commit].member[k->accuser], accuser)) {
            return NULL;
        }
    }
    return place;
}

static uint32_t count(uint64_t mask)
{
    return (uint32_t)__builtin_popcountll(mask);
}

/* Of whom a statement speaks. */
struct words {
    uint32_t commit, speaker, accused; /* places */
};

/* False: of a commit that is not here, of no full member, of itself. */
static bool find_words(const struct repeat *r,
                       const struct peer_id *speaker,
                       const struct hash32 *commit,
                       const struct peer_id *accused,
                       struct words *w)
{
    const struct repeat_commit *c;

    w->commit = find_commit(r, commit);
    if (w->commit == r->n_commits) {
        return false;
    }
    c = &r->commit[w->commit];
    w->speaker = place_of(c, speaker);
    w->accused = place_of(c, accused);
    return w->speaker < c->n && w->accused < c->n && w->speaker != w->accused &&
           (c->full >> w->speaker & 1);
}

static void
counted(struct repeat *r, const struct repeat_case *k, const struct words *w)
{
    r->counted = (struct repeat_counted){.place = (uint32_t)(k - r->cases),
                                         .speaker = w->speaker,
                                         .bad = k->bad};
}

/* Whether as many as can still speak may convict. */
static bool is_possible(const struct repeat_commit *c,
                        const struct repeat_case *k)
{
    uint64_t open = c->full & ~k->said & ~(1ULL << k->accused);

    return 2 * (count(k->bad) + count(open)) > count(c->full);
}

enum repeat_end repeat_accuse(struct repeat *r,
                              const struct peer_id *accuser,
                              const struct hash32 *commit,
                              const struct peer_id *accused)
{
    struct words w;
    struct repeat_case *place, k;

    if (!find_words(r, accuser, commit, accused, &w) ||
        !(r->commit[w.commit].lease >> w.accused & 1) ||
        (r->settled[w.commit] >> w.accused & 1)) {
        return REPEAT_NONE;
    }
    if (find_case(r, w.commit, w.accused) != NULL) {
        return repeat_say(r, accuser, commit, accused, REPEAT_BAD);
    }
    place = free_case(r, accuser);
    k = (struct repeat_case){.open = true,
                             .waits = !has_room(r),
                             .commit = w.commit,
                             .accused = w.accused,
                             .accuser = w.speaker,
                             .said = 1ULL << w.speaker,
                             .bad = 1ULL << w.speaker};
    if (place == NULL || w.commit > REPEAT_FRESH ||
        !is_possible(&r->commit[w.commit], &k) ||
        !repeat_may_accuse(r, accuser, r->commit[0].round)) {
        return REPEAT_NONE;
    }
    *place = k;
    counted(r, place, &w);
    return k.waits ? REPEAT_WAITS : REPEAT_NEW;
}

enum repeat_end repeat_say(struct repeat *r,
                           const struct peer_id *speaker,
                           const struct hash32 *commit,
                           const struct peer_id *accused,
                           enum repeat_verdict verdict)
{
    struct words w;
    struct repeat_case *k;

    if (!find_words(r, speaker, commit, accused, &w)) {
        return REPEAT_NONE;
    }
    k = find_case(r, w.commit, w.accused);
    if (k == NULL || (k->said >> w.speaker & 1)) {
        return REPEAT_NONE;
    }
    k->said |= 1ULL << w.speaker;
    k->bad |= verdict == REPEAT_BAD ? 1ULL << w.speaker : 0;
    counted(r, k, &w);
    if (2 * count(k->bad) > count(r->commit[w.commit].full)) {
        settle(r, k);
        return REPEAT_CONVICTED;
    }
    if (!is_possible(&r->commit[w.commit], k)) {
        dismiss(r, k);
        return REPEAT_DISMISSED;
    }
    return REPEAT_OPEN;
}
