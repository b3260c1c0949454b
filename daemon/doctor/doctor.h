/* doctor.h - what is wrong with this machine for a run, and what to do.
 *
 * "My node cannot join and nothing tells me why" is what people complain about
 * most. Two halves: doctor/probe.h finds *facts* (sockets, files, devices),
 * doctor_judge turns them into *lines*, one per check, each with a level, what
 * was found and, where something is not right, the fix as a sentence.
 *
 * Levels: `ok`; `warning`, it works but worse than it could; `problem`, this
 * machine cannot take part until it is repaired. A check that was not asked
 * for (no URI, no run.yaml) is *unchecked*: that is no statement about it.
 *
 * The judge is pure: same facts, same lines. Facts that could not be found in
 * time are FACT_LATE, which is a warning of its own.
 */
#ifndef LOCO_DAEMON_DOCTOR_DOCTOR_H
#define LOCO_DAEMON_DOCTOR_DOCTOR_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/jobs/run_needs.h"
#include "daemon/visit/contact.h"

#define DOCTOR_TEXT_MAX  400
#define DOCTOR_NAME_MAX  96
#define DOCTOR_PATH_MAX  256
#define DOCTOR_HOSTS_MAX URI_HOSTS_MAX

enum doctor_level {
    DOCTOR_OK,
    DOCTOR_WARNING,
    DOCTOR_PROBLEM,
    DOCTOR_UNCHECKED
};

/* In the order of the lines. */
/* clang-format off */
#define DOCTOR_CHECK_MAP(X)                                                    \
    X(settings) X(daemon) X(driver) X(memory) X(disk) X(clock) X(dns) X(ipv6)  \
    X(nat) X(port) X(bandwidth) X(manifest) X(bootstrap) X(strangers)
/* clang-format on */

enum doctor_check {
#define X(name) DOCTOR_CHECK_##name,
    DOCTOR_CHECK_MAP(X)
#undef X
        DOCTOR_CHECK_COUNT
};

struct doctor_line {
    enum doctor_level level;
    char what[DOCTOR_TEXT_MAX];
    char fix[DOCTOR_TEXT_MAX]; /* UNCHECKED: how to have it checked; ok: "" */
};

/* ---- facts ------------------------------------------------------------ */

enum fact_state {
    FACT_NONE, /* not asked for */
    FACT_FOUND,
    FACT_LATE /* no answer by the deadline */
};

struct fact_settings {
    enum fact_state state;
    int rc;
    char errmsg[256];
};

struct fact_driver {
    enum fact_state state;
    uint32_t n_nvidia, n_amd;   /* display controllers on the PCI bus */
    bool module;                /* the nvidia kernel module is loaded */
    bool library;               /* libcuda.so.1 can be opened */
    int cuda_rc;                /* of cuInit; 0 where it was not called */
    uint32_t n_devices;         /* that CUDA shows */
    char name[DOCTOR_NAME_MAX]; /* of the first */
    uint64_t bytes;             /* of its memory */
    int cuda_version;           /* that the driver offers: 1000 * major + ... */
    bool wanted;                /* the settings say `device: cuda` */
    bool built;                 /* this build can use it */
    struct run_gpu need;        /* of its memory, by the run; 0: not known */
    uint64_t cap_bytes;         /* of the settings; 0: none */
};

struct fact_memory {
    enum fact_state state;
    uint64_t total_bytes, available_bytes;
    uint64_t limit_bytes; /* what a cgroup still gives; 0: no limit */
    uint64_t need_bytes;  /* of the run; 0: not known */
    uint64_t least_bytes; /* the same: with less it is refused; 0: the same */
};

struct fact_disk {
    enum fact_state state;
    char path[DOCTOR_PATH_MAX]; /* the state directory */
    bool exists;                /* else its nearest parent was looked at */
    int rc;                     /* errno of writing a file there; 0 */
    uint64_t free_bytes, free_files, used_bytes; /* used: by this state */
    bool read_only;
    uint64_t need_bytes; /* of the run; 0: not known */
};

struct fact_clock {
    enum fact_state state;
    int64_t now_s;
    bool ntp_known, ntp_synced;
    uint32_t ntp_error_ms; /* the kernel's bound */
    bool has_source;       /* an HTTP server was asked ... */
    int source_rc;         /* ... and failed with this CURLcode */
    char source[DOCTOR_PATH_MAX], source_error[128];
    int64_t skew_s;     /* this clock minus the server's */
    int64_t stepped_ms; /* wall minus monotonic time while doctor ran */
};

struct fact_ip {
    enum fact_state state;
    bool v4_route, v6_route, v6_address; /* v6: a global one */
    struct address v4, v6; /* that packets to the world would carry */
};

struct fact_daemon {
    enum fact_state state; /* FOUND: it answers */
    bool stale;            /* a control file is there, nobody answers */
    char where[DOCTOR_PATH_MAX];
    char run_state[24], reason[200];
    char reachability[32], reachability_reason[200];
    char peer_id[ID_HEX_MAX], run_id[ID_HEX_MAX];
    char listen[DOCTOR_PATH_MAX]; /* "HOST:PORT"; empty: it does not say */
    uint32_t peers_alive;
    uint64_t best_in_bytes_per_s, best_out_bytes_per_s; /* 0: not known */
    /* Peers that are no members: links, and of them who used up its budget;
     * what was refused to all, and the network that it was refused to most. */
    uint32_t strangers, overdrawn;
    uint64_t n_refused, n_network_refused;
    char network[DOCTOR_NAME_MAX], why[24];
};

struct fact_port {
    enum fact_state state;
    char listen[DOCTOR_PATH_MAX];
    uint16_t port;
    int rc;    /* errno of binding it; 0: it is free */
    bool ours; /* the running daemon's, asked by a handshake */
};

struct fact_manifest {
    enum fact_state state;
    char source[DOCTOR_PATH_MAX];
    int rc;
    char errmsg[256];
    char name[64];
    uint32_t n_shards, n_here, n_hashed;
    char bad[64];      /* the first shard with another hash or length */
    char missing[64];  /* the first one that is not there */
    bool must_be_here; /* --run: who starts a run must hold its data */
    uint64_t floor_bytes_per_s; /* of the run; 0: not known */
    uint64_t memory_bytes, memory_least_bytes, disk_bytes;
    struct run_gpu gpu;
};

struct fact_host {
    enum fact_state state;
    struct uri_host host;
    bool is_name;
    bool pinned;
    uint32_t limit_ms;
    bool wants_transfer;
    struct contact contact;
};

struct doctor_facts {
    struct fact_settings settings;
    struct fact_driver driver;
    struct fact_memory memory;
    struct fact_disk disk;
    struct fact_clock clock;
    struct fact_ip ip;
    struct fact_daemon daemon;
    struct fact_port port;
    struct fact_manifest manifest;
    struct hash32 run_id; /* of the URI; zero: none */
    uint32_t n_hosts;     /* of the URI; 0: none was given */
    struct fact_host host[DOCTOR_HOSTS_MAX];
    uint32_t limit_ms; /* that a probe had */
};

/* Bytes of moments that this machine's GPU, being small, leaves to the memory
 * of the process, beside what `memory` says that the run needs. */
uint64_t doctor_gpu_leaves(const struct doctor_facts *facts);

/* One line per check. */
void doctor_judge(const struct doctor_facts *facts,
                  struct doctor_line line[DOCTOR_CHECK_COUNT]);

const char *doctor_check_name(enum doctor_check check);
const char *doctor_level_name(enum doctor_level level);

#endif
