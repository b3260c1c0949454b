/* layout_fuzz.c - a hostile shared file: the list of a run's tensors, and a
 * WELCOME that says where things lie. What is accepted tiles theta.
 *
 * The first two bytes are the number of tensors and of elements; a WELCOME
 * packet may follow instead of the list. */
#include <stdlib.h>
#include <string.h>

#include "daemon/client/layout.h"
#include "daemon/client/shared.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_layout(const uint8_t *data, size_t size, const uint8_t n[2])
{
    char errmsg[LOCO_ERRMSG_MAX];
    struct layout layout;
    uint64_t at = 0;

    if (layout_read(&layout, data, size, n[0], n[1], errmsg) != 0) {
        return;
    }
    for (uint32_t i = 0; i < layout.n; i++) {
        if (layout.tensors[i].offset != at ||
            strlen(layout.tensors[i].name) == 0) {
            abort();
        }
        at += layout.tensors[i].numel;
    }
    if (at != n[1] ||
        layout_check(&layout, layout.tensors, layout.n, errmsg) != 0) {
        abort();
    }
    layout_free(&layout);
}

static void check_welcome(const uint8_t *data, size_t size)
{
    char errmsg[LOCO_ERRMSG_MAX];
    struct trainer_msg m;

    if (trainer_msg_decode(data, size, TRAINER_SENDER_DAEMON, &m) != 0 ||
        m.type != TRAINER_MSG_WELCOME ||
        shared_check(&m.welcome, m.welcome.bytes, errmsg) != 0) {
        return;
    }
    if (m.welcome.n > m.welcome.bytes / sizeof(float) ||
        m.welcome.theta_at > m.welcome.bytes - m.welcome.n * sizeof(float) ||
        m.welcome.layout_bytes > m.welcome.bytes) {
        abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size > 2) {
        check_layout(data + 2, size - 2, data);
        check_welcome(data + 2, size - 2);
    }
    return 0;
}
