/* ballot_view.c - the view that we are in and what of it is on disk.
 *
 * A view is entered by its certificate (VIEW): at once where we can check the
 * signers, who are members of the view before; after the owner's confirmation
 * where we cannot (ballot.h, pending). Entering ends every ballot of the epoch
 * before. The record on disk (SAVE) is the certificate and what was promised
 * and accepted towards the next one; a restarted member still counts for the
 * majority of the view it was in, but comes back as a joiner.
 */
#include "p2p/round/ballot_internal.h"

#include <assert.h>
#include <string.h>

/* ---- record ----------------------------------------------------------- */

void ballot_save(struct ballot *b, const struct ballot_context *ctx)
{
    struct ballot_record r = {.round = ctx->closing.round};
    uint8_t bytes[FRAME_CONTROL_MAX];
    struct action *a;
    uint32_t at;
    int n;

    r.n_certs = b->have || b->restored;
    r.certs[0] = b->cert;
    r.has_promised = b->has_promised;
    r.fork_bound = b->fork_bound;
    r.promised = b->promised;
    r.accepted_ballot = b->accepted_ballot;
    r.n_accepted = b->has_accepted;
    r.accepted[0] = b->accepted;
    n = msg_encode(&ballot_record_schema, &r, bytes, sizeof bytes);
    assert(n >= 0);
    at = out_bytes(ctx->out, bytes, (size_t)n);
    a = at == UINT32_MAX ? NULL : out_add(ctx->out, ACTION_SAVE);
    b->unsaved = a == NULL; /* it did not fit */
    if (a != NULL) {
        a->save.at = at;
        a->save.len = (uint32_t)n;
    }
}

void ballot_save_failed(struct ballot *b)
{
    b->unsaved = true;
}

/* Fill what is derived from the view in `cert`. */
static void index_view(struct ballot *b, uint64_t now_ms)
{
    const struct view_body *v = &b->cert.body;

    view_hash(v, &b->hash);
    b->self_index = -1;
    for (uint32_t i = 0; i < v->n_members; i++) {
        struct address a = {.port = v->members[i].address.port};

        memcpy(a.ip, v->members[i].address.ip, sizeof a.ip);
        b->ids[i] = view_member_id(&v->members[i]);
        b->rows[i] = MEMBERS_NONE;
        if (id_eq(&b->ids[i], &b->opt.self)) {
            b->self_index = (int)i;
        } else {
            b->rows[i] = members_name(b->members, &b->ids[i], &a,
                                      v->members[i].public_key, now_ms);
        }
    }
}

void ballot_restore(struct ballot *b, const struct ballot_record *record)
{
    b->has_promised = record->has_promised;
    b->fork_bound = record->fork_bound;
    b->promised = record->promised;
    b->accepted_ballot = record->accepted_ballot;
    b->has_accepted = record->n_accepted > 0;
    b->accepted = record->accepted[0];
    if (record->n_certs > 0) {
        b->restored = true;
        b->cert = record->certs[0];
        index_view(b, b->doubt_since_ms);
        b->self_index = -1;
    }
}

/* ---- entering and leaving --------------------------------------------- */

static void acceptor_reset(struct ballot *b, uint64_t now_ms)
{
    b->frozen = b->has_promised = b->fork_bound = b->has_accepted = false;
    b->promised = b->accepted_ballot = b->next_ballot = 0;
    b->phase = BALLOT_IDLE;
    b->want = BALLOT_WANT_NOTHING;
    b->departed.mask = b->lost = 0;
    b->refused = b->refused_without = 0;
    b->slow = b->slow_turns = 0;
    b->doubt_since_ms = now_ms;
    b->found_until_ms = 0;
}

static void
lineage_add(struct ballot *b, uint64_t epoch, const struct hash32 *hash)
{
    if (b->n_lineage == LINEAGE_MAX) {
        memmove(b->lineage, b->lineage + 1,
                (LINEAGE_MAX - 1) * sizeof b->lineage[0]);
        b->n_lineage--;
    }
    b->lineage[b->n_lineage].epoch = epoch;
    b->lineage[b->n_lineage++].hash = *hash;
}

bool ballot_descends_from(const struct ballot *b, const struct hash32 *hash)
{
    for (uint32_t i = 0; i < b->n_lineage; i++) {
        if (hash32_eq(&b->lineage[i].hash, hash)) {
            return true;
        }
    }
    return false;
}

/* Who waited is in the view now, or was left out, because of an edge that does
 * not carry data, say: it is tried again after the next commit. Without that a
 * view for it could follow a view for it, and no plan would ever be made. */
static void note_joiners(struct ballot *b)
{
    for (int k = 0; k < BALLOT_JOINERS_MAX; k++) {
        struct ballot_joiner *j = &b->joiners[k];

        if (!j->used || j->round != b->cert.body.round) {
            continue;
        }
        if (view_index_key(&b->cert.body, j->public_key) >= 0) {
            j->used = false;
        } else {
            j->tried = true;
            j->tried_round = j->round;
        }
    }
}

/* Who is full is remembered; for whom we vouch, and who is not, the view was
 * asked for too early. */
static void note_full(struct ballot *b)
{
    const struct view_body *v = &b->cert.body;

    for (uint32_t i = 0; i < v->n_members; i++) {
        if (view_is_full(v, i)) {
            probation_full(&b->probation, &b->ids[i], v->round);
        } else if (probation_is_due(&b->probation, &b->ids[i],
                                    b->opt.probation_rounds)) {
            probation_tried(&b->probation, &b->ids[i]);
        }
    }
}

/* Who is out although we can speak to it is out because of its edges. It waits
 * for ever more rounds, or views with and without it would take turns. */
static void note_ousted(struct ballot *b, const struct view_body *next)
{
    const struct view_body *v = &b->cert.body;
    uint64_t gone = b->departed.mask | b->lost;

    for (uint32_t i = 0; b->have && i < v->n_members; i++) {
        if ((int)i != b->self_index && !(gone >> i & 1) &&
            view_index_key(next, v->members[i].public_key) < 0 &&
            members_reaches(b->members, b->rows[i])) {
            ballot_oust(b, v->members[i].public_key, next->round);
        }
    }
}

/* Others may see a member die before we do, and their view comes first. */
static void note_left_out(struct ballot *b, const struct view_body *next)
{
    const struct view_body *v = &b->cert.body;
    uint64_t gone = b->departed.mask | b->lost;

    if (hash32_eq(&next->prev, &b->hash)) {
        gone |= next->departed;
    }
    b->n_left_out = 0;
    for (uint32_t i = 0; b->have && i < v->n_members; i++) {
        if ((int)i != b->self_index && !(gone >> i & 1) &&
            view_index_key(next, v->members[i].public_key) < 0) {
            b->left_out[b->n_left_out++] = b->ids[i];
        }
    }
}

/* The view in `cert`, of which the index is made. */
static void enter(struct ballot *b, uint64_t now_ms)
{
    const struct view_body *v = &b->cert.body;

    assert(b->self_index >= 0);
    b->have = true;
    b->restored = false;
    members_watch(b->members, b->rows, v->n_members, &b->hash, now_ms);
    for (uint32_t i = 0; i < v->n_members; i++) {
        int row = b->rows[i];

        /* A member that is already known to be lost will not be reported
         * again: note it here. */
        if (row != MEMBERS_NONE && b->members->peers[row].lost) {
            b->lost |= BIT(i);
        }
    }
    if (b->n_lineage == 0 && v->mode != VIEW_FOUND) {
        lineage_add(b, v->epoch - 1, &v->prev);
    }
    lineage_add(b, v->epoch, &b->hash);
    b->adopted = true;
    b->adopted_ms = now_ms;
}

bool ballot_return(struct ballot *b, uint64_t now_ms)
{
    if (b->have || !b->restored || b->phase != BALLOT_IDLE) {
        return false;
    }
    index_view(b, now_ms);
    if (b->self_index >= 0) {
        enter(b, now_ms);
    }
    return b->have;
}

void ballot_adopt(struct ballot *b,
                  const struct ballot_context *ctx,
                  const struct view_cert *cert)
{
    note_left_out(b, &cert->body);
    ballot_convicts_heard(b, &cert->body);
    note_ousted(b, &cert->body);
    ballot_charge_askers(b, &cert->body);
    acceptor_reset(b, ctx->now_ms);
    b->has_pending = false;
    if (b->have) {
        b->before = b->cert.body;
        b->before_hash = b->hash;
    }
    b->cert = *cert;
    index_view(b, ctx->now_ms);
    enter(b, ctx->now_ms);
    note_joiners(b);
    note_full(b);
    ballot_save(b, ctx);
    if ((b->lost & view_full(&b->cert.body)) != 0) {
        ballot_want(b, BALLOT_WANT_CHANGE, ctx->now_ms);
    }
}

const struct view_body *ballot_view_of(const struct ballot *b,
                                       const struct hash32 *view)
{
    if (b->have && hash32_eq(&b->hash, view)) {
        return &b->cert.body;
    }
    return hash32_eq(&b->before_hash, view) ? &b->before : NULL;
}

void ballot_drop_view(struct ballot *b, uint64_t now_ms)
{
    members_watch(b->members, NULL, 0, NULL, now_ms);
    /* What was promised stays promised: like after a restart we still count
     * for the majority of this view, but are not left in it. */
    b->have = false;
    b->restored = true;
    b->self_index = -1;
    b->phase = BALLOT_IDLE;
    b->want = BALLOT_WANT_NOTHING;
    b->doubt_since_ms = now_ms;
    b->n_lineage = 0;
}

/* ---- views of others -------------------------------------------------- */

bool ballot_names_our_view(const struct ballot *b,
                           uint64_t epoch,
                           const struct hash32 *view)
{
    return (b->have || b->restored) && epoch == b->cert.body.epoch &&
           hash32_eq(view, &b->hash);
}

/* Whether a restarted member had left that view behind: the one it was in, or
 * one before. What it voted and promised there is not known any more, so it
 * comes back as a joiner only. A fork or a founding has our signature: one
 * whose epoch is not above ours is of an earlier life. */
static bool is_past(const struct ballot *b, const struct view_cert *cert)
{
    const struct view_body *v = &cert->body;
    int at = view_index_key(v, b->opt.public_key);
    struct hash32 hash;

    view_hash(v, &hash);
    return hash32_eq(&hash, &b->hash) || hash32_eq(&hash, &b->cert.body.prev) ||
           (v->epoch <= b->cert.body.epoch &&
            (v->mode != VIEW_MAJORITY || v->members[at].joined != v->epoch));
}

void ballot_on_view(struct ballot *b,
                    const struct ballot_context *ctx,
                    const struct view_cert *cert)
{
    bool known = b->have && hash32_eq(&cert->body.prev, &b->hash) &&
                 cert->body.mode != VIEW_FOUND;

    if ((b->have && cert->body.epoch <= b->cert.body.epoch) ||
        !hash32_eq(&cert->body.run, &b->opt.run) ||
        view_index_key(&cert->body, b->opt.public_key) < 0 ||
        (b->restored && is_past(b, cert))) {
        return;
    }
    if (view_cert_check(cert, known ? &b->cert.body : NULL, &b->opt.signer) !=
        0) {
        b->malformed++;
        return;
    }
    if (cert->body.mode == VIEW_MAJORITY && !known) {
        b->has_pending = true;
        b->pending = *cert;
        view_hash(&cert->body, &b->pending_hash);
    } else if (cert->body.mode != VIEW_FOUND || !b->have) {
        ballot_adopt(b, ctx, cert); /* the others carry our own signature */
    }
}

void ballot_confirm(struct ballot *b, const struct ballot_context *ctx)
{
    if (b->has_pending &&
        (!b->have || b->pending.body.epoch > b->cert.body.epoch)) {
        struct view_cert cert = b->pending;

        ballot_adopt(b, ctx, &cert);
    }
    b->has_pending = false;
}
