/* machine_buffers.c - the bytes behind segments, and their hashes. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/machine_internal.h"
#include "proto/base/err.h"
#include "proto/base/log.h"
#include "proto/hash.h"
#include "train/errmsg.h"

#define HASH_READ_BYTES ((size_t)1 << 20)

/* ---- wire slots ------------------------------------------------------- */

static struct wire_slot *
slot_find(struct machine *m, enum wire_use use, uint64_t key)
{
    for (int i = 0; i < WIRE_SLOTS; i++) {
        struct wire_slot *s = &m->wire[i];

        if (s->use == use &&
            (use == WIRE_RING ? s->attempt : s->round) == key) {
            return s;
        }
    }
    return NULL;
}

/* A slot for new bytes: a free one, else an older attempt that nobody reads. */
static struct wire_slot *
slot_make(struct machine *m, enum wire_use use, uint64_t key)
{
    struct wire_slot *best = NULL;

    for (int i = 0; i < WIRE_SLOTS; i++) {
        struct wire_slot *s = &m->wire[i];

        if (s->pins > 0 || s->use == WIRE_REDUCED) {
            continue;
        }
        if (best == NULL || s->use == WIRE_FREE ||
            (best->use != WIRE_FREE && s->made < best->made)) {
            best = s;
        }
    }
    if (best == NULL) {
        return NULL;
    }
    if (best->bytes == NULL) {
        best->bytes = malloc(m->codec->bytes(m->n));
        if (best->bytes == NULL) {
            return NULL;
        }
    }
    best->use = use;
    best->attempt = best->round = key;
    best->hashed = 0;
    best->made = ++m->n_made;
    return best;
}

static struct wire_slot *
slot_for(struct machine *m, enum wire_use use, uint64_t key)
{
    struct wire_slot *s = slot_find(m, use, key);

    return s != NULL ? s : slot_make(m, use, key);
}

struct wire_slot *
machine_slot_applied(struct machine *m, enum buffer_kind buffer, uint64_t round)
{
    struct wire_slot *best = NULL;

    for (int i = 0; i < WIRE_SLOTS; i++) {
        struct wire_slot *s = &m->wire[i];
        bool match =
            buffer == BUFFER_RING
                ? s->use == WIRE_RING && (s->attempt & 0xffffffff) == round
                : s->use == WIRE_FETCHED && s->round == round;

        if (match && s->hashed > 0 &&
            (best == NULL || s->hashed > best->hashed)) {
            best = s;
        }
    }
    if (best == NULL) {
        return NULL;
    }
    for (int i = 0; i < WIRE_SLOTS; i++) {
        if (m->wire[i].use == WIRE_REDUCED) {
            m->wire[i].use = WIRE_FREE;
        }
    }
    best->use = WIRE_REDUCED;
    best->round = round;
    return best;
}

/* The bytes of a failed attempt are the start of the next one's. */
void machine_inherit(struct machine *m, const struct action *a)
{
    struct local_event ev = {.type = LOCAL_INHERITED, .rc = LOCO_ENOENT};
    struct wire_slot *from = slot_find(m, WIRE_RING, a->attempt);
    struct wire_slot *to = from;

    if (from != NULL && from->pins > 0) { /* a worker still hashes it */
        from->pins++;                     /* not to be taken for `to` */
        to = slot_make(m, WIRE_RING, a->request);
        from->pins--;
        if (to != NULL) {
            memcpy(to->bytes, from->bytes, m->codec->bytes(m->n));
        }
    }
    if (to == NULL) {
        /* Nothing of that attempt may be sent or hashed: it would be junk. */
        m->refused_attempt = a->request;
        ev.request = a->request;
        (void)shell_post(m->shell, &ev);
        return;
    }
    for (int i = 0; i < WIRE_SLOTS; i++) { /* of another branch */
        struct wire_slot *s = &m->wire[i];

        if (s != to && s->use == WIRE_RING && s->attempt == a->request) {
            s->attempt = 0;
        }
    }
    to->attempt = a->request;
    to->hashed = 0;
    to->made = ++m->n_made;
}

/* ---- snapshots -------------------------------------------------------- */

/* Take over what the trainer made since the last look. */
void machine_snapshots_collect(struct machine *m)
{
    struct snapshot *in[SNAPSHOTS_MAX] = {NULL};

    (void)pthread_mutex_lock(&m->mutex);
    memcpy(in, m->incoming, sizeof in);
    memset(m->incoming, 0, sizeof m->incoming);
    (void)pthread_mutex_unlock(&m->mutex);
    for (int i = 0; i < SNAPSHOTS_MAX; i++) {
        if (in[i] != NULL) {
            snapshot_free(m->snapshots[SNAPSHOTS_MAX - 1]);
            memmove(m->snapshots + 1, m->snapshots,
                    sizeof m->snapshots - sizeof m->snapshots[0]);
            m->snapshots[0] = in[i];
        }
    }
}

static const struct snapshot *snapshot_of(struct machine *m, uint64_t round)
{
    machine_snapshots_collect(m);
    for (int i = 0; i < SNAPSHOTS_MAX; i++) {
        if (m->snapshots[i] != NULL && m->snapshots[i]->round == round) {
            return m->snapshots[i];
        }
    }
    return NULL;
}

/* ---- segments --------------------------------------------------------- */

static bool in_elements(const struct segment *s)
{
    return s->buffer == BUFFER_RING || s->buffer == BUFFER_REDUCED;
}

size_t machine_wire_len(void *self, const struct segment *s)
{
    const struct machine *m = self;

    return in_elements(s) && m->codec != NULL ? m->codec->bytes(s->len)
                                              : s->len;
}

/* Bounds of a segment from outside against the buffer it names. */
static bool in_bounds(const struct machine *m, const struct segment *s)
{
    uint64_t size;

    if (!m->configured || s->len == 0) {
        return false;
    }
    if (in_elements(s)) {
        if (s->offset % m->codec->block != 0) {
            return false;
        }
        size = m->n;
    } else if (s->buffer == BUFFER_STATE) {
        size = m->terms.state_bytes;
    } else if (s->buffer == BUFFER_SHARD && s->index < m->terms.n_shards) {
        size = m->terms.shards[s->index].bytes;
    } else {
        return false;
    }
    return s->offset <= size && s->len <= size - s->offset;
}

/* Where a piece of the round in flight lies; NULL: no slot or no model yet. */
static uint8_t *ring_at(struct machine *m, const struct segment *s)
{
    struct wire_slot *slot = s->attempt == m->refused_attempt
                                 ? NULL
                                 : slot_for(m, WIRE_RING, s->attempt);

    return slot == NULL || m->trainer == NULL
               ? NULL
               : slot->bytes + m->codec->bytes(s->offset);
}

static bool is_ring_copy(const struct machine *m, const struct segment *s)
{
    return s->buffer == BUFFER_RING && s->op == SEGMENT_COPY && in_bounds(m, s);
}

/* Sealed at once; without encryption the bytes would have to outlive us. */
const uint8_t *machine_lend(void *self, const struct segment *s)
{
    struct machine *m = self;

    return m->opt.encryption && is_ring_copy(m, s) ? ring_at(m, s) : NULL;
}

uint8_t *machine_place(void *self, const struct segment *s)
{
    struct machine *m = self;

    return is_ring_copy(m, s) ? ring_at(m, s) : NULL;
}

static int fill_ring(struct machine *m, const struct segment *s, uint8_t *dst)
{
    uint8_t *at = ring_at(m, s);

    if (at == NULL) {
        return LOCO_EBUSY;
    }
    if (s->op == SEGMENT_ENCODE) { /* its final bytes will come back */
        return m->codec->encode(dst,
                                trainer_contribution(m->trainer) + s->offset,
                                s->len, (float)s->scale);
    }
    memcpy(dst, at, m->codec->bytes(s->len));
    return 0;
}

static int fill_shard(struct machine *m, const struct segment *s, uint8_t *dst)
{
    const struct shard_file *f = &m->files[s->index];

    if (!f->held || f->shard.map.data == NULL) {
        return LOCO_ENOENT;
    }
    memcpy(dst, f->shard.map.data + s->offset, s->len);
    return 0;
}

int machine_fill(void *self, const struct segment *s, uint8_t *dst)
{
    struct machine *m = self;
    const struct snapshot *snap;
    struct wire_slot *slot;

    if (!in_bounds(m, s)) {
        return LOCO_ERANGE;
    }
    switch (s->buffer) {
    case BUFFER_RING:
        return fill_ring(m, s, dst);
    case BUFFER_REDUCED:
        slot = slot_find(m, WIRE_REDUCED, s->index);
        if (slot == NULL) {
            return LOCO_ENOENT;
        }
        memcpy(dst, slot->bytes + m->codec->bytes(s->offset),
               m->codec->bytes(s->len));
        return 0;
    case BUFFER_STATE:
        snap = snapshot_of(m, s->index);
        if (snap == NULL) {
            return LOCO_ENOENT;
        }
        memcpy(dst, (const uint8_t *)snap->state + s->offset, s->len);
        return 0;
    case BUFFER_SHARD:
        return fill_shard(m, s, dst);
    case BUFFER_KIND_COUNT:
        break;
    }
    return LOCO_EINVAL;
}

static int
take_ring(struct machine *m, const struct segment *s, const uint8_t *src)
{
    uint8_t *at = ring_at(m, s);

    if (at == NULL) {
        return LOCO_EBUSY;
    }
    if (s->op == SEGMENT_ADD) {
        return m->codec->add(at, src,
                             trainer_contribution(m->trainer) + s->offset,
                             s->len, (float)s->scale);
    }
    if (src != at) {
        memcpy(at, src, m->codec->bytes(s->len));
    }
    return 0;
}

static int
take_shard(struct machine *m, const struct segment *s, const uint8_t *src)
{
    struct shard_file *f = &m->files[s->index];
    char part[MACHINE_PATH_MAX + 8];

    if (f->fd < 0) {
        (void)snprintf(part, sizeof part, "%s.part", f->path);
        f->fd = open(part, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
        if (f->fd < 0) {
            return LOCO_EIO;
        }
    }
    for (uint32_t done = 0; done < s->len;) {
        ssize_t n =
            pwrite(f->fd, src + done, s->len - done, (off_t)(s->offset + done));

        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            log_error("data", "cannot write %s.part: %s; free some disk space",
                      f->path, strerror(errno));
            if (errno == ENOSPC) {
                machine_stop(m, LOCO_EXIT_RESOURCES);
            }
            return errno == ENOSPC ? LOCO_EDISK : LOCO_EIO;
        }
        done += (uint32_t)n;
    }
    return 0;
}

static int
take_state(struct machine *m, const struct segment *s, const uint8_t *src)
{
    if (m->state_in == NULL) {
        m->state_in = malloc(m->terms.state_bytes);
        if (m->state_in == NULL) {
            return LOCO_ENOMEM;
        }
    }
    m->state_round = s->index;
    memcpy((uint8_t *)m->state_in + s->offset, src, s->len);
    return 0;
}

int machine_take(void *self,
                 const struct segment *s,
                 const uint8_t *src,
                 size_t len)
{
    struct machine *m = self;
    struct wire_slot *slot;

    if (!in_bounds(m, s) || len != machine_wire_len(m, s)) {
        return LOCO_ERANGE;
    }
    switch (s->buffer) {
    case BUFFER_RING:
        return take_ring(m, s, src);
    case BUFFER_REDUCED:
        slot = slot_for(m, WIRE_FETCHED, s->index);
        if (slot == NULL) {
            return LOCO_EBUSY;
        }
        memcpy(slot->bytes + m->codec->bytes(s->offset), src, len);
        return 0;
    case BUFFER_STATE:
        return take_state(m, s, src);
    case BUFFER_SHARD:
        return take_shard(m, s, src);
    case BUFFER_KIND_COUNT:
        break;
    }
    return LOCO_EINVAL;
}

/* ---- hashing ---------------------------------------------------------- */

static int hash_file(int fd, uint64_t size, struct hash32 *out)
{
    struct hash_tree_state *s = malloc(sizeof *s);
    uint8_t *buf = malloc(HASH_READ_BYTES);
    uint64_t at = 0;
    int rv = s == NULL || buf == NULL ? LOCO_ENOMEM : 0;

    if (rv == 0) {
        hash_tree_init(s);
    }
    while (rv == 0 && at < size) {
        size_t want =
            size - at < HASH_READ_BYTES ? (size_t)(size - at) : HASH_READ_BYTES;
        ssize_t n = pread(fd, buf, want, (off_t)at);

        if (n < 0 && errno == EINTR) {
            continue;
        }
        rv = n <= 0 ? LOCO_EIO : 0;
        if (rv == 0) {
            hash_tree_update(s, buf, (size_t)n);
            at += (uint64_t)n;
        }
    }
    if (rv == 0) {
        hash_tree_final(s, out);
    }
    free(buf);
    free(s);
    return rv;
}

/* On a worker. */
void machine_hash_run(struct machine_job *j)
{
    struct machine *m = j->m;
    size_t bytes = m->n * sizeof(float);

    switch (j->buffer) {
    case BUFFER_RING:
    case BUFFER_REDUCED:
        if (j->encode && j->from < m->n) {
            j->rc = m->codec->encode(j->slot->bytes + m->codec->bytes(j->from),
                                     trainer_contribution(m->trainer) + j->from,
                                     m->n - j->from, 1.0f);
        }
        if (j->rc == 0) {
            hash_tree(j->slot->bytes, m->codec->bytes(m->n), &j->hash);
        }
        return;
    case BUFFER_STATE:
        hash_tree(m->state_in, bytes, &j->params_hash);
        hash_tree(m->state_in + m->n, bytes, &j->momentum_hash);
        return;
    case BUFFER_SHARD:
        j->rc = hash_file(m->files[j->index].fd,
                          m->terms.shards[j->index].bytes, &j->hash);
        return;
    case BUFFER_KIND_COUNT:
        return;
    }
}

static void hash_failed(struct machine *m, const struct action *a, int rc)
{
    struct local_event ev = {
        .type = LOCAL_HASHED,
        .rc = rc,
        .buffer = a->buffer,
        .index = a->index,
        .request = a->request,
    };

    (void)shell_post(m->shell, &ev);
}

void machine_hash(struct machine *m, const struct action *a)
{
    struct machine_job *j;
    struct wire_slot *slot = NULL;
    bool ready = true;

    if (a->buffer == BUFFER_RING) {
        slot = a->encode ? slot_for(m, WIRE_RING, a->request)
                         : slot_find(m, WIRE_RING, a->request);
        ready = slot != NULL && m->trainer != NULL &&
                a->request != m->refused_attempt;
    } else if (a->buffer == BUFFER_REDUCED) {
        slot = slot_find(m, WIRE_FETCHED, a->index);
        ready = slot != NULL;
    } else if (a->buffer == BUFFER_STATE) {
        ready = m->state_in != NULL && m->state_round == a->index;
    } else {
        ready = a->index < m->terms.n_shards && m->files[a->index].fd >= 0;
    }
    j = ready ? machine_job_new(m, JOB_HASH) : NULL;
    if (j == NULL) {
        hash_failed(m, a, ready ? LOCO_ENOMEM : LOCO_ENOENT);
        return;
    }
    j->buffer = a->buffer;
    j->index = a->index;
    j->request = a->request;
    j->encode = a->encode;
    j->from = a->segment.offset;
    j->slot = slot;
    if (slot != NULL) {
        slot->pins++;
        slot->hashed = ++m->n_hashes;
    }
    machine_job_submit(m, j);
}

/* A shard is whole and verified: make it durable under its name. */
void machine_keep(struct machine *m, uint64_t index)
{
    struct shard_file *f = &m->files[index];
    char part[MACHINE_PATH_MAX + 8], errmsg[ERRMSG_SIZE];

    (void)snprintf(part, sizeof part, "%s.part", f->path);
    if (fsync(f->fd) != 0 || rename(part, f->path) != 0 ||
        shard_open(&f->shard, f->path, errmsg) != 0) {
        log_error("data", "cannot keep shard %s: %s; check the disk", f->path,
                  strerror(errno));
        machine_stop(m, LOCO_EXIT_RESOURCES);
        return;
    }
    (void)close(f->fd);
    f->fd = -1;
    f->held = true;
    log_info("data", "shard %s is here and verified", f->path);
}
