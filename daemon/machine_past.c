/* machine_past.c - rounds that are over, for those who come later.
 *
 * States: the trainer publishes one after every commit; the last two can be
 * fetched. Fetching a large one takes longer than a round, so that the one that
 * somebody fetches is kept (*pinned*, without inner moments) until PIN_MS after
 * the last piece of it was asked for; one at a time.
 *
 * Reduced bytes: a worker writes those of every round to rounds/ROUND.wire, and
 * deletes what is older than ROUNDS_MAX or more than twice a state: so long
 * that who fetches a state finds what was made meanwhile, where its line can
 * follow the rounds at all (node_follow.c). They are no part of what must
 * survive: not flushed, checked by who fetches them, and one that finds no room
 * is left out.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/machine_internal.h"
#include "daemon/state_dir.h"
#include "proto/base/err.h"
#include "proto/base/log.h"

#define PIN_MS     60000
#define ROUNDS_MAX 64 /* NODE_PAST_MAX: what a node says that it has */

/* ---- states ------------------------------------------------------------- */

static uint64_t lease_ms(const struct machine *m)
{
    return PIN_MS * (uint64_t)m->opt.time_scale;
}

void machine_snapshot_drop(struct machine *m, struct snapshot *s)
{
    if (s != NULL && s->refs == 1) {
        struct snapshot *before;

        (void)pthread_mutex_lock(&m->mutex);
        before = m->spare;
        m->spare = s;
        (void)pthread_mutex_unlock(&m->mutex);
        s = before;
    }
    snapshot_free(s);
}

/* One leaves the last places: keep it if it is being fetched. */
static void retire(struct machine *m, struct snapshot *s, uint64_t asked_ms)
{
    uint64_t now = uv_now(m->loop);

    if (m->pinned != NULL && now + 1 - m->pinned_asked_ms >= lease_ms(m)) {
        snapshot_free(m->pinned);
        m->pinned = NULL;
    }
    if (s == NULL || m->pinned != NULL || asked_ms == 0 ||
        now + 1 - asked_ms >= lease_ms(m)) {
        machine_snapshot_drop(m, s);
        return;
    }
    m->pinned = s;
    m->pinned_asked_ms = asked_ms;
    if (s->refs == 1) { /* nobody writes it to disk */
        free(s->moments);
        s->moments = NULL;
        s->u = s->v = NULL;
    }
}

void machine_snapshots_collect(struct machine *m)
{
    struct snapshot *in[SNAPSHOTS_MAX] = {NULL};
    size_t last = SNAPSHOTS_MAX - 1;

    (void)pthread_mutex_lock(&m->mutex);
    memcpy(in, m->incoming, sizeof in);
    memset(m->incoming, 0, sizeof m->incoming);
    (void)pthread_mutex_unlock(&m->mutex);
    for (int i = 0; i < SNAPSHOTS_MAX; i++) {
        if (in[i] != NULL) {
            retire(m, m->snapshots[last], m->snapshots_asked_ms[last]);
            memmove(m->snapshots + 1, m->snapshots,
                    last * sizeof m->snapshots[0]);
            memmove(m->snapshots_asked_ms + 1, m->snapshots_asked_ms,
                    last * sizeof m->snapshots_asked_ms[0]);
            m->snapshots[0] = in[i];
            m->snapshots_asked_ms[0] = 0;
        }
    }
}

static bool is_named(const struct snapshot *snap, const struct segment *s)
{
    return snap != NULL && snap->round == s->index &&
           (s->name == 0 || snap->name == s->name);
}

const struct snapshot *machine_snapshot(struct machine *m,
                                        const struct segment *s)
{
    uint64_t now = uv_now(m->loop) + 1; /* 0: never */

    machine_snapshots_collect(m);
    for (int i = 0; i < SNAPSHOTS_MAX; i++) {
        if (is_named(m->snapshots[i], s)) {
            m->snapshots_asked_ms[i] = now;
            return m->snapshots[i];
        }
    }
    if (is_named(m->pinned, s)) {
        m->pinned_asked_ms = now;
        return m->pinned;
    }
    return NULL;
}

void machine_snapshots_free(struct machine *m)
{
    for (int i = 0; i < SNAPSHOTS_MAX; i++) {
        snapshot_free(m->snapshots[i]);
        snapshot_free(m->incoming[i]);
        m->snapshots[i] = m->incoming[i] = NULL;
    }
    snapshot_free(m->pinned);
    snapshot_free(m->spare);
    m->pinned = m->spare = NULL; /* a move to another stage makes others */
}

/* ---- reduced bytes ------------------------------------------------------ */

static bool
round_path(const struct machine *m, uint64_t round, char path[MACHINE_PATH_MAX])
{
    int n = snprintf(path, MACHINE_PATH_MAX, "%s/%" PRIu64 ".wire", m->rounds,
                     round);

    return n > 0 && n < MACHINE_PATH_MAX;
}

static uint64_t rounds_kept(const struct machine *m)
{
    uint64_t bytes = m->codec->bytes(m->n_wire);
    uint64_t n = bytes > 0 ? 2 * m->terms.state_bytes / bytes : 0;

    return n < ROUNDS_MAX ? n : ROUNDS_MAX;
}

static int write_all(int fd, const uint8_t *bytes, size_t len)
{
    while (len > 0) {
        ssize_t n = write(fd, bytes, len);

        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            return errno == ENOSPC || errno == EDQUOT ? LOCO_EDISK : LOCO_EIO;
        }
        bytes += n;
        len -= (size_t)n;
    }
    return 0;
}

/* Delete what is too long ago, whichever rounds this peer was not there for or
 * skipped, and what is of a branch that was left. */
static void prune_rounds(const struct machine *m, uint64_t newest)
{
    uint64_t kept = rounds_kept(m);
    DIR *d = opendir(m->rounds);
    struct dirent *e;

    while (d != NULL && (e = readdir(d)) != NULL) {
        char path[MACHINE_PATH_MAX], name[32];
        uint64_t round;

        if (sscanf(e->d_name, "%" SCNu64, &round) != 1 ||
            snprintf(name, sizeof name, "%" PRIu64 ".wire", round) < 0 ||
            strcmp(name, e->d_name) != 0) {
            continue; /* none of ours */
        }
        if ((round > newest || newest - round >= kept) &&
            round_path(m, round, path)) {
            (void)unlink(path);
        }
    }
    if (d != NULL) {
        (void)closedir(d);
    }
}

/* On a worker; the slot is pinned. */
void machine_round_run(struct machine_job *j)
{
    const struct machine *m = j->m;
    char path[MACHINE_PATH_MAX];
    size_t bytes = m->codec->bytes(terms_elements(&m->terms, j->index));
    int fd;

    prune_rounds(m, j->index);
    if (!round_path(m, j->index, path)) {
        return;
    }
    (void)unlink(path); /* of a branch that was left; or of an earlier life */
    fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    j->rc = fd < 0 ? LOCO_EIO : write_all(fd, j->slot->bytes, bytes);
    if (fd >= 0) {
        (void)close(fd);
    }
    if (j->rc != 0) {
        (void)unlink(path);
    }
}

void machine_round_save(struct machine *m,
                        struct wire_slot *slot,
                        uint64_t round)
{
    struct machine_job *j;

    if (m->rounds == NULL || m->round_saving || rounds_kept(m) == 0) {
        return;
    }
    j = machine_job_new(m, JOB_ROUND);
    if (j != NULL) {
        j->index = round;
        j->slot = slot;
        slot->pins++;
        m->round_saving = true; /* a slow disk skips rounds */
        machine_job_submit(m, j);
    }
}

int machine_round_fill(struct machine *m, const struct segment *s, uint8_t *dst)
{
    size_t at = m->codec->bytes(s->offset), len = m->codec->bytes(s->len);
    char path[MACHINE_PATH_MAX];
    ssize_t n;
    int fd;

    if (m->rounds == NULL || !round_path(m, s->index, path)) {
        return LOCO_ENOENT;
    }
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return LOCO_ENOENT;
    }
    n = pread(fd, dst, len, (off_t)at);
    (void)close(fd);
    return n == (ssize_t)len ? 0 : LOCO_EIO;
}
