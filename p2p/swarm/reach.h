/* reach.h - whether others can dial us: found out by asking them to.
 *
 * A *round of tests* asks up to three linked peers, of different prefixes where
 * there are such, to dial us at the address that they see and the port that we
 * told, on a new connection (PROBE, PROBED). At least half of the answers must
 * be yes. A peer with a global address is asked before one on the same LAN: a
 * neighbour that gets in proves nothing about the rest of the world.
 *
 * Hysteresis: the first round decides; after that two rounds in a row must say
 * otherwise. A round comes every retest_ms; sooner after a doubtful one, or
 * when there were too few peers to ask. It comes at once, and then one round is
 * enough, when our outer address or the router's mapping changes, or when
 * somebody dials us who could not before.
 *
 * Classes are those of proto/messages.h. *mapped* is public through a port of
 * the router; *relayed* is restricted with links through a relay now.
 *
 * Pure: time and answers come in, whom to ask goes out. Cannot fail; an answer
 * that nobody asked for is ignored. Anyone who is asked can lie: it decides
 * what we tell others of us, nothing more.
 */
#ifndef LOCO_P2P_SWARM_REACH_H
#define LOCO_P2P_SWARM_REACH_H

#include "p2p/core.h"
#include "proto/messages.h"

#define REACH_TESTS_MAX 3

struct reach_options {
    bool listens;       /* else nobody ever dials us */
    uint64_t seed;      /* of request numbers */
    uint32_t answer_ms; /* an answer comes within this, or never */
    uint32_t settle_ms; /* between rounds while in doubt */
    uint32_t retest_ms; /* between rounds that agree */
};

/* Somebody who could be asked. */
struct reach_candidate {
    struct peer_id peer;
    struct address address;
};

struct reach_test {
    struct peer_id peer;
    uint64_t request;
    bool answered, reached;
};

struct reach {
    struct reach_options opt;
    uint64_t rng;
    bool known, dialable; /* the verdict, once there is one */
    unsigned n_few;       /* rounds in a row with one tester */
    unsigned against;     /* rounds in a row that said otherwise */
    bool mapped;
    struct address mapped_at; /* what the router said */
    struct address seen;      /* where others see us; port told */
    uint32_t n_relayed;       /* links through a relay now */
    uint32_t n_apart;  /* peers that we want and that need a relay, too */
    uint32_t n_relays; /* who would carry them */
    unsigned n_asked, n_yes, n_no; /* of the last round */
    bool testing;
    unsigned n_tests;
    uint64_t round_ms, next_ms; /* when a round began; when the next is due */
    struct reach_test tests[REACH_TESTS_MAX];
};

void reach_init(struct reach *r,
                const struct reach_options *opt,
                uint64_t now_ms);

/* Whether a round is due. */
bool reach_due(const struct reach *r, uint64_t now_ms);

/* Begin one: picks among n candidates, returns how many were picked; their
 * positions are in `who`, the numbers to ask under in `request`. 0: nobody to
 * ask, tried again later. */
unsigned reach_begin(struct reach *r,
                     const struct reach_candidate *candidates,
                     uint32_t n,
                     uint64_t now_ms,
                     uint32_t who[REACH_TESTS_MAX],
                     uint64_t request[REACH_TESTS_MAX]);

void reach_answer(struct reach *r,
                  const struct peer_id *peer,
                  uint64_t request,
                  bool reached,
                  uint64_t now_ms);

/* Where others see us (port: as told). Another address asks for a round. */
void reach_seen(struct reach *r, const struct address *at, uint64_t now_ms);

/* Somebody dialled us, directly. */
void reach_dialled(struct reach *r, uint64_t now_ms);

/* The router maps a port to us, at `at` from outside; or does not (NULL). */
void reach_mapped(struct reach *r, const struct address *at, uint64_t now_ms);

/* How many links go through a relay now. */
void reach_relayed(struct reach *r, uint32_t n_links);

/* How many peers that we want need a relay, too; how many would relay. */
void reach_apart(struct reach *r, uint32_t n_peers, uint32_t n_relays);

/* End rounds that are over. */
void reach_tick(struct reach *r, uint64_t now_ms);

enum reach_class reach_class(const struct reach *r);

/* Whether a peer of that class is dialled by others. */
bool reach_is_dialable(enum reach_class c);

/* "public", "mapped", "restricted", "relayed", "unknown" */
const char *reach_name(enum reach_class c);

/* A sentence for a person: why, and what to do about it. */
void reach_reason(const struct reach *r, char out[CORE_TEXT_MAX]);

/* Reachable from anywhere, as far as the number says. */
bool reach_is_global(const struct address *a);

#endif
