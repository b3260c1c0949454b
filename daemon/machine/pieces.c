/* pieces.c - objects that come in piece by piece (jobs/pieces.h).
 *
 * Who serves an object has its leaf list: of a state the trainer makes it with
 * the snapshot, of a shard it is made where the file is checked or fetched. Who
 * fetches one gets the list first; a worker makes the roots of it, later it
 * hashes each piece that arrived and compares.
 *
 * What of it was here when this process began (a shard's PATH.part, a state's
 * incoming.state) is checked with the list, and not fetched again. Of a state
 * that is all or nothing: a round later every piece is another.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/machine/internal.h"
#include "daemon/settings/state_dir.h"
#include "proto/base/err.h"
#include "proto/base/errmsg.h"
#include "proto/base/file.h"
#include "proto/base/log.h"
#include "proto/hash.h"

/* Of a piece, or of the list itself. */
struct verify_job {
    struct machine_job job;
    uint8_t *held; /* pieces that are here, for the node; NULL: not looked */
};

/* ---- where they are ----------------------------------------------------- */

int machine_fill_leaves(struct machine *m,
                        const struct segment *s,
                        uint8_t *dst)
{
    const struct hash32 *leaves = NULL;

    if (s->buffer == BUFFER_SHARD_LEAVES) {
        leaves = m->files[s->index].held ? m->files[s->index].leaves : NULL;
    } else {
        const struct snapshot *snap = machine_snapshot(m, s);

        leaves = snap == NULL ? NULL : snap->leaves;
    }
    if (leaves == NULL) {
        return LOCO_ENOENT;
    }
    memcpy(dst, (const uint8_t *)leaves + s->offset, s->len);
    return 0;
}

int machine_take_leaves(struct machine *m,
                        const struct segment *s,
                        const uint8_t *src)
{
    struct machine_incoming *in = &m->in;

    if (in->pins > 0) {
        return LOCO_EBUSY; /* a worker reads those of another fetch */
    }
    if (!pieces_has(&in->list, pieces_object_kind(s->buffer), s->index,
                    TRANSFER_LEAVES)) {
        free(in->held);
        in->held = NULL;
    }
    return pieces_take(&in->list, &m->terms, s, src);
}

/* ---- a state that comes in --- */

/* Memory behind it, as an earlier life left it: in a file, so that what is here
 * survives a restart; all of it is reserved first, for a full disk would be a
 * SIGBUS later. */
static int state_open(struct machine *m)
{
    char path[MACHINE_PATH_MAX], errmsg[ERRMSG_SIZE];
    off_t size = (off_t)m->terms.state_bytes;
    void *at;
    int fd, rv;

    if (m->in.state != NULL) {
        return 0;
    }
    if (file_path_join(path, m->opt.state_dir, STATE_DIR_INCOMING, errmsg) !=
        0) {
        return LOCO_ERANGE;
    }
    fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0) {
        return LOCO_EIO;
    }
    rv = ftruncate(fd, size) != 0 ? errno : posix_fallocate(fd, 0, size);
    at = rv == 0 ? mmap(NULL, (size_t)size, PROT_READ | PROT_WRITE, MAP_SHARED,
                        fd, 0)
                 : MAP_FAILED;
    (void)close(fd);
    if (at == MAP_FAILED) {
        log_error("state", "cannot keep %lld bytes in %s: %s", (long long)size,
                  path, strerror(rv != 0 ? rv : errno));
        if (rv == ENOSPC || rv == EDQUOT) {
            (void)unlink(path);
            machine_stop(m, LOCO_EXIT_RESOURCES);
        }
        return rv == ENOSPC || rv == EDQUOT ? LOCO_EDISK : LOCO_EIO;
    }
    m->in.state = at;
    return 0;
}

void machine_state_close(struct machine *m, bool used)
{
    char path[MACHINE_PATH_MAX], errmsg[ERRMSG_SIZE];

    if (m->in.state == NULL) {
        return;
    }
    (void)munmap(m->in.state, m->terms.state_bytes);
    m->in.state = NULL;
    if (used && file_path_join(path, m->opt.state_dir, STATE_DIR_INCOMING,
                               errmsg) == 0) {
        (void)unlink(path);
    }
}

int machine_take_state(struct machine *m,
                       const struct segment *s,
                       const uint8_t *src)
{
    int rv;

    if (m->in.round != s->index && m->in.pins > 0) {
        return LOCO_EBUSY; /* a worker reads a piece of the one before */
    }
    rv = state_open(m);
    if (rv == 0) {
        m->in.round = s->index;
        memcpy((uint8_t *)m->in.state + s->offset, src, s->len);
    }
    return rv;
}

/* ---- what is fetched ---------------------------------------------------- */

int machine_open_part(struct shard_file *f)
{
    char part[MACHINE_PATH_MAX + 8], url[MACHINE_PATH_MAX + 8];

    if (f->fd < 0) {
        (void)snprintf(part, sizeof part, "%s.part", f->path);
        (void)snprintf(url, sizeof url, "%s.url", f->path);
        if (access(part, F_OK) != 0) {
            (void)rename(url, part); /* what came by URL */
        }
        f->fd = open(part, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    }
    return f->fd < 0 ? LOCO_EIO : 0;
}

/* Whether a piece that lies here is right; buf: HASH_PIECE_BYTES, for files. */
static int check_piece(const struct verify_job *j, uint32_t piece, uint8_t *buf)
{
    const struct machine *m = j->job.m;
    const struct report_verified *what = &j->job.answer.verified;
    struct transfer_object o =
        pieces_object(&m->terms, what->buffer, what->index);
    const uint8_t *bytes = buf;
    uint32_t len;
    uint64_t at = transfer_piece_at(&o, piece, &len);
    int rv = 0;

    if (what->buffer == BUFFER_STATE) {
        bytes = (const uint8_t *)m->in.state + at;
    } else {
        rv = machine_read_at(m->files[what->index].fd, at, buf, len);
    }
    return rv != 0 ? rv : pieces_check(&m->in.list, piece, bytes, len);
}

/* Which pieces an earlier life has left here. */
static uint8_t *find_held(const struct verify_job *j, uint8_t *buf)
{
    size_t n = j->job.m->in.list.n;
    uint8_t *held = calloc(n / 8 + 1, 1);

    for (uint32_t i = 0; held != NULL && i < n; i++) {
        if (check_piece(j, i, buf) == 0) {
            held[i / 8] |= (uint8_t)(1U << (i % 8));
        }
    }
    return held;
}

static void verify_run(struct machine_job *job)
{
    struct verify_job *j = (struct verify_job *)job;
    const struct machine *m = job->m;
    struct report_verified *found = &job->answer.verified;
    uint32_t piece = (uint32_t)found->request;
    uint8_t *buf = malloc(HASH_PIECE_BYTES);
    struct piece_roots roots;

    if (buf == NULL) {
        job->rc = LOCO_ENOMEM;
        return;
    }
    if (piece != TRANSFER_LEAVES) {
        job->rc = check_piece(j, piece, buf);
    } else {
        job->rc = pieces_roots(&m->in.list, &m->terms, &roots);
        found->hash = roots.hash;
        found->params_hash = roots.params;
        found->momentum_hash = roots.momentum;
        if (job->rc == 0) {
            j->held = find_held(j, buf);
        }
    }
    free(buf);
}

static void verify_done(struct machine_job *job, int status)
{
    struct verify_job *j = (struct verify_job *)job;
    struct machine_incoming *in = &job->m->in;

    (void)status;
    in->pins--;
    if (j->held != NULL) { /* read by the node before another is made */
        free(in->held);
        in->held = j->held;
        job->answer.verified.held = in->held;
    }
}

static const struct job_kind verify_kind = {
    .size = sizeof(struct verify_job),
    .pool = POOL_WORKERS,
    .run = verify_run,
    .done = verify_done,
};

/* Whether there is something to verify, and a place that it lies in. */
static bool ready(struct machine *m, const struct job_verify *job)
{
    uint32_t piece = (uint32_t)job->request;

    if (!pieces_has(&m->in.list, job->buffer, job->index, piece)) {
        return false;
    }
    if (job->buffer == BUFFER_SHARD) {
        return machine_open_part(&m->files[job->index]) == 0;
    }
    if (piece == TRANSFER_LEAVES) {
        m->in.round = job->index;
        return state_open(m) == 0;
    }
    return m->in.state != NULL && m->in.round == job->index;
}

int machine_verify(struct machine *m, const struct job *job)
{
    struct verify_job *j;

    if (!ready(m, &job->verify)) {
        return LOCO_ENOENT;
    }
    j = machine_job_new(m, &verify_kind, job);
    if (j == NULL) {
        return LOCO_ENOMEM;
    }
    m->in.pins++;
    machine_job_submit(&j->job);
    return 0;
}

/* A fetched shard is served from now on. */
void machine_keep_leaves(struct machine *m, uint64_t index)
{
    struct pieces *list = &m->in.list;

    if (m->in.pins == 0 &&
        pieces_has(list, BUFFER_SHARD, index, TRANSFER_LEAVES)) {
        m->files[index].leaves = list->leaves;
        list->leaves = NULL;
    }
}
