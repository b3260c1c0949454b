/* ballot.c - when a view is replaced: wishes and time; see ballot.h.
 *
 * Happy path: want -> propose -> PREPARE .. PROMISE* -> conclude -> ACCEPT ..
 * ACCEPTED* -> certify -> VIEW -> adopt everywhere.
 *
 * A wish (ballot_want) comes from a loss, a SUSPECT or a waiting joiner. While
 * one is open the owners of the next ballots are tried in turn.
 *
 * What can go wrong
 *   1. the owner of a ballot dies: after ballot_ms everybody turns to the
 *      owner of the next one (try_next);
 *   2. a message is lost: the same, or GET_VIEW after a heartbeat with a newer
 *      epoch (node.c);
 *   3. no majority is left: ballots fail until fork_after_ms, then FORK.
 */
#include "p2p/round/ballot_internal.h"
#include "p2p/round/seats.h"

#include <string.h>

void ballot_init(struct ballot *b,
                 const struct ballot_options *opt,
                 struct members *members,
                 uint64_t now_ms)
{
    memset(b, 0, sizeof *b);
    b->opt = *opt;
    b->members = members;
    b->rng = opt->seed;
    b->self_index = -1;
    b->doubt_since_ms = now_ms;
}

void ballot_restart(struct ballot *b, uint64_t now_ms)
{
    struct ballot_options opt = b->opt;
    struct convicts convicts = b->convicts;
    uint32_t malformed = b->malformed;

    ballot_init(b, &opt, b->members, now_ms);
    b->convicts = convicts;
    b->malformed = malformed;
}

void ballot_configure(struct ballot *b,
                      uint32_t fork_after_ms,
                      enum exchange_kind exchange,
                      uint32_t probation_rounds)
{
    b->opt.fork_after_ms = fork_after_ms;
    b->opt.exchange = exchange;
    b->opt.probation_rounds = probation_rounds;
}

void ballot_set_group(struct ballot *b, const struct hash32 *group)
{
    b->opt.run = *group;
}

bool ballot_take_view(struct ballot *b)
{
    bool was = b->adopted;

    b->adopted = false;
    return was;
}

uint32_t ballot_take_left_out(struct ballot *b,
                              struct peer_id ids[VIEW_MEMBERS_MAX])
{
    uint32_t n = b->n_left_out;

    memcpy(ids, b->left_out, n * sizeof *ids);
    b->n_left_out = 0;
    return n;
}

void ballot_gap(struct ballot *b, uint64_t now_ms)
{
    b->doubt_since_ms = now_ms;
}

void ballot_want(struct ballot *b, enum ballot_want want, uint64_t now_ms)
{
    if (!b->have || want <= b->want) {
        return;
    }
    b->want = want;
    b->try_at_ms = now_ms;
    if (b->next_ballot <= b->promised && b->has_promised) {
        b->next_ballot = b->promised + 1;
    }
}

/* ---- who is there ----------------------------------------------------- */

bool ballot_joiner_here(const struct ballot *b, const struct ballot_joiner *j)
{
    return j->used && members_linked(b->members, j->peer) &&
           memcmp(b->members->peers[j->peer].public_key, j->public_key,
                  sizeof j->public_key) == 0 &&
           !ballot_is_convict(b, &b->members->peers[j->peer].id);
}

bool ballot_joiner_holds(const struct ballot_joiner *j,
                         uint64_t round,
                         const struct hash32 *commit)
{
    return j->round == round && hash32_eq(&j->commit, commit);
}

static uint32_t of_group(const struct ballot *b, const struct msg_address *at)
{
    uint32_t n = 0;

    for (int k = 0; k < BALLOT_JOINERS_MAX; k++) {
        n += seats_same_group(at, &b->joiners[k].join.body.address);
    }
    return n;
}

/* All places are taken: one of an address group that has two or more of them
 * more than that of `at`; NULL: there is none. */
static struct ballot_joiner *crowded(struct ballot *b,
                                     const struct msg_address *at)
{
    struct ballot_joiner *slot = NULL;
    uint32_t most = of_group(b, at) + 1;

    for (int k = 0; k < BALLOT_JOINERS_MAX; k++) {
        uint32_t n = of_group(b, &b->joiners[k].join.body.address);

        if (n > most) {
            most = n;
            slot = &b->joiners[k];
        }
    }
    return slot;
}

void ballot_joiner_add(struct ballot *b,
                       int peer,
                       const struct join *join,
                       uint64_t round,
                       const struct hash32 *commit,
                       uint64_t now_ms)
{
    struct ballot_joiner *slot = NULL;

    for (int k = 0; k < BALLOT_JOINERS_MAX; k++) {
        struct ballot_joiner *j = &b->joiners[k];

        if (j->used && j->peer == peer) {
            slot = j;
            break;
        }
        if (!ballot_joiner_here(b, j) && slot == NULL) {
            slot = j;
        }
    }
    if (slot == NULL) {
        slot = crowded(b, &join->body.address);
    }
    if (slot == NULL) {
        return; /* it asks again */
    }
    *slot = (struct ballot_joiner){
        .used = true,
        .tried = slot->used && slot->peer == peer && slot->tried,
        .tried_round = slot->tried_round,
        .peer = peer,
        .said_ms = now_ms,
        .round = round,
        .commit = *commit,
        .linked = slot->used && slot->peer == peer ? slot->linked : 0,
        .join = *join,
    };
    memcpy(slot->public_key, b->members->peers[peer].public_key, 32);
}

void ballot_joiners_follow(struct ballot *b,
                           const struct hash32 *base,
                           uint64_t round,
                           const struct hash32 *commit,
                           uint64_t since_ms)
{
    for (int k = 0; k < BALLOT_JOINERS_MAX; k++) {
        struct ballot_joiner *j = &b->joiners[k];

        if (j->used && j->said_ms >= since_ms && j->round + 1 == round &&
            j->join.body.round + JOIN_BEHIND_MAX >= round &&
            hash32_eq(&j->commit, base)) {
            j->round = round;
            j->commit = *commit;
        }
    }
}

static bool has_seat(const struct ballot *b, const struct ballot_joiner *j)
{
    struct peer_id id = id_of_public(j->public_key);

    return seats_find(&b->cert.body, &j->join.body.address,
                      b->opt.probation_rounds == 0 ||
                          probation_was_full(&b->probation, &id)) >= 0;
}

/* Whether a view made now would take in somebody new. */
static bool joiner_waits(const struct ballot *b,
                         const struct ballot_context *ctx)
{
    struct ballot_edges edges;
    bool read = false;

    for (int k = 0; k < BALLOT_JOINERS_MAX; k++) {
        const struct ballot_joiner *j = &b->joiners[k];

        if (ballot_joiner_here(b, j) &&
            ballot_joiner_holds(j, ctx->closing.round, &ctx->closing.commit) &&
            !(j->tried && j->tried_round == j->round) &&
            view_index_key(&b->cert.body, j->public_key) < 0 &&
            !ballot_is_ousted(b, j->public_key, ctx->closing.round) &&
            has_seat(b, j) && ballot_join_is_known(b, &j->join.body)) {
            if (!read) {
                ballot_edges_heard(b, &edges);
                read = true;
            }
            if (ballot_join_fits(&edges, &b->cert.body, &j->join.body)) {
                return true;
            }
        }
    }
    return false;
}

bool ballot_founds(const struct ballot *b, int peer)
{
    return !b->have && b->found_until_ms > b->members->now_ms &&
           id_eq(&b->found_by, &b->members->peers[peer].id);
}

int ballot_index(const struct ballot *b, const struct peer_id *id)
{
    for (uint32_t i = 0; b->have && i < b->cert.body.n_members; i++) {
        if (id_eq(&b->ids[i], id)) {
            return (int)i;
        }
    }
    return -1;
}

void ballot_departed(struct ballot *b, const struct goodbye *m)
{
    int at = ballot_index(b, &m->body.peer);
    struct parting *said;

    if (at < 0) {
        return;
    }
    b->lost |= BIT(at);
    if (m->body.epoch >= b->cert.body.members[at].joined) {
        b->departed.mask |= BIT(at);
        said = &b->departed.said[at];
        *said = (struct parting){.member = (uint8_t)at, .epoch = m->body.epoch};
        memcpy(said->sig, m->sig, SIGN_BYTES);
    }
}

void ballot_lost(struct ballot *b, const struct peer_id *id)
{
    int at = ballot_index(b, id);

    if (at >= 0) {
        b->lost |= BIT(at);
    }
}

void ballot_want_without(struct ballot *b,
                         const struct peer_id *id,
                         uint64_t now_ms)
{
    if (b->have && view_counts(&b->cert.body, id)) {
        ballot_want(b, BALLOT_WANT_CHANGE, now_ms);
    }
}

/* Whether, of those on probation, somebody is gone, lied or has become full. */
static bool probation_ends(const struct ballot *b)
{
    const struct view_body *v = &b->cert.body;

    for (uint32_t i = 0; i < v->n_members; i++) {
        if (!view_is_full(v, i) &&
            ((b->lost >> i & 1) || probation_is_due(&b->probation, &b->ids[i],
                                                    b->opt.probation_rounds))) {
            return true;
        }
    }
    return ballot_convict_waits(b);
}

static uint64_t reachable(const struct ballot *b)
{
    uint64_t mask = 0;

    for (uint32_t i = 0; i < b->cert.body.n_members; i++) {
        if ((int)i == b->self_index ||
            members_reaches(b->members, b->rows[i])) {
            mask |= BIT(i);
        }
    }
    return mask;
}

/* Those who say, each over its own link, that they are in another view: they
 * answer no ballot of ours. After a change of view that is so for a moment. */
static uint64_t elsewhere(const struct ballot *b)
{
    uint64_t mask = 0;

    for (uint32_t i = 0; i < b->cert.body.n_members; i++) {
        const struct member *p = members_linked(b->members, b->rows[i])
                                     ? &b->members->peers[b->rows[i]]
                                     : NULL; /* its last beat may be old */

        if (p != NULL && p->has_beat && p->beat.has_view &&
            !hash32_eq(&p->beat.view, &b->hash)) {
            mask |= BIT(i);
        }
    }
    return mask;
}

static uint64_t can_answer(const struct ballot *b)
{
    return reachable(b) & ~b->lost & ~elsewhere(b);
}

bool ballot_sees_majority(const struct ballot *b)
{
    return b->have &&
           view_quorum(&b->cert.body, can_answer(b), b->departed.mask);
}

/* ---- whose turn it is ------------------------------------------------- */

/* Who may own the next ballot: lives and, as far as we know, did not lie. */
static uint64_t owners(const struct ballot *b)
{
    uint64_t alive = reachable(b) & ~b->lost;
    uint64_t honest = alive & ~ballot_convict_mask(b);

    return (honest & view_full(&b->cert.body)) != 0 ? honest : alive;
}

/* Go on to the next ballot of a member that lives; for a joiner, of ours. */
static uint32_t skip_to_owner(struct ballot *b, uint64_t alive)
{
    uint64_t may = b->want == BALLOT_WANT_JOIN ? BIT(b->self_index) : alive;
    uint32_t owner = 0;

    for (uint32_t k = 0; k < 64 * b->cert.body.n_members; k++) {
        owner = view_ballot_owner(&b->cert.body, b->next_ballot);
        if (may >> owner & 1) {
            break;
        }
        b->next_ballot++;
    }
    return owner;
}

/* Propose the next ballot where it is ours, else ask its owner to. */
static void try_next(struct ballot *b, const struct ballot_context *ctx)
{
    struct suspect s = {.epoch = b->cert.body.epoch, .view = b->hash};
    uint64_t alive = owners(b);
    bool fork = b->fork_bound ||
                (!ballot_sees_majority(b) &&
                 ctx->now_ms - b->doubt_since_ms >= b->opt.fork_after_ms);
    uint32_t owner = 0;

    ballot_note_slow(b, alive, ctx->now_ms);
    b->try_at_ms = ctx->now_ms + ballot_time_ms(b);
    if (fork) {
        uint64_t here = can_answer(b);
        uint64_t full = here & view_full(&b->cert.body);

        owner = (uint32_t)__builtin_ctzll(full != 0 ? full : here);
        if (owner == (uint32_t)b->self_index) {
            uint64_t base =
                b->promised < FORK_BALLOT ? FORK_BALLOT : b->promised + 256;

            ballot_propose(b, ctx, VIEW_FORK, (base & ~0xffULL) | owner);
        }
    } else {
        owner = skip_to_owner(b, alive);
        s.ballot = b->next_ballot++;
        if (owner == (uint32_t)b->self_index) {
            ballot_propose(b, ctx, VIEW_MAJORITY, s.ballot);
        }
    }
    if (owner != (uint32_t)b->self_index && b->want == BALLOT_WANT_CHANGE &&
        ballot_asker(b, ctx, &s.by) == 0) {
        (void)members_send(b->members, ctx->out, b->rows[owner],
                           MESSAGE_SUSPECT, &s);
    }
    if (b->phase == BALLOT_GATHER && b->answered == reachable(b)) {
        ballot_conclude(b, ctx); /* nobody else is there to be asked */
    }
}

/* Somebody waits, and it is our turn to let it in. */
static bool joiner_is_ours(const struct ballot *b,
                           const struct ballot_context *ctx)
{
    return ctx->coordinates && (probation_ends(b) || joiner_waits(b, ctx)) &&
           ballot_may_ask(b, ctx);
}

void ballot_tick(struct ballot *b, const struct ballot_context *ctx)
{
    if (b->phase != BALLOT_IDLE && ctx->now_ms >= b->deadline_ms) {
        if (b->phase == BALLOT_GATHER) {
            ballot_conclude(b, ctx);
        } else {
            ballot_give_up(b, ctx);
        }
    }
    ballot_ask_again(b, ctx);
    if (!b->have) {
        return;
    }
    if (ballot_sees_majority(b)) {
        b->doubt_since_ms = ctx->now_ms;
    }
    ballot_forget_wish(b, ctx);
    ballot_convicts_tick(b, ctx);
    if (b->frozen) {
        b->want = BALLOT_WANT_CHANGE;
    } else if (b->want == BALLOT_WANT_JOIN && !joiner_is_ours(b, ctx)) {
        b->want = BALLOT_WANT_NOTHING;
    } else if (b->want == BALLOT_WANT_NOTHING && joiner_is_ours(b, ctx)) {
        /* Who would make the next plan asks for the view instead: a plan of
         * one member and a ballot of another could freeze each other. */
        ballot_want(b, BALLOT_WANT_JOIN, ctx->now_ms);
    }
    if (b->want != BALLOT_WANT_NOTHING && b->phase == BALLOT_IDLE &&
        ctx->now_ms >= b->try_at_ms) {
        try_next(b, ctx);
    }
}

uint64_t ballot_deadline(const struct ballot *b)
{
    uint64_t due = CORE_NEVER;

    if (b->phase != BALLOT_IDLE) {
        due = b->deadline_ms;
    }
    if (b->phase == BALLOT_GATHER && b->again_ms < due) {
        due = b->again_ms;
    }
    if (b->have && (b->want != BALLOT_WANT_NOTHING || b->frozen) &&
        b->phase == BALLOT_IDLE && b->try_at_ms < due) {
        due = b->try_at_ms;
    }
    return due;
}
