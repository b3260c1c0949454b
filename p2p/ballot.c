/* ballot.c - see ballot.h.
 *
 * Happy path: want -> propose -> PREPARE .. PROMISE* -> conclude -> ACCEPT ..
 * ACCEPTED* -> certify -> VIEW -> adopt everywhere.
 *
 * What can go wrong
 *   1. the owner of a ballot dies: after ballot_ms everybody turns to the
 *      owner of the next one (try_next);
 *   2. a message is lost: the same, or GET_VIEW after a heartbeat with a newer
 *      epoch (node.c);
 *   3. no majority is left: ballots fail until fork_after_ms, then FORK.
 */
#include "p2p/ballot.h"

#include <assert.h>
#include <string.h>

#include "proto/base/err.h"
#include "proto/base/rng.h"

#define FORK_BALLOT (1ULL << 40) /* above every majority ballot */
#define BIT(i)      (1ULL << (i))
/* Nobody is that far ahead by trying; who names a higher ballot wants to use
 * the numbers up. */
#define BALLOT_LEAP (1ULL << 20)
#define FOUND_LEAP  (1ULL << 32) /* their low 16 bits name the founder */

static void save(struct ballot *b, const struct ballot_context *ctx)
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
    if (a != NULL) {
        a->bytes = at;
        a->len = (uint32_t)n;
    }
}

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
            b->rows[i] = members_learn(b->members, &b->ids[i], &a, now_ms);
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

static void acceptor_reset(struct ballot *b, uint64_t now_ms)
{
    b->frozen = b->has_promised = b->fork_bound = b->has_accepted = false;
    b->promised = b->accepted_ballot = b->next_ballot = 0;
    b->phase = BALLOT_IDLE;
    b->want = BALLOT_WANT_NOTHING;
    b->departed = b->lost = 0;
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

static void adopt(struct ballot *b,
                  const struct ballot_context *ctx,
                  const struct view_cert *cert)
{
    acceptor_reset(b, ctx->now_ms);
    b->has_pending = false;
    b->cert = *cert;
    b->have = true;
    b->restored = false;
    index_view(b, ctx->now_ms);
    assert(b->self_index >= 0);
    members_watch(b->members, b->rows, cert->body.n_members, ctx->now_ms);
    for (uint32_t i = 0; i < cert->body.n_members; i++) {
        int row = b->rows[i];

        /* A member that is already known to be lost will not be reported
         * again: note it here. */
        if (row != MEMBERS_NONE && b->members->peers[row].lost) {
            b->lost |= BIT(i);
        }
        for (int k = 0; k < BALLOT_JOINERS_MAX; k++) {
            if (b->joiners[k].used && b->joiners[k].peer == row) {
                b->joiners[k].used = false;
            }
        }
    }
    if (b->n_lineage == 0 && cert->body.mode != VIEW_FOUND) {
        lineage_add(b, cert->body.epoch - 1, &cert->body.prev);
    }
    lineage_add(b, cert->body.epoch, &b->hash);
    b->adopted = true;
    b->adopted_ms = ctx->now_ms;
    save(b, ctx);
    if (b->lost != 0) {
        ballot_want(b, BALLOT_WANT_CHANGE, ctx->now_ms);
    }
}

void ballot_drop_view(struct ballot *b, uint64_t now_ms)
{
    members_watch(b->members, NULL, 0, now_ms);
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

/* ---- proposer --------------------------------------------------------- */

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

static struct promise_body own_promise(struct ballot *b,
                                       const struct ballot_context *ctx,
                                       const struct prepare *p)
{
    struct promise_body body = ctx->closing;

    body.epoch = p->epoch;
    body.view = p->view;
    body.mode = p->mode;
    body.ballot = p->ballot;
    body.restarted = !b->have && p->mode != VIEW_FOUND;
    body.has_accepted = b->has_accepted;
    body.accepted_ballot = b->accepted_ballot;
    return body;
}

static void bind(struct ballot *b,
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
    b->has_promised = b->frozen = true;
    b->promised = p->ballot;
    b->fork_bound = b->fork_bound || p->mode == VIEW_FORK;
    save(b, ctx);
}

static void
note_value(struct ballot *b, uint64_t ballot, const struct view_body *value)
{
    /* Only a majority is bound by what was accepted before: founders have no
     * past, and a fork leaves it. */
    if (b->mode == VIEW_MAJORITY &&
        (!b->has_value || ballot > b->value_ballot)) {
        b->has_value = true;
        b->value_ballot = ballot;
        b->value = *value;
    }
}

static void propose(struct ballot *b,
                    const struct ballot_context *ctx,
                    enum view_mode mode,
                    uint64_t ballot)
{
    struct prepare p = {.mode = (uint8_t)mode, .ballot = ballot};

    p.urgent = b->want == BALLOT_WANT_CHANGE || b->frozen;
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
    b->deadline_ms = ctx->now_ms + b->opt.ballot_ms / 2;
    b->has_value = false;
    b->n_sigs = 0;
    b->answered = 0;
    for (uint32_t i = 0; i < b->n_electors; i++) {
        if (b->elector_rows[i] == MEMBERS_NONE) {
            b->promises[i] = own_promise(b, ctx, &p);
            b->answered |= BIT(i);
        }
    }
    if (b->has_accepted) {
        note_value(b, b->accepted_ballot, &b->accepted);
    }
    bind(b, ctx, &b->opt.self, &p);
    broadcast(b, ctx, MESSAGE_PREPARE, &p);
}

/* The fate of the round in flight, from the closing statements of those who
 * are left (`left`: electors); the rule is in ballot.h. */
static void
decide_round(const struct ballot *b, uint64_t left, struct view_body *v)
{
    const struct promise_body *best = NULL;
    bool found = false;

    for (uint32_t i = 0; i < b->n_electors; i++) {
        const struct promise_body *p = &b->promises[i];

        if ((left >> i & 1) &&
            (best == NULL || p->round > best->round ||
             (p->round == best->round &&
              (p->tokens > best->tokens ||
               (p->tokens == best->tokens &&
                hash32_cmp(&p->commit, &best->commit) < 0))))) {
            best = p;
        }
    }
    assert(best != NULL);
    v->round = best->round;
    v->tokens = best->tokens;
    v->commit = best->commit;
    for (uint32_t i = 0; i < b->n_electors && !found; i++) {
        const struct promise_body *p = &b->promises[i];

        if (!(left >> i & 1) || p->round != best->round ||
            p->closing != CLOSING_VOTED) {
            continue;
        }
        found = true;
        for (uint32_t k = 0; k < b->n_electors; k++) {
            const struct promise_body *q = &b->promises[k];

            if ((left >> k & 1) && (p->plan_members >> k & 1) &&
                (q->closing != CLOSING_VOTED ||
                 !hash32_eq(&q->voted, &p->voted))) {
                found = false;
            }
        }
        if (found) {
            v->round = best->round + 1;
            v->tokens = p->plan_tokens;
            v->commit = p->voted;
        }
    }
}

static void member_add(struct view_body *v,
                       const uint8_t key[32],
                       const struct msg_address *address,
                       uint64_t joined)
{
    struct view_member *m;

    if (v->n_members == VIEW_MEMBERS_MAX || view_index_key(v, key) >= 0) {
        return;
    }
    m = &v->members[v->n_members++];
    memcpy(m->public_key, key, 32);
    m->address = *address;
    m->joined = joined;
}

static struct msg_address address_of(const struct ballot *b, int row)
{
    const struct address *a = row == MEMBERS_NONE
                                  ? &b->members->observed
                                  : &b->members->peers[row].address;
    struct msg_address out = {.port = a->port};

    memcpy(out.ip, a->ip, sizeof out.ip);
    return out;
}

/* A joiner that went away frees its place. */
static bool joiner_here(const struct ballot *b, const struct ballot_joiner *j)
{
    return j->used && members_linked(b->members, j->peer) &&
           memcmp(b->members->peers[j->peer].public_key, j->public_key,
                  sizeof j->public_key) == 0;
}

static void add_joiners(struct ballot *b, struct view_body *v)
{
    for (int k = 0; k < BALLOT_JOINERS_MAX; k++) {
        struct ballot_joiner *j = &b->joiners[k];

        if (joiner_here(b, j) && j->body.round == v->round &&
            hash32_eq(&j->body.commit, &v->commit)) {
            member_add(v, j->public_key, &j->address, v->epoch);
        }
    }
}

/* Edges that two live members could not use twice. With at most three members
 * no ring avoids an edge: the later joined of the two, then the higher id,
 * leaves. Else the edge is named and rings go around it. */
static void
avoid_edges(const struct ballot *b, uint64_t left, struct view_body *v)
{
    for (uint32_t i = 0; i < b->n_electors; i++) {
        const struct promise_body *p = &b->promises[i];
        int x, y;

        if (!(left >> i & 1) || !p->has_broken) {
            continue;
        }
        x = view_index_key(v, b->elector_keys[i]);
        y = view_index(v, &p->broken);
        if (x < 0 || y < 0 || x == y) {
            continue;
        }
        if (v->n_members > 3 && v->n_edges < 16) {
            v->edges[v->n_edges++] = (uint16_t)(x | y << 8);
        } else if (v->n_members <= 3 && v->n_members > 1) {
            int out = v->members[x].joined > v->members[y].joined   ? x
                      : v->members[x].joined < v->members[y].joined ? y
                      : x > y                                       ? x
                                                                    : y;

            v->members[out] = v->members[--v->n_members];
            (void)view_sort(v);
        }
    }
}

static void mark_fork(const struct ballot *b, struct view_body *v)
{
    const struct view_body *old = &b->cert.body;

    if (b->mode == VIEW_FOUND || (b->mode == VIEW_MAJORITY && !old->fork)) {
        return; /* unmarked: its roots are its own members */
    }
    if (old->fork) {
        v->n_roots = old->n_roots;
        memcpy(v->roots, old->roots, sizeof v->roots);
    } else {
        v->n_roots = old->n_members;
        memcpy(v->roots, b->ids, sizeof v->roots[0] * old->n_members);
    }
    v->fork = !view_holds_half(v, v->roots, v->n_roots);
    if (!v->fork) {
        v->n_roots = 0;
    }
}

/* A new value from the promises: everybody who answered and was not
 * restarted, and waiting joiners. False: nobody would be left. */
static bool make_value(struct ballot *b, struct view_body *v)
{
    const struct view_body *old = &b->cert.body;
    uint64_t left = 0;

    memset(v, 0, sizeof *v);
    v->run = b->opt.run;
    v->mode = (uint8_t)b->mode;
    v->epoch = b->mode == VIEW_FOUND ? b->found_epoch : old->epoch + 1;
    v->prev = b->mode == VIEW_FOUND ? b->opt.run : b->hash;
    v->departed = b->mode == VIEW_FOUND ? 0 : b->departed;
    for (uint32_t i = 0; i < b->n_electors; i++) {
        if ((b->answered >> i & 1) && !b->promises[i].restarted &&
            !(v->departed >> i & 1)) {
            struct msg_address a = address_of(b, b->elector_rows[i]);
            uint64_t joined =
                b->mode == VIEW_FOUND ? v->epoch : old->members[i].joined;

            if (b->mode != VIEW_FOUND && a.port == 0) {
                a = old->members[i].address;
            }
            left |= BIT(i);
            member_add(v, b->elector_keys[i], &a, joined);
        }
    }
    if (left == 0) {
        return false;
    }
    decide_round(b, left, v);
    if (b->mode == VIEW_MAJORITY) {
        add_joiners(b, v);
    }
    (void)view_sort(v);
    if (b->mode != VIEW_FOUND) {
        avoid_edges(b, left, v);
    }
    mark_fork(b, v);
    return true;
}

static void give_up(struct ballot *b, const struct ballot_context *ctx)
{
    b->phase = BALLOT_IDLE;
    b->try_at_ms = ctx->now_ms + b->opt.ballot_ms / 4 +
                   rng_below(&b->rng, b->opt.ballot_ms / 2 + 1);
}

static void accept_own(struct ballot *b, const struct ballot_context *ctx);

static void conclude(struct ballot *b, const struct ballot_context *ctx)
{
    struct accept msg = {.mode = (uint8_t)b->mode, .ballot = b->current};

    if (b->mode == VIEW_MAJORITY &&
        !view_quorum(&b->cert.body, b->answered, b->departed)) {
        give_up(b, ctx);
        return;
    }
    if (b->mode == VIEW_FOUND &&
        (uint32_t)__builtin_popcountll(b->answered) < b->found_min) {
        give_up(b, ctx);
        return;
    }
    if (!b->has_value && !make_value(b, &b->value)) {
        give_up(b, ctx);
        return;
    }
    view_hash(&b->value, &b->value_hash);
    b->phase = BALLOT_SIGN;
    b->deadline_ms = ctx->now_ms + b->opt.ballot_ms / 2;
    if (b->mode != VIEW_FOUND) {
        msg.epoch = b->cert.body.epoch;
        msg.view = b->hash;
    }
    msg.value = b->value;
    accept_own(b, ctx);
    broadcast(b, ctx, MESSAGE_ACCEPT, &msg);
}

/* Certificate complete? Then adopt and tell everybody. */
static void certify(struct ballot *b, const struct ballot_context *ctx)
{
    struct view_cert cert = {.body = b->value, .ballot = b->current};
    int rows[2 * VIEW_MEMBERS_MAX];
    uint32_t n_rows = b->n_electors;
    uint64_t mask = 0;

    for (uint32_t i = 0; i < b->n_sigs; i++) {
        const struct view_body *v =
            b->mode == VIEW_MAJORITY ? &b->cert.body : &b->value;
        int at = view_index_key(v, b->sigs[i].public_key);

        mask |= at < 0 ? 0 : BIT(at);
    }
    if (b->mode == VIEW_MAJORITY
            ? !view_quorum(&b->cert.body, mask, b->value.departed)
            : (uint32_t)__builtin_popcountll(mask) != b->value.n_members) {
        return;
    }
    cert.n_sigs = b->n_sigs;
    memcpy(cert.sigs, b->sigs, sizeof cert.sigs);
    memcpy(rows, b->elector_rows, n_rows * sizeof rows[0]);
    b->phase = BALLOT_IDLE;
    if (view_index_key(&cert.body, b->opt.public_key) >= 0) {
        adopt(b, ctx, &cert);
        for (uint32_t i = 0; i < cert.body.n_members; i++) {
            if (elector_of_row(b, b->rows[i]) < 0) {
                rows[n_rows++] = b->rows[i];
            }
        }
    }
    members_broadcast(b->members, ctx->out, rows, n_rows, MESSAGE_VIEW, &cert);
}

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

static int sign_value(struct ballot *b,
                      const struct ballot_context *ctx,
                      uint64_t ballot,
                      const struct view_body *value,
                      struct accepted *out)
{
    if (value->mode != VIEW_FOUND) {
        b->has_promised = b->has_accepted = b->frozen = true;
        b->promised = b->accepted_ballot = ballot;
        b->accepted = *value;
        save(b, ctx);
    }
    out->body.ballot = ballot;
    view_hash(value, &out->body.view);
    return message_sign(&b->opt.signer, &ballot_body_schema, &out->body,
                        out->sig);
}

static void accept_own(struct ballot *b, const struct ballot_context *ctx)
{
    struct accepted mine = {0};

    if (sign_value(b, ctx, b->current, &b->value, &mine) == 0) {
        sig_add(b, b->opt.public_key, mine.sig);
        certify(b, ctx);
    }
}

/* ---- acceptor --------------------------------------------------------- */

/* Whether {epoch, view} is what we could be asked to replace. */
static bool names_our_view(const struct ballot *b,
                           uint64_t epoch,
                           const struct hash32 *view)
{
    return (b->have || b->restored) && epoch == b->cert.body.epoch &&
           hash32_eq(view, &b->hash);
}

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

/* Highest ballot that is answered now. */
static uint64_t ballot_limit(const struct ballot *b, enum view_mode mode)
{
    uint64_t from = mode == VIEW_FORK ? FORK_BALLOT : b->next_ballot;

    if (b->has_promised && b->promised > from &&
        (mode == VIEW_FORK || b->promised < FORK_BALLOT)) {
        from = b->promised;
    }
    return from + (mode == VIEW_FORK ? BALLOT_LEAP << 8 : BALLOT_LEAP);
}

static bool may_promise(const struct ballot *b,
                        const struct ballot_context *ctx,
                        int peer,
                        const struct prepare *p)
{
    if (!owns_ballot(b, peer, p->mode, p->ballot)) {
        return false;
    }
    if (p->mode == VIEW_FOUND) {
        /* The founder we are bound to has given up what it asked before. */
        return ctx->may_found && !b->have && p->ballot > b->found_ballot &&
               p->ballot - b->found_ballot <= FOUND_LEAP &&
               (ctx->now_ms >= b->found_until_ms ||
                id_eq(&b->found_by, &b->members->peers[peer].id));
    }
    if (!names_our_view(b, p->epoch, &p->view) ||
        (b->has_promised && p->ballot < b->promised) ||
        p->ballot > ballot_limit(b, p->mode)) {
        return false;
    }
    if (p->mode == VIEW_FORK) {
        return b->have && (b->fork_bound ||
                           ctx->now_ms - b->doubt_since_ms >=
                               b->opt.fork_after_ms - b->opt.fork_after_ms / 4);
    }
    return !b->fork_bound && (p->urgent || !ctx->in_flight || b->frozen);
}

static void on_prepare(struct ballot *b,
                       const struct ballot_context *ctx,
                       int peer,
                       const struct prepare *p)
{
    struct promise msg = {0};

    if (p->mode >= VIEW_MODE_COUNT || !may_promise(b, ctx, peer, p)) {
        return;
    }
    msg.body = own_promise(b, ctx, p);
    if (p->mode == VIEW_FOUND) {
        msg.body.has_accepted = false;
    }
    if (msg.body.has_accepted) {
        msg.n_accepted = 1;
        msg.accepted[0] = b->accepted;
    }
    bind(b, ctx, &b->members->peers[peer].id, p);
    if (b->phase != BALLOT_IDLE && p->ballot != b->current) {
        b->phase = BALLOT_IDLE; /* ours can no longer win */
    }
    b->try_at_ms = ctx->now_ms + b->opt.ballot_ms;
    if (p->ballot < FORK_BALLOT && b->next_ballot <= p->ballot) {
        b->next_ballot = p->ballot + 1;
    }
    if (message_sign(&b->opt.signer, &promise_body_schema, &msg.body,
                     msg.sig) == 0) {
        (void)members_send(b->members, ctx->out, peer, MESSAGE_PROMISE, &msg);
    }
}

/* Whether it could have been accepted in this epoch, before this ballot. */
static bool was_acceptable(const struct ballot *b, const struct promise *p)
{
    const struct view_body *v = &p->accepted[0];

    if (p->n_accepted == 0 || !p->body.has_accepted) {
        return p->n_accepted == 0 && !p->body.has_accepted;
    }
    return view_well_formed(v) && p->body.accepted_ballot < b->current &&
           hash32_eq(&v->run, &b->opt.run) &&
           v->epoch == b->cert.body.epoch + 1 && hash32_eq(&v->prev, &b->hash);
}

static void on_promise(struct ballot *b,
                       const struct ballot_context *ctx,
                       int peer,
                       const struct promise *p)
{
    int at = elector_of_row(b, peer);

    if (b->phase != BALLOT_GATHER || at < 0 || p->body.ballot != b->current ||
        p->body.mode != b->mode || (b->answered >> at & 1) ||
        (b->mode != VIEW_FOUND &&
         !names_our_view(b, p->body.epoch, &p->body.view))) {
        return;
    }
    if (!message_verify(&b->opt.signer, b->elector_keys[at],
                        &promise_body_schema, &p->body, p->sig) ||
        !was_acceptable(b, p)) {
        b->malformed++;
        return;
    }
    b->promises[at] = p->body;
    b->answered |= BIT(at);
    if (p->body.has_accepted && p->n_accepted > 0) {
        note_value(b, p->body.accepted_ballot, &p->accepted[0]);
    }
    for (uint32_t i = 0; i < b->n_electors; i++) {
        /* Lost members are not waited for; restarted ones answer. */
        if (!(b->answered >> i & 1) &&
            members_linked(b->members, b->elector_rows[i])) {
            return;
        }
    }
    conclude(b, ctx);
}

static bool value_acceptable(const struct ballot *b,
                             const struct ballot_context *ctx,
                             const struct accept *a)
{
    const struct view_body *v = &a->value;

    if (!view_well_formed(v) || v->mode != a->mode ||
        !hash32_eq(&v->run, &b->opt.run)) {
        return false;
    }
    if (a->mode == VIEW_FOUND) {
        return ctx->may_found && !b->have && a->ballot == b->found_ballot &&
               view_index_key(v, b->opt.public_key) >= 0;
    }
    return names_our_view(b, a->epoch, &a->view) && v->epoch == a->epoch + 1 &&
           hash32_eq(&v->prev, &b->hash) &&
           (!b->have || v->round >= ctx->closing.round) &&
           (v->departed & ~b->departed) == 0;
}

static void on_accept(struct ballot *b,
                      const struct ballot_context *ctx,
                      int peer,
                      const struct accept *a)
{
    struct accepted msg = {.epoch = a->epoch, .view = a->view};

    if (a->mode >= VIEW_MODE_COUNT ||
        !owns_ballot(b, peer, a->mode, a->ballot) ||
        (a->mode == VIEW_FOUND
             ? !id_eq(&b->found_by, &b->members->peers[peer].id)
             : !b->has_promised || a->ballot < b->promised ||
                   b->fork_bound != (a->mode == VIEW_FORK) ||
                   a->ballot > ballot_limit(b, a->mode)) ||
        !value_acceptable(b, ctx, a)) {
        return;
    }
    b->try_at_ms = ctx->now_ms + b->opt.ballot_ms;
    if (sign_value(b, ctx, a->ballot, &a->value, &msg) == 0) {
        (void)members_send(b->members, ctx->out, peer, MESSAGE_ACCEPTED, &msg);
    }
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

static void on_accepted(struct ballot *b,
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

/* Whether a restarted member had left that view behind: the one it was in, or
 * one before. What it voted and promised there is not known any more, so it
 * comes back as a joiner only. */
static bool is_past(const struct ballot *b, const struct view_cert *cert)
{
    const struct view_body *v = &cert->body;
    int at = view_index_key(v, b->opt.public_key);
    struct hash32 hash;

    view_hash(v, &hash);
    return hash32_eq(&hash, &b->hash) || hash32_eq(&hash, &b->cert.body.prev) ||
           (v->mode == VIEW_MAJORITY && v->epoch <= b->cert.body.epoch &&
            v->members[at].joined != v->epoch);
}

static void on_view(struct ballot *b,
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
        adopt(b, ctx, cert); /* the others carry our own signature */
    }
}

void ballot_confirm(struct ballot *b, const struct ballot_context *ctx)
{
    if (b->has_pending &&
        (!b->have || b->pending.body.epoch > b->cert.body.epoch)) {
        struct view_cert cert = b->pending;

        adopt(b, ctx, &cert);
    }
    b->has_pending = false;
}

static void on_suspect(struct ballot *b,
                       const struct ballot_context *ctx,
                       int peer,
                       const struct suspect *s)
{
    if (b->have && names_our_view(b, s->epoch, &s->view) &&
        view_index(&b->cert.body, &b->members->peers[peer].id) >= 0) {
        ballot_want(b, BALLOT_WANT_CHANGE, ctx->now_ms);
        if (s->ballot > b->next_ballot &&
            s->ballot <= ballot_limit(b, VIEW_MAJORITY) &&
            s->ballot < FORK_BALLOT &&
            view_ballot_owner(&b->cert.body, s->ballot) ==
                (uint32_t)b->self_index) {
            b->next_ballot = s->ballot; /* the owners before us are lost */
        }
    }
}

void ballot_recv(struct ballot *b,
                 const struct ballot_context *ctx,
                 int peer,
                 enum message_type type,
                 const void *msg)
{
    if (type == MESSAGE_SUSPECT) {
        on_suspect(b, ctx, peer, msg);
    } else if (type == MESSAGE_PREPARE) {
        on_prepare(b, ctx, peer, msg);
    } else if (type == MESSAGE_PROMISE) {
        on_promise(b, ctx, peer, msg);
    } else if (type == MESSAGE_ACCEPT) {
        on_accept(b, ctx, peer, msg);
    } else if (type == MESSAGE_ACCEPTED) {
        on_accepted(b, ctx, peer, msg);
    } else if (type == MESSAGE_VIEW) {
        on_view(b, ctx, msg);
    }
}

/* ---- wishes ----------------------------------------------------------- */

void ballot_found(struct ballot *b,
                  const struct ballot_context *ctx,
                  const int *rows,
                  uint32_t n,
                  uint32_t n_min,
                  uint64_t epoch)
{
    if (b->have || b->phase != BALLOT_IDLE || ctx->now_ms < b->try_at_ms ||
        ctx->now_ms < b->found_until_ms) {
        return;
    }
    b->n_electors = 0;
    b->found_epoch = epoch;
    b->found_min = n_min;
    elect(b, b->opt.public_key, MEMBERS_NONE);
    for (uint32_t i = 0; i < n && b->n_electors < VIEW_MEMBERS_MAX; i++) {
        elect(b, b->members->peers[rows[i]].public_key, rows[i]);
    }
    propose(b, ctx, VIEW_FOUND,
            ((b->found_ballot >> 16) + 1) << 16 |
                (id_u64(&b->opt.self) & 0xffff));
    if (b->n_electors == 1) {
        conclude(b, ctx);
    }
}

void ballot_joiner_add(struct ballot *b, int peer, const struct join *join)
{
    struct ballot_joiner *slot = NULL;

    for (int k = 0; k < BALLOT_JOINERS_MAX; k++) {
        struct ballot_joiner *j = &b->joiners[k];

        if (j->used && j->peer == peer) {
            slot = j;
            break;
        }
        if (!joiner_here(b, j) && slot == NULL) {
            slot = j;
        }
    }
    if (slot == NULL) {
        return; /* it asks again */
    }
    *slot = (struct ballot_joiner){
        .used = true,
        .peer = peer,
        .body = join->body,
        .address = join->address,
    };
    memcpy(slot->public_key, b->members->peers[peer].public_key, 32);
}

static bool joiner_waits(const struct ballot *b,
                         const struct ballot_context *ctx)
{
    for (int k = 0; k < BALLOT_JOINERS_MAX; k++) {
        const struct ballot_joiner *j = &b->joiners[k];

        if (joiner_here(b, j) && j->body.round == ctx->closing.round) {
            return true;
        }
    }
    return false;
}

void ballot_departed(struct ballot *b, const struct peer_id *id)
{
    int at = b->have ? view_index(&b->cert.body, id) : -1;

    if (at >= 0) {
        b->departed |= BIT(at);
        b->lost |= BIT(at);
    }
}

void ballot_lost(struct ballot *b, const struct peer_id *id)
{
    int at = b->have ? view_index(&b->cert.body, id) : -1;

    if (at >= 0) {
        b->lost |= BIT(at);
    }
}

static uint64_t reachable(const struct ballot *b)
{
    uint64_t mask = 0;

    for (uint32_t i = 0; i < b->cert.body.n_members; i++) {
        if ((int)i == b->self_index || members_linked(b->members, b->rows[i])) {
            mask |= BIT(i);
        }
    }
    return mask;
}

bool ballot_sees_majority(const struct ballot *b)
{
    return b->have &&
           view_quorum(&b->cert.body, reachable(b) & ~b->lost, b->departed);
}

/* Propose the next ballot where it is ours, else ask its owner to. */
static void try_next(struct ballot *b, const struct ballot_context *ctx)
{
    struct suspect s = {.epoch = b->cert.body.epoch, .view = b->hash};
    uint64_t alive = reachable(b) & ~b->lost;
    bool fork = b->fork_bound ||
                (!ballot_sees_majority(b) &&
                 ctx->now_ms - b->doubt_since_ms >= b->opt.fork_after_ms);
    uint32_t owner = 0;

    b->try_at_ms = ctx->now_ms + b->opt.ballot_ms;
    if (fork) {
        owner = (uint32_t)__builtin_ctzll(alive);
        if (owner == (uint32_t)b->self_index) {
            uint64_t base =
                b->promised < FORK_BALLOT ? FORK_BALLOT : b->promised + 256;

            propose(b, ctx, VIEW_FORK, (base & ~0xffULL) | owner);
        }
    } else {
        for (uint32_t k = 0; k < b->cert.body.n_members; k++) {
            owner = view_ballot_owner(&b->cert.body, b->next_ballot);
            if (alive >> owner & 1) {
                break;
            }
            b->next_ballot++;
        }
        s.ballot = b->next_ballot++;
        if (owner == (uint32_t)b->self_index) {
            propose(b, ctx, VIEW_MAJORITY, s.ballot);
        }
    }
    if (owner != (uint32_t)b->self_index && b->want == BALLOT_WANT_CHANGE) {
        (void)members_send(b->members, ctx->out, b->rows[owner],
                           MESSAGE_SUSPECT, &s);
    }
    if (b->phase == BALLOT_GATHER && b->answered == reachable(b)) {
        conclude(b, ctx); /* nobody else is there to be asked */
    }
}

void ballot_tick(struct ballot *b, const struct ballot_context *ctx)
{
    if (b->phase != BALLOT_IDLE && ctx->now_ms >= b->deadline_ms) {
        if (b->phase == BALLOT_GATHER) {
            conclude(b, ctx);
        } else {
            give_up(b, ctx);
        }
    }
    if (!b->have) {
        return;
    }
    if (ballot_sees_majority(b)) {
        b->doubt_since_ms = ctx->now_ms;
    }
    if (b->frozen) {
        b->want = BALLOT_WANT_CHANGE;
    } else if (b->want == BALLOT_WANT_JOIN &&
               (ctx->in_flight || !joiner_waits(b, ctx))) {
        b->want = BALLOT_WANT_NOTHING;
    } else if (b->want == BALLOT_WANT_NOTHING && !ctx->in_flight &&
               joiner_waits(b, ctx)) {
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
    if (b->have && (b->want != BALLOT_WANT_NOTHING || b->frozen) &&
        b->phase == BALLOT_IDLE && b->try_at_ms < due) {
        due = b->try_at_ms;
    }
    return due;
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
