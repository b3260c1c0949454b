/* frame_conn_fuzz.c - a shell whose peers send anything: it never crashes and
 * is empty again when they are gone.
 *
 * Byte 0 names what the sender is: a stranger (the rest is sent as it is), or
 * a peer with a valid handshake, for control or for bulk; then the rest is cut
 * into records, {u8 length, bytes} each, and every record is properly sealed;
 * or one for bulk without encryption: the rest is sent as it is again.
 */
#include "tests/unit/uv/toy.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define RECORDS_MAX 64

static struct node hub, client;
static uv_loop_t loop;

static void start(void)
{
    struct shell_options opt;

    if (sign_start() != 0) {
        abort();
    }
    uv_loop_init(&loop);
    opt = node_init(&hub, 1);
    opt.accepts_per_s = 1000000;
    opt.plain_bulk = true;
    hub.toy.anybody = true;
    node_open(&hub, &loop, &opt);
    node_init(&client, 2);
}

/* Where payload could go, if a header asks for it. */
static void post_some(void)
{
    hub.toy.n_queue = hub.toy.at = 0;
    node_act(&hub, ACTION_CANCEL)->cancel.attempt = 1;
    for (uint32_t seg = 0; seg < 3; seg++) {
        segment_act(&hub, ACTION_POST_RECV, &client, 2, seg, 0, seg * 100);
    }
    RUN_UNTIL(&loop, hub.toy.at == hub.toy.n_queue);
}

static void cancel_streams(uint64_t attempt)
{
    for (uint32_t stream = 0; stream < STREAM_COUNT; stream++) {
        struct action *a = node_act(&hub, ACTION_CANCEL);

        a->cancel.attempt = attempt;
        a->cancel.stream = stream;
    }
}

static void send_records(struct raw *r, const uint8_t *data, size_t size)
{
    uint8_t wire[4 + 255 + NOISE_TAG_BYTES];

    for (int i = 0; i < RECORDS_MAX && size > 0; i++) {
        size_t len = data[0] < size - 1 ? data[0] : size - 1;
        size_t n = raw_seal(r, data + 1, len, wire);

        if (!raw_write(r, &loop, wire, n)) {
            return;
        }
        data += 1 + len;
        size -= 1 + len;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct raw r;

    if (hub.shell == NULL) {
        start();
    }
    if (size < 1) {
        return 0;
    }
    hub.toy.n_log = 0;
    post_some();
    raw_connect(&r, hub.port);
    if (data[0] % 4 == 0) {
        raw_write(&r, &loop, data + 1, size - 1);
    } else if (data[0] % 4 == 3) {
        raw_shake_features(&r, &loop, &client.signer, CONNECTION_BULK,
                           HANDSHAKE_PLAIN_BULK);
        raw_write(&r, &loop, data + 1, size - 1);
    } else {
        raw_shake(&r, &loop, &client.signer,
                  data[0] % 4 == 1 ? CONNECTION_CONTROL : CONNECTION_BULK);
        send_records(&r, data + 1, size - 1);
    }
    close(r.fd);
    /* A frame that waits for its post holds its connection: end it. */
    cancel_streams(UINT64_MAX);
    RUN_UNTIL(&loop,
              hub.toy.at == hub.toy.n_queue && node_stats(&hub).conns == 0);
    cancel_streams(0);
    RUN_UNTIL(&loop, hub.toy.at == hub.toy.n_queue);
    if (node_stats(&hub).posts + node_stats(&hub).links +
            node_stats(&hub).bulks + node_stats(&hub).paused !=
        0) {
        abort();
    }
    return 0;
}
