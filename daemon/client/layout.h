/* layout.h - the list of a run's tensors, as it lies in the shared file.
 *
 * Entries of struct trainer_tensor with their names, see trainer_msg.h. The
 * bytes are copied before they are read: the other process may change them.
 * What is accepted tiles theta: in its order, without a hole, without overlap.
 *
 * How it fails: LOCO_FAIL_PROTOCOL with a sentence in errmsg
 * (LOCO_ERRMSG_MAX), LOCO_FAIL_MEMORY; the layout is then empty.
 */
#ifndef LOCO_DAEMON_CLIENT_LAYOUT_H
#define LOCO_DAEMON_CLIENT_LAYOUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/client/loco.h"

#define LAYOUT_BYTES_MAX   (256U << 20)
#define LAYOUT_TENSORS_MAX (1U << 20)
#define LAYOUT_NAME_MAX    512

struct layout {
    uint32_t n;
    struct loco_tensor *tensors;
    char *names; /* to which they point, each with a NUL */
    uint8_t *bytes;
    size_t n_bytes;
};

/* `n_tensors` tensors of together `n` elements in bytes[len]. */
int layout_read(struct layout *out,
                const uint8_t *bytes,
                size_t len,
                uint32_t n_tensors,
                uint64_t n,
                char *errmsg);

bool layout_equal(const struct layout *a, const struct layout *b);

/* Whether mine[n] are the same tensors; LOCO_FAIL_VALUE and the first
 * difference if not. */
int layout_check(const struct layout *layout,
                 const struct loco_tensor *mine,
                 uint32_t n,
                 char *errmsg);

void layout_free(struct layout *layout);

#endif
