/* ballot_proposer.c - the owner of a ballot: gather, decide, certify.
 *
 * BALLOT_GATHER: PREPARE is out, promises come in, until all reachable electors
 * have answered or half of ballot_ms is over; who has not is asked again.
 * BALLOT_SIGN: ACCEPT is out, signatures come in, until there are enough for a
 * certificate. One's own promise and signature are among them without a
 * message. A ballot that does not get enough is given up; the next owner tries.
 */
#include "p2p/round/ballot_internal.h"

#include <string.h>

#include "proto/base/rng.h"

#define ASK_PARTS 8 /* of ballot_ms: an unanswered PREPARE is said again */

/* ---- electors --------------------------------------------------------- */

static void elect(struct ballot *b, const uint8_t key[32], int row)
{
    memcpy(b->elector_keys[b->n_electors], key, 32);
    b->elector_rows[b->n_electors++] = row;
}

static int elector_of_row(const struct ballot *b, int row)
{
    for (uint32_t i = 0; i < b->n_electors; i++) {
        if (b->elector_rows[i] == row) {
            return (int)i;
        }
    }
    return -1;
}

static void broadcast(struct ballot *b,
                      const struct ballot_context *ctx,
                      enum message_type type,
                      const void *msg)
{
    members_broadcast(b->members, ctx->out, b->elector_rows, b->n_electors,
                      type, msg);
}

/* ---- signatures ------------------------------------------------------- */

static void
sig_add(struct ballot *b, const uint8_t key[32], const uint8_t sig[SIGN_BYTES])
{
    for (uint32_t i = 0; i < b->n_sigs; i++) {
        if (memcmp(b->sigs[i].public_key, key, 32) == 0) {
            return;
        }
    }
    if (b->n_sigs < VIEW_MEMBERS_MAX) {
        memcpy(b->sigs[b->n_sigs].public_key, key, 32);
        memcpy(b->sigs[b->n_sigs++].sig, sig, SIGN_BYTES);
    }
}

/* Certificate complete? Then adopt and tell everybody. */
static void certify(struct ballot *b, const struct ballot_context *ctx)
{
    struct view_cert cert = {.body = b->proposal.value, .ballot = b->current};
    int rows[2 * VIEW_MEMBERS_MAX];
    uint32_t n_rows = b->n_electors;
    uint64_t mask = 0;

    for (uint32_t i = 0; i < b->n_sigs; i++) {
        const struct view_body *v =
            b->mode == VIEW_MAJORITY ? &b->cert.body : &b->proposal.value;
        int at = view_index_key(v, b->sigs[i].public_key);

        mask |= at < 0 ? 0 : BIT(at);
    }
    if (b->mode == VIEW_MAJORITY
            ? !view_quorum(&b->cert.body, mask, b->proposal.value.departed)
            : (uint32_t)__builtin_popcountll(mask) !=
                  b->proposal.value.n_members) {
        return;
    }
    cert.n_sigs = b->n_sigs;
    memcpy(cert.sigs, b->sigs, sizeof cert.sigs);
    cert.n_partings = b->proposal.n_partings;
    memcpy(cert.partings, b->proposal.partings, sizeof cert.partings);
    if (b->mode == VIEW_MAJORITY && !view_convinces(&cert)) {
        return; /* a peer that was away could not follow: wait for more */
    }
    memcpy(rows, b->elector_rows, n_rows * sizeof rows[0]);
    b->phase = BALLOT_IDLE;
    if (view_index_key(&cert.body, b->opt.public_key) >= 0) {
        ballot_adopt(b, ctx, &cert);
        for (uint32_t i = 0; i < cert.body.n_members; i++) {
            if (elector_of_row(b, b->rows[i]) < 0) {
                rows[n_rows++] = b->rows[i];
            }
        }
    }
    members_broadcast(b->members, ctx->out, rows, n_rows, MESSAGE_VIEW, &cert);
}

/* A signature on the view that we are in already. Peers of another branch know
 * only the members that the certificate names, not those of the view before:
 * the more of these signed, the better they can check it. */
static void late_signature(struct ballot *b, int peer, const struct accepted *a)
{
    const uint8_t *key = b->members->peers[peer].public_key;
    struct view_cert *cert = &b->cert;

    if (!b->have || a->body.ballot != cert->ballot ||
        !hash32_eq(&a->body.view, &b->hash) ||
        cert->n_sigs == VIEW_MEMBERS_MAX ||
        view_index_key(&cert->body, key) < 0) {
        return;
    }
    for (uint32_t i = 0; i < cert->n_sigs; i++) {
        if (memcmp(cert->sigs[i].public_key, key, 32) == 0) {
            return;
        }
    }
    if (!message_verify(&b->opt.signer, key, &ballot_body_schema, &a->body,
                        a->sig)) {
        b->malformed++;
        return;
    }
    memcpy(cert->sigs[cert->n_sigs].public_key, key, 32);
    memcpy(cert->sigs[cert->n_sigs++].sig, a->sig, SIGN_BYTES);
}

void ballot_on_accepted(struct ballot *b,
                        const struct ballot_context *ctx,
                        int peer,
                        const struct accepted *a)
{
    int at = elector_of_row(b, peer);

    if (b->phase != BALLOT_SIGN || at < 0 || a->body.ballot != b->current ||
        !hash32_eq(&a->body.view, &b->value_hash)) {
        late_signature(b, peer, a);
        return;
    }
    if (!message_verify(&b->opt.signer, b->elector_keys[at],
                        &ballot_body_schema, &a->body, a->sig)) {
        b->malformed++;
        return;
    }
    sig_add(b, b->elector_keys[at], a->sig);
    certify(b, ctx);
}

/* ---- promises --------------------------------------------------------- */

void ballot_give_up(struct ballot *b, const struct ballot_context *ctx)
{
    /* Others may not see a newcomer: without it, and the longer the oftener. */
    for (uint32_t i = 0; b->phase == BALLOT_SIGN && i < b->proposal.n_joins;
         i++) {
        ballot_oust(b, b->proposal.joins[i].public_key,
                    b->proposal.value.round);
    }
    b->phase = BALLOT_IDLE;
    b->try_at_ms = ctx->now_ms + ballot_time_ms(b) / 4 +
                   rng_below(&b->rng, ballot_time_ms(b) / 2 + 1);
}

/* It was a full member of our last view. */
static bool counted(const struct ballot *b, const uint8_t key[32])
{
    int at = view_index_key(&b->cert.body, key);

    return at >= 0 && view_is_full(&b->cert.body, (uint32_t)at);
}

static bool enough_found(const struct ballot *b)
{
    uint32_t n = 0, n_old = 0;

    for (uint32_t i = 0; i < b->n_electors; i++) {
        bool here = b->answered >> i & 1;

        n += here;
        n_old += here && b->restored && counted(b, b->elector_keys[i]);
    }
    return n >= b->founding.least && n_old >= b->founding.least_old;
}

/* Ours, of whose signature the certificate begins; then ask the others. */
static void sign_and_ask(struct ballot *b, const struct ballot_context *ctx)
{
    struct accept *msg = &b->asking;
    struct accepted mine = {0};

    memset(msg, 0, sizeof *msg);
    msg->mode = (uint8_t)b->mode;
    msg->ballot = b->current;
    msg->of.proposal = b->proposal;
    if (b->mode != VIEW_FOUND) {
        msg->epoch = b->cert.body.epoch;
        msg->view = b->hash;
    }
    for (uint32_t i = 0; i < b->n_electors && b->has_claim; i++) {
        if (b->answered >> i & 1) {
            b->promises[i].member = (uint8_t)i;
            msg->promises[msg->n_promises++] = b->promises[i];
        }
    }
    if (ballot_sign_value(b, ctx, b->current, &b->proposal, NULL, &mine) != 0) {
        ballot_give_up(b, ctx);
        return;
    }
    memcpy(msg->of.sig, mine.sig, SIGN_BYTES);
    sig_add(b, b->opt.public_key, mine.sig);
    broadcast(b, ctx, MESSAGE_ACCEPT, msg);
    certify(b, ctx);
}

/* Who answered (bits), and whether they leave us no choice. */
static bool is_bound(const struct ballot *b)
{
    uint64_t claims = 0;

    for (uint32_t i = 0; i < b->n_electors; i++) {
        claims |= (b->answered >> i & 1) && b->promises[i].said.has_accepted
                      ? BIT(i)
                      : 0;
    }
    return b->mode == VIEW_MAJORITY &&
           ballot_is_bound(&b->cert.body, b->answered, claims,
                           b->departed.mask);
}

void ballot_conclude(struct ballot *b, const struct ballot_context *ctx)
{
    if ((b->mode == VIEW_MAJORITY &&
         !view_quorum(&b->cert.body, b->answered, b->departed.mask)) ||
        (b->mode == VIEW_FOUND && !enough_found(b))) {
        ballot_give_up(b, ctx);
        return;
    }
    b->has_claim = b->has_claim && is_bound(b);
    if (!b->has_claim && !ballot_make_own(b)) {
        ballot_give_up(b, ctx);
        return;
    }
    view_hash(&b->proposal.value, &b->value_hash);
    b->phase = BALLOT_SIGN;
    b->deadline_ms = ctx->now_ms + ballot_time_ms(b) / 2;
    sign_and_ask(b, ctx);
}

/* Somebody accepted that. Only a majority is bound by what was accepted before:
 * founders have no past, and a fork leaves it. Of one value the proposal that
 * came first stays: it has been made again, later ones are not. */
static void
note_claim(struct ballot *b, uint64_t ballot, const struct proposal *proposal)
{
    bool later = !b->has_claim || ballot > b->claimed;
    struct hash32 hash;

    if (b->mode != VIEW_MAJORITY) {
        return;
    }
    view_hash(&proposal->value, &hash);
    if (!later &&
        (ballot < b->claimed || hash32_cmp(&hash, &b->value_hash) >= 0)) {
        return;
    }
    if (!b->has_claim || !hash32_eq(&hash, &b->value_hash)) {
        b->proposal = *proposal;
        b->value_hash = hash;
    }
    b->has_claim = true;
    b->claimed = ballot;
}

/* Whether it could have been accepted in this epoch, before this ballot: its
 * owner proposed it, and it is what its own promises give. */
static bool was_acceptable(const struct ballot *b, const struct promise *p)
{
    const struct statement *s = &p->body.said;
    const struct proposal *v = &p->accepted[0].proposal;
    const struct view_body *old = &b->cert.body;
    const uint8_t *owner;
    struct hash32 hash;

    if (p->n_accepted == 0 || !s->has_accepted) {
        return p->n_accepted == 0 && !s->has_accepted;
    }
    view_hash(&v->value, &hash);
    owner = old->members[view_ballot_owner(old, s->accepted_ballot)].public_key;
    return s->accepted_ballot < b->current && v->ballot <= s->accepted_ballot &&
           hash32_eq(&hash, &s->accepted_view) &&
           ballot_owner_signed(b, owner, s->accepted_ballot, &hash,
                               p->accepted[0].sig) &&
           ((b->has_claim && hash32_eq(&hash, &b->value_hash)) ||
            ballot_proposal_holds(b, VIEW_MAJORITY, v));
}

void ballot_on_promise(struct ballot *b,
                       const struct ballot_context *ctx,
                       int peer,
                       const struct promise *p)
{
    int at = elector_of_row(b, peer);

    if (b->phase != BALLOT_GATHER || at < 0 || p->body.ballot != b->current ||
        p->body.mode != b->mode || (b->answered >> at & 1) ||
        (b->mode != VIEW_FOUND &&
         !ballot_names_our_view(b, p->body.epoch, &p->body.view))) {
        return;
    }
    if (!message_verify(&b->opt.signer, b->elector_keys[at],
                        &promise_body_schema, &p->body, p->sig) ||
        (b->mode == VIEW_MAJORITY && !was_acceptable(b, p))) {
        b->malformed++;
        return;
    }
    b->promises[at].said = p->body.said;
    memcpy(b->promises[at].sig, p->sig, SIGN_BYTES);
    b->answered |= BIT(at);
    ballot_note_linked(b, (uint32_t)at, p->joiners_linked);
    if (p->body.said.has_accepted) {
        note_claim(b, p->body.said.accepted_ballot, &p->accepted[0].proposal);
    }
    for (uint32_t i = 0; i < b->n_electors; i++) {
        /* Lost members are not waited for; restarted ones answer. */
        if (!(b->answered >> i & 1) &&
            members_reaches(b->members, b->elector_rows[i])) {
            return;
        }
    }
    ballot_conclude(b, ctx);
}

/* ---- proposals -------------------------------------------------------- */

/* Who was in the middle of a commit when it was asked did not answer, and would
 * be left out of the view for it. */
void ballot_ask_again(struct ballot *b, const struct ballot_context *ctx)
{
    int rows[VIEW_MEMBERS_MAX];
    uint32_t n = 0;

    if (b->phase != BALLOT_GATHER || ctx->now_ms < b->again_ms) {
        return;
    }
    for (uint32_t i = 0; i < b->n_electors; i++) {
        if (!(b->answered >> i & 1)) {
            rows[n++] = b->elector_rows[i];
        }
    }
    b->again_ms = ctx->now_ms + b->opt.ballot_ms / ASK_PARTS;
    members_broadcast(b->members, ctx->out, rows, n, MESSAGE_PREPARE,
                      &b->asked);
}

void ballot_propose(struct ballot *b,
                    const struct ballot_context *ctx,
                    enum view_mode mode,
                    uint64_t ballot)
{
    struct prepare p = {.mode = (uint8_t)mode, .ballot = ballot};
    struct promise_body mine;

    p.urgent = b->want == BALLOT_WANT_CHANGE || b->frozen;
    if (mode == VIEW_MAJORITY) {
        p.n_shown = ballot_asker(b, ctx, &p.shown[0]) == 0;
        ballot_name_joiners(b, &p);
    }
    if (mode != VIEW_FOUND) {
        p.epoch = b->cert.body.epoch;
        p.view = b->hash;
        b->n_electors = 0;
        for (uint32_t i = 0; i < b->cert.body.n_members; i++) {
            elect(b, b->cert.body.members[i].public_key, b->rows[i]);
        }
    }
    b->phase = BALLOT_GATHER;
    b->mode = mode;
    b->current = ballot;
    b->deadline_ms = ctx->now_ms + ballot_time_ms(b) / 2;
    b->asked = p;
    b->again_ms = ctx->now_ms + b->opt.ballot_ms / ASK_PARTS;
    b->has_claim = false;
    b->n_sigs = 0;
    b->answered = 0;
    for (uint32_t i = 0; i < b->n_electors; i++) {
        if (b->elector_rows[i] == MEMBERS_NONE) {
            mine = ballot_own_promise(b, ctx, &p);
            b->promises[i].said = mine.said;
            if (message_sign(&b->opt.signer, &promise_body_schema, &mine,
                             b->promises[i].sig) == 0) {
                b->answered |= BIT(i);
            }
        }
    }
    if (b->has_accepted) {
        note_claim(b, b->accepted_ballot, &b->accepted.proposal);
    }
    /* It rests on nothing: others write their promises while we write ours. */
    broadcast(b, ctx, MESSAGE_PREPARE, &p);
    ballot_bind(b, ctx, &b->opt.self, &p);
}

void ballot_found(struct ballot *b,
                  const struct ballot_context *ctx,
                  const int *rows,
                  uint32_t n,
                  const struct ballot_founding *founding)
{
    if (b->have || b->phase != BALLOT_IDLE || ctx->now_ms < b->try_at_ms ||
        ctx->now_ms < b->found_until_ms) {
        return;
    }
    b->n_electors = 0;
    b->founding = *founding;
    elect(b, b->opt.public_key, MEMBERS_NONE);
    for (uint32_t i = 0; i < n && b->n_electors < VIEW_MEMBERS_MAX; i++) {
        elect(b, b->members->peers[rows[i]].public_key, rows[i]);
    }
    ballot_propose(b, ctx, VIEW_FOUND,
                   ((b->found_ballot >> 16) + 1) << 16 |
                       (id_u64(&b->opt.self) & 0xffff));
    if (b->n_electors == 1) {
        ballot_conclude(b, ctx);
    }
}
