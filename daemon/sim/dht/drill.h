/* drill.h - what the DHT's scenarios have in common.
 *
 * A *drill* is one run: settings, the swarm, and the tally of the lookups that
 * it made. Each scenario (sim/dht/scenarios.c) fills the swarm its own way and
 * says what it expects of the tally.
 */
#ifndef LOCO_DAEMON_SIM_DHT_DRILL_H
#define LOCO_DAEMON_SIM_DHT_DRILL_H

#include "daemon/sim/dht/swarm.h"

#define DRILL_KEYS_MAX 60000

/* A record that was put, and by whom; a GET of it is tagged with its index. */
struct drill_record {
    struct hash32 key;
    uint8_t publisher[SIGN_PUBLIC_BYTES];
    uint64_t value;
    uint32_t slot, life;
    uint32_t n_stored;
    bool put;
};

struct drill_tally {
    uint64_t n, found, hops, requests, answers, cut;
    uint32_t *ms; /* [n], of each lookup */
    size_t cap;
};

struct drill {
    struct swarm *s;
    const struct sim_options *opt;
    struct swarm_options world;

    /* Settings; which of them a scenario reads, it says. */
    uint32_t n, records, readers, lookups, join_gap_ms;
    double need; /* share of lookups that must succeed */
    double median_uptime_s, uptime_shape, offline_s, returns, minutes;
    double attack_share, mirrors;
    uint32_t attack_roots, attack_networks;

    uint64_t end_ms; /* for the progress */
    struct drill_record *record;
    uint32_t n_records;
    struct drill_tally get, control;
    uint64_t n_put, put_requests, put_stored, deaths;
};

/* Settings, swarm; LOCO_EINVAL with a sentence in r. */
int drill_open(struct drill *d,
               const struct sim_options *opt,
               struct sim_result *r);
void drill_close(struct drill *d);

/* Start every slot, one each join_gap_ms, and let `settle_ms` pass. */
bool drill_join(struct drill *d, uint64_t settle_ms);

/* swarm_run() with progress. */
bool drill_run(struct drill *d, uint64_t until_ms);

/* Remember record i as that of `slot` under `key`. */
void drill_expect(struct drill *d,
                  uint32_t i,
                  uint32_t slot,
                  const struct hash32 *key);

/* Look up record i at `slot`; `control`: counted apart. False: it is busy. */
bool drill_get(struct drill *d, uint32_t slot, uint32_t i, bool control);

/* All nodes once more, figures, verdict: what sim_run() returns. */
int drill_end(struct drill *d, struct sim_result *r);

#endif
