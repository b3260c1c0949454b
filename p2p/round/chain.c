/* chain.c - see chain.h. */
#include "p2p/round/chain.h"

#include <string.h>

#include "proto/base/bytes.h"
#include "proto/base/err.h"

#define HEAD_BYTES 4

enum tie { TIE_NONE, TIE_WEAK, TIE_STRONG };

void chain_init(struct chain *c, uint8_t bytes[CHAIN_BYTES_MAX])
{
    memset(c, 0, sizeof *c);
    c->bytes = bytes;
}

uint32_t chain_n_weak(const struct chain *c)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < c->n; i++) {
        n += c->link[i].weak;
    }
    return n;
}

bool chain_proves(const struct chain *c, const struct hash32 *view)
{
    return c->n > 0 && hash32_eq(&c->link[c->n - 1].hash, view);
}

static bool decode(const struct chain *c, uint32_t i, struct view_cert *cert)
{
    const struct chain_link *l = &c->link[i];

    return msg_decode(&view_cert_schema, c->bytes + l->at, l->len, cert) == 0;
}

bool chain_last(const struct chain *c, struct view_cert *cert)
{
    return c->n > 0 && decode(c, c->n - 1, cert);
}

/* ---- signatures --------------------------------------------------------- */

/* Bit k: signature k of the certificate is good, the only one by that key. */
static uint64_t good_signatures(const struct view_cert *cert,
                                const struct signer *signer)
{
    struct ballot_body ballot = {.ballot = cert->ballot};
    uint64_t good = 0;

    view_hash(&cert->body, &ballot.view);
    for (uint32_t k = 0; k < cert->n_sigs; k++) {
        const struct view_signature *s = &cert->sigs[k];
        bool twice = false;

        for (uint32_t i = 0; i < k; i++) {
            twice = twice ||
                    memcmp(cert->sigs[i].public_key, s->public_key, 32) == 0;
        }
        if (!twice && message_verify(signer, s->public_key, &ballot_body_schema,
                                     &ballot, s->sig)) {
            good |= 1ULL << k;
        }
    }
    return good;
}

/* Bits of the members of `view` who signed. */
static uint64_t signers_in(const struct view_body *view,
                           const struct view_cert *cert,
                           uint64_t good)
{
    uint64_t mask = 0;

    for (uint32_t k = 0; k < cert->n_sigs; k++) {
        int at =
            good >> k & 1 ? view_index_key(view, cert->sigs[k].public_key) : -1;

        if (at >= 0) {
            mask |= 1ULL << at;
        }
    }
    return mask;
}

static bool all_signed(const struct view_cert *cert, uint64_t good)
{
    const struct view_body *v = &cert->body;
    uint64_t all = v->n_members == 64 ? UINT64_MAX : (1ULL << v->n_members) - 1;

    return signers_in(v, cert, good) == all;
}

static bool is_genesis(const struct view_cert *cert,
                       const struct chain_rules *rules,
                       uint64_t good)
{
    const struct view_body *v = &cert->body;

    return v->mode == VIEW_FOUND && hash32_eq(&v->prev, &rules->run) &&
           v->round == 0 && v->tokens == 0 && hash32_is_zero(&v->commit) &&
           v->n_members >= rules->min_peers && all_signed(cert, good);
}

/* The roots that a view after `from` has if it is marked. */
static bool same_roots(const struct view_body *from, const struct view_body *to)
{
    struct peer_id roots[VIEW_MEMBERS_MAX];
    uint32_t n = view_roots(from, roots);

    return n == to->n_roots &&
           memcmp(roots, to->roots, n * sizeof roots[0]) == 0;
}

/* As ballot_value.c marks: a majority of an unmarked view is unmarked; all else
 * is marked until it holds more than half of the roots. */
static bool marked_right(const struct view_body *from,
                         const struct view_body *to,
                         bool strong)
{
    struct peer_id roots[VIEW_MEMBERS_MAX];
    uint32_t n = view_roots(from, roots);

    if (to->fork) {
        return same_roots(from, to) &&
               !view_holds_half(to, to->roots, to->n_roots);
    }
    return (strong && !from->fork) || view_holds_half(to, roots, n);
}

/* Members of `from` who do not count for `to`, as they said goodbye. */
static uint64_t departed_from(const struct view_body *from,
                              const struct hash32 *from_hash,
                              const struct view_cert *to,
                              const struct signer *signer)
{
    return hash32_eq(&to->body.prev, from_hash)
               ? to->body.departed &
                     view_parted(from, to->partings, to->n_partings, signer)
               : 0;
}

static enum tie tie_of(const struct view_body *from,
                       const struct hash32 *from_hash,
                       const struct view_cert *to,
                       uint64_t good,
                       const struct signer *signer)
{
    uint64_t mask = signers_in(from, to, good);

    if (to->body.epoch <= from->epoch || mask == 0) {
        return TIE_NONE;
    }
    if (view_quorum(from, mask, departed_from(from, from_hash, to, signer)) &&
        marked_right(from, &to->body, true)) {
        return TIE_STRONG;
    }
    return to->body.mode != VIEW_MAJORITY && all_signed(to, good) &&
                   marked_right(from, &to->body, false)
               ? TIE_WEAK
               : TIE_NONE;
}

bool chain_follows(const struct view_body *from,
                   const struct hash32 *from_hash,
                   const struct view_cert *to,
                   const struct signer *signer)
{
    return view_well_formed(&to->body) &&
           hash32_eq(&to->body.run, &from->run) &&
           tie_of(from, from_hash, to, good_signatures(to, signer), signer) ==
               TIE_STRONG;
}

/* ---- links -------------------------------------------------------------- */

/* Behind the first `stay` links; all of them stay where it does not fit. */
static int
append(struct chain *c, uint32_t stay, const struct view_cert *cert, bool weak)
{
    uint8_t bytes[FRAME_CONTROL_MAX];
    int len = msg_encode(&view_cert_schema, cert, bytes, sizeof bytes);
    uint32_t used =
        stay == 0 ? 0 : c->link[stay - 1].at + c->link[stay - 1].len;
    struct chain_link *l = &c->link[stay];

    if (stay == CHAIN_LINKS_MAX || len < 0 ||
        CHAIN_BYTES_MAX - used < HEAD_BYTES + (uint32_t)len) {
        return LOCO_EFULL;
    }
    put_u32(c->bytes + used, (uint32_t)len);
    memcpy(c->bytes + used + HEAD_BYTES, bytes, (size_t)len);
    l->at = used + HEAD_BYTES;
    l->len = (uint32_t)len;
    l->weak = weak;
    view_hash(&cert->body, &l->hash);
    c->used = l->at + l->len;
    c->n = stay + 1;
    return 0;
}

/* The oldest link that is strongly tied to it, or else the last one; how many
 * links stay, 0: nothing ties it. */
static uint32_t find_tie(const struct chain *c,
                         const struct view_cert *cert,
                         uint64_t good,
                         const struct signer *signer,
                         bool *weak)
{
    enum tie tie = TIE_NONE;
    struct view_cert at;

    for (uint32_t i = 0; i < c->n; i++) {
        tie = decode(c, i, &at)
                  ? tie_of(&at.body, &c->link[i].hash, cert, good, signer)
                  : TIE_NONE;
        if (tie == TIE_STRONG) {
            *weak = false;
            return i + 1;
        }
    }
    *weak = true; /* `tie` is that of the last link */
    return tie == TIE_WEAK ? c->n : 0;
}

int chain_extend(struct chain *c,
                 const struct chain_rules *rules,
                 const struct view_cert *cert)
{
    uint64_t good;
    uint32_t stay;
    bool weak = false;

    if (!view_well_formed(&cert->body) ||
        !hash32_eq(&cert->body.run, &rules->run)) {
        return LOCO_EPROTO;
    }
    good = good_signatures(cert, rules->signer);
    if (c->n == 0) {
        return is_genesis(cert, rules, good) ? append(c, 0, cert, false)
                                             : LOCO_ESIG;
    }
    stay = find_tie(c, cert, good, rules->signer, &weak);
    return stay == 0 ? LOCO_ESIG : append(c, stay, cert, weak);
}

int chain_read(struct chain *c,
               const struct chain_rules *rules,
               const uint8_t *bytes,
               size_t len)
{
    struct view_cert cert;
    uint32_t n_links = 0;
    int rv = len == 0 ? LOCO_ESIG : 0;

    c->n = c->used = 0;
    for (size_t at = 0, n = 0; rv == 0 && at < len; at += HEAD_BYTES + n) {
        bool whole = len - at >= HEAD_BYTES;

        n = whole ? get_u32(bytes + at) : 0;
        rv = whole && n <= len - at - HEAD_BYTES && n_links++ < CHAIN_LINKS_MAX
                 ? msg_decode(&view_cert_schema, bytes + at + HEAD_BYTES, n,
                              &cert)
                 : LOCO_EPROTO;
        rv = rv == 0 ? chain_extend(c, rules, &cert) : LOCO_EPROTO;
    }
    if (rv != 0) {
        c->n = c->used = 0;
    }
    return rv;
}

/* ---- commits ------------------------------------------------------------ */

/* Members of the view (bits) whose votes for `vote` are votes[from..to). Those
 * of a plan are in its order; who else votes names itself by its key. */
static uint64_t voters(const struct view_body *view,
                       const struct commit *c,
                       const struct vote_body *vote,
                       uint32_t from,
                       uint32_t to,
                       const struct signer *signer)
{
    const struct plan_body *p = &c->plan.body;
    uint64_t mask = 0;

    for (uint32_t k = from; k < to; k++) {
        int at = k < p->n_members
                     ? p->members[k].index
                     : view_index_key(view, c->votes[k].public_key);

        if (at >= 0 && at < (int)view->n_members &&
            message_verify(signer, view->members[at].public_key,
                           &vote_body_schema, vote, c->votes[k].sig)) {
            mask |= 1ULL << at;
        }
    }
    return mask;
}

bool chain_commit_valid(const struct view_body *view,
                        const struct hash32 *hash,
                        uint64_t departed,
                        const struct commit *c,
                        const struct signer *signer)
{
    const struct plan_body *p = &c->plan.body;
    struct vote_body vote = {.epoch = view->epoch,
                             .view = *hash,
                             .round = p->round,
                             .result = c->result};
    uint64_t planned, all;
    struct hash32 name;

    message_commit_hash(p, &c->result, &name);
    if (view->round == p->round) {
        return hash32_eq(&view->commit, &name);
    }
    if (p->epoch != view->epoch || !hash32_eq(&p->view, hash) ||
        p->n_members == 0 || c->n_votes < p->n_members) {
        return false;
    }
    message_hash(&plan_body_schema, "loco-plan-1", p, &vote.plan);
    planned = voters(view, c, &vote, 0, p->n_members, signer);
    if ((uint32_t)__builtin_popcountll(planned) != p->n_members ||
        !view_quorum(view, planned, departed & ~planned)) {
        return false;
    }
    memset(&vote.result, 0, sizeof vote.result);
    all = planned | voters(view, c, &vote, p->n_members, c->n_votes, signer);
    return view_byzantine_quorum(view, all, departed & ~all);
}
