/* shared.c - see shared.h. */
#include "daemon/client/shared.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "daemon/client/loco.h"
#include "proto/base/errmsg.h"

#define N_PARTS 4

struct part {
    const char *name;
    uint64_t at, n, size, align; /* n things of `size` bytes */
};

static int bad(char *errmsg, const char *name, const char *what)
{
    return errmsg_fail(errmsg, LOCO_FAIL_PROTOCOL,
                       "locod's shared file is malformed: %s %s", name, what);
}

static bool part_in(const struct part *p, uint64_t file_bytes)
{
    return p->at <= file_bytes && p->n <= (file_bytes - p->at) / p->size;
}

static bool overlap(const struct part *a, const struct part *b)
{
    return a->at < b->at + b->n * b->size && b->at < a->at + a->n * a->size;
}

static int check_parts(const struct part *p, size_t n, uint64_t bytes, char *e)
{
    for (size_t i = 0; i < n; i++) {
        if (!part_in(&p[i], bytes)) {
            return bad(e, p[i].name, "ends behind it");
        }
        if (p[i].at % p[i].align != 0) {
            return bad(e, p[i].name, "is not aligned");
        }
        for (size_t j = 0; j < i; j++) {
            if (overlap(&p[i], &p[j])) {
                return bad(e, p[i].name, "lies over something else");
            }
        }
    }
    return 0;
}

int shared_check(const struct trainer_welcome *w,
                 uint64_t file_bytes,
                 char *errmsg)
{
    uint64_t text = (uint64_t)w->batch * w->seq;
    const struct part parts[N_PARTS] = {
        {"the list of tensors", w->layout_at, w->layout_bytes, 1, 8},
        {"theta", w->theta_at, w->n, sizeof(float), 8},
        {"the tokens", w->tokens_at, text, sizeof(uint32_t), 4},
        {"the targets", w->targets_at, text, sizeof(uint32_t), 4},
    };
    bool has_text = w->tokens_at != 0 || w->targets_at != 0;

    if (w->version != TRAINER_MSG_VERSION) {
        return errmsg_fail(errmsg, LOCO_FAIL_PROTOCOL,
                           "locod speaks version %u to training loops, this "
                           "library version %u: install the same release of "
                           "both",
                           w->version, TRAINER_MSG_VERSION);
    }
    if (w->bytes != file_bytes || file_bytes > SIZE_MAX) {
        return bad(errmsg, "it", "has another size than was said");
    }
    if (w->n == 0 || w->layout_bytes == 0) {
        return bad(errmsg, "theta", "is empty");
    }
    if (has_text && (text == 0 || w->vocab == 0 || w->tokens_at == 0 ||
                     w->targets_at == 0)) {
        return bad(errmsg, "the text", "is empty");
    }
    return check_parts(parts, has_text ? N_PARTS : 2, file_bytes, errmsg);
}

int shared_map(struct shared *out,
               const struct trainer_welcome *w,
               int fd,
               char *errmsg)
{
    struct stat st;
    uint8_t *map;
    int rv;

    memset(out, 0, sizeof *out);
    if (fstat(fd, &st) != 0 || st.st_size < 0) {
        return errmsg_fail(errmsg, LOCO_FAIL_SYSTEM,
                           "cannot ask for the size of the shared file: %s",
                           strerror(errno));
    }
    rv = shared_check(w, (uint64_t)st.st_size, errmsg);
    if (rv != 0) {
        return rv;
    }
    map =
        mmap(NULL, (size_t)w->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED) {
        return errmsg_fail(errmsg, LOCO_FAIL_SYSTEM,
                           "cannot map %" PRIu64 " bytes shared with locod: %s",
                           w->bytes, strerror(errno));
    }
    out->map = map;
    out->bytes = (size_t)w->bytes;
    out->theta = (float *)(void *)(map + w->theta_at);
    if (w->tokens_at != 0) {
        out->tokens = (const uint32_t *)(const void *)(map + w->tokens_at);
        out->targets = (const uint32_t *)(const void *)(map + w->targets_at);
    }
    return 0;
}

void shared_unmap(struct shared *s)
{
    if (s->map != NULL) {
        (void)munmap(s->map, s->bytes);
    }
    memset(s, 0, sizeof *s);
}

int shared_text(const struct shared *s,
                const struct trainer_welcome *w,
                uint32_t rows,
                uint32_t *out,
                char *errmsg)
{
    size_t n = (size_t)rows * w->seq;

    if (s->tokens == NULL || rows == 0 || rows > w->batch) {
        return bad(errmsg, "the text", "has another number of rows");
    }
    memcpy(out, s->tokens, n * sizeof out[0]);
    memcpy(out + n, s->targets, n * sizeof out[0]);
    for (size_t i = 0; i < n; i++) {
        if (out[i] >= w->vocab ||
            (out[n + i] >= w->vocab && out[n + i] != TRAINER_NO_TARGET)) {
            return bad(errmsg, "the text", "has a token that is none");
        }
    }
    return 0;
}
