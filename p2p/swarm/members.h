/* members.h - membership: known peers, links to them, signs of life.
 *
 * One table of peers by id and one of links. Traffic per peer depends on its
 * links, not on the size of the swarm:
 *
 *   active view   MEMBERS_ACTIVE_MIN to links_wanted neighbours, chosen at
 *                 random, symmetric (HyParView: Leitao, Pereira & Rodrigues
 *                 2007). A peer tells a neighbour before it drops the link, and
 *                 replaces a neighbour that dies
 *   passive view  the other rows of the table: a sample of the swarm, kept
 *                 fresh by SHUFFLE with random peers of it
 *   pulses        every heartbeat_ms on links that either side *keeps*: links
 *                 to neighbours, to members of the view (*watched*) and to
 *                 peers that the owner marked *guest*. Every authenticated byte
 *                 is a sign of life. The whole HEARTBEAT goes out when it
 *                 changes
 *   rumours       alive, suspect, dead, left, each with the incarnation of the
 *                 peer that it is about (SWIM: Das, Gupta & Motivala 2002). A
 *                 peer passes each new rumour on once to each neighbour, within
 *                 a budget. A peer that hears that it is suspected contradicts
 *                 with a higher incarnation
 *
 * A *watched* peer is *lost* when two things hold. First: it is silent here for
 * dead_ms, or its link broke and either its host refuses a dial (the host runs,
 * the process does not) or the link is not back within redial_ms. Second: no
 * watched peer that we hear says that it hears the silent one. A peer that
 * others hear while we do not is *indirect*: messages to it go through one of
 * those others (FORWARD, signed). The caller collects losses with
 * members_next_lost(). A neighbour outside the view is suspected first, so that
 * it can contradict. A lost or dead peer stays known and is dialled now and
 * then: that is how two halves of a cut swarm meet again.
 *
 * A peer is reached directly. If it cannot be dialled, we ask a common
 * neighbour to tell it to dial us (CALL). If neither can dial the other, both
 * use a relay, and try to meet there (members_punch.c). members_reach.c does
 * this; data connections go the same way as the link.
 *
 * When this process slept (SIGSTOP, suspend), silence proves nothing:
 * members_gap() restarts every timer.
 *
 * Rumours are hearsay: they decide what is shown and whom to dial, never who
 * is in a view.
 *
 * In a swarm larger than the table (`rows`) the table is a sample of it: a
 * rumour about somebody without a row is remembered in 16 bytes, so that it is
 * passed on once, and nothing a peer does grows with the swarm.
 *
 * Pure: time comes in, actions go out. Memory: `rows` of ~550 bytes, given by
 * the owner, and ~100 KB for links, rumours and what was heard.
 */
#ifndef LOCO_P2P_SWARM_MEMBERS_H
#define LOCO_P2P_SWARM_MEMBERS_H

#include "p2p/core.h"
#include "p2p/limits.h"
#include "p2p/swarm/budget.h"
#include "p2p/swarm/strangers.h"
#include "proto/messages.h"

#define MEMBERS_BOOTSTRAP_MAX 8
#define MEMBERS_NONE          (-1)
#define MEMBERS_VIA_MAX       3 /* neighbours remembered that reach a peer */
#define MEMBERS_NEARBY_MAX    8 /* addresses heard on the LAN */

#define MEMBERS_ACTIVE_MIN  5
#define MEMBERS_ACTIVE_MAX  64 /* while many are needed to found a view */
#define MEMBERS_RUMOURS_MAX 256
#define MEMBERS_DOUBTS_MAX  32
#define MEMBERS_SEEN_MAX    2048 /* a power of two times MEMBERS_SEEN_WAYS */
#define MEMBERS_SEEN_WAYS   4
#define MEMBERS_GROUPS_MAX  32  /* of addresses of strangers, remembered */
#define MEMBERS_DIALLED_MAX 256 /* DIALS_PER_S for a minute */
#define MEMBERS_SHARES_MAX  256

struct members_options {
    struct peer_id self;
    uint64_t seed;
    uint32_t rows; /* peers remembered at most; 0: PEERS_MAX */
    uint32_t heartbeat_ms, suspect_ms, dead_ms, redial_ms;
    uint32_t links_wanted; /* most neighbours; more than MEMBERS_ACTIVE_MIN + 3
                              are looked for, too */
    uint32_t hedge_ms;     /* a dial without answer: try other ways too */
    uint32_t upgrade_ms;   /* between tries to do without the relay */
    uint32_t punch_ms;     /* between two meetings with one peer (0: none), */
    uint32_t punch_max_ms; /* doubled up to this */
    struct signer signer;  /* for FORWARD; sign NULL: none is sent */
    uint64_t life;         /* of this process */
    struct peer_id pin;    /* the bootstrap's expected id; zero: any */
    uint16_t port;         /* that others can dial; 0: none */
};

/* Connections because of CALLED or a meeting, in a window. */
struct members_calls {
    uint64_t since_ms;
    uint32_t n;
};

/* Dials of addresses that one says at meetings: where nobody is known to be,
 * and where a link by a meeting is from. */
struct members_meets {
    struct members_calls named, proven;
};

/* What one group of addresses used of such a window. */
struct members_share {
    uint64_t window;   /* its name */
    uint64_t since_ms; /* of the window; */
    uint32_t n;        /* 0: a free row */
    uint8_t group[16];
};

/* Meetings with one peer, one at a time: for a link, or for data. */
struct members_tries {
    bool under_way;
    uint32_t backoff_ms;
    uint64_t at_ms;   /* not before */
    uint64_t over_ms; /* when the last one was */
    /* The hole that it made was there at `alive_ms`, as far as is known; it
     * lasted if that is not before `lasts_ms`. 0: none was made. */
    uint64_t alive_ms, lasts_ms;
};

/* How a peer is reached that is not linked, or not directly. */
struct member_way {
    uint8_t reach;            /* enum reach_class, last said of it */
    int via[MEMBERS_VIA_MAX]; /* rows of its linked neighbours, newest first */
    bool relaying;            /* a dial through a relay is under way */
    bool called;              /* we asked that it dials us */
    bool bulk_wanted;         /* a data connection, when there is a link */
    uint32_t next_via;
    uint64_t dial_began_ms, call_at_ms, relay_at_ms, upgrade_at_ms;
    uint64_t bulk_called_ms; /* when it last asked us for a data connection */
    uint32_t relay_backoff_ms;
    struct members_calls calls;
    /* Meetings (members_punch.c). */
    struct members_tries punch, data; /* with it, that we asked for */
    struct members_meets meets;       /* of others, that it introduces */
    bool punch_dialled;               /* at the one for a link that goes on */
    const char *data_way; /* how data went to it last: static text, the log */
};

struct member {
    bool used;
    bool has_key;   /* authenticated once, or named by a view */
    bool confirmed; /* a link or a rumour told of it, not only hearsay */
    bool watched;   /* its loss matters */
    bool named;     /* by a view: its row stays */
    bool wanted;    /* dial it although there are enough links */
    bool guest;     /* its heartbeats are wanted, neighbour or not */
    bool active;    /* in the active view */
    bool kept;      /* it wants our pulses */
    bool asked;     /* to be a neighbour */
    bool fresh;     /* linked just now */
    bool greet;     /* our HEARTBEAT is to be sent */
    bool nudge;     /* a PULSE is to be sent before its time */
    bool lost;      /* reported; cleared by a new link */
    bool suspected; /* silent on its link */
    bool indirect;  /* not heard here, but by others of the view */
    bool probed;    /* the dial under way is a probe */
    bool sought;    /* the dial under way is for a neighbour */
    bool dialing;
    bool has_beat;
    bool hearsay;  /* its address: of no link, and no view of ours */
    bool behind;   /* its pulse names a later heartbeat than the one here */
    uint8_t state; /* enum peer_state, by rumours and first hand */
    uint16_t hears_view;
    uint64_t hears;    /* whom of that view it hears, */
    uint64_t hears_ms; /* as it said then */
    uint64_t state_ms; /* since when */
    struct peer_id id;
    uint8_t public_key[32];
    struct address address; /* port 0: cannot be dialled */
    struct address met;     /* the same, when it was linked: not hearsay */
    uint8_t sees_us[16];    /* our address, as its last HELLO says */
    struct peer_info info;  /* as last heard; address and id not kept */
    uint64_t shun_until_ms; /* it refused us */
    uint64_t wait_until_ms; /* a stranger that is let in no sooner */
    uint64_t life;          /* 0: no HELLO yet */
    uint8_t version;        /* of the protocol, in common; 0: no HELLO yet */
    uint32_t features;      /* bits in common */
    uint32_t n_links;
    uint32_t n_open;   /* of them those that are not closing */
    uint32_t rtt_us;   /* shortest round trip of late; 0: not known */
    uint64_t heard_ms; /* last sign of life, or since when one is due */
    uint64_t real_ms;  /* last sign of life */
    /* Of its clock against ours, in 16 ms: the least of the last pulses, two
     * windows of them; and how late the last one came, measured by that. */
    uint16_t clock[2];
    uint32_t n_pulses, late_ms;
    uint64_t heard_before_ms, real_before_ms; /* this message */
    uint64_t down_ms;                         /* when the last link went */
    uint64_t dial_at_ms;
    uint64_t ask_at_ms;      /* not a neighbour before this */
    uint64_t active_ms;      /* neighbour since */
    uint64_t forwarded;      /* highest number of its FORWARDs */
    uint64_t forwarded_seen; /* bit i: that number less i came */
    uint64_t forward_life;   /* of the process that counted */
    uint64_t word_ms;        /* its last FORWARD, or since when one is due */
    uint64_t relay_ms;       /* its budget of forwarded bytes: since when, */
    uint32_t relay_bytes;    /* and used */
    int dial_rc; /* of the last dial that failed without a link; 0: none did */
    uint32_t backoff_ms;
    struct member_way way;
    struct heartbeat beat; /* last one */
};

struct members_link {
    bool used;
    bool closing;
    bool inbound; /* the peer dialled */
    bool relayed;
    bool punched;         /* direct, by a meeting */
    bool works;           /* something was said on it after HELLO */
    struct peer_id relay; /* of these two: through whom, or where */
    struct address from;  /* where the peer is; relayed: nowhere */
    uint32_t link;
    int peer;
    uint64_t since_ms;
    uint64_t heard_ms;
    uint64_t sent_ms;   /* last byte of ours */
    uint64_t served_ms; /* last FETCH that was answered with bytes; 0: none */
    uint64_t used_ms;   /* last message that was no pulse or heartbeat */
    uint32_t skipped;   /* pulses saved because something else was sent */
    bool trusted;       /* its peer, by the owner: as if it were a member */
    bool told;          /* the shell was told that it is no stranger's */
    uint32_t n_forged;  /* bad signatures by its own key */
    struct budget_link budget;
};

/* An address on the LAN at which an unknown peer of this run listens. */
struct members_nearby {
    struct address address;
    bool dialing;
    uint32_t failures;
    uint64_t dial_at_ms;
};

struct members_bootstrap {
    struct address address;
    struct peer_id id; /* who answered there; zero: nobody yet */
    bool dialing, reached;
    int rc; /* of the last failure */
    uint32_t failures;
    uint64_t dial_at_ms;
};

struct members_lost {
    int peer;
    uint32_t silent_ms;
    const char *reason;
};

/* A rumour on its way: to the neighbours in `mask` (slots of the active view)
 * still; kept for a while to recognise it. */
struct members_rumour {
    bool used, full; /* full: the whole of `info` is said */
    uint8_t state;
    uint64_t mask, at_ms;
    struct peer_info info;
};

/* What was last heard of a peer that has no row. A rumour that is forgotten
 * while copies of it still travel is news again and circulates for ever:
 * GOSSIP_MEAN_PER_S is about a hundred rumours a second, so MEMBERS_SEEN_MAX of
 * them are remembered for 20 s, and a round takes a few. */
struct members_seen {
    uint64_t word; /* of its id; 0: free */
    uint32_t incarnation;
    uint32_t noted; /* order of the notes; the oldest of a set is given up */
    uint8_t state;
};

/* A /24 or /48 of the internet, or one private address. */
struct members_group {
    bool used;
    struct address from; /* of the last link; the port is nobody's */
    uint64_t until_ms;   /* no stranger from there is let in before */
    uint64_t at_ms;      /* something was refused last */
    uint32_t refused[STRANGER_REFUSAL_COUNT];
};

/* An address that was dialled because a stranger named it. */
struct members_dialled {
    struct address address;
    uint64_t at_ms;    /* 0: never */
    uint64_t until_ms; /* not again before */
    uint32_t failures; /* since somebody of the run answered there */
    bool up;           /* somebody did, the last time */
};

/* A peer that seems gone: dead at `due_ms` unless it contradicts. */
struct members_doubt {
    int peer; /* MEMBERS_NONE: free */
    uint32_t incarnation;
    bool told; /* others were asked */
    uint64_t since_ms, tell_ms, due_ms;
};

struct members_counts {
    uint64_t rumours, declared, refuted, probes, forwards, relayed, refused;
    uint64_t strangers; /* that did not come in, or had to go */
    uint64_t stranger_refused[STRANGER_REFUSAL_COUNT];
    uint64_t stranger_signatures; /* verified because of them */
    uint64_t stranger_frames;     /* of theirs that were dropped */
    uint64_t stranger_dials;      /* for their words, that waited */
};

struct members {
    struct members_options opt;
    uint64_t rng, now_ms;
    uint64_t due_ms;     /* nothing is to be done before */
    uint64_t beat_at_ms; /* next pulses */
    uint64_t full_at_ms; /* next HEARTBEAT to all, changed or not */
    uint64_t probe_at_ms, seek_at_ms, flush_at_ms, sweep_at_ms;
    uint32_t n_peers, n_linked, n_alive, n_wanted, n_links_used;
    uint32_t n_dead;    /* rows that are dead or left */
    uint32_t n_suspect; /* rows that are suspected */
    unsigned n_bootstrap;
    bool reached;            /* some peer of the run, once */
    struct address observed; /* how others see us; port is ours */
    enum reach_class reach;  /* our own class, set by the owner */
    uint32_t n_relayed;      /* links through a relay, closing ones too */
    uint32_t n_punched;      /* and by a meeting */
    unsigned n_nearby;
    struct members_nearby nearby[MEMBERS_NEARBY_MAX];
    struct members_bootstrap bootstrap[MEMBERS_BOOTSTRAP_MAX];
    unsigned n_lost;
    struct members_lost lost[VIEW_MEMBERS_MAX];

    /* What we say of ourselves. */
    struct peer_info self;
    struct heartbeat beat;
    uint32_t n_beats;
    bool has_beat, announced;

    /* The view. */
    uint32_t n_watch;
    int watch[VIEW_MEMBERS_MAX];
    struct hash32 watch_view;
    uint64_t hears; /* bit i: watch[i] is heard here, or is oneself */
    uint64_t forward_number;

    uint32_t n_active, n_seeking;
    uint32_t more_shuffles; /* that may teach nothing before we are content */
    uint32_t next_part;     /* of the tables, to be compared next */
    bool shuffled;          /* with the first neighbour */
    bool probed_dead;       /* the last probe was of one thought dead */
    int active[MEMBERS_ACTIVE_MAX]; /* rows; MEMBERS_NONE: free slot */
    uint32_t n_rumours;             /* used rows of `rumours`, at most */
    int64_t gossip_bytes;           /* budget left of this moment, */
    int64_t gossip_saved;           /* and of the last minute */
    uint64_t gossip_ms;
    struct members_rumour rumours[MEMBERS_RUMOURS_MAX];
    struct members_doubt doubts[MEMBERS_DOUBTS_MAX];
    struct members_counts counts;
    struct members_calls calls; /* of all that are no members */
    struct members_meets meets, guests_meets;
    struct members_share shares[MEMBERS_SHARES_MAX];
    struct members_seen seen[MEMBERS_SEEN_MAX]; /* sets of WAYS, by id */
    uint32_t n_noted;
    struct members_link links[LINKS_MAX];
    struct {
        struct budget budget; /* of all together */
        struct members_group groups[MEMBERS_GROUPS_MAX];
        struct members_dialled dialled[MEMBERS_DIALLED_MAX];
    } strangers;
    uint32_t rows, index_mask;
    uint16_t *index;      /* (index_mask + 1) row + 1 by id; 0: free */
    struct member *peers; /* (rows) those below n_peers are in use */
};

/* How much memory members_init() wants for these options. */
size_t members_bytes(const struct members_options *opt);

/* `memory` (members_bytes(), aligned as malloc() does) is the owner's and lives
 * as long as *m. */
void members_init(struct members *m,
                  const struct members_options *opt,
                  void *memory,
                  uint64_t now_ms);

void members_bootstrap_add(struct members *m, const struct address *address);

/* Row of a peer, or MEMBERS_NONE. */
int members_find(const struct members *m, const struct peer_id *id);

/* Learn of a peer by hearsay. MEMBERS_NONE for oneself, a full table or an id
 * that is not acceptable. A known address is not overwritten while the peer is
 * linked. */
int members_learn(struct members *m,
                  const struct peer_id *id,
                  const struct address *address,
                  uint64_t now_ms);

/* The same for a peer that is here, or is to be dialled now: what is only
 * hearsay, or else any row that nobody needs, makes room for it. */
int members_learn_here(struct members *m,
                       const struct peer_id *id,
                       const struct address *address,
                       uint64_t now_ms);

/* The same for a member of a view: its row stays until members_watch() names
 * others. H(public_key) is its id. */
int members_name(struct members *m,
                 const struct peer_id *id,
                 const struct address *address,
                 const uint8_t public_key[32],
                 uint64_t now_ms);

/* The key of a peer: H(key) is its id. */
void members_key(struct members *m, int peer, const uint8_t public_key[32]);

/* LINK_UP; false: the link was refused and a HANG_UP emitted. */
bool members_link_up(struct members *m,
                     const struct event_link_up *up,
                     uint64_t now_ms,
                     struct out *out);

/* Hang up every link to the peer. */
void members_hang_up_all(struct members *m, int peer, struct out *out);

/* Whose link it was; MEMBERS_NONE: nobody's. */
int members_link_down(struct members *m, uint32_t link, uint64_t now_ms);

/* DIAL_FAILED. */
void members_dial_failed(struct members *m,
                         uint64_t request,
                         int rc,
                         uint64_t now_ms);

/* What a code of DIAL_FAILED says, for a person. Static string. */
const char *members_dial_text(int rc);

/* Row behind a link or MEMBERS_NONE; also notes a sign of life. */
int members_heard(struct members *m, uint32_t link, uint64_t now_ms);

/* A *stranger*, here: the peer of a link that is no member of the view, not
 * named by the invitation, and not trusted by the owner. */

/* Row behind a link or MEMBERS_NONE. */
int members_at(struct members *m, uint32_t link);

/* A frame has come; `trusted`: its peer may cost what it needs. False: it is a
 * stranger's, who has used up what strangers may; drop the frame. */
bool members_affords(struct members *m,
                     const struct event_recv *frame,
                     bool trusted,
                     uint64_t now_ms);
/* So much was said because of it. */
void members_answered(struct members *m,
                      uint32_t link,
                      uint32_t frames,
                      uint64_t bytes);

/* A signature by `public_key` was verified because of a frame over that link. A
 * stranger that forges its own is hung up, and waits. */
void members_verified(struct members *m,
                      uint32_t link,
                      const uint8_t public_key[32],
                      bool good,
                      struct out *out);

/* Whether the peer at that link may be at this address: the link comes from
 * there, or from a private address or a relay, which says nothing. */
bool members_may_be_at(const struct members *m,
                       uint32_t link,
                       const uint8_t ip[16]);

/* The peer at that link said that it knows what it does not: as above. */
void members_forged(struct members *m, uint32_t link, struct out *out);

/* Links of strangers and what was refused to them, by groups of addresses; the
 * first `max`. The number of rows. */
uint32_t members_strangers(const struct members *m,
                           struct strangers_row *rows,
                           uint32_t max);

/* Whether it is a member of the view, or named by the invitation. */
bool members_is_ours(const struct members *m, int peer);

/* The name of the group of addresses that a linked peer is of, where what is
 * for strangers is shared: its /24 or /48 of the internet; itself, where its
 * address is private; all that come through one relay are of that relay's. */
struct peer_id members_group(struct members *m, int peer);

/* What that peer asked for was refused: strangers got enough. */
void members_fetch_refused(struct members *m, int peer);
/* It gets what it asked for: so much. */
void members_fetch_served(struct members *m, int peer, uint64_t bytes);

/* It was closed because its peer did not read. Before members_link_down(). */
void members_link_full(struct members *m, uint32_t link);

/* The peer at that link refuses us: it is not dialled before until_ms. */
void members_shun(struct members *m, uint32_t link, uint64_t until_ms);

/* What that was: links are closed when nobody keeps and nobody uses them. */
void members_used(struct members *m, uint32_t link, uint16_t type);

/* Any other authenticated byte of that peer, e.g. on its bulk connection. */
void members_alive(struct members *m, const struct peer_id *id, uint64_t now);

/* Take in a heartbeat. */
void members_beat(struct members *m,
                  int peer,
                  const struct heartbeat *beat,
                  uint64_t now_ms);

/* From a linked peer. */
void members_on_pulse(struct members *m,
                      int peer,
                      const struct pulse *p,
                      struct out *out);
void members_on_neighbour(struct members *m,
                          int peer,
                          const struct neighbour *msg,
                          struct out *out);
void members_on_shuffle(struct members *m,
                        int peer,
                        const struct shuffle *msg,
                        struct out *out);
void members_on_gossip(struct members *m,
                       int peer,
                       const struct gossip *msg,
                       struct out *out);

/* FORWARD from a linked peer: passed on, or for us. Then the row of the member
 * that said it, with the message in *f; MEMBERS_NONE otherwise. */
int members_forwarded(struct members *m,
                      int peer,
                      const struct forward *f,
                      struct out *out);

/* The peer said goodbye. */
void members_left(struct members *m, int peer);

/* HELLO told another life, or how others see us. */
void members_observed(struct members *m, const struct msg_address *seen);

/* The port that others can dial; 0: none. */
void members_set_port(struct members *m, uint16_t port);
/* What this peer says of its own reachability. */
void members_set_reach(struct members *m, enum reach_class reach);
/* Standing links that are looked for. */
void members_want_links(struct members *m, uint32_t n);

/* From now on exactly these peers (rows, in the order of the view of that name;
 * MEMBERS_NONE stands for oneself) are watched. One that was not watched before
 * and has no link gets redial_ms to be linked: it was not missed until now. */
void members_watch(struct members *m,
                   const int *rows,
                   uint32_t n,
                   const struct hash32 *view,
                   uint64_t now_ms);

/* Dial that peer until it is linked (or no more). */
void members_want(struct members *m, int peer, bool wanted);

/* Keep the link to that peer, and dial it: its heartbeats matter. */
void members_guest(struct members *m, int peer, bool guest);

/* Silence so far proves nothing: the own process has not been running. */
void members_gap(struct members *m, uint64_t now_ms);

/* Whether the peer has a usable link. */
bool members_linked(const struct members *m, int peer);

/* How near it is, as EVENT_RECV says; forgotten with the last link. */
void members_round_trip(struct members *m, int peer, uint32_t rtt_us);

/* 0: not known. */
uint32_t members_rtt_us(const struct members *m, int peer);

/* Make sure that there is a data connection, the way the link came about: the
 * peer is dialled, asked to dial us, or met at the relay. */
void members_bulk_open(struct members *m, struct out *out, int peer);

/* Whether data that goes through a relay may go a better way by now, so that
 * members_bulk_open() is worth a try: the link does. */
bool members_bulk_better(struct members *m, int peer, uint64_t now_ms);

/* CALL and CALLED of a linked peer. */
void members_on_call(struct members *m,
                     int peer,
                     const struct call *call,
                     uint64_t now_ms,
                     struct out *out);
void members_on_called(struct members *m,
                       int peer,
                       const struct called *called,
                       uint64_t now_ms,
                       struct out *out);

/* EVENT_MET: dial it there, or not. */
void members_on_met(struct members *m,
                    const struct event_met *met,
                    uint64_t now_ms,
                    struct out *out);
/* EVENT_PUNCHED: whether somebody of the run answered there. */
void members_on_punched(struct members *m,
                        const struct event_punched *punched,
                        uint64_t now_ms);
/* EVENT_BULK_MET */
void members_on_bulk_met(struct members *m,
                         const struct event_bulk_met *met,
                         uint64_t now_ms);

/* What that peer and we both know, as HELLO says. */
void members_features(struct members *m, int peer, uint32_t bits);

/* A linked peer that knows meetings. */
bool members_meets(const struct members *m, int peer);

/* The link that is used came about by a meeting. */
bool members_punched(struct members *m, int peer);

/* Somebody of the run was heard at this address of the LAN. */
void members_nearby(struct members *m,
                    const struct address *address,
                    uint64_t now_ms);

/* What these two exchange goes through a relay, as far as is known here (rows;
 * MEMBERS_NONE: oneself). Rings go around such a pair. */
bool members_apart(struct members *m, int a, int b);

/* Members of the view and guests without a link, for neither side can be
 * dialled; *relays: linked peers that carry connections for others now. */
uint32_t members_n_apart(struct members *m, uint32_t *relays);

/* Whether a dial of this peer makes sense. */
bool members_dialable(const struct member *p);

/* The link that is used goes through a relay. */
bool members_relayed(struct members *m, int peer);

/* The link that is used was dialled by the peer, directly. */
bool members_inbound(struct members *m, int peer);

/* Whether it can be spoken to: linked, or over another member of the view. */
bool members_reaches(const struct members *m, int peer);

/* The same between two watched peers (numbers in the view), as they say; an
 * edge that carries no control carries no data. */
bool members_edge(const struct members *m, uint32_t i, uint32_t k);

/* A linked peer that said something in the last two heartbeats. */
bool members_hears_now(const struct members *m, int peer);

/* Encode and queue one message; false when it cannot be spoken to or `out` is
 * full. */
bool members_send(struct members *m,
                  struct out *out,
                  int peer,
                  enum message_type type,
                  const void *obj);

/* One message to many peers (rows): encoded once, its bytes shared by all
 * sends. Rows that are MEMBERS_NONE or cannot be reached are passed over. */
void members_broadcast(struct members *m,
                       struct out *out,
                       const int *rows,
                       uint32_t n,
                       enum message_type type,
                       const void *obj);

/* To every linked peer, and to members of the view over others. */
void members_tell_all(struct members *m,
                      struct out *out,
                      enum message_type type,
                      const void *obj);

/* The same as members_send for bytes that are encoded already, linked peers
 * only. */
bool members_send_raw(struct members *m,
                      struct out *out,
                      int peer,
                      uint16_t type,
                      const void *bytes,
                      size_t len);

/* Pulses, heartbeats, detection of losses, dialling, rumours. `beat` is what
 * we are now. */
void members_tick(struct members *m,
                  uint64_t now_ms,
                  const struct heartbeat *beat,
                  struct out *out);

/* One loss at a time; false: no more. */
bool members_next_lost(struct members *m, struct members_lost *lost);

uint64_t members_deadline(const struct members *m);

/* Linked peers. */
uint32_t members_n_linked(const struct members *m);

/* Peers that are known to be there, by link or by rumour, without oneself. */
uint32_t members_n_alive(const struct members *m);

#endif
