/* shown.h - what the HTTP thread may show of a node.
 *
 * The loop thread copies (shown_update) what a person may ask for: the timeline
 * of rounds, the peers, the map of link speeds, the history. The HTTP thread
 * makes JSON of the copy when somebody asks. One lock; the loop never waits for
 * it: while a reader holds it the copy is a period older.
 *
 * The documents (daemon/README.md has their fields):
 *   rounds   rounds_json.h
 *   peers    {"peers": [...], "links": [[from, to, bytes_per_s, confidence]]}
 *            where from and to count rows of peers
 *   history  {"interval_ms", "samples": {"field": [...]}, "events": [...]}
 *   stream   server-sent events since a cursor: peers, sample, event
 *
 * How it fails: NULL where memory is out.
 */
#ifndef LOCO_DAEMON_CONTROL_SHOWN_H
#define LOCO_DAEMON_CONTROL_SHOWN_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "daemon/control/history.h"
#include "daemon/node/node.h"

/* Attempts at rounds that can be asked for: about 4.5 KB each. */
#define SHOWN_ROUNDS 256
#define SHOWN_EDGES  512
/* The peers are copied this often: the table has a thousand rows. */
#define SHOWN_PEERS_MS 500

struct shown_edge {
    uint16_t from, to; /* rows of the peers */
    uint64_t bytes_per_s;
    uint32_t confidence;
};

struct shown {
    pthread_mutex_t lock; /* of all below */
    struct timeline rounds;
    void *rounds_memory;
    struct history history;
    uint64_t peers_ms; /* when they were copied; 0: never */
    uint32_t n_peers;
    struct node_peer peer[NODE_SWARM_MAX];
    uint32_t n_edges;
    struct shown_edge edge[SHOWN_EDGES];
};

/* What one reader of the stream has got. All zero: nothing. */
struct shown_cursor {
    uint64_t event, sample, peers_ms;
};

/* LOCO_ENOMEM. */
int shown_open(struct shown **shown);
void shown_close(struct shown *shown);

/* Loop thread. `look` has the status, the reason and the bytes; the rest is
 * filled in here. True: there is news that a reader should not wait for. */
bool shown_update(struct shown *shown,
                  const struct node *node,
                  const struct history_look *look);

/* HTTP thread; caller frees with free(). `last` 0: all; `round` 0: all. */
char *shown_rounds(struct shown *s, uint64_t round, uint64_t last);
char *shown_peers(struct shown *s);
char *shown_history(struct shown *s);

/* What is not in the status, as Prometheus text. */
char *shown_metrics(struct shown *s);

/* Moves the cursor; "" when nothing is new. */
char *shown_stream(struct shown *s, struct shown_cursor *cursor);

#endif
