/* members_internal.h - what the members*.c files share; nobody else includes
 * it.
 *
 *   members.c          time: what is due, in which order
 *   members_table.c    rows: find, learn, forget, what state a peer is in
 *   members_watch.c    members of the view: silence, losses, who hears whom
 *   members_link.c     links and sending
 *   members_pulse.c    heartbeats and pulses
 *   members_active.c   neighbours; shuffles and probes
 *   members_rumour.c   rumours, doubts, contradiction
 *   members_forward.c  between two members without a link
 *   members_dial.c     dialling
 *   members_strangers.c  links of strangers
 *   members_budget.c   what strangers may cost
 *   members_reach.c    who cannot be dialled: calls, relays, the LAN
 *   members_data.c     how data goes to a peer
 *   members_punch.c    direct links between two of these
 *   members_meets.c    how often we dial where others say, for these
 *   members_called.c   who may have us dial somebody
 */
#ifndef LOCO_P2P_SWARM_MEMBERS_INTERNAL_H
#define LOCO_P2P_SWARM_MEMBERS_INTERNAL_H

#include "p2p/swarm/members.h"

#define DIAL_BACKOFF_MAX_MS 5000
#define BIT(i)              (1ULL << (i))

/* In heartbeat intervals, so that a time scale moves all of it. */
#define PROBE_BEATS 25 /* between two shuffles with a random row: 15 s */
#define FULL_BEATS  64 /* between two HEARTBEATs that say nothing new: 38 s */
#define IDLE_BEATS  20 /* a link that nobody keeps is closed: 12 s */
#define ASK_BEATS   8  /* who refused is asked again: 5 s */
#define STALE_BEATS 12 /* a suspicion that nobody contradicts: 7 s */

/* All gossip of a peer: in any moment, and on average. A swarm that was cut and
 * heals has a thousand contradictions to pass on at once; else it is a few. */
#define GOSSIP_BYTES_PER_S 16384
#define GOSSIP_BURST_BYTES 16384
#define GOSSIP_MEAN_PER_S  4096
#define GOSSIP_SAVED_BYTES 524288

/* At most so long is nothing looked at. */
#define LOOK_MS 250

/* ---- members_table.c -------------------------------------------------- */

/* Set what is known of the peer; keeps the counts. */
void members_state(struct members *m,
                   int peer,
                   enum peer_state state,
                   uint32_t incarnation);

/* A row that a rumour or a link has told of. */
void members_confirm(struct members *m, int peer);

/* What was heard of a peer that has no row (any more); NULL: nothing, or it is
 * long ago. */
void members_seen_note(struct members *m,
                       const struct peer_id *id,
                       uint32_t incarnation,
                       enum peer_state state);
const struct members_seen *members_seen_of(struct members *m,
                                           const struct peer_id *id);

/* A random row for which `want`; MEMBERS_NONE where a bounded search finds
 * none. */
int members_random(struct members *m,
                   bool (*want)(const struct members *m, int peer));

/* ---- members_watch.c -------------------------------------------------- */

/* Losses of watched peers; *due comes down to the next moment to look. */
void members_watch_tick(struct members *m, uint64_t *due, struct out *out);

/* Whether a watched peer that we hear says that it hears this one. */
bool members_vouched(const struct members *m, int peer);

/* Whether watched peer number k, as far as we hear it, says that it hears this
 * one. */
bool members_says_hears(const struct members *m, uint32_t k, int peer);

/* Linked members of the view over which the peer can be spoken to: how many. */
#define WAYS_MAX 2
uint32_t members_ways(const struct members *m, int peer, int ways[WAYS_MAX]);
bool members_has_way(const struct members *m, int peer);

/* Whether that member says that it does not hear this one. */
bool members_deaf(const struct members *m, int row, int peer);

uint16_t members_view_word(const struct members *m);

/* ---- members_link.c --------------------------------------------------- */

/* Where to speak to a peer, or NULL. The other side may have given up one of
 * two links without our knowing (half-open): not one that is silent while
 * another is not. Through a relay only while no direct one works. */
struct members_link *members_link_of_peer(struct members *m, int peer);

/* Whether it is direct, and not only as far as we know. */
bool members_link_works(const struct members_link *l);

/* Whether a link to it is worth pulses, for our part. */
bool members_keeps(const struct member *p);

/* Pulses will be wanted on its links from now on: that there were none proves
 * nothing. Before the flag that says why is set. */
void members_keep_begins(struct members *m, struct member *p);

/* A sign of life that is as old as the stream it came on is late. */
void members_sign(struct members *m, struct member *p);

/* Something of ours needs its link: it is no stranger. */
bool members_needs(const struct member *p);
/* Whether a stranger may come in from there; another one may have to go. */
bool members_stranger_may(struct members *m,
                          int peer,
                          const struct address *from,
                          struct out *out);

struct members_link *members_link_find(struct members *m, uint32_t link);

/* ---- members_budget.c ------------------------------------------------- */

/* Note what was refused to a stranger from there. */
void members_refused(struct members *m,
                     const struct address *from,
                     enum stranger_refusal why);

/* Tell the shell whose link is no stranger's. */
void members_trust_tick(struct members *m, struct out *out);

/* Whether it may be dialled now. What a stranger said of its address is good
 * for few dials; where it may be, that is noted. */
bool members_may_dial(struct members *m, int peer);
/* How such a dial ended; nothing for another one. */
void members_dialled(struct members *m, uint64_t request, bool up);
/* The same for an address that somebody named just now. */
bool members_may_dial_at(struct members *m, const struct address *a);
void members_dialled_at(struct members *m, const struct address *a, bool up);

/* Whether strangers from there, or this one, are not let in yet. */
bool members_waits(const struct members *m,
                   int peer,
                   const struct address *from);

/* Not closing yet when `out` is full: tried again. */
void members_hang_up(struct members *m,
                     struct members_link *l,
                     struct out *out);

/* Close what has been silent for long while another link to it was not, what
 * broke off silently, and what nobody wants. */
void members_links_tick(struct members *m, uint64_t *due, struct out *out);

/* Encoded once, queued for one link. */
bool members_send_link(struct members *m,
                       struct out *out,
                       struct members_link *l,
                       enum message_type type,
                       const void *obj);

/* ---- members_pulse.c -------------------------------------------------- */

void members_pulse_tick(struct members *m, uint64_t *due, struct out *out);

/* ---- members_active.c ------------------------------------------------- */

void members_active_tick(struct members *m, uint64_t *due, struct out *out);

/* No neighbour any more; it is not told. */
void members_active_remove(struct members *m, int peer);

/* What its pulse says of neighbourhood. */
void members_active_agree(struct members *m,
                          int peer,
                          bool active,
                          struct out *out);

/* A view is to be founded, and there are fewer neighbours than that needs. */
bool members_seeks_many(const struct members *m);

/* Slot of the active view, or -1. */
int members_slot(const struct members *m, int peer);

/* ---- members_rumour.c ------------------------------------------------- */

void members_rumour_tick(struct members *m, uint64_t *due, struct out *out);

/* Take in one statement from `from` (MEMBERS_NONE: our own); `full`: all of
 * info counts, not only id and incarnation. */
void members_rumour(struct members *m,
                    const struct peer_info *info,
                    enum peer_state state,
                    bool full,
                    int from,
                    struct out *out);

/* Say of ourselves that we are here. */
void members_announce(struct members *m);

/* A new neighbour gets what is young. */
void members_rumour_slot(struct members *m, int slot);

/* It seems to be gone. For `quiet_ms` it is dialled anew, if it can be: a new
 * connection comes through where an old one waits for a lost packet. Then the
 * swarm is asked, and it is dead `wait_ms` later unless it contradicts. */
void members_doubt(struct members *m,
                   int peer,
                   uint32_t quiet_ms,
                   uint32_t wait_ms,
                   struct out *out);

/* It is gone: tell everybody. */
void members_declare(struct members *m,
                     int peer,
                     enum peer_state state,
                     struct out *out);

/* Tell this peer alone what is said of `about`. */
void members_tell_of(struct members *m, int peer, int about, struct out *out);

/* The row as it is told to others. */
struct peer_info members_info(const struct members *m, int peer);

/* ---- members_forward.c ------------------------------------------------ */

/* Sign and send over a third; false: nobody is there. */
bool members_forward(struct members *m,
                     struct out *out,
                     int peer,
                     uint16_t type,
                     const uint8_t *bytes,
                     size_t len);

/* ---- members_dial.c --------------------------------------------------- */

/* When it is our turn to dial a peer that both sides now want linked. */
uint64_t members_dial_turn(const struct members *m,
                           const struct peer_id *id,
                           uint64_t now_ms);

/* A dial has ended, with a link (`up`) or without. */
void members_dial_done(struct members *m,
                       uint64_t request,
                       bool up,
                       uint64_t now_ms);
/* Who answered a dial of a bootstrap address (other requests: nothing). */
void members_bootstrap_is(struct members *m,
                          uint64_t request,
                          const struct peer_id *id);

/* Why a peer without a link is lost, by the code of the last dial (0: none
 * failed). Static string. */
const char *members_dial_lost(int rc);

/* Whether a live host said that nobody listens there. Anything else, such as a
 * timeout, is also what a bad line looks like. */
bool members_dial_refused(int rc);

#define REQUEST_BOOTSTRAP (1ULL << 32) /* from here: bootstrap addresses */
#define REQUEST_RELAY     (2ULL << 32) /* from here: rows, through a relay */
#define REQUEST_NEARBY    (3ULL << 32) /* from here: addresses of the LAN */
#define REQUEST_PUNCH     (4ULL << 32) /* from here: rows, by a meeting */
/* Dial this row now; false: it is being dialled, or cannot be. */
bool members_dial_row(struct members *m, int peer, struct out *out);

/* Dial everybody whose time has come. */
void members_dial_due(struct members *m, uint64_t *due, struct out *out);

/* ---- members_reach.c -------------------------------------------------- */

/* A row is taken for somebody new. */
void members_way_init(struct member_way *way);

/* `from`, which is linked, told of `peer`: it is linked to it, perhaps. */
void members_way_told(struct members *m, int peer, int from);

/* Other ways to a peer that we want and do not have; *due comes down to when
 * to look again. */
void members_ways_due(struct members *m,
                      int peer,
                      uint64_t *due,
                      struct out *out);

/* Do without the relay where that has become possible. */
void members_upgrade_due(struct members *m,
                         int peer,
                         uint64_t now_ms,
                         struct out *out);

void members_nearby_due(struct members *m, uint64_t now_ms, struct out *out);

/* ---- members_data.c --------------------------------------------------- */

/* That peer asks for a data connection: it cannot dial us. */
void members_bulk_called(struct members *m,
                         int peer,
                         uint64_t now_ms,
                         struct out *out);

/* What a neighbour is to do for us and a peer. */
enum members_service {
    SERVICE_CALL,  /* pass something on */
    SERVICE_CARRY, /* bytes */
    SERVICE_MEET   /* introduce us */
};
/* Whether it may, as far as it says. */
bool members_serves(struct members *m,
                    int row,
                    int peer,
                    enum members_service service);
/* One of these, in turn; MEMBERS_NONE. */
int members_pick_via(struct members *m, int peer, enum members_service service);

void members_call(
    struct members *m, int peer, int via, bool bulk, struct out *out);

/* A dial of these numbers has ended; false: not one of ours. */
bool members_way_done(struct members *m,
                      uint64_t request,
                      bool up,
                      uint64_t now_ms);

/* ---- members_punch.c -------------------------------------------------- */

/* Try to do without the relay of a peer that cannot be dialled either. */
void members_punch_due(struct members *m,
                       int peer,
                       uint64_t now_ms,
                       struct out *out);
/* That has ended. */
void members_punch_done(struct members *m, int peer, bool up, uint64_t now_ms);

/* Whether it is time for one of these; then it is over. `least`: the first
 * back-off. */
bool members_tries_may(const struct members_tries *t, uint64_t now_ms);
void members_tries_over(struct members *m,
                        struct members_tries *t,
                        bool made,
                        uint32_t least_ms,
                        uint64_t now_ms);

/* Whether we come to a meeting with that peer, at that one. */
bool members_may_introduce(struct members *m, int by, int peer);

/* Whether it may have us dial there, at a meeting. */
bool members_may_name(const struct member *by, const struct address *a);

/* This link came about by a meeting: its hole is there, or was. */
void members_hole_seen(struct members *m, const struct members_link *l);

/* ---- members_meets.c -------------------------------------------------- */

/* One more address that this peer says, within all budgets: of those it names,
 * or (`proven`) where a link by a meeting is from. False: not dialled, and
 * nothing is used. */
bool members_meets_take(struct members *m,
                        int by,
                        bool proven,
                        const struct address *a);

/* ---- members_called.c ------------------------------------------------- */

/* One more in this window; false: too many. */
bool members_take(struct members_calls *c,
                  uint32_t most,
                  uint32_t window_ms,
                  uint64_t now_ms);

#endif
