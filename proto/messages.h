/* messages.h - every control message between two nodes, as plain structs.
 *
 * One list of types, one struct and one schema each (proto/msg.h); the DHT's
 * are in proto/dht_msg.h. PROTOCOL.md says what each is for and when it is
 * sent. What a third party must be able to check is signed: the signature
 * covers the encoding of the struct named `*_body` under the domain of the
 * same name.
 *
 * Words: an *epoch* numbers the views of a branch; a *ballot* numbers the
 * attempts to decide the next view; an *attempt* of round r is (epoch, r):
 * a round that fails in one epoch is tried again in the next.
 */
#ifndef LOCO_PROTO_MESSAGES_H
#define LOCO_PROTO_MESSAGES_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/frame.h"
#include "proto/id.h"
#include "proto/limits.h"
#include "proto/msg.h"
#include "proto/sign.h"

#define MESSAGE_TYPES_MAX 256 /* a frame's type is one byte */

/* One row a message: name, number, struct, and how every peer takes it.
 *
 *   gate   which links it may come over:
 *            LINK      any, also one whose peer is not admitted
 *            PEER      one whose peer is admitted and the only such process
 *            SECOND    the same, and a second link of a peer that is linked
 *            ENVELOPE  as PEER; the message inside is taken in its place
 *   way    FORWARD: for members only, another one may carry it. DIRECT: not
 *   stale  what its first fields name; of another one it is old or replayed:
 *            ATTEMPT   {epoch, view, round}
 *            VIEW      {epoch, view}
 *            GROUP     {run}: the run, or the group of a stage
 *            RUN       {run}: where there are stages any group, never stale
 *            NEVER     nothing, or an answer that may honestly be late
 *
 * 0x45, 0x48 and 0x49 are reserved (PROTOCOL.md, section 25). */
/* clang-format off */
#define MESSAGE_MAP(X)                                                         \
    X(HELLO,        0x01, hello,            SECOND,   DIRECT,  NEVER)          \
    X(HEARTBEAT,    0x02, heartbeat,        PEER,     FORWARD, NEVER)          \
    X(PULSE,        0x03, pulse,            PEER,     DIRECT,  NEVER)          \
    X(GOODBYE,      0x04, goodbye,          PEER,     FORWARD, RUN)            \
    X(NEIGHBOUR,    0x05, neighbour,        PEER,     DIRECT,  NEVER)          \
    X(SHUFFLE,      0x06, shuffle,          PEER,     DIRECT,  NEVER)          \
    X(GOSSIP,       0x07, gossip,           PEER,     DIRECT,  NEVER)          \
    X(GET_MANIFEST, 0x08, get_manifest,     PEER,     DIRECT,  NEVER)          \
    X(MANIFEST,     0x09, manifest_part,    PEER,     DIRECT,  NEVER)          \
    X(FORWARD,      0x0a, forward,          ENVELOPE, DIRECT,  NEVER)          \
    X(ADMISSION,    0x0b, admission,        LINK,     DIRECT,  NEVER)          \
    X(REVOCATION,   0x0c, revocation,       LINK,     DIRECT,  NEVER)          \
    X(REFUSED,      0x0d, refused,          LINK,     DIRECT,  NEVER)          \
    X(CLAIM,        0x0e, claim,            PEER,     DIRECT,  NEVER)          \
    X(PRESENT,      0x0f, present,          SECOND,   DIRECT,  NEVER)          \
    X(SUSPECT,      0x10, suspect,          PEER,     FORWARD, NEVER)          \
    X(PREPARE,      0x11, prepare,          PEER,     FORWARD, VIEW)           \
    X(PROMISE,      0x12, promise,          PEER,     FORWARD, NEVER)          \
    X(ACCEPT,       0x13, accept,           PEER,     FORWARD, VIEW)           \
    X(ACCEPTED,     0x14, accepted,         PEER,     FORWARD, NEVER)          \
    X(VIEW,         0x15, view_cert,        PEER,     FORWARD, NEVER)          \
    X(GET_VIEW,     0x16, get_view,         PEER,     FORWARD, NEVER)          \
    X(LINEAGE,      0x17, lineage,          PEER,     FORWARD, NEVER)          \
    X(JOIN,         0x18, join,             PEER,     DIRECT,  GROUP)          \
    X(GET_PROOF,    0x19, get_proof,        PEER,     DIRECT,  NEVER)          \
    X(PROOF,        0x1a, proof,            PEER,     DIRECT,  NEVER)          \
    X(READY,        0x30, ready,            PEER,     FORWARD, ATTEMPT)        \
    X(PLAN,         0x31, plan,             PEER,     FORWARD, ATTEMPT)        \
    X(VOTE,         0x32, vote,             PEER,     FORWARD, ATTEMPT)        \
    X(COMMIT,       0x33, commit,           PEER,     FORWARD, NEVER)          \
    X(GET_COMMIT,   0x34, get_commit,       PEER,     FORWARD, NEVER)          \
    X(EVALUATED,    0x35, evaluated,        PEER,     FORWARD, NEVER)          \
    X(ACCUSE,       0x36, accuse,           PEER,     DIRECT,  NEVER)          \
    X(BANDWIDTH,    0x37, bandwidth_report, PEER,     DIRECT,  NEVER)          \
    X(PAIR,         0x3a, pair_offer,       PEER,     DIRECT,  NEVER)          \
    X(PAIR_HAVE,    0x3b, pair_have,        PEER,     DIRECT,  NEVER)          \
    X(STAGE_HELLO,  0x3c, stage_hello,      PEER,     DIRECT,  NEVER)          \
    X(STAGE_READY,  0x3d, stage_ready,      PEER,     DIRECT,  NEVER)          \
    X(STAGE_TAKE,   0x3e, stage_take,       PEER,     DIRECT,  NEVER)          \
    X(STAGE_EVAL,   0x3f, stage_eval,       PEER,     DIRECT,  NEVER)          \
    X(EVAL_TAKE,    0x44, eval_take,        PEER,     DIRECT,  NEVER)          \
    X(VERDICT,      0x46, verdict,          PEER,     FORWARD, NEVER)          \
    X(READY_OF,     0x47, ready_of,         PEER,     FORWARD, ATTEMPT)        \
    X(FETCH,        0x38, fetch,            PEER,     DIRECT,  NEVER)          \
    X(FETCH_NO,     0x39, fetch_no,         PEER,     DIRECT,  NEVER)          \
    X(PROBE,        0x40, probe,            PEER,     DIRECT,  NEVER)          \
    X(PROBED,       0x41, probed,           PEER,     DIRECT,  NEVER)          \
    X(CALL,         0x42, call,             PEER,     DIRECT,  NEVER)          \
    X(CALLED,       0x43, called,           PEER,     DIRECT,  NEVER)
/* clang-format on */

enum message_type {
#define X(name, value, ...) MESSAGE_##name = value,
    MESSAGE_MAP(X)
#undef X
};

#define MESSAGE_PEERS_MAX    24
#define MESSAGE_EDGES_MAX    32
#define MESSAGE_DIGEST       64 /* parts of a table of peers */
#define MESSAGE_RUMOURS_MAX  32
#define MESSAGE_FORWARD_MAX  (63 << 10) /* an ACCEPT is 57 KB */
#define MESSAGE_MANIFEST_MAX (32 << 10)
#define MESSAGE_REVOKED_MAX  256
#define MESSAGE_LINEAGE_MAX  64
#define MESSAGE_PROOF_MAX    (32 << 10)

/* Where a peer listens. Port 0: it cannot be dialled. */
struct msg_address {
    uint8_t ip[16]; /* IPv4 mapped */
    uint16_t port;
};

/* How a peer can be reached. The numbers are on the wire. */
enum reach_class {
    REACH_UNKNOWN,    /* not tested yet */
    REACH_PUBLIC,     /* others dial it */
    REACH_MAPPED,     /* others dial it, through a port that its router maps */
    REACH_RESTRICTED, /* nobody dials it; it dials whoever asks it to */
    REACH_RELAYED,    /* and some of its links go through a relay */
    REACH_CLASS_COUNT
};

/* Bits of `features` in peer_info. */
enum { PEER_IN_VIEW = 1 }; /* it is in a view, or takes part in pairs */

/* What is known of one peer, at first or second hand. */
struct peer_info {
    struct peer_id id;
    struct msg_address address;
    uint32_t incarnation; /* grows when the peer contradicts a rumour
                             or its reach changes */
    uint8_t reach;        /* enum reach_class, as that peer says */
    uint64_t round;
    uint64_t step;  /* inner step */
    uint16_t stage; /* of a pipeline, from 1; 0: none, or not chosen */
    uint32_t tokens_per_s;
    uint32_t bytes_per_s; /* bandwidth, sending; 0: unknown */
    uint32_t features;
};

/* What rumours say of a peer; later ones outdo earlier ones of the same
 * incarnation. */
enum peer_state {
    PEER_ALIVE,
    PEER_SUSPECT,
    PEER_DEAD,
    PEER_LEFT,
    PEER_STATE_COUNT
};

struct rumour {
    struct peer_id id;
    uint32_t incarnation;
    uint8_t state; /* enum peer_state */
};

/* Bits of `features` in HELLO. */
enum { HELLO_MEETS = 1 }; /* CALLED to a meeting, RELAY connections that are */
#define HELLO_FEATURES HELLO_MEETS

/* First message on every control link. */
struct hello {
    uint64_t life;               /* random, new at every start of a process */
    struct msg_address observed; /* how the sender sees the receiver */
    uint32_t features;           /* bits; what both say may be used */
    uint8_t oldest, newest;      /* versions that the sender speaks */
};

/* Whether its sender speaks a version from `oldest` to `newest`. */
bool hello_fits(const struct hello *m, uint8_t oldest, uint8_t newest);

/* "version 5", "versions 4 to 5". */
#define HELLO_VERSIONS_MAX 24
void hello_versions(uint8_t oldest,
                    uint8_t newest,
                    char text[HELLO_VERSIONS_MAX]);

/* How far a peer is with the mean of all replicas, at the end of a run of
 * pairs. The numbers are on the wire. */
enum end_phase {
    END_NONE,  /* not there yet; every other run */
    END_PART,  /* its branch of the tree is mixed into its state */
    END_WHOLE, /* its state is the mean */
};

/* What those who are linked must know of each other. */
struct heartbeat {
    uint64_t life;
    uint8_t state; /* enum node_state */
    bool configured;
    bool ready; /* holds manifest, data and some state: may form a view */
    bool has_view;
    bool fork;
    uint64_t epoch;
    struct hash32 view;
    uint64_t round;
    uint64_t tokens; /* committed in the sender's branch */
    struct hash32 commit;
    struct hash32 params;
    struct hash32 state_hash; /* parameters and outer momentum */
    uint64_t inner_step;
    uint32_t tokens_per_s;
    uint8_t reach; /* enum reach_class of the sender */
    bool relays;   /* it carries connections for others */
    /* Of a candidate for a first view: how many of them it is linked to, and
     * itself; 0 in a view. Its node/view.c sets it; that of the other
     * candidates reads there who founds, and whether all are linked yet. */
    uint8_t linked_candidates;
    /* enum end_phase. In a run of pairs node/pairs.c sets it; that of the
     * others reads there whose state to mix in or to copy. */
    uint8_t end_phase;
    uint16_t stage; /* of a pipeline, from 1; 0: none, or not chosen */
    uint16_t queue; /* of a stage's host: micro-batches that it computed or
                       that waited for it, mean of the round before, in 1/16 */
    uint8_t number; /* grows with every change, modulo 256 */
};

/* The sign of life: the last HEARTBEAT still holds. */
enum { PULSE_KEEP = 1, PULSE_ACTIVE = 2, PULSE_ASK = 4 };
struct pulse {
    uint8_t flags;  /* KEEP: I want pulses on this link; ACTIVE: you are in my
                       active view; ASK: send me your HEARTBEAT */
    uint8_t number; /* of the last HEARTBEAT, modulo 256 */
    uint16_t at;    /* sender's clock in 16 ms, modulo 2^16 */
    uint16_t view;  /* first two bytes of the view's hash; 0: none */
    uint64_t hears; /* bit i: member i of that view is heard here */
};

enum neighbour_kind {
    NEIGHBOUR_ASK,
    NEIGHBOUR_ASK_URGENT, /* I have none */
    NEIGHBOUR_YES,
    NEIGHBOUR_NO, /* to an ask; or: no longer */
    NEIGHBOUR_KIND_COUNT
};
struct neighbour {
    uint8_t kind;
};

/* Some rows of a table, and a digest of all: part i is the exclusive or of
 * bytes 2 and 3 of the ids that begin with the six bits i, of all peers thought
 * alive, the sender too. */
struct shuffle {
    bool reply;
    uint32_t n_digest;
    uint16_t digest[MESSAGE_DIGEST];
    uint32_t n_peers;
    struct peer_info peers[MESSAGE_PEERS_MAX];
};

struct gossip {
    uint32_t n_rumours;
    struct rumour rumours[MESSAGE_RUMOURS_MAX];
    uint32_t n_peers; /* alive; who is new to others comes with its address */
    struct peer_info peers[MESSAGE_PEERS_MAX];
};

/* A message between two members of a view that have no link, over a third. */
struct forward_body {
    struct hash32 view;
    struct peer_id from, to;
    uint64_t life;   /* of the sender's process */
    uint64_t number; /* grows with every one it sends */
    uint16_t message;
    struct hash32 digest; /* of the bytes */
};
struct forward {
    struct forward_body body;
    uint8_t sig[SIGN_BYTES];
    uint32_t n_bytes;
    uint8_t bytes[MESSAGE_FORWARD_MAX];
};

struct goodbye_body {
    struct hash32 run;
    struct peer_id peer;
    uint64_t epoch;
};

struct goodbye {
    struct goodbye_body body;
    uint8_t sig[SIGN_BYTES];
};

struct get_manifest {
    uint32_t offset;
};

struct manifest_part {
    uint32_t offset, total;
    uint32_t n_bytes;
    uint8_t bytes[MESSAGE_MANIFEST_MAX];
};

/* ---- runs for invited peers -------------------------------------------- */

/* The author's word that whoever has the secret of `key` may take part. */
struct invitation_body {
    struct hash32 run;
    uint32_t number;   /* for its revocation */
    uint64_t expiry_s; /* since 1970, UTC; 0: never */
    uint8_t key[SIGN_PUBLIC_BYTES];
};
struct invitation {
    struct invitation_body body;
    uint8_t sig[SIGN_BYTES]; /* of the author */
};

/* First message on a control link of such a run: an invitation, and that its
 * secret was used for this peer. What is seen of it serves nobody else. */
struct admission_body {
    struct hash32 run;
    struct peer_id peer;
};
struct admission {
    struct invitation invitation;
    uint8_t proof[SIGN_BYTES]; /* of admission_body, by the invitation's key */
};

/* Invitations that no longer hold. The list with the highest sequence counts;
 * the author only adds to it. */
struct revocation_body {
    struct hash32 run;
    uint32_t sequence;
    uint32_t n_numbers;
    uint32_t numbers[MESSAGE_REVOKED_MAX];
};
struct revocation {
    struct revocation_body body;
    uint8_t sig[SIGN_BYTES]; /* of the author */
};

/* Why the sender closes this link. The numbers are on the wire. */
enum refusal {
    REFUSAL_NONE,
    REFUSAL_NOT_INVITED, /* no admission came */
    REFUSAL_INVALID,     /* the invitation is not the author's, or not ours */
    REFUSAL_EXPIRED,
    REFUSAL_REVOKED,
    REFUSAL_TWIN,    /* another process with this identity is here */
    REFUSAL_VERSION, /* no version of the protocol in common */
    REFUSAL_COUNT
};
struct refused {
    uint8_t reason; /* enum refusal */
};

/* ---- one identity, one process ------------------------------------------ */

/* Another process says that it is the receiver: is the receiver there? */
struct claim {
    uint64_t life;           /* of that process */
    struct msg_address from; /* where it dialled from, with its port */
};

/* The answer, by the key of the identity. */
struct present_body {
    struct hash32 run;
    uint64_t life;   /* of the process that signs */
    uint64_t other;  /* of the one that claims to be it */
    uint64_t age_ms; /* of the process that signs */
};
struct present {
    struct present_body body;
    uint8_t sig[SIGN_BYTES];
};

/* ---- views ------------------------------------------------------------ */

enum view_mode {
    VIEW_MAJORITY, /* more than half of the previous view signs */
    VIEW_FORK,     /* every member of one side of a cut signs */
    VIEW_FOUND,    /* nobody has a view: every member signs the first one */
    VIEW_MODE_COUNT
};

/* A member is *full* from that epoch on: it counts. Until then it is on
 * probation (p2p/round/probation.h). */
#define FULL_NEVER UINT32_MAX

struct view_member {
    uint8_t public_key[SIGN_PUBLIC_BYTES];
    struct msg_address address;
    uint64_t joined;     /* epoch of the first view that named it */
    uint32_t full_since; /* epoch of the first view that counts it, or
                            FULL_NEVER */
    uint32_t slot;       /* of those given out since `commit`; 0: none */
};

/* Members are sorted by id. `round`, `tokens`, `commit` name the newest
 * commit of the branch as the new view starts. */
struct view_body {
    struct hash32 run;
    uint64_t epoch;
    struct hash32 prev; /* hash of the view before; the run id at first */
    uint8_t mode;
    bool fork;
    uint64_t departed; /* bit i: member i of the view before said goodbye, and
                          does not count any more */
    uint64_t round;
    uint64_t tokens;
    struct hash32 commit;
    uint32_t n_members;
    struct view_member members[VIEW_MEMBERS_MAX];
    /* Members of the last unmarked view: a fork ends when a view holds more
     * than half of them. */
    uint32_t n_roots;
    struct peer_id roots[VIEW_MEMBERS_MAX];
    /* Pairs of members (indices) that failed to exchange data twice: rings
     * avoid these edges. */
    uint32_t n_edges;
    uint16_t edges[16]; /* low byte, high byte: two indices */
    /* Given to members that joined since `commit`, also to those who are gone
     * again (p2p/round/lease.h). */
    uint32_t slots;
};

struct view_signature {
    uint8_t public_key[SIGN_PUBLIC_BYTES];
    uint8_t sig[SIGN_BYTES];
};

/* Signed: {ballot, hash of body}. */
struct ballot_body {
    uint64_t ballot;
    struct hash32 view;
};

/* That member of the view before said goodbye, in that epoch. */
struct parting {
    uint8_t member;
    uint64_t epoch;
    uint8_t sig[SIGN_BYTES]; /* of the member, over goodbye_body */
};

struct view_cert {
    struct view_body body;
    uint64_t ballot;
    uint32_t n_sigs;
    struct view_signature sigs[VIEW_MEMBERS_MAX];
    uint32_t n_partings; /* of all in `departed` */
    struct parting partings[VIEW_MEMBERS_MAX];
};

/* "I ask for the view after this one", signed. */
struct suspect_body {
    uint64_t epoch;
    struct hash32 view;
    uint64_t round; /* newest commit that the signer knows */
};

/* The same without what every message that has one says. */
struct asker {
    uint8_t member; /* of the view: who signed */
    uint64_t round;
    uint8_t sig[SIGN_BYTES]; /* over suspect_body */
};

struct suspect {
    uint64_t epoch;
    struct hash32 view;
    uint64_t ballot; /* whose owner is to propose; the earlier ones are lost */
    struct asker by;
};

struct prepare {
    uint64_t epoch;     /* of the view to be replaced; 0: none */
    struct hash32 view; /* its hash */
    uint8_t mode;
    bool urgent; /* false: only if no round is in flight (a join) */
    uint64_t ballot;
    uint32_t n_shown; /* 0 or 1: who asked for it, maybe its sender */
    struct asker shown[1];
    uint32_t n_joiners; /* who may come in: id_u64() */
    uint64_t joiners[VIEW_JOINS_MAX];
};

/* What the sender did in the attempt of its view: the closing statement. */
enum closing_status {
    CLOSING_NONE,
    CLOSING_VOTED,
    CLOSING_DOUBTED, /* voted, but did not hear each member of the plan offer
                        what the plan has of it */
    CLOSING_STATUS_COUNT
};

/* Of the attempt that the sender is in, and of its view: what no promise of it
 * takes back. */
struct statement {
    bool restarted; /* counts for the majority; not in the next view */
    struct msg_address address; /* of the sender; port 0: it knows of none */
    uint64_t edges; /* bit i: it exchanges data with member i of the view */
    uint64_t round; /* last commit held or known */
    uint64_t tokens;
    struct hash32 commit;
    uint64_t made_by; /* bit i: member i of the view was in the plan of that
                         commit; 0: an earlier view made it */
    uint8_t closing;  /* enum closing_status, of round + 1 */
    uint64_t plan_members; /* bit i: member i of the view is in that plan */
    uint64_t plan_tokens;  /* committed tokens after that plan */
    struct hash32 voted;   /* hash of the commit that it voted for */
    uint64_t followed;     /* first word of the hash of the plan that it follows
                              in this epoch; 0: none */
    bool in_ring;          /* it was in a ring of this epoch, */
    uint8_t ring_next;     /* where so many segments had been given out to */
    uint32_t ring_sent;    /* that member, */
    uint32_t ring_got;     /* and so many had come from the one before; */
    uint8_t gate_next;     /* the same between gateways of sites; */
    uint32_t gate_sent;    /* where there is no such edge it names */
    uint32_t gate_got;     /* the sender, and none */
    bool ring_quiet;       /* nothing had come for a while */
    bool has_broken;       /* its data link to `broken` failed twice */
    struct peer_id broken;
    uint64_t vouched;   /* bit i: member i of the view, on probation, worked for
                           long enough */
    uint64_t convicted; /* bit i: it holds a proof that member i of the view
                           lied (daemon/jobs/evidence.h) */
    uint32_t n_back;    /* joiners that were full before: id_u64() */
    uint64_t back[VIEW_BACK_MAX];
    bool has_accepted;
    uint64_t accepted_ballot;
    struct hash32 accepted_view;
};

struct promise_body {
    uint64_t epoch;
    struct hash32 view;
    uint8_t mode;
    uint64_t ballot;
    struct statement said;
};

/* A promise of the ballot of the proposal that it is in. */
struct promised {
    uint8_t member; /* of the view before; founding: of the value */
    struct statement said;
    uint8_t sig[SIGN_BYTES]; /* over promise_body */
};

struct join_body {
    struct hash32 run;
    struct hash32 view; /* of the view to be joined */
    uint64_t round;     /* "I hold commit `round`" */
    struct hash32 commit;
    struct hash32 state;
    struct hash32 proof; /* that it holds it: message_join_proof() */
    struct msg_address address;
    uint32_t n_linked; /* members that it is linked to: id_u64() >> 32 */
    uint32_t linked[VIEW_MEMBERS_MAX];
};

struct join {
    struct join_body body;
    uint8_t sig[SIGN_BYTES];
};

struct joining {
    uint8_t public_key[SIGN_PUBLIC_BYTES];
    struct join join;
};

/* A view, and what its maker made it of: everybody makes it again
 * (p2p/round/ballot_value.c). */
struct proposal {
    uint64_t ballot; /* in which it was made */
    struct view_body value;
    uint32_t n_promises; /* sorted by member */
    struct promised promises[VIEW_MEMBERS_MAX];
    uint32_t n_joins;
    struct joining joins[VIEW_JOINS_MAX];
    uint32_t n_partings;
    struct parting partings[VIEW_MEMBERS_MAX];
};

/* A proposal that the sender has accepted. */
struct standing {
    uint8_t sig[SIGN_BYTES]; /* of the ballot's owner, over ballot_body */
    struct proposal proposal;
};

struct promise {
    struct promise_body body;
    uint8_t sig[SIGN_BYTES];
    uint32_t n_accepted; /* 0 or 1 */
    struct standing accepted[1];
    uint32_t joiners_linked; /* bit i: joiner i of the PREPARE is linked to the
                                sender. Advice to the owner: not signed */
};

struct accept {
    uint64_t epoch;
    struct hash32 view;
    uint8_t mode;
    uint64_t ballot;
    struct standing of;
    /* Of `ballot`, where it is later than the proposal's. */
    uint32_t n_promises;
    struct promised promises[VIEW_MEMBERS_MAX];
};

struct accepted {
    uint64_t epoch;
    struct hash32 view; /* the one replaced */
    struct ballot_body body;
    uint8_t sig[SIGN_BYTES];
};

struct get_view {
    bool lineage; /* also send the recent ancestors */
};

struct lineage {
    uint64_t first_epoch;
    uint32_t n_hashes;
    struct hash32 hashes[MESSAGE_LINEAGE_MAX]; /* consecutive epochs */
};

/* The chain of views that ends in that one (p2p/round/chain.h), in parts. */
struct get_proof {
    struct hash32 view;
    uint32_t offset;
};

struct proof {
    struct hash32 view;
    uint32_t offset, total; /* total 0: cannot prove it */
    uint32_t n_bytes;
    uint8_t bytes[MESSAGE_PROOF_MAX];
};

/* ---- rounds -----------------------------------------------------------
 * A contribution is the inner steps [first_step, last_step) of its maker,
 * counted from 0: last_step is not in it. */

/* "I hold the reduced elements up to `upto`, from where the claim before this
 * one ends, as the ring of that plan made them." */
struct reduced_claim {
    uint64_t upto;
    struct hash32 plan;
};

/* Positions [first, end) whose text a member has (p2p/round/text.h); end 0:
 * all. */
struct text_span {
    uint64_t first, end;
};

/* Back to an earlier state of this branch: that after round `round`. */
struct rollback {
    uint64_t round;
    struct hash32 state;
};

/* The inner moments that a lease began with (proto/blocks.h): whoever makes it
 * again begins with them, too. And those that it ended with: the next lease of
 * that member begins with them. */
struct moments {
    struct hash32 root; /* as an offer to round 0, so that equal ones have it */
    uint64_t steps;     /* that the optimizer had made */
    struct hash32 ends; /* likewise; after the steps of the lease */
};

struct ready_body {
    uint64_t epoch;
    struct hash32 view;
    uint64_t round;
    uint64_t tokens; /* weight of the contribution */
    uint64_t first_step, last_step;
    uint64_t lease; /* first position that these steps read, plus 1; 0: they
                       were of no lease (p2p/round/lease.h) */
    struct text_span text; /* that it can read after this round */
    struct hash32 state;   /* parameters and momentum that it starts from */
    uint32_t n_claims;     /* of attempts at this round that failed */
    struct reduced_claim claims[ROUND_RANGES_MAX];
    /* What this member contributed to a failed attempt was no numbers. */
    uint32_t n_rejected;
    struct peer_id rejected[1];
    uint32_t site; /* where it stands; 0: at none (p2p/exchange/sites.h) */
    uint64_t near; /* bit i: member i of the view is near, as measured here */
    /* `state` makes the held-out text worse, measured here, than that earlier
     * one did: this member contributes nothing and asks to go back. */
    uint32_t n_rollback;
    struct rollback rollback[1];
    /* In a run with audits: what it will send (proto/blocks.h); else zeros. */
    struct hash32 offer;
    /* bit i: member i of the view did not serve, of late, what it contributed
     * to a sum that this member wanted to repeat (p2p/round/rests.h). */
    uint64_t silent;
    /* bit i: what member i of the view contributed went another way than what
     * others did, where this member summed it (the same page). */
    uint64_t astray;
    /* In a run with audits of work; none: that lease cannot be made again, as
     * it began before `state`. */
    uint32_t n_moments;
    struct moments moments[1];
};

struct ready {
    struct ready_body body;
    uint8_t sig[SIGN_BYTES];
};

/* To the coordinator: "your plan is made of another READY of that member than
 * mine", or "I have none". From it: the one that it has. */
struct ready_of {
    uint64_t epoch;
    struct hash32 view;
    uint64_t round;
    uint32_t index; /* in the view */
    uint32_t n_ready;
    struct ready ready[1];
};

struct plan_member {
    uint8_t index; /* in the view */
    uint64_t tokens;
    uint64_t first_step, last_step;
    uint64_t lease; /* as in its READY */
    struct text_span text;
    uint64_t holds; /* inherited elements that it has, from 0 on */
    uint32_t share; /* butterfly: of each stripe, of the sum of all shares;
                       else 0. The coordinator sets it, every member cuts the
                       stripes by it (p2p/exchange/butterfly.h) */
    bool gateway;   /* sites: first of its site and the one that speaks with
                       other sites; else false. The coordinator sets it, every
                       member finds the sites by it (p2p/exchange/walk.h) */
    struct hash32 offer; /* as in its READY: owners check what comes by it */
    uint64_t astray;     /* as in its READY: says who rests in the next round */
    uint32_t n_moments;  /* as in its READY: auditors begin with them */
    struct moments moments[1];
};

struct contributor {
    struct peer_id peer;
    uint64_t tokens;
    uint64_t first_step, last_step;
    uint64_t lease;
};

/* Reduced elements that a plan inherits from one that failed: from where the
 * range before ends up to `upto`. They stay the mean of these contributors, in
 * the ring order of that plan. */
struct plan_range {
    uint64_t upto;
    struct hash32 plan;
    uint32_t n_contributors;
    struct contributor contributors[VIEW_MEMBERS_MAX];
};

/* Positions [first, first + n) of the order in which all read the text. */
struct lease_range {
    uint64_t first;
    uint32_t n;
};

/* Who trains which positions, in this order, and nobody else. */
struct lease {
    uint64_t holder; /* id_u64() of its id */
    uint8_t missed;  /* commits in a row whose view did not have it */
    uint32_t n_ranges;
    struct lease_range ranges[LEASE_RANGES_MAX];
};

/* Who holds what after a commit (p2p/round/lease.h). */
struct ledger {
    uint64_t next; /* nothing at or above was ever given out */
    uint32_t n_returned;
    struct lease_range returned[LEDGER_RETURNED_MAX]; /* ascending, apart */
    uint32_t n_held;
    struct lease held[LEDGER_HELD_MAX]; /* ascending by holder */
};

/* Members stand in ring order: each sends to the next, the last to the first.
 * In a butterfly it is the order in which contributions are added. */
struct plan_body {
    uint64_t epoch;
    struct hash32 view;
    uint64_t round;
    struct hash32 base;     /* commit that it builds on */
    struct hash32 state;    /* state that all members start from */
    uint64_t tokens_before; /* committed in the branch */
    uint32_t n_members;
    struct plan_member members[VIEW_MEMBERS_MAX];
    uint32_t n_ranges;
    struct plan_range ranges[ROUND_RANGES_MAX];
    uint32_t n_ledgers; /* 1 in a run with leases, else 0 */
    struct ledger ledgers[1];
    /* Nothing is reduced: all members asked for it, and its result is that
     * state (p2p/round/rollback.c). */
    uint32_t n_rollback;
    struct rollback rollback[1];
};

struct plan {
    struct plan_body body;
    uint8_t sig[SIGN_BYTES]; /* of the coordinator */
};

struct vote_body {
    uint64_t epoch;
    struct hash32 view;
    uint64_t round;
    struct hash32 plan;
    struct hash32 result; /* tree hash of the reduced wire bytes; of a witness,
                             who has no part in the plan: 0 */
};

struct vote {
    struct vote_body body;
    uint8_t sig[SIGN_BYTES];
};

/* The record of a committed round: a link of the run's chain. */
struct commit {
    struct plan plan;
    struct hash32 result;
    /* In plan order, then those of witnesses; 0 where a view decided it. */
    uint32_t n_votes;
    struct view_signature votes[VIEW_MEMBERS_MAX];
};

struct get_commit {
    uint64_t round;
};

struct evaluated_body {
    struct hash32 commit;
    uint64_t round;
    uint64_t microbits; /* per byte */
};

struct evaluated {
    struct evaluated_body body;
    uint8_t sig[SIGN_BYTES];
};

/* ---- transfers -------------------------------------------------------- */

struct bandwidth_edge_report {
    struct peer_id from;
    uint64_t bytes_per_s;
    uint8_t confidence; /* 1 to 100 */
};

/* How fast the sender receives from others (p2p/exchange/bandwidth.h). */
struct bandwidth_report {
    uint32_t n_edges;
    struct bandwidth_edge_report edges[MESSAGE_EDGES_MAX];
};

/* The sum of a block of that commit is wrong, or cannot be repeated: see for
 * yourself. */
struct accuse {
    uint64_t round;
    struct hash32 commit;
    uint64_t offset; /* of the block's first element */
    uint8_t silent;  /* 0: it is wrong; k: member k - 1 of the plan does not
                        serve what it contributed to it */
};

/* The lease of a member, made again: what comes of it is, or is not, what it
 * contributed to that commit (p2p/round/repeat.h). */
struct verdict_body {
    uint64_t round;
    struct hash32 commit;
    struct peer_id accused;
    uint8_t verdict; /* enum repeat_verdict */
};

struct verdict {
    struct verdict_body body;
    uint8_t sig[SIGN_BYTES];
};

struct fetch {
    uint8_t buffer; /* enum buffer_kind */
    uint64_t index;
    uint64_t offset;
    uint32_t len;
    uint64_t attempt;
    uint32_t seg;
    uint8_t stream;     /* to send it on */
    struct hash32 root; /* what it must be part of; zero: whatever is there */
};

struct fetch_no {
    uint64_t attempt;
    uint32_t seg;
};

/* ---- pairs ------------------------------------------------------------ */

/* What the sender is up to with the receiver in turn `turn`. */
enum pair_kind {
    PAIR_OFFER,  /* my list of members has that epoch, and draws you */
    PAIR_AGREED, /* we named the same: send me your payload, under `attempt`,
                    from segment `from` on; mine will follow */
    PAIR_PACKED, /* the same, and all of mine can be had */
    PAIR_PASS,   /* nothing comes of this turn between us */
    PAIR_KIND_COUNT
};
struct pair_offer {
    uint8_t kind; /* enum pair_kind */
    uint64_t turn;
    uint64_t epoch;   /* names a list of members */
    uint64_t life;    /* of the sender's process */
    uint64_t attempt; /* AGREED, PACKED: of the frames to the sender */
    uint32_t from;
};

/* I hold all of your payload, and shall apply it. */
struct pair_have {
    uint64_t turn;
    uint64_t epoch;
    uint64_t life;
    bool done;          /* I have stepped: no answer is needed */
    struct hash32 hash; /* of both payloads, that of the lower id first */
};

/* ---- pipelines: p2p/pipeline/pipeline.h --------------------------------- */

struct stage_host {
    struct peer_id id;
    uint16_t stage; /* from 0 */
};

/* "In this attempt I go on with these hosts, from that step on." */
struct stage_hello {
    uint64_t round;
    uint32_t step, attempt;
    uint32_t cost_us; /* of a micro-batch, in the sender's rounds before */
    uint32_t n_hosts;
    struct stage_host hosts[VIEW_MEMBERS_MAX]; /* by id */
};

/* My part of that step is complete. */
struct stage_ready {
    uint64_t round;
    uint32_t step, attempt;
};

/* There is a place for the activations of that micro-batch. */
struct stage_take {
    uint64_t round;
    uint32_t step, attempt;
    uint32_t micro;
};

/* "The parameters of that commit are evaluated on the way through these hosts,
 * one of each stage; you are behind me." */
struct stage_eval {
    uint64_t round;
    uint32_t attempt;
    uint32_t n_hosts;
    struct peer_id hosts[VIEW_MEMBERS_MAX]; /* by stage */
};

/* There is a place for the activations of these held-out windows. */
struct eval_take {
    uint64_t round;
    uint32_t attempt;
    uint32_t micro;
};

/* ---- who reaches whom ------------------------------------------------- */

/* "Dial me where I seem to be, on a new connection, and say whether it
 * worked." */
struct probe {
    uint64_t request;
};

struct probed {
    uint64_t request;
    bool reached;
    struct msg_address address; /* that was dialled */
};

/* "I cannot dial `to`: make it dial me." `to` may be the receiver. */
struct call {
    struct peer_id to;
    bool bulk; /* a data connection is missing, not a link */
};

/* To the one who is called. token 0: dial `from` at `address`. Else come to
 * the sender of this, which holds a connection of `from` under that token: to
 * be carried, or (a port) to meet `from`, which is seen at `address`. */
struct called {
    struct peer_id from;
    struct msg_address address;
    uint64_t token;
};

/* What an acceptor must remember over a restart (never sent). */
struct ballot_record {
    uint64_t round;   /* last commit applied */
    uint32_t n_certs; /* 0 or 1: the view it was in */
    struct view_cert certs[1];
    bool has_promised;
    bool fork_bound;
    uint64_t promised;
    uint64_t accepted_ballot;
    uint32_t n_accepted; /* 0 or 1 */
    struct standing accepted[1];
};

#define X(name, value, schema, ...)                                            \
    extern const struct msg_schema schema##_schema;
MESSAGE_MAP(X)
X(, , ballot_record, )
X(, , view_body, )
X(, , ballot_body, )
X(, , suspect_body, )
X(, , promise_body, )
X(, , proposal, )
X(, , join_body, )
X(, , ready_body, )
X(, , plan_body, )
X(, , ledger, )
X(, , vote_body, )
X(, , goodbye_body, )
X(, , verdict_body, )
X(, , forward_body, )
X(, , peer_info, )
X(, , evaluated_body, )
X(, , invitation_body, )
X(, , admission_body, )
X(, , revocation_body, )
X(, , present_body, )
#undef X

enum message_gate { GATE_LINK, GATE_PEER, GATE_SECOND, GATE_ENVELOPE };
enum message_way { WAY_DIRECT, WAY_FORWARD };
enum message_stale {
    STALE_NEVER,
    STALE_RUN,
    STALE_GROUP,
    STALE_VIEW,
    STALE_ATTEMPT
};

/* A row of MESSAGE_MAP. */
struct message_row {
    const char *name; /* "READY", for logs */
    const struct msg_schema *schema;
    enum message_gate gate;
    enum message_way way;
    enum message_stale stale;
};

/* How messages that can be stale begin. */
struct message_attempt {
    uint64_t epoch;
    struct hash32 view;
    uint64_t round; /* STALE_ATTEMPT only */
};

/* NULL for an unknown type, also one of the DHT. */
const struct message_row *message_row(uint16_t type);

/* Schema of a message type, NULL for an unknown one. */
const struct msg_schema *message_schema(uint16_t type);

/* The same, also for the messages of the DHT (proto/dht_msg.h). */
const struct msg_schema *message_any_schema(uint16_t type);

/* "READY", for logs; "?" for an unknown type. */
const char *message_name(uint16_t type);

/* What a control connection takes: every message, of the DHT too, as one whole
 * frame of at most its longest encoding. */
void message_frame_rules(struct frame_rule rules[MESSAGE_TYPES_MAX]);

/* Largest decoded message: buffers that must hold any of them. */
size_t message_struct_max(void);

/* Hash of a struct's encoding under a domain: how views, plans and commits
 * are named. */
void message_hash(const struct msg_schema *schema,
                  const char *domain,
                  const void *obj,
                  struct hash32 *out);

/* What peer `id` says in that JOIN to prove that it holds the state, whose
 * sample (proto/sample.h) that is. Of use to nobody else, for no other view
 * and commit. */
void message_join_proof(const struct join_body *join,
                        const struct hash32 *sample,
                        const struct peer_id *id,
                        struct hash32 *out);

/* Sign and check the encoding of a body. */
int message_sign(const struct signer *signer,
                 const struct msg_schema *schema,
                 const void *body,
                 uint8_t sig[SIGN_BYTES]);

bool message_verify(const struct signer *signer,
                    const uint8_t public_key[SIGN_PUBLIC_BYTES],
                    const struct msg_schema *schema,
                    const void *body,
                    const uint8_t sig[SIGN_BYTES]);

/* Name of the commit of the plan of that hash with `result`. */
void message_commit_name(const struct hash32 *plan,
                         const struct hash32 *result,
                         struct hash32 *out);

/* Name of the commit of `plan` with `result`. */
void message_commit_hash(const struct plan_body *plan,
                         const struct hash32 *result,
                         struct hash32 *out);

#endif
