/* urls.c - shards from the URLs of the manifest, and from the mirror
 * of this machine's operator, which is asked first.
 *
 * One at a time, on a thread of its own (download.h). The bytes are in PATH.url
 * until they have the shard's hash, and then under its name. What peers gave of
 * a shard is in PATH.part, in any order; each of the two goes on with what the
 * other left:
 *   URLs to peers   PATH.url becomes PATH.part; its pieces are checked by the
 *                   leaf list (machine/pieces.c)
 *   peers to URLs   as long as that leaf list is in memory, the good pieces at
 *                   the beginning of PATH.part become PATH.url
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/machine/internal.h"
#include "daemon/visit/download.h"
#include "proto/base/err.h"
#include "proto/base/errmsg.h"
#include "proto/base/file.h"
#include "proto/base/log.h"
#include "proto/hash.h"

#define STALL_MS 20000
#define RETRY_MS 1000
#define TRIES    4
#define TOLD_NS  250000000U

struct url_job {
    struct machine_job job;
    struct download d;
    uint32_t index;
    char path[MACHINE_PATH_MAX + 8], part[MACHINE_PATH_MAX + 8];
    char mirror[MACHINE_PATH_MAX];
    struct hash32 *known; /* leaf list from peers, or NULL */
    size_t n_known;
    uint64_t told_ns, last_bytes;
    /* What was found to be right. */
    struct shard shard;
    struct hash32 *leaves;
};

bool machine_has_urls(const struct machine *m, uint32_t i)
{
    return m->opt.settings->data_mirror[0] != '\0' ||
           (m->opt.urls != URLS_OFF && m->manifest->data.shards[i].n_urls > 0);
}

/* ---- on its thread ------------------------------------------------------ */

static int is_shard(void *data, char *errmsg)
{
    struct url_job *u = data;
    int rv = machine_shard_open(u->job.m, u->index, u->path, &u->shard,
                                &u->leaves, errmsg);

    return rv == LOCO_EFORMAT ? LOCO_EHASH : rv;
}

/* So many bytes are here now, of which some were before. */
static void count(struct url_job *u, uint64_t bytes)
{
    if (bytes > u->last_bytes) {
        atomic_fetch_add(&u->job.m->use.url_bytes, bytes - u->last_bytes);
    }
    u->last_bytes = bytes;
}

static void on_progress(void *data, uint64_t bytes)
{
    struct url_job *u = data;
    struct local_event ev = {.type = LOCAL_DOWNLOADING,
                             .downloading.index = u->index,
                             .downloading.here_bytes = bytes};
    uint64_t now = uv_hrtime();

    count(u, bytes);
    if (u->told_ns == 0 || now - u->told_ns >= TOLD_NS) {
        u->told_ns = now;
        machine_post(u->job.m, &ev);
    }
}

/* What peers gave, up to the first piece that is missing. */
static void take_part(const struct url_job *u)
{
    uint8_t *buf = malloc(HASH_PIECE_BYTES);
    int fd = open(u->part, O_RDWR | O_CLOEXEC);
    uint64_t good = 0;
    struct hash32 hash;

    for (size_t i = 0; buf != NULL && fd >= 0 && i < u->n_known; i++) {
        uint64_t left = u->d.bytes - good;
        size_t want = left < HASH_PIECE_BYTES ? (size_t)left : HASH_PIECE_BYTES;

        if (machine_read_at(fd, good, buf, want) != 0) {
            break;
        }
        hash_tree_leaf(buf, want, &hash);
        if (!hash32_eq(&hash, &u->known[i])) {
            break;
        }
        good += want;
    }
    if (good > 0 && ftruncate(fd, (off_t)good) == 0) {
        (void)rename(u->part, u->path);
    }
    if (fd >= 0) {
        (void)close(fd);
    }
    free(buf);
}

static void download_run(struct machine_job *j)
{
    struct url_job *u = (struct url_job *)j;
    const char *final = j->m->files[u->index].path;
    struct stat st;

    if (u->known != NULL && access(u->path, F_OK) != 0) {
        take_part(u);
    }
    u->last_bytes = stat(u->path, &st) == 0 ? (uint64_t)st.st_size : 0;
    j->rc = download(&u->d, j->errmsg);
    if (j->rc != 0) {
        return;
    }
    count(u, u->d.bytes);
    (void)unlink(u->part); /* first: once the shard has its name nobody looks */
    if (rename(u->path, final) != 0) {
        j->rc = errmsg_fail(j->errmsg, LOCO_EIO, "rename %.160s: %s", u->path,
                            strerror(errno));
    }
}

/* ---- on the loop -------------------------------------------------------- */

static void download_done(struct machine_job *j, int status)
{
    struct url_job *u = (struct url_job *)j;
    struct machine *m = j->m;
    struct shard_file *f = &m->files[u->index];
    int rc = status != 0 ? LOCO_ECLOSED : j->rc;

    if (f->fd >= 0) {
        (void)close(f->fd); /* of PATH.part, which may be gone */
        f->fd = -1;
    }
    if (rc == 0) {
        f->shard = u->shard;
        f->leaves = u->leaves;
        f->held = true;
        memset(&u->shard, 0, sizeof u->shard);
        u->leaves = NULL;
        log_info("data", "shard %s is here and verified", f->path);
        machine_add_text(m, u->index);
    } else if (rc != LOCO_ECLOSED) {
        log_warn("data", "shard %s could not be fetched by URL: %s", f->path,
                 j->errmsg);
    }
    shard_close(&u->shard);
    free(u->leaves);
    free(u->known);
    if (rc == LOCO_EDISK) {
        machine_stop(m, LOCO_EXIT_RESOURCES);
    }
}

static const struct job_kind download_kind = {
    .size = sizeof(struct url_job),
    .pool = POOL_URLS,
    .run = download_run,
    .done = download_done,
};

static void add_url(struct download *d, const char *text, bool ours)
{
    if (d->n_urls < DOWNLOAD_URLS_MAX) {
        d->urls[d->n_urls++] = (struct download_url){text, ours};
    }
}

/* The mirror, then the run's URLs; peers begin at different ones of them. */
static void add_urls(struct url_job *u)
{
    const struct machine *m = u->job.m;
    const struct manifest_shard *s = &m->manifest->data.shards[u->index];
    uint32_t first =
        s->n_urls == 0 ? 0 : (uint32_t)(id_u64(&m->opt.self) % s->n_urls);
    size_t len = strlen(m->opt.settings->data_mirror);

    if (len > 0) {
        const char *mirror = m->opt.settings->data_mirror;
        int n = snprintf(u->mirror, sizeof u->mirror, "%s%s%s", mirror,
                         mirror[len - 1] == '/' ? "" : "/", s->name);

        if (n > 0 && (size_t)n < sizeof u->mirror) {
            add_url(&u->d, u->mirror, true);
        }
    }
    for (uint32_t i = 0; m->opt.urls != URLS_OFF && i < s->n_urls; i++) {
        add_url(&u->d, s->urls[(first + i) % s->n_urls], false);
    }
}

/* The leaf list, if it is that of this shard and nobody works with it. */
static void take_leaves(struct url_job *u)
{
    struct machine_incoming *in = &u->job.m->in;
    struct shard_file *f = &u->job.m->files[u->index];

    if (in->pins > 0 ||
        !pieces_has(&in->list, BUFFER_SHARD, u->index, TRANSFER_LEAVES)) {
        return;
    }
    if (f->fd >= 0) {
        (void)close(f->fd);
        f->fd = -1;
    }
    u->known = in->list.leaves;
    u->n_known = in->list.n;
    in->list.leaves = NULL;
}

static struct url_job *new_job(struct machine *m, const struct job *job)
{
    struct url_job *u = machine_job_new(m, &download_kind, job);
    uint32_t index = (uint32_t)job->download.index;

    if (u == NULL) {
        return NULL;
    }
    u->index = index;
    (void)snprintf(u->path, sizeof u->path, "%s.url", m->files[index].path);
    (void)snprintf(u->part, sizeof u->part, "%s.part", m->files[index].path);
    u->d = (struct download){
        .path = u->path,
        .bytes = m->terms.shards[index].bytes,
        .private_too = m->opt.urls == URLS_ANY,
        .bytes_per_s = atomic_load(&m->use.download_cap),
        .floor_bytes_per_s = m->terms.progress_floor_bytes_per_s,
        .stall_ms = STALL_MS * m->opt.time_scale,
        .retry_ms = RETRY_MS,
        .tries = TRIES,
        .stop_fd = m->urls.stop,
        .check = is_shard,
        .progress = on_progress,
        .data = u,
    };
    add_urls(u);
    take_leaves(u);
    return u;
}

static int open_pool(struct machine *m)
{
    if (m->urls.stop < 0) {
        m->urls.stop = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    }
    if (!m->urls.open && m->urls.stop >= 0) {
        m->urls.open = worker_open(&m->urls.pool, m->loop, 1, 0) == 0;
    }
    return m->urls.open ? 0 : LOCO_EIO;
}

int machine_download(struct machine *m, const struct job *job)
{
    struct url_job *u = open_pool(m) == 0 ? new_job(m, job) : NULL;

    if (u == NULL) {
        return LOCO_ENOMEM;
    }
    machine_job_submit(&u->job);
    return 0;
}

uint64_t machine_url_bytes(const struct machine *m)
{
    return atomic_load(&m->use.url_bytes);
}
