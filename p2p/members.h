/* members.h - who is there: known peers, links to them, signs of life.
 *
 * One table of peers by id and one of links. Every authenticated byte is a
 * sign of life; heartbeats make sure that there are some. Rumours in the
 * heartbeats spread who exists, so traffic per peer depends on its links, not
 * on the size of the swarm.
 *
 * A *watched* peer (a member of one's view) is *lost* when it has been silent
 * for dead_ms, when its link broke and dialling it is refused (its host
 * is there, the process is not), or when the link is not back within
 * redial_ms. The caller collects losses with
 * members_next_lost(). A lost peer stays known and is dialled with back-off,
 * which is how two halves of a cut swarm meet again.
 *
 * How a peer is reached: directly; where it cannot be dialled, a common
 * neighbour is asked to have it dial us (CALL); where neither can dial the
 * other, through a relay. All of it is in members_reach.c; a link says how it
 * came about, and data connections go the same way.
 *
 * When the own process slept (SIGSTOP, suspend), silence proves nothing:
 * members_gap() restarts every timer.
 *
 * Pure: time comes in, actions go out. Memory: PEERS_MAX rows of ~300 bytes.
 */
#ifndef LOCO_P2P_MEMBERS_H
#define LOCO_P2P_MEMBERS_H

#include "p2p/core.h"
#include "p2p/limits.h"
#include "proto/messages.h"

#define MEMBERS_BOOTSTRAP_MAX 8
#define MEMBERS_NONE          (-1)
#define MEMBERS_VIA_MAX       3 /* neighbours remembered that reach a peer */
#define MEMBERS_NEARBY_MAX    8 /* addresses heard on the LAN */

struct members_options {
    struct peer_id self;
    uint64_t seed;
    uint32_t heartbeat_ms, suspect_ms, dead_ms, redial_ms;
    uint32_t links_wanted; /* dial known peers up to this many links */
    uint32_t hedge_ms;     /* a dial without answer: try other ways too */
    uint32_t upgrade_ms;   /* between tries to do without the relay */
};

/* How a peer is reached that is not linked, or not directly. */
struct member_way {
    uint8_t reach;            /* enum reach_class, last said of it */
    int via[MEMBERS_VIA_MAX]; /* rows of neighbours linked to it, newest first
                               */
    bool relaying;            /* a dial through a relay is under way */
    bool called;              /* we asked that it dials us */
    bool bulk_wanted;         /* a data connection, when there is a link */
    uint32_t next_via;
    uint64_t dial_began_ms, call_at_ms, relay_at_ms, upgrade_at_ms;
    uint64_t bulk_called_ms; /* when it last asked us for a data connection */
    uint32_t relay_backoff_ms;
    const char *data; /* how data went to it last: static text, for the log */
};

struct member {
    bool used;
    bool has_key; /* authenticated once */
    bool watched; /* its loss matters */
    bool wanted;  /* dial it although there are enough links */
    bool lost;    /* reported; cleared by a new link */
    bool suspected;
    bool dialing;
    bool has_beat;
    struct peer_id id;
    uint8_t public_key[32];
    struct address address; /* port 0: cannot be dialled */
    uint64_t life;          /* 0: no HELLO yet */
    uint32_t n_links;
    uint64_t heard_ms; /* last sign of life */
    uint64_t down_ms;  /* when the last link went */
    uint64_t dial_at_ms;
    int dial_rc; /* of the last dial that failed without a link; 0: none did */
    uint32_t backoff_ms;
    struct member_way way;
    struct heartbeat beat; /* last one; rumours not kept */
};

struct members_link {
    bool used;
    bool closing;
    bool inbound; /* the peer dialled */
    bool relayed;
    struct peer_id relay;
    uint32_t link;
    int peer;
    uint64_t heard_ms;
};

/* Somebody of this run is at this address of the LAN, who is not known. */
struct members_nearby {
    struct address address;
    bool dialing;
    uint32_t failures;
    uint64_t dial_at_ms;
};

struct members_bootstrap {
    struct address address;
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

struct members {
    struct members_options opt;
    uint64_t rng;
    uint64_t beat_at_ms; /* next heartbeat */
    uint32_t n_peers;
    uint32_t rumour_next;
    unsigned n_bootstrap;
    struct peer_id pin;
    bool has_pin;
    bool reached;            /* some peer of the run, once */
    struct address observed; /* how others see us; port is ours */
    enum reach_class reach;  /* our own class, set by the owner */
    uint32_t n_relayed;      /* links through a relay, closing ones too */
    unsigned n_nearby;
    struct members_nearby nearby[MEMBERS_NEARBY_MAX];
    struct members_bootstrap bootstrap[MEMBERS_BOOTSTRAP_MAX];
    unsigned n_lost;
    struct members_lost lost[VIEW_MEMBERS_MAX];
    struct members_link links[LINKS_MAX];
    struct member peers[PEERS_MAX];
};

void members_init(struct members *m,
                  const struct members_options *opt,
                  uint64_t now_ms);

void members_bootstrap_add(struct members *m, const struct address *address);

/* Row of a peer, or MEMBERS_NONE. */
int members_find(const struct members *m, const struct peer_id *id);

/* Learn of a peer (rumour, DHT, view). MEMBERS_NONE for oneself, a full table
 * or an id that is not acceptable. A known address is not overwritten while
 * the peer is linked. */
int members_learn(struct members *m,
                  const struct peer_id *id,
                  const struct address *address,
                  uint64_t now_ms);

/* LINK_UP; false: the link was refused and a HANG_UP emitted. */
bool members_link_up(struct members *m,
                     const struct event *event,
                     struct out *out);

void members_link_down(struct members *m, uint32_t link, uint64_t now_ms);

void members_dial_failed(struct members *m, const struct event *event);

/* What a code of DIAL_FAILED says, for a person. Static string. */
const char *members_dial_text(int rc);

/* Row behind a link or MEMBERS_NONE; also notes a sign of life. */
int members_heard(struct members *m, uint32_t link, uint64_t now_ms);

/* Any other authenticated byte of that peer, e.g. on its bulk connection. */
void members_alive(struct members *m, const struct peer_id *id, uint64_t now);

/* Take in a heartbeat: stored, rumours learnt. */
void members_beat(struct members *m,
                  int peer,
                  const struct heartbeat *beat,
                  uint64_t now_ms);

/* From now on exactly these peers (rows, MEMBERS_NONE passed over) are watched.
 * One that was not watched before and has no link gets redial_ms to be linked:
 * it was not missed until now. */
void members_watch(struct members *m,
                   const int *rows,
                   uint32_t n,
                   uint64_t now_ms);

/* Silence so far proves nothing: the own process has not been running. */
void members_gap(struct members *m, uint64_t now_ms);

/* Whether the peer has a usable link. */
bool members_linked(const struct members *m, int peer);

/* Make sure that there is a data connection, the way the link came about: the
 * peer is dialled, asked to dial us, or met at the relay. */
void members_bulk_open(struct members *m, struct out *out, int peer);

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

/* Somebody of the run was heard at this address of the LAN. */
void members_nearby(struct members *m,
                    const struct address *address,
                    uint64_t now_ms);

/* Neither of the two (rows; MEMBERS_NONE: oneself) can be dialled, as they say:
 * what they exchange goes through a relay. Rings go around such a pair. */
bool members_apart(const struct members *m, int a, int b);

/* Whether a dial of this peer makes sense. */
bool members_dialable(const struct member *p);

/* The link that is used goes through a relay. */
bool members_relayed(struct members *m, int peer);

/* The link that is used was dialled by the peer, directly. */
bool members_inbound(struct members *m, int peer);

/* Encode and queue one message; false when not linked or out of space. */
bool members_send(struct members *m,
                  struct out *out,
                  int peer,
                  enum message_type type,
                  const void *obj);

/* One message to many peers (rows): encoded once, its bytes shared by all
 * sends. Rows that are MEMBERS_NONE or not linked are passed over. */
void members_broadcast(struct members *m,
                       struct out *out,
                       const int *rows,
                       uint32_t n,
                       enum message_type type,
                       const void *obj);

/* To every linked peer. */
void members_tell_all(struct members *m,
                      struct out *out,
                      enum message_type type,
                      const void *obj);

/* The same as members_send for bytes that are encoded already. */
bool members_send_raw(struct members *m,
                      struct out *out,
                      int peer,
                      uint16_t type,
                      const void *bytes,
                      size_t len);

/* Heartbeats, detection of losses, dialling. `beat` is completed with rumours
 * and sent on every link when due. */
void members_tick(struct members *m,
                  uint64_t now_ms,
                  struct heartbeat *beat,
                  struct out *out);

/* One loss at a time; false: no more. */
bool members_next_lost(struct members *m, struct members_lost *lost);

uint64_t members_deadline(const struct members *m);

/* Linked peers. */
uint32_t members_n_linked(const struct members *m);

#endif
