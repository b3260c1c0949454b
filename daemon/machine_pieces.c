/* machine_pieces.c - leaf lists and pieces: what lets a part of a long object
 * be checked alone.
 *
 * A leaf list is the hashes of the pieces of a state (parameters, then outer
 * momentum) or of a shard. Who serves an object has its list: of a state the
 * trainer makes it with the snapshot, of a shard it is made where the file is
 * checked or fetched. Who fetches one gets the list first; a worker makes the
 * roots of it, later it hashes each piece that arrived and compares.
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

#include "daemon/machine_internal.h"
#include "daemon/state_dir.h"
#include "p2p/transfer.h"
#include "proto/base/err.h"
#include "proto/base/log.h"
#include "proto/hash.h"
#include "train/errmsg.h"
#include "train/file.h"

/* ---- where they are ----------------------------------------------------- */

static bool is_leaves(enum buffer_kind buffer)
{
    return buffer == BUFFER_STATE_LEAVES || buffer == BUFFER_SHARD_LEAVES;
}

/* How the object behind a buffer is cut. */
static struct transfer_object
object_of(const struct machine *m, enum buffer_kind buffer, uint64_t index)
{
    struct transfer_object o = {.piece = HASH_PIECE_BYTES};

    if (buffer == BUFFER_STATE || buffer == BUFFER_STATE_LEAVES) {
        o.total = m->terms.state_bytes;
        o.first = m->n * sizeof(float);
    } else {
        o.total = m->terms.shards[index].bytes;
    }
    return o;
}

uint64_t machine_leaves_bytes(const struct machine *m, const struct segment *s)
{
    struct transfer_object o;

    if (!is_leaves(s->buffer) ||
        (s->buffer == BUFFER_SHARD_LEAVES && s->index >= m->terms.n_shards)) {
        return 0;
    }
    o = object_of(m, s->buffer, s->index);
    return transfer_pieces(&o) * sizeof(struct hash32);
}

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

static enum buffer_kind object_behind(enum buffer_kind leaves)
{
    return leaves == BUFFER_STATE_LEAVES ? BUFFER_STATE : BUFFER_SHARD;
}

int machine_take_leaves(struct machine *m,
                        const struct segment *s,
                        const uint8_t *src)
{
    struct incoming *in = &m->incoming_leaves;
    enum buffer_kind buffer = object_behind(s->buffer);

    if (in->pins > 0) {
        return LOCO_EBUSY; /* a worker reads those of another fetch */
    }
    if (in->leaves == NULL || in->buffer != buffer || in->index != s->index) {
        uint64_t bytes = machine_leaves_bytes(m, s);

        free(in->leaves);
        free(in->held);
        in->held = NULL;
        in->buffer = buffer;
        in->index = s->index;
        in->n = (size_t)(bytes / sizeof(struct hash32));
        in->leaves = calloc(in->n, sizeof(struct hash32));
        if (in->leaves == NULL) {
            return LOCO_ENOMEM;
        }
    }
    memcpy((uint8_t *)in->leaves + s->offset, src, s->len);
    return 0;
}

/* ---- a state that comes in --- */

/* In a file, so that what is here survives a restart; all of it is reserved
 * first, for a full disk would be a SIGBUS later. */
int machine_state_open(struct machine *m)
{
    char path[MACHINE_PATH_MAX], errmsg[ERRMSG_SIZE];
    off_t size = (off_t)m->terms.state_bytes;
    void *at;
    int fd, rv;

    if (m->state_in != NULL) {
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
    m->state_in = at;
    return 0;
}

void machine_state_close(struct machine *m, bool used)
{
    char path[MACHINE_PATH_MAX], errmsg[ERRMSG_SIZE];

    if (m->state_in == NULL) {
        return;
    }
    (void)munmap(m->state_in, m->terms.state_bytes);
    m->state_in = NULL;
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

    if (m->state_round != s->index && m->incoming_leaves.pins > 0) {
        return LOCO_EBUSY; /* a worker reads a piece of the one before */
    }
    rv = machine_state_open(m);
    if (rv == 0) {
        m->state_round = s->index;
        memcpy((uint8_t *)m->state_in + s->offset, src, s->len);
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

/* A piece into buf: 0, or LOCO_EIO where the file ends before. */
static int read_piece(int fd, uint64_t at, uint32_t len, uint8_t *buf)
{
    for (uint32_t done = 0; done < len;) {
        ssize_t n = pread(fd, buf + done, len - done, (off_t)(at + done));

        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            return LOCO_EIO;
        }
        done += (uint32_t)n;
    }
    return 0;
}

/* The hash of a piece as it lies here; buf: HASH_PIECE_BYTES, for files. */
static int hash_piece(const struct machine *m,
                      enum buffer_kind buffer,
                      uint64_t index,
                      uint32_t piece,
                      uint8_t *buf,
                      struct hash32 *out)
{
    struct transfer_object o = object_of(m, buffer, index);
    uint32_t len;
    uint64_t at = transfer_piece_at(&o, piece, &len);
    int rv = 0;

    if (buffer == BUFFER_STATE) {
        hash_tree_leaf((const uint8_t *)m->state_in + at, len, out);
        return 0;
    }
    rv = read_piece(m->files[index].fd, at, len, buf);
    if (rv == 0) {
        hash_tree_leaf(buf, len, out);
    }
    return rv;
}

/* Of the list: of a state two, of a shard one. */
static int roots(struct machine_job *j, const struct incoming *in)
{
    struct hash32 *copy = malloc((in->n + 1) * sizeof *copy);
    size_t first = (size_t)hash_tree_pieces(j->m->n * sizeof(float));

    if (copy == NULL) {
        return LOCO_ENOMEM;
    }
    memcpy(copy, in->leaves, in->n * sizeof *copy);
    if (j->buffer == BUFFER_STATE) {
        hash_tree_root(copy, first, &j->params_hash);
        hash_tree_root(copy + first, in->n - first, &j->momentum_hash);
    } else {
        hash_tree_root(copy, in->n, &j->hash);
    }
    free(copy);
    return 0;
}

/* Which pieces an earlier life has left here. */
static uint8_t *find_held(const struct machine_job *j, uint8_t *buf)
{
    const struct incoming *in = &j->m->incoming_leaves;
    uint8_t *held = calloc(in->n / 8 + 1, 1);
    struct hash32 hash;

    for (uint32_t i = 0; held != NULL && i < in->n; i++) {
        if (hash_piece(j->m, j->buffer, j->index, i, buf, &hash) == 0 &&
            hash32_eq(&hash, &in->leaves[i])) {
            held[i / 8] |= (uint8_t)(1U << (i % 8));
        }
    }
    return held;
}

/* On a worker. */
void machine_verify_run(struct machine_job *j)
{
    struct machine *m = j->m;
    const struct incoming *in = &m->incoming_leaves;
    uint32_t piece = (uint32_t)j->request;
    uint8_t *buf = malloc(HASH_PIECE_BYTES);
    struct hash32 hash;

    if (buf == NULL) {
        j->rc = LOCO_ENOMEM;
        return;
    }
    if (piece == TRANSFER_LEAVES) {
        j->rc = roots(j, in);
        if (j->rc == 0) {
            j->bytes = find_held(j, buf);
        }
    } else {
        j->rc = hash_piece(m, j->buffer, j->index, piece, buf, &hash);
        if (j->rc == 0 && !hash32_eq(&hash, &in->leaves[piece])) {
            j->rc = LOCO_EHASH;
        }
    }
    free(buf);
}

void machine_verified(struct machine *m, struct machine_job *j)
{
    struct incoming *in = &m->incoming_leaves;
    struct local_event ev = {
        .type = LOCAL_VERIFIED,
        .rc = j->rc,
        .buffer = j->buffer,
        .index = j->index,
        .request = j->request,
        .hash = j->hash,
        .params_hash = j->params_hash,
        .momentum_hash = j->momentum_hash,
    };

    in->pins--;
    if (j->bytes != NULL) { /* read by the node before another is made */
        free(in->held);
        in->held = j->bytes;
        j->bytes = NULL;
        ev.held = in->held;
    }
    machine_post(m, &ev);
}

void machine_verify(struct machine *m, const struct action *a)
{
    struct incoming *in = &m->incoming_leaves;
    uint32_t piece = (uint32_t)a->request;
    struct local_event ev = {
        .type = LOCAL_VERIFIED,
        .rc = LOCO_ENOENT,
        .buffer = a->buffer,
        .index = a->index,
        .request = a->request,
    };
    struct machine_job *j;
    bool ready = in->leaves != NULL && in->buffer == a->buffer &&
                 in->index == a->index &&
                 (piece == TRANSFER_LEAVES || piece < in->n);

    if (ready && piece == TRANSFER_LEAVES && a->buffer == BUFFER_STATE) {
        ready = machine_state_open(m) == 0;
        m->state_round = a->index;
    } else if (ready && a->buffer == BUFFER_STATE) {
        ready = m->state_in != NULL && m->state_round == a->index;
    } else if (ready && a->buffer == BUFFER_SHARD) {
        ready = machine_open_part(&m->files[a->index]) == 0;
    }
    j = ready ? machine_job_new(m, JOB_VERIFY) : NULL;
    if (j == NULL) {
        ev.rc = ready ? LOCO_ENOMEM : LOCO_ENOENT;
        machine_post(m, &ev);
        return;
    }
    j->buffer = a->buffer;
    j->index = a->index;
    j->request = a->request;
    in->pins++;
    machine_job_submit(m, j);
}

/* A fetched shard is served from now on. */
void machine_keep_leaves(struct machine *m, uint64_t index)
{
    struct incoming *in = &m->incoming_leaves;

    if (in->leaves != NULL && in->buffer == BUFFER_SHARD &&
        in->index == index && in->pins == 0) {
        m->files[index].leaves = in->leaves;
        in->leaves = NULL;
    }
}
