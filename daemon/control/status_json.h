/* status_json.h - what one peer says about itself, as one JSON object.
 *
 * A row of node/status.def per field; the limits that are settings come from
 * settings/options.def. The field names are a contract (API.md, "The status
 * object"): `loco status
 * --json`, the HTTP path /api/v1/status and every script see exactly this
 * object. Numbers that are not known yet (loss before the first step, bits per
 * byte before the first evaluation, eta) are null.
 *
 * *progress* goes from 0 to 1: of the run towards its stop, while `syncing` of
 * the state that is fetched. *eta* extrapolates the speed since this process
 * first saw the run move.
 *
 * Pure apart from allocation (status_metrics also reads what this process
 * uses). How it fails: NULL when memory is out.
 */
#ifndef LOCO_DAEMON_CONTROL_STATUS_JSON_H
#define LOCO_DAEMON_CONTROL_STATUS_JSON_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/node/node.h"
#include "daemon/settings/config.h"
#include "p2p/uv/loop.h"
#include "proto/limits.h"

/* One directed edge of the bandwidth map. */
struct status_edge {
    struct peer_id from, to;
    struct bandwidth_rate rate;
};

#define STATUS_EDGES_MAX 64

/* The line for people who might join. */
struct status_share {
    char uri[URI_TEXT_MAX]; /* "": there is none */
    const char *scope;      /* who can use it: internet, network; or NULL */
    const char *reason;     /* why there is none, or not for all; "": none */
};

/* What the daemon knows beside its node. Strings are borrowed for the call. */
struct status_extra {
    const char *version;
    uint32_t pid;
    struct peer_id peer_id;
    struct hash32 run_id; /* zero: no run yet */
    const char *run_name; /* NULL: not known yet */
    const char *listen;   /* "HOST:PORT" that is bound; NULL: none */
    struct shell_stats net;
    uint32_t n_edges; /* of this peer, both directions */
    struct status_edge edges[STATUS_EDGES_MAX];
    uint64_t stop_tokens; /* of the run; 0: no limit */
    double eta_s;         /* from status_eta; negative: unknown */
    const struct config *settings;
    uint64_t quota_bytes;  /* of a month; 0: none */
    uint64_t month_bytes;  /* sent and received in it */
    uint64_t disk_bytes;   /* that the state directory takes */
    uint64_t memory_bytes; /* that the run needs */
    bool in_use;           /* by a person, as far as idle_minutes minds */
    bool on_battery;
    const struct status_share *share; /* NULL: not looked for yet */
};

/* The edges of `self` in a map, as of `now_ms`. */
void status_edges(struct status_extra *x,
                  const struct bandwidth *map,
                  const struct peer_id *self,
                  uint64_t now_ms);

/* Where the estimate of the time left begins. All zero at first. */
struct status_eta {
    bool started;
    double progress; /* when first seen */
    uint64_t at_ms;
};

/* 0..1, or negative when the run has no stop. */
double status_progress(const struct node_status *s, uint64_t stop_tokens);

/* Seconds left at `now_ms`, negative while unknown. Call it at every publish;
 * a progress that went back (syncing ended) starts the estimate anew. */
double
status_eta_update(struct status_eta *eta, double progress, uint64_t now_ms);

/* Returned: caller frees with free(). One line, no newline at the end. */
char *status_json(const struct node_status *s, const struct status_extra *x);

/* The same status as Prometheus text, from the object's bytes; NULL for bytes
 * that are not a status. Returned: caller frees with free(). */
char *status_metrics(const char *json);

#endif
