/* view.h - a view: who averages together, and the certificate that proves it.
 *
 * A view is {epoch, sorted members, hash of the view before, newest commit}.
 * A *certificate* is a view with signatures of one ballot. It is good when
 *   majority  more than half of the previous view signed, not counting members
 *             whose signed goodbye it shows; of two equal halves the one that
 *             holds the lowest id counts as more than half
 *   fork      every member signed, all of them from the previous view
 *   found     every member signed, and nobody had a view before
 *
 * Pure functions on values; nothing here has state. Signatures cost ~120 us
 * each to check.
 */
#ifndef LOCO_P2P_ROUND_VIEW_H
#define LOCO_P2P_ROUND_VIEW_H

#include "proto/messages.h"

void view_hash(const struct view_body *view, struct hash32 *out);

struct peer_id view_member_id(const struct view_member *member);

/* Index of a member by id or by key; -1 if it is none. */
int view_index(const struct view_body *view, const struct peer_id *id);
int view_index_key(const struct view_body *view, const uint8_t key[32]);

/* Whether member i counts; all who do (bits). Who does not is on probation: it
 * has no part in majorities, plans and ballots. */
bool view_is_full(const struct view_body *view, uint32_t i);
uint64_t view_full(const struct view_body *view);
uint32_t view_n_full(const struct view_body *view);

/* Whether it is a full member. */
bool view_counts(const struct view_body *view, const struct peer_id *id);

/* Whether member i was full in the view before, too. */
bool view_counted_before(const struct view_body *view, uint32_t i);

/* Whether the full members in `mask` (bit i = member i) outnumber the other
 * full members of `view`, of whom `departed` do not count. False where none is
 * left: those on probation go on by a fork. */
bool view_quorum(const struct view_body *view,
                 uint64_t mask,
                 uint64_t departed);

/* Whether the full members in `mask` are a Byzantine quorum: more than (n + f)
 * / 2 of the n that did not depart, where f = (n - 1) / 3 may lie. Two such
 * sets have an honest member in common; two majorities of an odd n may have one
 * liar. */
bool view_byzantine_quorum(const struct view_body *view,
                           uint64_t mask,
                           uint64_t departed);

/* How many full members that voted alike decide a round where others of the
 * plan did not: half of those that did not depart, and f + 2 of all. So two of
 * them are honest, and have the bytes. */
uint32_t view_deciders(const struct view_body *view, uint64_t departed);

/* Members of `view` (bits) whose goodbyes are among these, said since they came
 * in and signed, up to the first forged one. A view counts nobody as gone who
 * did not say so: who could claim it would be more than half of the others. */
uint64_t view_parted(const struct view_body *view,
                     const struct parting *partings,
                     uint32_t n,
                     const struct signer *signer);

/* The roots of a fork that follows `view`: its own where it is marked, else its
 * full members. Returns how many. */
uint32_t view_roots(const struct view_body *view,
                    struct peer_id roots[VIEW_MEMBERS_MAX]);

/* Whether the ids of `view` make more than half of `roots[n]`. */
bool view_holds_half(const struct view_body *view,
                     const struct peer_id *roots,
                     uint32_t n);

/* Sort members by id; LOCO_EPROTO when one stands there twice. */
int view_sort(struct view_body *view);

/* The shape of a body from outside: sorted distinct members, known mode,
 * somebody full and not too many on probation, edges in range, slots that
 * nobody has twice. */
bool view_well_formed(const struct view_body *view);

/* Whether the signers of a majority's certificate say enough to a peer that
 * does not know the view before: one of the full members who stay has signed,
 * and as many as half of them. Signatures are not looked at. */
bool view_convinces(const struct view_cert *cert);

/* Check a certificate. `prev` is the view it replaces where we know it. Where
 * we do not (NULL), who may sign is not known either: members that the view
 * left out do. Then all signatures must verify, at least half as many as there
 * are members that are not new, one of these among them. That finds damage; it
 * stops no liar, who can make up such a view. LOCO_EPROTO or LOCO_ESIG. */
int view_cert_check(const struct view_cert *cert,
                    const struct view_body *prev,
                    const struct signer *signer);

/* Owner of a ballot for the view after `view`, a full member: no role is
 * anybody's. */
uint32_t view_ballot_owner(const struct view_body *view, uint64_t ballot);

/* Coordinator of a round in this view. */
uint32_t view_coordinator(const struct view_body *view, uint64_t round);

#endif
