/* disk.c - what a run takes of this machine's disk, and what it may.
 *
 * Everything of a run has a size that is known when its manifest is: shards,
 * checkpoints, a state that is fetched, reduced bytes of the last rounds. So a
 * quota is not watched: a run that could outgrow it is not begun, and keeps
 * within it by what is deleted anyway (checkpoint.h, machine/past.c).
 */
#include <errno.h>
#include <fts.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "daemon/jobs/run_needs.h"
#include "daemon/machine/internal.h"
#include "proto/base/err.h"
#include "proto/base/errmsg.h"

static uint64_t disk_need(const struct machine *m, unsigned keep)
{
    uint64_t need = run_disk(&m->vector, m->n, m->n_wire, keep);
    uint64_t largest = 0; /* missing: may come from a server and from peers */

    for (uint32_t i = 0; i < m->terms.n_shards; i++) {
        uint64_t bytes = m->files[i].elsewhere ? 0 : m->terms.shards[i].bytes;

        need += bytes;
        largest = !m->files[i].held && bytes > largest ? bytes : largest;
    }
    return need + largest;
}

int machine_disk_check(const struct machine *m, char *errmsg)
{
    unsigned keep = (unsigned)atomic_load(&m->use.keep);
    uint64_t quota = atomic_load(&m->use.disk_quota);
    uint64_t need = disk_need(m, keep);

    if (quota == 0 || need <= quota) {
        return 0;
    }
    return errmsg_fail(errmsg, LOCO_EDISK,
                       "the run needs %.1f MB of disk with %u checkpoints, and "
                       "disk_bytes allows %.1f MB: raise it, or keep fewer "
                       "checkpoints (keep)",
                       (double)need / 1e6, keep, (double)quota / 1e6);
}

bool machine_disk_fits(const struct machine *m, uint64_t quota, unsigned keep)
{
    return quota == 0 || !m->configured || disk_need(m, keep) <= quota;
}

/* Blocks that are really taken: files that are being fetched have holes. */
void machine_disk_measure(struct machine *m)
{
    char *const roots[] = {(char *)(uintptr_t)m->opt.state_dir, NULL};
    FTS *tree = fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR, NULL);
    uint64_t bytes = 0;
    FTSENT *e;

    if (tree == NULL) {
        return;
    }
    while ((e = fts_read(tree)) != NULL) {
        if (e->fts_info == FTS_F) {
            bytes += (uint64_t)e->fts_statp->st_blocks * 512;
        }
    }
    (void)fts_close(tree);
    atomic_store(&m->use.disk_used, bytes);
}

uint64_t machine_disk_used(const struct machine *m)
{
    return atomic_load(&m->use.disk_used);
}

int machine_read_at(int fd, uint64_t at, uint8_t *to, size_t len)
{
    for (size_t done = 0; done < len;) {
        ssize_t n = pread(fd, to + done, len - done, (off_t)(at + done));

        if (n <= 0 && !(n < 0 && errno == EINTR)) {
            return LOCO_EIO;
        }
        done += n > 0 ? (size_t)n : 0;
    }
    return 0;
}

int machine_write_at(int fd, uint64_t at, const uint8_t *from, size_t len)
{
    for (size_t done = 0; done < len;) {
        ssize_t n = pwrite(fd, from + done, len - done, (off_t)(at + done));

        if (n <= 0 && !(n < 0 && errno == EINTR)) {
            return errno == ENOSPC || errno == EDQUOT ? LOCO_EDISK : LOCO_EIO;
        }
        done += n > 0 ? (size_t)n : 0;
    }
    return 0;
}
