/* disk_fault.h - a disk that fails at the n-th call.
 *
 * The test is linked with --wrap for write, fsync and rename (tests.cmake), so
 * that the code under test calls these. disk_fault_arm(n, err) lets the n-th
 * call from now on, counted from 0, fail with errno = err, and all after it:
 * a full disk stays full. disk_fault_kill(n) ends the process instead, as
 * SIGKILL would, before the n-th call; a write is made by half first. Include
 * once per program.
 */
#ifndef LOCO_TESTS_UNIT_TRAIN_DISK_FAULT_H
#define LOCO_TESTS_UNIT_TRAIN_DISK_FAULT_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>
#include <unistd.h>

/* NOLINTBEGIN(readability-identifier-naming, bugprone-reserved-identifier):
 * the linker's names */
ssize_t __real_write(int fd, const void *buf, size_t len);
int __real_fsync(int fd);
int __real_rename(const char *from, const char *to);
ssize_t __wrap_write(int fd, const void *buf, size_t len);
int __wrap_fsync(int fd);
int __wrap_rename(const char *from, const char *to);

static struct {
    bool armed;
    unsigned left; /* calls that still succeed */
    bool hit;
    bool kill;
    int err;
} disk_fault;

static inline void disk_fault_arm(unsigned nth, int err)
{
    disk_fault.armed = true;
    disk_fault.left = nth;
    disk_fault.hit = false;
    disk_fault.err = err;
}

static inline void disk_fault_kill(unsigned nth)
{
    disk_fault_arm(nth, EIO);
    disk_fault.kill = true;
}

/* Whether a call failed since it was armed. */
static inline bool disk_fault_disarm(void)
{
    disk_fault.armed = false;
    return disk_fault.hit;
}

#define DISK_FAULT_KILLED 99

static inline bool disk_fault_fails(int fd, const void *buf, size_t len)
{
    if (!disk_fault.armed) {
        return false;
    }
    if (disk_fault.left > 0) {
        disk_fault.left--;
        return false;
    }
    disk_fault.hit = true;
    if (disk_fault.kill) {
        if (len > 0) {
            (void)!__real_write(fd, buf, len / 2);
        }
        _exit(DISK_FAULT_KILLED);
    }
    errno = disk_fault.err;
    return true;
}

ssize_t __wrap_write(int fd, const void *buf, size_t len)
{
    return disk_fault_fails(fd, buf, len) ? -1 : __real_write(fd, buf, len);
}

int __wrap_fsync(int fd)
{
    return disk_fault_fails(fd, NULL, 0) ? -1 : __real_fsync(fd);
}

int __wrap_rename(const char *from, const char *to)
{
    return disk_fault_fails(-1, NULL, 0) ? -1 : __real_rename(from, to);
}
/* NOLINTEND */

#endif
