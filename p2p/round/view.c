/* view.c - see view.h. */
#include "p2p/round/view.h"

#include <stdlib.h>
#include <string.h>

#include "p2p/round/lease.h"
#include "proto/base/err.h"
#include "proto/base/rng.h"

void view_hash(const struct view_body *view, struct hash32 *out)
{
    message_hash(&view_body_schema, "loco-view-1", view, out);
}

struct peer_id view_member_id(const struct view_member *member)
{
    return id_of_public(member->public_key);
}

int view_index(const struct view_body *view, const struct peer_id *id)
{
    for (uint32_t i = 0; i < view->n_members; i++) {
        struct peer_id at = view_member_id(&view->members[i]);

        if (id_eq(&at, id)) {
            return (int)i;
        }
    }
    return -1;
}

int view_index_key(const struct view_body *view, const uint8_t key[32])
{
    for (uint32_t i = 0; i < view->n_members; i++) {
        if (memcmp(view->members[i].public_key, key, 32) == 0) {
            return (int)i;
        }
    }
    return -1;
}

bool view_is_full(const struct view_body *view, uint32_t i)
{
    return view->members[i].full_since <= view->epoch;
}

uint64_t view_full(const struct view_body *view)
{
    uint64_t mask = 0;

    for (uint32_t i = 0; i < view->n_members; i++) {
        mask |= view_is_full(view, i) ? 1ULL << i : 0;
    }
    return mask;
}

static uint32_t n_of(uint64_t mask)
{
    return (uint32_t)__builtin_popcountll(mask);
}

uint32_t view_n_full(const struct view_body *view)
{
    return n_of(view_full(view));
}

bool view_counts(const struct view_body *view, const struct peer_id *id)
{
    int at = view_index(view, id);

    return at >= 0 && view_is_full(view, (uint32_t)at);
}

bool view_counted_before(const struct view_body *view, uint32_t i)
{
    return view->members[i].joined != view->epoch &&
           view->members[i].full_since < view->epoch;
}

bool view_quorum(const struct view_body *view, uint64_t mask, uint64_t departed)
{
    uint64_t all = view_full(view) & ~departed;
    uint32_t n = n_of(all), have = n_of(all & mask);

    /* Of two halves the one with the lowest bit. */
    return 2 * have > n || (n > 0 && 2 * have == n && (mask & all & -all) != 0);
}

bool view_byzantine_quorum(const struct view_body *view,
                           uint64_t mask,
                           uint64_t departed)
{
    uint64_t all = view_full(view) & ~departed;
    uint32_t n = n_of(all), have = n_of(all & mask);

    return n > 0 && 2 * have > n + (n - 1) / 3;
}

uint32_t view_deciders(const struct view_body *view, uint64_t departed)
{
    uint32_t full = n_of(view_full(view));
    uint32_t half = (n_of(view_full(view) & ~departed) + 1) / 2;
    uint32_t holders = full > 0 ? (full - 1) / 3 + 2 : 2;

    return half > holders ? half : holders;
}

uint64_t view_parted(const struct view_body *view,
                     const struct parting *partings,
                     uint32_t n,
                     const struct signer *signer)
{
    uint64_t parted = 0;

    for (uint32_t k = 0; k < n; k++) {
        const struct parting *p = &partings[k];
        struct goodbye_body body = {.run = view->run, .epoch = p->epoch};
        const struct view_member *m;

        if (p->member >= view->n_members || (parted >> p->member & 1)) {
            continue;
        }
        m = &view->members[p->member];
        if (p->epoch < m->joined) {
            continue; /* it came back since */
        }
        body.peer = view_member_id(m);
        if (!message_verify(signer, m->public_key, &goodbye_body_schema, &body,
                            p->sig)) {
            break; /* forged: it costs one signature, not one for each */
        }
        parted |= 1ULL << p->member;
    }
    return parted;
}

uint32_t view_roots(const struct view_body *view,
                    struct peer_id roots[VIEW_MEMBERS_MAX])
{
    uint32_t n = 0;

    if (view->fork) {
        memcpy(roots, view->roots, view->n_roots * sizeof roots[0]);
        return view->n_roots;
    }
    for (uint32_t i = 0; i < view->n_members; i++) {
        if (view_is_full(view, i)) {
            roots[n++] = view_member_id(&view->members[i]);
        }
    }
    return n;
}

bool view_holds_half(const struct view_body *view,
                     const struct peer_id *roots,
                     uint32_t n)
{
    uint32_t have = 0;

    for (uint32_t i = 0; i < n; i++) {
        have += view_index(view, &roots[i]) >= 0;
    }
    return 2 * have > n;
}

static int member_order(const void *a, const void *b)
{
    struct peer_id ia = view_member_id(a), ib = view_member_id(b);

    return id_cmp(&ia, &ib);
}

int view_sort(struct view_body *view)
{
    qsort(view->members, view->n_members, sizeof view->members[0],
          member_order);
    for (uint32_t i = 1; i < view->n_members; i++) {
        if (member_order(&view->members[i - 1], &view->members[i]) == 0) {
            return LOCO_EPROTO;
        }
    }
    return 0;
}

bool view_well_formed(const struct view_body *view)
{
    uint32_t n_full;

    /* The upper half of an attempt's number is the epoch. */
    if (view->n_members == 0 || view->mode >= VIEW_MODE_COUNT ||
        view->epoch == 0 || view->epoch > UINT32_MAX) {
        return false;
    }
    for (uint32_t i = 1; i < view->n_members; i++) {
        if (member_order(&view->members[i - 1], &view->members[i]) >= 0) {
            return false;
        }
    }
    n_full = n_of(view_full(view));
    if (n_full == 0 || view->n_members - n_full > VIEW_PROBATION_MAX ||
        (view->mode == VIEW_FOUND && n_full < view->n_members)) {
        return false;
    }
    for (uint32_t i = 0; i < view->n_edges; i++) {
        if ((view->edges[i] & 0xff) >= view->n_members ||
            (view->edges[i] >> 8) >= view->n_members) {
            return false;
        }
    }
    return lease_slots_valid(view);
}

/* Bits of the members of `view` with a good signature in the certificate. */
static int signed_mask(const struct view_cert *cert,
                       const struct view_body *view,
                       const struct signer *signer,
                       uint64_t *mask)
{
    struct ballot_body ballot = {.ballot = cert->ballot};

    view_hash(&cert->body, &ballot.view);
    *mask = 0;
    for (uint32_t i = 0; i < cert->n_sigs; i++) {
        int at = view_index_key(view, cert->sigs[i].public_key);

        if (at < 0 || *mask >> at & 1) {
            continue;
        }
        if (!message_verify(signer, cert->sigs[i].public_key,
                            &ballot_body_schema, &ballot, cert->sigs[i].sig)) {
            return LOCO_ESIG;
        }
        *mask |= 1ULL << at;
    }
    return 0;
}

static bool all_parted(const struct view_cert *cert,
                       const struct view_body *prev,
                       const struct signer *signer)
{
    return (cert->body.departed &
            ~view_parted(prev, cert->partings, cert->n_partings, signer)) == 0;
}

static uint64_t all_of(const struct view_body *view)
{
    return view->n_members == 64 ? UINT64_MAX : (1ULL << view->n_members) - 1;
}

static bool signed_before(const struct view_cert *cert, uint32_t k)
{
    for (uint32_t i = 0; i < k; i++) {
        if (memcmp(cert->sigs[i].public_key, cert->sigs[k].public_key, 32) ==
            0) {
            return true;
        }
    }
    return false;
}

bool view_convinces(const struct view_cert *cert)
{
    const struct view_body *body = &cert->body;
    uint32_t n_old = 0, n = 0, n_inside = 0;

    for (uint32_t i = 0; i < body->n_members; i++) {
        n_old += view_counted_before(body, i);
    }
    for (uint32_t k = 0; k < cert->n_sigs; k++) {
        int at = view_index_key(body, cert->sigs[k].public_key);

        if (!signed_before(cert, k)) {
            n++;
            n_inside += at >= 0 && view_counted_before(body, (uint32_t)at);
        }
    }
    return n_inside > 0 && 2 * n >= n_old;
}

/* A majority's certificate without the view that it replaces. */
static int check_alone(const struct view_cert *cert,
                       const struct signer *signer)
{
    struct ballot_body ballot = {.ballot = cert->ballot};

    view_hash(&cert->body, &ballot.view);
    for (uint32_t k = 0; k < cert->n_sigs; k++) {
        const struct view_signature *s = &cert->sigs[k];

        if (!signed_before(cert, k) &&
            !message_verify(signer, s->public_key, &ballot_body_schema, &ballot,
                            s->sig)) {
            return LOCO_ESIG;
        }
    }
    return view_convinces(cert) ? 0 : LOCO_ESIG;
}

int view_cert_check(const struct view_cert *cert,
                    const struct view_body *prev,
                    const struct signer *signer)
{
    const struct view_body *body = &cert->body;
    uint64_t mask;
    int rv;

    if (!view_well_formed(body)) {
        return LOCO_EPROTO;
    }
    if (body->mode == VIEW_MAJORITY && prev != NULL) {
        rv = signed_mask(cert, prev, signer, &mask);
        if (rv != 0) {
            return rv;
        }
        return mask != 0 && all_parted(cert, prev, signer) &&
                       view_quorum(prev, mask, body->departed)
                   ? 0
                   : LOCO_ESIG;
    }
    if (body->mode == VIEW_MAJORITY) {
        return check_alone(cert, signer);
    }
    rv = signed_mask(cert, body, signer, &mask);
    if (rv != 0) {
        return rv;
    }
    return mask == all_of(body) ? 0 : LOCO_ESIG;
}

/* Full member number k. */
static uint32_t full_member(const struct view_body *view, uint32_t k)
{
    uint64_t left = view_full(view);

    while (k-- > 0) {
        left &= left - 1;
    }
    return left == 0 ? 0 : (uint32_t)__builtin_ctzll(left);
}

uint32_t view_ballot_owner(const struct view_body *view, uint64_t ballot)
{
    uint64_t words[] = {hash32_u64(&view->run), view->epoch, ballot, 1};
    uint32_t n = n_of(view_full(view));

    return full_member(view, (uint32_t)(rng_mix(words, 4) % (n == 0 ? 1 : n)));
}

uint32_t view_coordinator(const struct view_body *view, uint64_t round)
{
    uint64_t words[] = {hash32_u64(&view->run), round, 2};
    uint32_t n = n_of(view_full(view));

    /* Never the same one twice in a row, as long as members stay: it may be one
     * whose trainer hangs. */
    n = n == 0 ? 1 : n;
    return full_member(
        view, (uint32_t)((rng_mix(words, 3) % n + view->epoch % n) % n));
}
