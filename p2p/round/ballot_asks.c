/* ballot_asks.c - who asked for a change of view, and whether that is enough to
 * end the round in flight.
 *
 * A *cause* is what a member sees itself: a full member is lost or said
 * goodbye, or more than half of a deadline of its round is over. Without one it
 * takes the word of the full member that asks, which signed it (struct asker),
 * while that member's account allows (asking.h). The word goes on from hand to
 * hand: with SUSPECT to the owner of a ballot, with the owner's PREPARE to
 * everybody, and from whoever it froze to the owners of later ballots and to
 * all others. So who asks one member alone is charged by everybody, and nobody
 * pays for ending what somebody else began.
 *
 * Who is charged pays when the view ends, unless somebody else is out by then:
 * it saw the loss before others did. What nobody believes costs no round. A
 * round that stands still ends by the deadline of each of its members.
 */
#include "p2p/round/ballot_internal.h"

#include <string.h>

/* Of a ballot's time. It takes two halves, less the way of a message. */
#define TURN(time_ms) ((time_ms) - (time_ms) / 4)

/* So many ballots later we ask in our own name: others may know of more debts
 * than we do of whoever froze us, and we are out of rounds until then. */
#define OTHERS_NAME 4

static bool is_loss(const struct ballot *b)
{
    return ((b->lost | b->departed.mask) & view_full(&b->cert.body)) != 0;
}

static bool sees_cause(const struct ballot *b, const struct ballot_context *ctx)
{
    return is_loss(b) || ctx->late;
}

static const uint8_t *key_of(const struct ballot *b, uint32_t member)
{
    return b->cert.body.members[member].public_key;
}

/* Said of this view, and not before the last commit but one. */
static bool
is_said(struct ballot *b, uint64_t newest_round, const struct asker *m)
{
    struct suspect_body body = {
        .epoch = b->cert.body.epoch, .view = b->hash, .round = m->round};

    if (m->member >= b->cert.body.n_members ||
        (newest_round > m->round && newest_round - m->round > 1)) {
        return false;
    }
    if (!message_verify(&b->opt.signer, key_of(b, m->member),
                        &suspect_body_schema, &body, m->sig)) {
        b->malformed++;
        return false;
    }
    return true;
}

static void
keep(struct ballot *b, const struct ballot_context *ctx, const struct asker *m)
{
    if (!b->asks.has_asker) {
        b->asks.has_asker = true;
        b->asks.asker = *m;
        b->asks.asker_ms = ctx->now_ms;
    }
}

/* Whether that one's word is enough for us: it is noted where we see no cause.
 * Of whom it is not nothing is verified. */
static bool
heeds(struct ballot *b, const struct ballot_context *ctx, const struct asker *m)
{
    if (m->member >= b->cert.body.n_members ||
        !view_is_full(&b->cert.body, m->member) ||
        !asking_may(&b->asks, key_of(b, m->member), ctx->closing.round) ||
        !is_said(b, ctx->closing.round, m)) {
        return false;
    }
    if (!sees_cause(b, ctx)) {
        b->asks.noted |= BIT(m->member);
    }
    return true;
}

static bool is_noted(const struct ballot *b, const struct asker *m)
{
    return m->member < VIEW_MEMBERS_MAX && (b->asks.noted >> m->member & 1);
}

/* Everybody is to know who ended our round: it may have asked us alone. */
static void tell(struct ballot *b,
                 const struct ballot_context *ctx,
                 uint64_t ballot,
                 const struct asker *m)
{
    struct suspect s = {.epoch = b->cert.body.epoch,
                        .view = b->hash,
                        .ballot = ballot,
                        .by = *m};

    members_broadcast(b->members, ctx->out, b->rows, b->cert.body.n_members,
                      MESSAGE_SUSPECT, &s);
}

/* Whether that member has promised more than the ballot that we gather for,
 * and would be left out. Each member says so once. */
static bool needs_higher(const struct ballot *b, int peer, uint64_t ballot)
{
    int at = ballot_index(b, &b->members->peers[peer].id);

    return b->phase == BALLOT_GATHER && b->mode == VIEW_MAJORITY &&
           ballot > b->current && !((b->answered | b->asks.higher) >> at & 1);
}

void ballot_on_suspect(struct ballot *b,
                       const struct ballot_context *ctx,
                       int peer,
                       const struct suspect *s)
{
    bool first = b->want != BALLOT_WANT_CHANGE, higher;

    if (!b->have || !ballot_names_our_view(b, s->epoch, &s->view) ||
        !view_counts(&b->cert.body, &b->members->peers[peer].id)) {
        return;
    }
    if (s->ballot >= FORK_BALLOT ||
        view_ballot_owner(&b->cert.body, s->ballot) !=
            (uint32_t)b->self_index) {
        if (!is_noted(b, &s->by)) {
            (void)heeds(b, ctx, &s->by); /* told to us, not asked of us */
        }
        return;
    }
    if (first && !heeds(b, ctx, &s->by)) {
        return;
    }
    if (first) {
        keep(b, ctx, &s->by);
    }
    ballot_want(b, BALLOT_WANT_CHANGE, ctx->now_ms);
    higher = needs_higher(b, peer, s->ballot);
    if (s->ballot <= b->next_ballot ||
        s->ballot > ballot_limit(b, VIEW_MAJORITY) ||
        !(higher || b->frozen || sees_cause(b, ctx))) {
        return;
    }
    b->next_ballot = s->ballot; /* the owners before us are lost */
    if (higher) {
        b->asks.higher |= BIT(ballot_index(b, &b->members->peers[peer].id));
        ballot_propose(b, ctx, VIEW_MAJORITY, b->next_ballot++);
    }
}

/* ---- turns ------------------------------------------------------------ */

/* A higher ballot ends one that is under way. Each owner may do that to others
 * twice (two who begin at once need it); afterwards it waits until a ballot has
 * had its time. */
static bool is_turn(const struct ballot *b, uint32_t owner, uint64_t now_ms)
{
    return !b->has_promised || b->promised >= FORK_BALLOT ||
           view_ballot_owner(&b->cert.body, b->promised) == owner ||
           !(b->asks.owners_too >> owner & 1) ||
           now_ms - b->asks.turn_ms >= TURN(ballot_time_ms(b));
}

void ballot_note_turn(struct ballot *b, uint64_t ballot, uint64_t now_ms)
{
    uint32_t owner = view_ballot_owner(&b->cert.body, ballot);

    if (!b->has_promised || b->promised >= FORK_BALLOT ||
        view_ballot_owner(&b->cert.body, b->promised) != owner) {
        b->asks.turn_ms = now_ms;
        b->asks.owners_too |= b->asks.owners & BIT(owner);
        b->asks.owners |= BIT(owner);
    }
}

void ballot_note_slow(struct ballot *b, uint64_t alive, uint64_t now_ms)
{
    if (b->has_promised && b->promised < FORK_BALLOT &&
        ballot_sees_majority(b) &&
        now_ms - b->asks.turn_ms >= TURN(ballot_time_ms(b))) {
        b->slow |= BIT(view_ballot_owner(&b->cert.body, b->promised));
    }
    if (alive != 0 && (alive & ~b->slow) == 0) {
        b->slow = 0;
        b->slow_turns += b->slow_turns < PATIENCE_MAX;
    }
}

void ballot_wait_for_owner(struct ballot *b,
                           enum view_mode mode,
                           uint64_t now_ms)
{
    uint64_t last_ms = b->asks.turn_ms + ballot_time_ms(b) / 2;
    bool over = mode == VIEW_MAJORITY && now_ms > last_ms;

    b->try_at_ms = (over ? last_ms : now_ms) + ballot_time_ms(b);
}

/* Whether we take the word of who asked for that ballot; all are told. */
static bool takes_word(struct ballot *b,
                       const struct ballot_context *ctx,
                       const struct prepare *p)
{
    bool cause = sees_cause(b, ctx);

    if (p->n_shown == 0) {
        return cause;
    }
    if (cause ? is_said(b, ctx->closing.round, &p->shown[0])
              : heeds(b, ctx, &p->shown[0])) {
        keep(b, ctx, &p->shown[0]);
        if (!cause) {
            tell(b, ctx, p->ballot, &p->shown[0]);
        }
        return true;
    }
    return cause;
}

void ballot_say_higher(struct ballot *b,
                       const struct ballot_context *ctx,
                       int peer,
                       const struct prepare *p)
{
    int at = ballot_index(b, &b->members->peers[peer].id);
    struct suspect s = {
        .epoch = p->epoch, .view = p->view, .ballot = b->promised};

    if (p->mode != VIEW_MAJORITY || at < 0 ||
        !view_is_full(&b->cert.body, (uint32_t)at) || b->fork_bound ||
        !ballot_names_our_view(b, p->epoch, &p->view) || !b->has_promised ||
        p->ballot >= b->promised || ballot_asker(b, ctx, &s.by) != 0) {
        return;
    }
    while (view_ballot_owner(&b->cert.body, s.ballot) != (uint32_t)at) {
        s.ballot++; /* a full member owns one of the next */
    }
    (void)members_send(b->members, ctx->out, peer, MESSAGE_SUSPECT, &s);
}

bool ballot_gives_way(struct ballot *b,
                      const struct ballot_context *ctx,
                      const struct prepare *p)
{
    uint32_t owner = view_ballot_owner(&b->cert.body, p->ballot);

    if (!b->have) {
        return is_turn(b, owner, ctx->now_ms);
    }
    if (!p->urgent &&
        owner == view_coordinator(&b->cert.body, ctx->closing.round + 1)) {
        b->asks.joins |= BIT(owner);
    }
    if (b->frozen && !is_turn(b, owner, ctx->now_ms)) {
        return false;
    }
    if (b->frozen) {
        if (p->n_shown > 0 && !is_noted(b, &p->shown[0])) {
            (void)heeds(b, ctx, &p->shown[0]);
        }
        return true;
    }
    if (ctx->in_flight && !p->urgent) {
        return false;
    }
    return takes_word(b, ctx, p);
}

/* ---- our own wish ------------------------------------------------------- */

int ballot_asker(const struct ballot *b,
                 const struct ballot_context *ctx,
                 struct asker *m)
{
    struct suspect_body body = {.epoch = b->cert.body.epoch,
                                .view = b->hash,
                                .round = ctx->closing.round};

    if (b->asks.has_asker && !is_loss(b) &&
        ctx->now_ms - b->asks.asker_ms < OTHERS_NAME * ballot_time_ms(b)) {
        *m = b->asks.asker;
        return 0;
    }
    m->member = (uint8_t)b->self_index;
    m->round = body.round;
    return message_sign(&b->opt.signer, &suspect_body_schema, &body, m->sig);
}

bool ballot_may_ask(const struct ballot *b, const struct ballot_context *ctx)
{
    return asking_may(&b->asks, b->opt.public_key, ctx->closing.round);
}

void ballot_forget_wish(struct ballot *b, const struct ballot_context *ctx)
{
    if (b->want != BALLOT_WANT_CHANGE || !b->asks.has_wish) {
        b->asks.has_wish = b->want == BALLOT_WANT_CHANGE;
        b->asks.wish_round = ctx->closing.round;
    } else if (ctx->closing.round > b->asks.wish_round && !b->frozen &&
               b->phase == BALLOT_IDLE && !sees_cause(b, ctx)) {
        b->want = BALLOT_WANT_NOTHING;
        b->asks.has_asker = false;
    }
}

/* Who asked for newcomers, where one came in or has become full, or somebody on
 * probation is gone. */
static uint64_t let_in(const struct ballot *b, const struct view_body *next)
{
    const struct view_body *v = &b->cert.body;
    bool other = false;

    for (uint32_t i = 0; i < next->n_members; i++) {
        other = other || next->members[i].joined == next->epoch ||
                next->members[i].full_since == next->epoch;
    }
    for (uint32_t i = 0; i < v->n_members; i++) {
        other = other ||
                (!view_is_full(v, i) && view_index_key(next, key_of(b, i)) < 0);
    }
    return other ? b->asks.joins : 0;
}

void ballot_charge_askers(struct ballot *b, const struct view_body *next)
{
    const struct view_body *v = &b->cert.body;
    uint64_t due = b->asks.noted & ~let_in(b, next);
    bool all_stay = b->have;

    for (uint32_t i = 0; i < v->n_members && all_stay; i++) {
        all_stay = (b->asks.noted >> i & 1) || !view_is_full(v, i) ||
                   view_index_key(next, key_of(b, i)) >= 0;
    }
    for (uint32_t i = 0; i < v->n_members && all_stay; i++) {
        if (due >> i & 1) {
            asking_charge(&b->asks, key_of(b, i), next->round);
        }
    }
    asking_begin(&b->asks, next->round);
}
