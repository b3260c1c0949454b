/* machine_marks.c - what the disk has of slices that this machine holds, for
 * when all have stopped (p2p/OWNERS.md).
 *
 * slices/I/ has the state of slice I as it was at its last mark: a checkpoint
 * (train/checkpoint.h) whose vectors phi, m and sum have the slice's elements
 * and whose round is its flush, with its version beside. Each is written when
 * the disk has time, one after the other; a mark that comes before the one
 * before it was written takes its place. What is left of a slice that others
 * hold by now is older than theirs, and the newest counts.
 *
 * The peer's own checkpoint has what it read last, of all slices, with their
 * versions: it stands in for slices that nobody brings.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "daemon/machine_internal.h"
#include "daemon/state_dir.h"
#include "proto/base/err.h"
#include "proto/base/log.h"
#include "train/errmsg.h"

#define VERSION_TEXT                                                           \
    80 /* five numbers, of 20 and 10 digits at most, spaces                    \
        */

_Static_assert(TERMS_SLICES_MAX >= OWNERS_SLICES_MAX, "terms have all slices");

/* ---- versions as text --------------------------------------------------- */

static size_t
print_version(char *to, size_t room, const struct slice_version *v)
{
    int n = snprintf(to, room, "%" PRIu64 " %" PRIu64 " %" PRIu64 " %u %u ",
                     v->generation, v->position, v->flush, v->size, v->count);

    return n < 0 ? 0 : (size_t)n;
}

/* Its five numbers from *text on; false: there are none, or they are no
 * version. */
static bool parse_version(const char **text, struct slice_version *v)
{
    uint64_t x[5];

    for (int i = 0; i < 5; i++) {
        char *end = NULL;

        if (**text < '0' || **text > '9') {
            return false;
        }
        errno = 0;
        x[i] = strtoull(*text, &end, 10);
        if (errno != 0 || *end != ' ') {
            return false;
        }
        *text = end + 1;
    }
    if (x[3] > UINT32_MAX || x[4] > UINT32_MAX) {
        return false;
    }
    *v = (struct slice_version){x[0], x[1], x[2], (uint32_t)x[3],
                                (uint32_t)x[4]};
    return true;
}

/* As reading k. */
static void
note(struct machine *m, uint64_t k, const struct slice_version *version)
{
    size_t room = m->terms.n_slices * VERSION_TEXT + 1, at = 0;
    char *text = malloc(room);

    for (uint32_t i = 0; text != NULL && i < m->terms.n_slices; i++) {
        at += print_version(text + at, room - at, &version[i]);
    }
    free(m->read[k & 1]);
    m->read[k & 1] = text;
}

uint64_t machine_note_reading(struct machine *m)
{
    m->n_readings++;
    note(m, m->n_readings, slice_store_seen(m->slices));
    return m->n_readings;
}

const char *machine_reading(const struct machine *m, const struct snapshot *s)
{
    return s->reading + 1 >= m->n_readings ? m->read[s->reading & 1] : NULL;
}

void machine_restore_reading(struct machine *m)
{
    const char *text = checkpoint_text(&m->restore, "slices");

    if (text == NULL || m->slices == NULL) {
        return;
    }
    for (uint32_t i = 0; i < m->terms.n_slices; i++) {
        if (!parse_version(&text, &m->terms.slice_read[i])) {
            memset(m->terms.slice_read, 0, sizeof m->terms.slice_read);
            return; /* all of it or nothing */
        }
    }
    slice_store_put_reading(m->slices, m->restore.state.phi);
    note(m, 0, m->terms.slice_read);
}

/* ---- files -------------------------------------------------------------- */

static int
directory(const struct machine *m, uint32_t slice, char path[MACHINE_PATH_MAX])
{
    int n = snprintf(path, MACHINE_PATH_MAX, "%s/" STATE_DIR_SLICES "/%u",
                     m->opt.state_dir, slice);

    return n < 0 || n >= MACHINE_PATH_MAX ? LOCO_ERANGE : 0;
}

/* False: it is of another run, or not all is there. */
static bool
is_ours(const struct machine *m, const struct checkpoint *c, uint32_t slice)
{
    char run[ID_HEX_MAX];

    hash32_hex(&m->opt.run_id, run);
    return c->state.n == slice_store_len(m->slices, slice) &&
           c->state.m != NULL && c->state.sum != NULL &&
           c->state.run_id != NULL && strcmp(c->state.run_id, run) == 0;
}

static void find(struct machine *m, uint32_t slice)
{
    struct slice_version *to = &m->terms.slice_held[slice];
    char path[MACHINE_PATH_MAX], errmsg[ERRMSG_SIZE];
    struct checkpoint c;
    const char *text;

    if (directory(m, slice, path) != 0) {
        return;
    }
    if (checkpoint_open_newest(&c, path, errmsg) == 0) {
        text = checkpoint_text(&c, "version");
        if (!is_ours(m, &c, slice) || text == NULL ||
            !parse_version(&text, to)) {
            log_warn("state", "%s has no slice of this run and is not used",
                     path);
            memset(to, 0, sizeof *to);
        } else if (slice_store_put(m->slices, slice, c.state.phi, c.state.m,
                                   c.state.sum) != 0) {
            memset(to, 0, sizeof *to);
        }
    }
    checkpoint_close(&c);
}

void machine_marks_find(struct machine *m)
{
    for (uint32_t i = 0; m->slices != NULL && i < m->terms.n_slices; i++) {
        find(m, i);
    }
}

void machine_mark_run(struct machine_job *j)
{
    struct machine *m = j->m;
    const struct slice_mark *mark = &j->mark;
    uint64_t n = slice_store_len(m->slices, mark->slice);
    char path[MACHINE_PATH_MAX], run[ID_HEX_MAX], version[VERSION_TEXT + 1];
    const struct st_meta extra = {.key = "version", .value = version};
    const struct checkpoint_state state = {.n = n,
                                           .phi = mark->v,
                                           .m = mark->v + n,
                                           .sum = mark->v + 2 * n,
                                           .round = mark->at.flush,
                                           .run_id = run};

    (void)print_version(version, sizeof version, &mark->at);
    hash32_hex(&m->opt.run_id, run);
    j->rc = directory(m, mark->slice, path);
    if (j->rc == 0 && mkdir(path, 0755) != 0 && errno != EEXIST) {
        j->rc = errmsg_fail(j->errmsg, LOCO_EIO, "cannot make %.180s: %s", path,
                            strerror(errno));
    }
    if (j->rc == 0) {
        j->rc = checkpoint_save(path, &state, &extra, 1, 1, j->errmsg);
    }
}

void machine_marks_advance(struct machine *m)
{
    struct slice_mark mark;
    struct machine_job *j;

    if (m->marking || m->slices == NULL ||
        !slice_store_next_mark(m->slices, &mark)) {
        return;
    }
    j = machine_job_new(m, JOB_MARK);
    if (j == NULL) { /* the next mark of that slice is tried again */
        free(mark.v);
        return;
    }
    j->mark = mark;
    m->marking = true;
    machine_job_submit(m, j);
}

void machine_mark_done(struct machine *m, struct machine_job *j)
{
    m->marking = false;
    free(j->mark.v);
    if (j->rc == 0) {
        machine_marks_advance(m);
        return;
    }
    log_error("state",
              "slice %u was not written: %s; what was written before is intact",
              j->mark.slice, j->errmsg);
    if (j->rc == LOCO_EDISK) {
        machine_stop(m, LOCO_EXIT_RESOURCES);
    }
}

uint64_t machine_marks_bytes(const struct machine *m)
{
    /* Each slice once, one more while it is written, and their headers. */
    return (3 * m->n + 3 * m->terms.slice_elements) * sizeof(float) +
           (m->terms.n_slices + 1ULL) * 4096;
}
