/* doctor.c - see doctor.h: what the facts about this machine mean. The checks
 * of the network are in doctor/net.c.
 */
#include "daemon/doctor/doctor.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "daemon/doctor/internal.h"
#include "proto/base/err.h"
#include "proto/base/nearest.h"

/* A run that states nothing needs about this much to start at all. */
#define MEMORY_LEAST_BYTES ((uint64_t)256 << 20)
#define DISK_LEAST_BYTES   ((uint64_t)256 << 20)
#define FILES_LEAST        1000

/* Records live two hours and are refused when they are over, so a clock that is
 * wrong by more makes this peer invisible (PROTOCOL.md 10 and 19). */
#define RECORD_LIFE_S   7200
#define RECORD_RENEW_S  900
#define SKEW_WARNING_S  30
#define SKEW_PROBLEM_S  3600
#define STEP_WARNING_MS 500
#define BUILT_AFTER_S   1700000000 /* November 2023: before it no clock is */

const char *doctor_check_name(enum doctor_check check)
{
    static const char *const names[DOCTOR_CHECK_COUNT] = {
#define X(name) [DOCTOR_CHECK_##name] = #name,
        DOCTOR_CHECK_MAP(X)
#undef X
    };

    return check < DOCTOR_CHECK_COUNT ? names[check] : "?";
}

const char *doctor_level_name(enum doctor_level level)
{
    static const char *const names[] = {
        [DOCTOR_OK] = "ok",
        [DOCTOR_WARNING] = "warning",
        [DOCTOR_PROBLEM] = "problem",
        [DOCTOR_UNCHECKED] = "unchecked",
    };

    return names[level];
}

void doctor_say(struct doctor_line *l,
                enum doctor_level level,
                const char *fmt,
                ...)
{
    va_list args;

    l->level = level;
    va_start(args, fmt);
    (void)vsnprintf(l->what, sizeof l->what, fmt, args);
    va_end(args);
}

void doctor_fix(struct doctor_line *l, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    (void)vsnprintf(l->fix, sizeof l->fix, fmt, args);
    va_end(args);
}

const char *doctor_bytes(uint64_t bytes, char out[DOCTOR_BYTES_MAX])
{
    static const char *const units[] = {"B", "kB", "MB", "GB", "TB"};
    double value = (double)bytes;
    unsigned u = 0;

    while (value >= 1000 && u + 1 < sizeof units / sizeof units[0]) {
        value /= 1000;
        u++;
    }
    (void)snprintf(out, DOCTOR_BYTES_MAX, u == 0 ? "%.0f %s" : "%.1f %s", value,
                   units[u]);
    return out;
}

bool doctor_late(const struct doctor_facts *f,
                 enum fact_state state,
                 struct doctor_line *l)
{
    if (state != FACT_LATE) {
        return false;
    }
    doctor_say(l, DOCTOR_WARNING, "no answer within %.1f s",
               (double)f->limit_ms / 1000.0);
    doctor_fix(l, "Something on this machine hangs: try again, or give it "
                  "longer with --limit SECONDS.");
    return true;
}

/* ---- settings --------------------------------------------------------- */

static void judge_settings(const struct doctor_facts *f, struct doctor_line *l)
{
    if (f->settings.rc != 0) {
        doctor_say(l, DOCTOR_PROBLEM, "%s", f->settings.errmsg);
        doctor_fix(l, "Correct that setting; loco config sources shows where "
                      "each one comes from.");
        return;
    }
    doctor_say(l, DOCTOR_OK, "locod.yaml, environment and flags are valid");
}

/* ---- the daemon ------------------------------------------------------- */

/* Whether that state is one in which nothing is waited for. */
static bool at_work(const char *state)
{
    static const char *const names[] = {"training", "averaging", "finished",
                                        "syncing",  "draining",  "paused"};

    return word_place(state, names, sizeof names / sizeof names[0]) >= 0;
}

static void judge_daemon(const struct doctor_facts *f, struct doctor_line *l)
{
    const struct fact_daemon *d = &f->daemon;

    if (doctor_late(f, d->state, l)) {
        doctor_fix(l, "The daemon hangs: stop it with SIGTERM twice and start "
                      "it again; its log says what it did last.");
    } else if (d->state == FACT_FOUND) {
        doctor_say(l, at_work(d->run_state) ? DOCTOR_OK : DOCTOR_WARNING,
                   "%s, %u peers alive%s%s", d->run_state, d->peers_alive,
                   d->reason[0] == '\0' ? "" : ": ", d->reason);
        if (l->level != DOCTOR_OK) {
            doctor_fix(l, "The daemon waits: the lines port, nat and bootstrap "
                          "show what may hold it up (give --join URI).");
        }
    } else if (d->stale) {
        doctor_say(l, DOCTOR_WARNING,
                   "nothing answers at %s, the address of the last daemon",
                   d->where);
        doctor_fix(l, "The daemon was killed: start locod again on this state "
                      "directory; it continues from its last checkpoint.");
    } else {
        doctor_say(l, DOCTOR_UNCHECKED, "no daemon runs here");
        doctor_fix(l, "Start one with locod, or name it with --state DIR or "
                      "--control ADDRESS.");
    }
}

/* Strangers cost little whatever they say, so this is never a problem. */
static void judge_strangers(const struct doctor_facts *f, struct doctor_line *l)
{
    const struct fact_daemon *d = &f->daemon;

    if (d->state != FACT_FOUND) {
        doctor_say(l, DOCTOR_UNCHECKED, "no daemon answers here");
        doctor_fix(l, "Start one with locod, or name it with --state DIR or "
                      "--control ADDRESS.");
    } else if (d->n_refused == 0) {
        doctor_say(l, DOCTOR_OK, "%u links, nothing was refused", d->strangers);
    } else {
        doctor_say(l, d->overdrawn > 0 ? DOCTOR_WARNING : DOCTOR_OK,
                   "%u links, %u over their budget; refused %llu times, most "
                   "to %s (%llu, %s)",
                   d->strangers, d->overdrawn, (unsigned long long)d->n_refused,
                   d->network, (unsigned long long)d->n_network_refused,
                   d->why);
        doctor_fix(l, l->level == DOCTOR_OK
                          ? ""
                          : "Rounds go on. If it lasts, block that network in "
                            "the firewall.");
    }
}

/* ---- driver ----------------------------------------------------------- */

static void driver_missing(const struct fact_driver *d, struct doctor_line *l)
{
    if (!d->module) {
        doctor_say(l, DOCTOR_WARNING,
                   "%u NVIDIA GPU%s here, but the kernel module is not loaded",
                   d->n_nvidia, d->n_nvidia == 1 ? " is" : "s are");
        doctor_fix(l, "Install the driver (Debian: apt-get install "
                      "nvidia-driver, section non-free) and restart.");
    } else if (!d->library) {
        doctor_say(l, DOCTOR_WARNING,
                   "the NVIDIA kernel module is loaded, but libcuda.so.1 "
                   "cannot be opened");
        doctor_fix(l,
                   "Install the driver's library (Debian: apt-get install "
                   "libcuda1) in the same version as the module; in a "
                   "container, pass the GPU through (docker run --gpus all).");
    } else if (d->cuda_rc != 0) {
        doctor_say(l, DOCTOR_WARNING,
                   "the NVIDIA driver is here, but cuInit fails with code %d",
                   d->cuda_rc);
        doctor_fix(l, "After an upgrade the module and the library often "
                      "differ in version: restart; nvidia-smi says more.");
    } else {
        doctor_say(l, DOCTOR_WARNING, "the NVIDIA driver shows no GPU");
        doctor_fix(l, "Check CUDA_VISIBLE_DEVICES; in a container, check that "
                      "the GPU is passed through.");
    }
}

/* Of the GPU's memory, what a run may take. */
static uint64_t usable(const struct fact_driver *d)
{
    uint64_t bytes =
        d->bytes > PLUGIN_SPARE_BYTES ? d->bytes - PLUGIN_SPARE_BYTES : 0;

    return d->cap_bytes != 0 && d->cap_bytes < bytes ? d->cap_bytes : bytes;
}

uint64_t doctor_gpu_leaves(const struct doctor_facts *facts)
{
    const struct fact_driver *d = &facts->driver;

    return d->wanted && d->built && d->n_devices > 0 &&
                   usable(d) < d->need.stay_bytes
               ? d->need.moments_bytes
               : 0;
}

/* A warning: what was measured is the first GPU that CUDA shows, and what the
 * run takes at most is more than it needs. */
static void judge_gpu_memory(const struct fact_driver *d, struct doctor_line *l)
{
    const uint64_t have = usable(d);
    const bool capped = d->cap_bytes != 0 && have == d->cap_bytes;
    char bytes[DOCTOR_BYTES_MAX];

    if (!d->wanted || !d->built || d->n_devices == 0 || d->need.bytes <= have) {
        return;
    }
    l->level = DOCTOR_WARNING;
    if (d->need.least_bytes <= have) {
        doctor_fix(l,
                   "It needs at least %s, which %s. It may take smaller "
                   "micro-batches, recompute activations and keep the "
                   "optimizer's moments in this machine's memory; then steps "
                   "take longer.",
                   doctor_bytes(d->need.least_bytes, bytes),
                   capped ? "the setting gpu_memory_bytes allows"
                          : "the GPU has");
    } else if (capped) {
        doctor_fix(l, "The setting gpu_memory_bytes allows %s: raise it.",
                   doctor_bytes(have, bytes));
    } else {
        doctor_fix(l,
                   "A run may use %s of the GPU's memory, which may not "
                   "suffice: use another one, or --device cpu.",
                   doctor_bytes(have, bytes));
    }
}

static void judge_driver(const struct doctor_facts *f, struct doctor_line *l)
{
    const struct fact_driver *d = &f->driver;
    char bytes[DOCTOR_BYTES_MAX], need[DOCTOR_BYTES_MAX];

    if (doctor_late(f, d->state, l)) {
        return;
    }
    if (d->n_devices > 0) {
        (void)doctor_bytes(d->need.bytes, need);
        doctor_say(l, DOCTOR_OK, "%u GPU%s, first %s with %s, CUDA %d.%d%s%s",
                   d->n_devices, d->n_devices == 1 ? "" : "s", d->name,
                   doctor_bytes(d->bytes, bytes), d->cuda_version / 1000,
                   d->cuda_version % 1000 / 10,
                   !d->built            ? "; this build trains on the CPU"
                   : d->need.bytes != 0 ? "; the run takes at most "
                                        : "",
                   d->built && d->need.bytes != 0 ? need : "");
    } else if (d->n_nvidia == 0 && !d->module) {
        doctor_say(l, DOCTOR_OK, "no NVIDIA GPU%s: training runs on the CPU",
                   d->n_amd > 0 ? " (AMD ones are not used)" : "");
    } else {
        driver_missing(d, l);
    }
    judge_gpu_memory(d, l);
    if (d->wanted && (!d->built || d->n_devices == 0)) {
        l->level = DOCTOR_PROBLEM;
        if (!d->built) {
            doctor_fix(l, "The settings say device: cuda, which this build "
                          "does not have: use --device cpu.");
        } else if (l->fix[0] == '\0') {
            doctor_fix(l, "The settings say device: cuda: use --device cpu.");
        }
    }
}

/* ---- memory and disk -------------------------------------------------- */

static void judge_memory(const struct doctor_facts *f, struct doctor_line *l)
{
    const struct fact_memory *m = &f->memory;
    bool limited = m->limit_bytes != 0 && m->limit_bytes < m->available_bytes;
    uint64_t have = limited ? m->limit_bytes : m->available_bytes;
    uint64_t moments = doctor_gpu_leaves(f);
    uint64_t least = m->least_bytes; /* a GPU may keep moments itself */
    uint64_t need =
        m->need_bytes != 0 ? m->need_bytes + moments : MEMORY_LEAST_BYTES;
    bool running = f->daemon.state == FACT_FOUND;
    char a[DOCTOR_BYTES_MAX], b[DOCTOR_BYTES_MAX], c[DOCTOR_BYTES_MAX];

    if (doctor_late(f, m->state, l)) {
        return;
    }
    doctor_say(l, DOCTOR_OK, "%s of %s available%s; %s %s",
               doctor_bytes(have, a), doctor_bytes(m->total_bytes, b),
               limited ? " (limit of this cgroup)" : "",
               m->need_bytes != 0 ? "the run needs" : "a run needs at least",
               doctor_bytes(need, c));
    if (have >= need || running) {
        return; /* a running daemon has taken its share already */
    }
    if (least != 0 && have >= least) {
        l->level = DOCTOR_WARNING;
        doctor_fix(l,
                   "It suffices for %s: the run recomputes activations, and "
                   "steps are up to a third longer.%s",
                   doctor_bytes(least, c),
                   f->driver.need.bytes != 0
                       ? " A GPU that is lost may end this machine's part."
                       : "");
        return;
    }
    l->level = m->need_bytes != 0 ? DOCTOR_PROBLEM : DOCTOR_WARNING;
    doctor_fix(l,
               limited ? "Raise the memory limit of this container or "
                         "service to at least %s."
                       : "Close other programs, or use a machine with %s free.",
               doctor_bytes(least != 0 ? least : need, c));
}

static void disk_refuses(const struct fact_disk *d, struct doctor_line *l)
{
    if (d->rc == EROFS || d->read_only) {
        doctor_say(l, DOCTOR_PROBLEM, "%s is on a read-only file system",
                   d->path);
        doctor_fix(l, "Choose another state directory with --state DIR, or "
                      "mount that file system for writing.");
    } else if (d->rc == EACCES || d->rc == EPERM) {
        doctor_say(l, DOCTOR_PROBLEM, "this user cannot write in %s", d->path);
        doctor_fix(l,
                   "Run chown -R \"$USER\" '%s', or choose another state "
                   "directory with --state DIR.",
                   d->path);
    } else if (d->rc == ENOSPC || d->rc == EDQUOT) {
        doctor_say(l, DOCTOR_PROBLEM, "the disk of %s is full", d->path);
        doctor_fix(l, "Free some space there, or choose a state directory on "
                      "another disk with --state DIR.");
    } else {
        doctor_say(l, DOCTOR_PROBLEM, "cannot write in %s: %s", d->path,
                   strerror(d->rc));
        doctor_fix(l, "Choose another state directory with --state DIR.");
    }
}

static void judge_disk(const struct doctor_facts *f, struct doctor_line *l)
{
    const struct fact_disk *d = &f->disk;
    uint64_t need = d->need_bytes != 0 ? d->need_bytes : DISK_LEAST_BYTES;
    char a[DOCTOR_BYTES_MAX], b[DOCTOR_BYTES_MAX];

    if (doctor_late(f, d->state, l)) {
        return;
    }
    if (d->rc != 0 || d->read_only) {
        disk_refuses(d, l);
        return;
    }
    need = need > d->used_bytes ? need - d->used_bytes : 0;
    doctor_say(
        l, DOCTOR_OK, "%s free at %s%s; %s %s", doctor_bytes(d->free_bytes, a),
        d->path, d->exists ? "" : " (not made yet)",
        d->need_bytes != 0 ? "the run still needs" : "a run needs at least",
        doctor_bytes(need, b));
    if (d->free_bytes < need) {
        l->level = d->need_bytes != 0 ? DOCTOR_PROBLEM : DOCTOR_WARNING;
        doctor_fix(l,
                   "Free %s there, or choose a state directory on another "
                   "disk with --state DIR.",
                   doctor_bytes(need - d->free_bytes, a));
    } else if (d->free_files < FILES_LEAST) {
        l->level = DOCTOR_WARNING;
        doctor_fix(l,
                   "Only %" PRIu64 " more files fit on that file system "
                   "(inodes): remove some.",
                   d->free_files);
    }
}

/* ---- clock ------------------------------------------------------------ */

static void clock_fix(struct doctor_line *l)
{
    doctor_fix(l, "Let the system keep the time: timedatectl set-ntp true "
                  "(Debian: apt-get install systemd-timesyncd).");
}

static void clock_off(int64_t skew_s, const char *by, struct doctor_line *l)
{
    int64_t off = skew_s < 0 ? -skew_s : skew_s;

    doctor_say(l, off > SKEW_PROBLEM_S ? DOCTOR_PROBLEM : DOCTOR_WARNING,
               "this clock is %" PRId64 " s %s %s", off,
               skew_s < 0 ? "behind" : "ahead of", by);
    clock_fix(l);
}

/* The newest record of the run at a bootstrap was signed at most
 * RECORD_RENEW_S ago by its publisher's clock. How far ours is outside of
 * that; 0: inside, or no record. */
static int64_t record_skew_s(const struct doctor_facts *f)
{
    int64_t signed_s = 0;

    for (uint32_t i = 0; i < f->n_hosts; i++) {
        const struct contact *c = &f->host[i].contact;
        int64_t at = (int64_t)c->newest_expiry_s - RECORD_LIFE_S;

        if (f->host[i].state == FACT_FOUND && c->newest_expiry_s != 0 &&
            at > signed_s) {
            signed_s = at;
        }
    }
    if (signed_s == 0) {
        return 0;
    }
    if (f->clock.now_s < signed_s - SKEW_WARNING_S) {
        return f->clock.now_s - signed_s;
    }
    if (f->clock.now_s > signed_s + 2 * RECORD_RENEW_S) {
        return f->clock.now_s - signed_s - RECORD_RENEW_S;
    }
    return 0;
}

static void judge_clock(const struct doctor_facts *f, struct doctor_line *l)
{
    const struct fact_clock *c = &f->clock;
    int64_t by_records_s = record_skew_s(f);

    if (doctor_late(f, c->state, l)) {
        return;
    }
    if (c->now_s < BUILT_AFTER_S) {
        doctor_say(l, DOCTOR_PROBLEM, "this clock has not been set");
        clock_fix(l);
    } else if (c->has_source && c->source_rc == 0 &&
               (c->skew_s > SKEW_WARNING_S || c->skew_s < -SKEW_WARNING_S)) {
        clock_off(c->skew_s, c->source, l);
    } else if (by_records_s != 0) {
        clock_off(by_records_s, "the times that the run's peers signed", l);
    } else if (c->stepped_ms > STEP_WARNING_MS ||
               c->stepped_ms < -STEP_WARNING_MS) {
        doctor_say(l, DOCTOR_WARNING,
                   "this clock jumped by %" PRId64 " ms while loco doctor ran",
                   c->stepped_ms);
        doctor_fix(l, "Two programs may set it: let only one do so.");
    } else if (c->has_source && c->source_rc != 0) {
        doctor_say(l, DOCTOR_WARNING, "%s does not tell the time: %s",
                   c->source, c->source_error);
        doctor_fix(l, "Give another server with --clock-url URL.");
    } else if (c->ntp_known && !c->ntp_synced && !c->has_source) {
        doctor_say(l, DOCTOR_WARNING,
                   "no time service sets this clock: NTP is not synchronised");
        clock_fix(l);
    } else if (c->has_source) {
        doctor_say(l, DOCTOR_OK, "within %" PRId64 " s of %s",
                   c->skew_s < 0 ? -c->skew_s : c->skew_s, c->source);
    } else {
        doctor_say(l, DOCTOR_OK, "NTP keeps it within %u ms", c->ntp_error_ms);
    }
}

/* ---- the manifest ----------------------------------------------------- */

static void manifest_shards(const struct fact_manifest *m,
                            struct doctor_line *l)
{
    if (m->bad[0] != '\0') {
        doctor_say(l, DOCTOR_PROBLEM,
                   "%s: shard %s differs from the manifest (length or hash)",
                   m->source, m->bad);
        doctor_fix(
            l,
            m->must_be_here
                ? "Pack the data again with loco data pack, or copy the file "
                  "again from the run's author."
                : "Remove that file: the daemon fetches it from peers again.");
    } else if (m->must_be_here && m->n_here < m->n_shards) {
        doctor_say(l, DOCTOR_PROBLEM, "%s: shard %s is missing", m->source,
                   m->missing);
        doctor_fix(l, "Put it beside run.yaml: the peer that starts a run must "
                      "have its data.");
    } else {
        doctor_say(l, DOCTOR_OK,
                   "%s: run \"%s\", signature valid, %u of %u shards here%s",
                   m->source, m->name, m->n_here, m->n_shards,
                   m->n_hashed < m->n_here
                       ? " (not all hashed: loco verify does)"
                   : m->n_here < m->n_shards ? ", the rest comes from peers"
                                             : "");
    }
}

/* What a bootstrap sent, where there is no file of our own. */
static void manifest_of_peer(const struct doctor_facts *f,
                             struct doctor_line *l)
{
    for (uint32_t i = 0; i < f->n_hosts; i++) {
        const struct contact *c = &f->host[i].contact;

        if (f->host[i].state != FACT_FOUND) {
            continue;
        }
        if (c->has_manifest && hash32_eq(&c->manifest_run, &f->run_id)) {
            doctor_say(l, DOCTOR_OK,
                       "from %s: run \"%s\", signature and run id valid",
                       f->host[i].host.host, c->manifest->name);
            return;
        }
        if (c->has_manifest || c->errmsg[0] != '\0') {
            doctor_say(l, DOCTOR_PROBLEM, "%s sends an invalid manifest: %s",
                       f->host[i].host.host,
                       c->has_manifest ? "it belongs to another run"
                                       : c->errmsg);
            doctor_fix(l, "Use another bootstrap of the run in the URI.");
            return;
        }
    }
    doctor_say(l, DOCTOR_UNCHECKED, "no peer sent a manifest");
    doctor_fix(l, "See the line bootstrap.");
}

static void judge_manifest(const struct doctor_facts *f, struct doctor_line *l)
{
    const struct fact_manifest *m = &f->manifest;

    if (doctor_late(f, m->state, l)) {
        doctor_fix(l,
                   "The shards are large or the disk is slow: loco verify '%s' "
                   "has no time limit.",
                   m->source);
    } else if (m->state == FACT_FOUND && m->rc != 0) {
        doctor_say(l, DOCTOR_PROBLEM, "%s", m->errmsg);
        doctor_fix(
            l,
            m->must_be_here
                ? "Get run.yaml again from its author, or sign your changes as "
                  "a new run: loco run sign FILE."
                : "Remove that file: the daemon fetches it from peers again.");
    } else if (m->state == FACT_FOUND) {
        manifest_shards(m, l);
    } else if (f->n_hosts > 0) {
        manifest_of_peer(f, l);
    } else {
        doctor_say(l, DOCTOR_UNCHECKED, "no run is known");
        doctor_fix(l, "Give --run run.yaml or --join URI.");
    }
}

void doctor_judge(const struct doctor_facts *facts,
                  struct doctor_line line[DOCTOR_CHECK_COUNT])
{
    static void (*const judges[DOCTOR_CHECK_COUNT])(const struct doctor_facts *,
                                                    struct doctor_line *) = {
        [DOCTOR_CHECK_settings] = judge_settings,
        [DOCTOR_CHECK_daemon] = judge_daemon,
        [DOCTOR_CHECK_driver] = judge_driver,
        [DOCTOR_CHECK_memory] = judge_memory,
        [DOCTOR_CHECK_disk] = judge_disk,
        [DOCTOR_CHECK_clock] = judge_clock,
        [DOCTOR_CHECK_dns] = doctor_judge_dns,
        [DOCTOR_CHECK_ipv6] = doctor_judge_ipv6,
        [DOCTOR_CHECK_nat] = doctor_judge_nat,
        [DOCTOR_CHECK_port] = doctor_judge_port,
        [DOCTOR_CHECK_bandwidth] = doctor_judge_bandwidth,
        [DOCTOR_CHECK_manifest] = judge_manifest,
        [DOCTOR_CHECK_bootstrap] = doctor_judge_bootstrap,
        [DOCTOR_CHECK_strangers] = judge_strangers,
    };

    for (int i = 0; i < DOCTOR_CHECK_COUNT; i++) {
        memset(&line[i], 0, sizeof line[i]);
        judges[i](facts, &line[i]);
    }
}
