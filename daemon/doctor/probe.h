/* probe.h - the facts of doctor.h, found on this machine.
 *
 * Every probe runs on a thread of its own, all at once, and has limit_ms (a
 * visit at a host hosts_ms). One
 * that is not done by then leaves FACT_LATE and its thread behind: only a
 * command that ends soon may call this. What probes do, and no more: read
 * /proc and /sys, open libcuda, write and remove one file in the state
 * directory, bind the listening port and let it go, ask the local daemon for
 * its status, hash shards, visit the bootstraps (contact.h), and ask one HTTP
 * server for its Date where a URL was given.
 */
#ifndef LOCO_DAEMON_DOCTOR_PROBE_H
#define LOCO_DAEMON_DOCTOR_PROBE_H

#include "daemon/doctor/doctor.h"
#include "daemon/jobs/run_needs.h"

struct doctor_options {
    const char *state;     /* directory */
    const char *control;   /* address; NULL: what `state` holds */
    const char *listen;    /* HOST:PORT of a daemon that does not run */
    const char *run;       /* run.yaml; NULL: what `state` holds */
    const struct uri *uri; /* NULL: none */
    const char *clock_url; /* NULL: none */
    bool wants_cuda;
    struct run_host host; /* the settings that a run's needs follow from */
    bool bandwidth;       /* fetch some pieces from a bootstrap */
    bool question; /* of loco join, which has the needs: no shard is hashed, a
                      host is asked for the manifest alone */
    uint64_t gpu_cap_bytes; /* of the settings; 0: none */
    uint32_t limit_ms;
    uint32_t hosts_ms; /* of the hosts of the URI; 0: limit_ms */
};

/* False when a probe was late: its thread lives on and reads the options, which
 * must then stay for the life of the process. */
bool doctor_find(const struct doctor_options *opt, struct doctor_facts *facts);

/* How much the run needs, in the facts of memory, disk and GPU, from its
 * manifest, here or at a host: what another run's says does not count. */
void doctor_take_needs(const struct run_host *host, struct doctor_facts *f);

/* The probes; each fills in what `fact` points to and runs on a thread. */
void probe_driver(const struct doctor_options *opt, void *fact);
void probe_memory(const struct doctor_options *opt, void *fact);
void probe_disk(const struct doctor_options *opt, void *fact);
void probe_clock(const struct doctor_options *opt, void *fact);
void probe_ip(const struct doctor_options *opt, void *fact);
void probe_manifest(const struct doctor_options *opt, void *fact);

#endif
