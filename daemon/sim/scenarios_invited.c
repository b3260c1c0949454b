/* scenarios_invited.c - a run for invited peers, and one who should not be in.
 *
 * All but the last peer have an invitation of the author. The last one, the
 * *outsider*, comes half way with (seeds take turns)
 *
 *   0  none
 *   1  one that a stranger signed
 *   2  one that has expired
 *   3  the admission that peer 1 shows: it names peer 1
 *   4  a good one, which the author revokes later: one peer is told
 *
 * Beside what always must hold (check.h):
 *
 *   M  who has no invitation that holds is in no view, has no manifest and is
 *      told why; a revoked one is in no view soon, and its peers are
 */
#include <string.h>

#include "daemon/node/inspect.h"
#include "daemon/sim/sim_internal.h"
#include "daemon/sim/world/internal.h"
#include "proto/base/err.h"

#define LOOK_MS   100
#define REVOKE_MS 15000 /* after it came */
#define GONE_MS   25000 /* after it was revoked: out of every view */

enum { KIND_NONE, KIND_STRANGER, KIND_EXPIRED, KIND_COPY, KIND_REVOKED, KINDS };

static unsigned kind_of(const struct sim *s)
{
    return (unsigned)(s->opt.seed % KINDS);
}

static uint32_t outsider(const struct sim *s)
{
    return s->n - 1;
}

static struct identity author_of(const struct sim *s)
{
    struct identity a;

    identity_fake(&a, s->opt.seed ^ 0x617574686f72);
    return a;
}

/* Invitation number peer + 1. */
static void admission_of(const struct sim *s,
                         uint32_t peer,
                         unsigned kind,
                         struct admission *out)
{
    struct admission_body proof = {.run = s->run_id,
                                   .peer = world_identity(s->world, peer)->id};
    struct identity author = author_of(s), stranger, key;
    struct signer by = signer_keyed(&author), own;

    identity_fake(&key, 1000 + peer);
    identity_fake(&stranger, 666);
    if (kind == KIND_STRANGER) {
        by = signer_keyed(&stranger);
    }
    own = signer_keyed(&key);
    memset(out, 0, sizeof *out);
    out->invitation.body = (struct invitation_body){
        .run = s->run_id,
        .number = peer + 1,
        .expiry_s = kind == KIND_EXPIRED ? 1800000000U : 0,
    };
    memcpy(out->invitation.body.key, key.public, sizeof key.public);
    (void)message_sign(&by, &invitation_body_schema, &out->invitation.body,
                       out->invitation.sig);
    (void)message_sign(&own, &admission_body_schema, &proof, out->proof);
}

void sim_admit(const struct sim *s, uint32_t peer, struct node_options *o)
{
    unsigned kind = peer == outsider(s) ? kind_of(s) : KIND_REVOKED;

    if (!s->local_opt.invited || kind == KIND_NONE) {
        return;
    }
    o->has_admission = true;
    admission_of(s, kind == KIND_COPY ? 1 : peer, kind, &o->admission);
}

void options_invited(struct sim *s)
{
    struct identity author = author_of(s);

    s->local_opt.invited = true;
    memcpy(s->local_opt.author, author.public, sizeof s->local_opt.author);
    s->local_opt.min_peers = s->n - 1;
    s->starters = s->n - 1;
    s->need = s->n - 1;
    s->local_opt.shards_everywhere = false;
}

/* ---- what must hold ----------------------------------------------------- */

bool sim_in_view(const struct node *n, const struct peer_id *id)
{
    const struct ballot *b = node_parts(n).ballot;

    return b->have && view_index(&b->cert.body, id) >= 0;
}

static void look_call(void *data, uint64_t arg)
{
    struct sim *s = data;
    const struct peer_id *id = &world_identity(s->world, outsider(s))->id;
    bool kept_out = kind_of(s) != KIND_REVOKED ||
                    (s->invited.revoked_ms > 0 &&
                     world_now(s->world) > s->invited.revoked_ms + GONE_MS);
    const struct node *o = s->nodes[outsider(s)];

    (void)arg;
    for (uint32_t q = 0; kept_out && q < outsider(s); q++) {
        if (s->nodes[q] != NULL && sim_in_view(s->nodes[q], id)) {
            check_fail(s->check, "M: the outsider is in the view of peer %u",
                       q);
        }
    }
    if (o != NULL && kind_of(s) != KIND_REVOKED &&
        node_parts(o).data->manifest_got > 0) {
        check_fail(s->check, "M: the outsider has the manifest");
    }
    s->invited.was_in = s->invited.was_in || (o != NULL && sim_in_view(o, id));
    world_call(s->world, world_now(s->world) + LOOK_MS, look_call, s, 0);
}

bool sim_may_stop(struct sim *s, uint32_t peer, int rc)
{
    static const enum refusal reasons[KINDS] = {
        [KIND_NONE] = REFUSAL_NOT_INVITED, [KIND_STRANGER] = REFUSAL_INVALID,
        [KIND_EXPIRED] = REFUSAL_EXPIRED,  [KIND_COPY] = REFUSAL_INVALID,
        [KIND_REVOKED] = REFUSAL_REVOKED,
    };

    if (!s->local_opt.invited || peer != outsider(s)) {
        return false;
    }
    if (rc != LOCO_EXIT_INCOMPATIBLE ||
        node_parts(s->nodes[peer]).admit->refusal != reasons[kind_of(s)]) {
        check_fail(s->check, "M: the outsider stops with %d, refusal %d", rc,
                   node_parts(s->nodes[peer]).admit->refusal);
    }
    s->invited.was_refused = true;
    return true;
}

void check_invited(struct sim *s)
{
    if (!s->local_opt.invited) {
        return;
    }
    if (kind_of(s) == KIND_REVOKED
            ? !s->invited.was_in || s->invited.revoked_ms == 0
            : !s->invited.was_refused) {
        check_fail(s->check, "M: the outsider was %s",
                   kind_of(s) == KIND_REVOKED ? "never in, or not revoked"
                                              : "not refused");
    }
}

/* ---- what happens ------------------------------------------------------- */

/* The author tells one peer. */
static void revoke_call(void *data, uint64_t arg)
{
    struct sim *s = data;
    struct revocation list = {
        .body = {.run = s->run_id, .sequence = 1, .n_numbers = 2}};
    struct identity author = author_of(s);
    struct signer by = signer_keyed(&author);
    struct event event = {.type = EVENT_LOCAL};
    int n;

    (void)arg;
    list.body.numbers[0] = 4711;
    list.body.numbers[1] = outsider(s) + 1;
    (void)message_sign(&by, &revocation_body_schema, &list.body, list.sig);
    n = msg_encode(&revocation_schema, &list, s->invited.revocation,
                   sizeof s->invited.revocation);
    event.local = (struct local_event){
        .type = LOCAL_REVOKED,
        .revoked = {.bytes = s->invited.revocation, .n_bytes = (uint32_t)n}};
    world_post(s->world, (uint32_t)(s->opt.seed / KINDS % outsider(s)), &event);
    s->invited.revoked_ms = world_now(s->world);
    sim_fault(s);
}

/* It would go on alone, as a fork of a run that it is not part of. */
static void kill_call(void *data, uint64_t arg)
{
    struct sim *s = data;

    (void)arg;
    s->invited.was_refused =
        s->nodes[outsider(s)] != NULL &&
        node_parts(s->nodes[outsider(s)]).admit->refusal == REFUSAL_REVOKED;
    if (!s->invited.was_refused) {
        check_fail(s->check, "M: the outsider does not know why");
    }
    world_kill(s->world, outsider(s));
}

void setup_invited(struct sim *s)
{
    uint64_t at = sim_after_rounds(s, s->rounds / 4, s->rounds / 3);

    world_call(s->world, at, sim_start_call, s, outsider(s));
    world_call(s->world, at, look_call, s, 0);
    s->calm_ms = at + 20000;
    if (kind_of(s) == KIND_REVOKED) {
        world_call(s->world, at + REVOKE_MS, revoke_call, s, 0);
        world_call(s->world, at + REVOKE_MS + 12000, kill_call, s, 0);
        s->calm_ms = at + REVOKE_MS + GONE_MS + 2000;
    }
}
