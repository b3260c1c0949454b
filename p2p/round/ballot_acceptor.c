/* ballot_acceptor.c - a member as acceptor: what it promises and signs.
 *
 * PREPARE -> PROMISE with the closing statement, PREPARE of a lower ballot ->
 * silence; ACCEPT of a ballot not below the promise -> ACCEPTED, our signature
 * on the view. Both are on disk before they are sent (ballot_save). A ballot is
 * answered only if it is its sender's turn, names the view that we are in and
 * is not absurdly far ahead.
 */
#include "p2p/round/ballot_internal.h"

#include <string.h>

/* Nobody is that far ahead by trying; who names a higher ballot wants to use
 * the numbers up. */
#define BALLOT_LEAP (1ULL << 20)
#define FOUND_LEAP  (1ULL << 32) /* their low 16 bits name the founder */

/* Epochs end at 2^32, and in a view that none can follow nobody could be lost.
 * Of a founding it is one above those that candidates name, of which a higher
 * one than that counts as none (node/view.c). */
#define FOUND_EPOCH_MAX  (UINT32_MAX / 2)
#define FOUND_EPOCH_LEAP (1ULL << 24)

/* Whether this ballot for the view after ours is that peer's. */
static bool owns_ballot(const struct ballot *b,
                        int peer,
                        enum view_mode mode,
                        uint64_t ballot)
{
    const struct peer_id *id = &b->members->peers[peer].id;
    int at = view_index(&b->cert.body, id);

    if (mode == VIEW_FOUND) {
        return (ballot & 0xffff) == (id_u64(id) & 0xffff);
    }
    if (at < 0) {
        return false;
    }
    return mode == VIEW_FORK
               ? ballot >= FORK_BALLOT && (ballot & 0xff) == (uint64_t)at
               : ballot < FORK_BALLOT &&
                     view_ballot_owner(&b->cert.body, ballot) == (uint32_t)at;
}

uint64_t ballot_limit(const struct ballot *b, enum view_mode mode)
{
    uint64_t from = mode == VIEW_FORK ? FORK_BALLOT : b->next_ballot;

    if (b->has_promised && b->promised > from &&
        (mode == VIEW_FORK || b->promised < FORK_BALLOT)) {
        from = b->promised;
    }
    return from + (mode == VIEW_FORK ? BALLOT_LEAP << 8 : BALLOT_LEAP);
}

/* ---- promises --------------------------------------------------------- */

/* For members on probation, and for joiners that were full before. */
static void vouch(const struct ballot *b, struct statement *said)
{
    const struct view_body *v = &b->cert.body;

    for (uint32_t i = 0; i < v->n_members; i++) {
        if (!view_is_full(v, i) && !(said->convicted >> i & 1) &&
            probation_vouches(&b->probation, &b->ids[i],
                              b->opt.probation_rounds)) {
            said->vouched |= BIT(i);
        }
    }
    for (int k = 0; k < BALLOT_JOINERS_MAX && said->n_back < VIEW_BACK_MAX;
         k++) {
        const struct ballot_joiner *j = &b->joiners[k];
        struct peer_id id = id_of_public(j->public_key);

        if (ballot_joiner_here(b, j) && view_index_key(v, j->public_key) < 0 &&
            probation_was_full(&b->probation, &id)) {
            said->back[said->n_back++] = id_u64(&id);
        }
    }
}

struct promise_body ballot_own_promise(struct ballot *b,
                                       const struct ballot_context *ctx,
                                       const struct prepare *p)
{
    const struct address *at = &b->members->observed;
    struct promise_body body = {.epoch = p->epoch,
                                .view = p->view,
                                .mode = p->mode,
                                .ballot = p->ballot,
                                .said = ctx->closing};

    memcpy(body.said.address.ip, at->ip, sizeof at->ip);
    body.said.address.port = at->port;
    body.said.edges = ballot_own_edges(b);
    body.said.restarted = !b->have && p->mode != VIEW_FOUND;
    if (p->mode != VIEW_FOUND) {
        body.said.convicted = ballot_convict_mask(b);
    }
    if (p->mode == VIEW_MAJORITY) {
        vouch(b, &body.said);
    }
    if (b->has_accepted && p->mode != VIEW_FOUND) {
        body.said.has_accepted = true;
        body.said.accepted_ballot = b->accepted_ballot;
        view_hash(&b->accepted.proposal.value, &body.said.accepted_view);
    }
    return body;
}

void ballot_bind(struct ballot *b,
                 const struct ballot_context *ctx,
                 const struct peer_id *by,
                 const struct prepare *p)
{
    if (p->mode == VIEW_FOUND) {
        b->found_ballot = p->ballot;
        b->found_by = *by;
        b->found_until_ms = ctx->now_ms + 2 * b->opt.ballot_ms;
        return; /* nothing of an older view is given away */
    }
    if (p->mode == VIEW_MAJORITY) {
        ballot_note_turn(b, p->ballot, ctx->now_ms);
    }
    if (b->has_promised && b->promised == p->ballot && b->frozen &&
        b->fork_bound == (p->mode == VIEW_FORK) && !b->unsaved) {
        return; /* it was asked again, and is on disk or on its way there */
    }
    b->has_promised = b->frozen = true;
    b->promised = p->ballot;
    b->fork_bound = b->fork_bound || p->mode == VIEW_FORK;
    ballot_save(b, ctx);
}

static bool may_promise(struct ballot *b,
                        const struct ballot_context *ctx,
                        int peer,
                        const struct prepare *p)
{
    if (!owns_ballot(b, peer, p->mode, p->ballot)) {
        return false;
    }
    if (p->mode == VIEW_FOUND) {
        /* The founder we are bound to has given up what it asked before. */
        return ctx->may_found && !b->have &&
               !ballot_is_convict(b, &b->members->peers[peer].id) &&
               p->ballot > b->found_ballot &&
               p->ballot - b->found_ballot <= FOUND_LEAP &&
               (ctx->now_ms >= b->found_until_ms ||
                id_eq(&b->found_by, &b->members->peers[peer].id));
    }
    if (!ballot_names_our_view(b, p->epoch, &p->view) ||
        (b->has_promised && p->ballot < b->promised) ||
        p->ballot > ballot_limit(b, p->mode)) {
        return false;
    }
    if (p->mode == VIEW_FORK) {
        return b->have && (b->fork_bound ||
                           ctx->now_ms - b->doubt_since_ms >=
                               b->opt.fork_after_ms - b->opt.fork_after_ms / 4);
    }
    return !b->fork_bound && ballot_gives_way(b, ctx, p);
}

/* Which of the joiners that it names are linked to us, and let in by us (bits).
 */
static uint32_t linked_joiners(const struct ballot *b, const struct prepare *p)
{
    const struct members *m = b->members;
    uint32_t mask = 0;

    for (uint32_t row = 0; row < m->n_peers && p->n_joiners > 0; row++) {
        for (uint32_t i = 0; i < p->n_joiners; i++) {
            if (p->joiners[i] == id_u64(&m->peers[row].id) &&
                members_linked(m, (int)row) &&
                !ballot_is_convict(b, &m->peers[row].id)) {
                mask |= 1U << i;
            }
        }
    }
    return mask;
}

void ballot_on_prepare(struct ballot *b,
                       const struct ballot_context *ctx,
                       int peer,
                       const struct prepare *p)
{
    struct promise msg = {0};

    if (p->mode >= VIEW_MODE_COUNT || !may_promise(b, ctx, peer, p)) {
        ballot_say_higher(b, ctx, peer, p);
        return;
    }
    msg.body = ballot_own_promise(b, ctx, p);
    if (msg.body.said.has_accepted) {
        msg.n_accepted = 1;
        msg.accepted[0] = b->accepted;
    }
    msg.joiners_linked = linked_joiners(b, p);
    ballot_bind(b, ctx, &b->members->peers[peer].id, p);
    if (b->phase != BALLOT_IDLE && p->ballot != b->current) {
        b->phase = BALLOT_IDLE; /* ours can no longer win */
    }
    ballot_wait_for_owner(b, (enum view_mode)p->mode, ctx->now_ms);
    if (p->ballot < FORK_BALLOT && b->next_ballot <= p->ballot) {
        b->next_ballot = p->ballot + 1;
    }
    if (message_sign(&b->opt.signer, &promise_body_schema, &msg.body,
                     msg.sig) == 0) {
        (void)members_send(b->members, ctx->out, peer, MESSAGE_PROMISE, &msg);
    }
}

/* ---- signatures ------------------------------------------------------- */

int ballot_sign_value(struct ballot *b,
                      const struct ballot_context *ctx,
                      uint64_t ballot,
                      const struct proposal *proposal,
                      const uint8_t *sig,
                      struct accepted *out)
{
    int rv;

    out->body.ballot = ballot;
    view_hash(&proposal->value, &out->body.view);
    rv =
        message_sign(&b->opt.signer, &ballot_body_schema, &out->body, out->sig);
    if (rv == 0 && proposal->value.mode != VIEW_FOUND) {
        b->has_promised = b->has_accepted = b->frozen = true;
        b->promised = b->accepted_ballot = ballot;
        b->accepted.proposal = *proposal;
        memcpy(b->accepted.sig, sig == NULL ? out->sig : sig, SIGN_BYTES);
        ballot_save(b, ctx);
    }
    return rv;
}

/* Whether enough views can follow one founded in that epoch. */
static bool epoch_founds(const struct ballot *b, uint64_t epoch)
{
    uint64_t ours = b->restored ? b->cert.body.epoch : 0;

    return epoch <=
           (ours > FOUND_EPOCH_MAX ? ours : FOUND_EPOCH_MAX) + FOUND_EPOCH_LEAP;
}

static bool value_acceptable(const struct ballot *b,
                             const struct ballot_context *ctx,
                             const struct accept *a)
{
    const struct view_body *v = &a->of.proposal.value;

    if (!view_well_formed(v) || v->mode != a->mode ||
        !hash32_eq(&v->run, &b->opt.run)) {
        return false;
    }
    if (a->mode == VIEW_FOUND) {
        return ctx->may_found && !b->have && a->ballot == b->found_ballot &&
               epoch_founds(b, v->epoch) &&
               view_index_key(v, b->opt.public_key) >= 0;
    }
    return ballot_names_our_view(b, a->epoch, &a->view) &&
           v->epoch == a->epoch + 1 && hash32_eq(&v->prev, &b->hash);
}

/* Whether it takes back a commit that we know of. */
static bool takes_back(const struct ballot *b,
                       const struct ballot_context *ctx,
                       const struct view_body *v)
{
    return b->have && v->mode != VIEW_FOUND && v->round < ctx->closing.round;
}

/* Whether its sender may propose in that ballot, and we are free to accept. */
static bool may_accept(const struct ballot *b, int peer, const struct accept *a)
{
    if (a->mode >= VIEW_MODE_COUNT ||
        !owns_ballot(b, peer, (enum view_mode)a->mode, a->ballot)) {
        return false;
    }
    if (a->mode == VIEW_FOUND) {
        return id_eq(&b->found_by, &b->members->peers[peer].id);
    }
    return a->ballot >= b->promised &&
           b->fork_bound == (a->mode == VIEW_FORK) &&
           a->ballot <= ballot_limit(b, (enum view_mode)a->mode);
}

/* More than half of the view promised that ballot, and we saw no reason to: the
 * round in flight is over, and the next owner must not leave us out. */
static void bind_to_majority(struct ballot *b,
                             const struct ballot_context *ctx,
                             const struct accept *a)
{
    const struct prepare p = {.epoch = a->epoch,
                              .view = a->view,
                              .mode = a->mode,
                              .ballot = a->ballot};

    if (a->mode == VIEW_MAJORITY) {
        ballot_bind(b, ctx, &b->opt.self, &p);
        ballot_wait_for_owner(b, VIEW_MAJORITY, ctx->now_ms);
    }
}

void ballot_on_accept(struct ballot *b,
                      const struct ballot_context *ctx,
                      int peer,
                      const struct accept *a)
{
    const struct proposal *p = &a->of.proposal;
    struct accepted msg = {.epoch = a->epoch, .view = a->view};
    bool again;

    if (!may_accept(b, peer, a) || a->ballot + 1 == b->refused ||
        !value_acceptable(b, ctx, a)) {
        return;
    }
    if (!ballot_accept_holds(b, a, b->members->peers[peer].public_key)) {
        b->refused = a->ballot + 1;
        b->malformed++;
        return;
    }
    if (!b->has_promised && a->mode != VIEW_FOUND) {
        bind_to_majority(b, ctx, a);
        return;
    }
    if (takes_back(b, ctx, &p->value)) {
        b->refused = a->ballot + 1; /* nor verified again */
        return; /* the next owner makes another one, with our promise */
    }
    again = a->ballot != p->ballot &&
            view_ballot_owner(&b->cert.body, a->ballot) !=
                view_ballot_owner(&b->cert.body, p->ballot);
    if (a->mode == VIEW_MAJORITY && !ballot_agrees(b, ctx, p, again)) {
        return;
    }
    ballot_wait_for_owner(b, (enum view_mode)a->mode, ctx->now_ms);
    if (ballot_sign_value(b, ctx, a->ballot, p, a->of.sig, &msg) == 0) {
        (void)members_send(b->members, ctx->out, peer, MESSAGE_ACCEPTED, &msg);
    }
}
