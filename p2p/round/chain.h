/* chain.h - the chain of views from the manifest to now, kept short.
 *
 * A newcomer knows the manifest and nobody. What proves to it that a view is
 * the run's is a list of certificates (view.h): a *genesis*, a founded view of
 * round 0 under the run id, at least min_peers of it and signed by all of them;
 * then views of which each is *tied* to the one before in the list. A tie is
 *   strong  more than half of the members of the view before signed the next
 *           one: they need not be neighbours in time
 *   weak    a fork, or a founding after all had stopped, signed by all its
 *           members, of whom one at least was in the view before
 * Either way the mark of a fork must be the one that follows from the view
 * before: nobody can drop the roots of a fork, so whoever forks alone holds one
 * root for ever.
 *
 * As in the skipping verification of light clients, views between two that are
 * strongly tied are left out: a group whose members stay proves any number of
 * epochs with two certificates; what must be kept grows with how often more
 * than half of a group was replaced.
 *
 * What it proves: whoever trusts one genesis can be led astray only by the keys
 * of more than half of some view of it (strong ties), or of one member (weak
 * ties, which are counted: a chain without any is preferred). What it does not:
 * which genesis is the right one. Ids are free, anybody can found; see
 * node/proof.c for what then decides.
 *
 * Wire and disk form: u32 length (little-endian) and a VIEW message, per link.
 *
 * Pure; memory is the caller's. Cost of checking: one signature (120 us) per
 * member and link.
 */
#ifndef LOCO_P2P_ROUND_CHAIN_H
#define LOCO_P2P_ROUND_CHAIN_H

#include "p2p/round/view.h"

#define CHAIN_LINKS_MAX 64
#define CHAIN_BYTES_MAX (256U << 10)

struct chain_link {
    uint32_t at, len; /* of the certificate in `bytes` */
    struct hash32 hash;
    bool weak; /* tied so to the link before */
};

struct chain {
    uint8_t *bytes; /* (CHAIN_BYTES_MAX) borrowed */
    uint32_t used;
    uint32_t n; /* 0: proves nothing */
    struct chain_link link[CHAIN_LINKS_MAX];
};

struct chain_rules {
    struct hash32 run;
    uint32_t min_peers;
    const struct signer *signer;
};

void chain_init(struct chain *c, uint8_t bytes[CHAIN_BYTES_MAX]);

/* The next view. LOCO_ESIG: nothing ties it to this chain, which stays as it
 * is; LOCO_EFULL: neither. With an empty chain it must be a genesis. */
int chain_extend(struct chain *c,
                 const struct chain_rules *rules,
                 const struct view_cert *cert);

/* A chain from outside in place of this one; on an error this one is empty. */
int chain_read(struct chain *c,
               const struct chain_rules *rules,
               const uint8_t *bytes,
               size_t len);

/* The last view, decoded; false: there is none. */
bool chain_last(const struct chain *c, struct view_cert *cert);

/* Whether it ends in that view. */
bool chain_proves(const struct chain *c, const struct hash32 *view);

uint32_t chain_n_weak(const struct chain *c);

/* Whether more than half of `from` (hash `from_hash`) signed `to`, and its mark
 * of a fork is what follows from that of `from`. */
bool chain_follows(const struct view_body *from,
                   const struct hash32 *from_hash,
                   const struct view_cert *to,
                   const struct signer *signer);

/* Whether a commit record is one of `view` (hash `hash`): all members of its
 * plan voted for it, who are more than half of the view, and with the witnesses
 * a Byzantine quorum (`departed`: who said goodbye and does not count, unless
 * it voted before); or the view itself starts from it. */
bool chain_commit_valid(const struct view_body *view,
                        const struct hash32 *hash,
                        uint64_t departed,
                        const struct commit *c,
                        const struct signer *signer);

#endif
