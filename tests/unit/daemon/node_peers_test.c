/* node_peers_test.c - a node and its peers cache: dialled after a restart,
 * written from what the node knows, ignored when damaged. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "daemon/node/node.h"
#include "p2p/swarm/peers.h"

struct fixture {
    struct identity self, peer[3];
    struct signer signer;
    struct node *node;
    struct out *out;
    uint64_t now_ms;
};

static struct address address_of(int i)
{
    struct address a = {.port = (uint16_t)(4000 + i)};

    a.ip[10] = a.ip[11] = 255;
    a.ip[12] = 10;
    a.ip[15] = (uint8_t)i;
    return a;
}

static void setup(struct fixture *f, const uint8_t *bytes, size_t len)
{
    struct node_options o = {.dialable = true,
                             .listen_port = 3999,
                             .seed = 1,
                             .time_scale = 1,
                             .peers = bytes,
                             .peers_len = len};

    memset(f, 0, sizeof *f);
    identity_fake(&f->self, 100);
    for (int i = 0; i < 3; i++) {
        identity_fake(&f->peer[i], (uint64_t)i);
    }
    f->signer = signer_keyed(&f->self);
    f->now_ms = 1000;
    f->out = calloc(1, sizeof *f->out);
    assert_non_null(f->out);
    o.self = f->self.id;
    memcpy(o.public_key, f->self.public, sizeof o.public_key);
    o.signer = f->signer;
    assert_int_equal(node_open(&f->node, &o, f->now_ms), 0);
}

static void teardown(struct fixture *f)
{
    node_close(f->node);
    free(f->out);
}

/* Let `ms` pass in ticks; the first action of `type`, where it is a job the
 * first of `job`, ends it. */
static const struct action *tick_until(struct fixture *f,
                                       uint64_t ms,
                                       enum action_type type,
                                       enum job_type job)
{
    uint64_t end = f->now_ms + ms;

    while (f->now_ms < end) {
        struct event e = {.type = EVENT_TICK, .wall_s = 1800000000};

        f->now_ms += 100;
        e.now_ms = f->now_ms;
        node_step(f->node, &e, f->out);
        for (uint32_t i = 0; i < f->out->n; i++) {
            const struct action *a = &f->out->action[i];

            if (a->type == type && (type != ACTION_JOB || a->job.type == job)) {
                return a;
            }
        }
    }
    return NULL;
}

static int encode(const struct fixture *f, uint8_t bytes[PEERS_BYTES_MAX])
{
    static struct kbucket_table empty;
    struct kbucket_contact pool[1];
    struct kbucket_options opt = {.contacts_max = 1, .k = 1, .failures_max = 1};
    struct address a = address_of(2);
    struct peers p;

    kbucket_init(&empty, &opt, pool, 0);
    peers_collect(&p, &empty);
    p.n = 1;
    p.contact[0].id = f->peer[2].id;
    memcpy(p.contact[0].ip, a.ip, sizeof a.ip);
    p.contact[0].port = a.port;
    return peers_encode(&p, bytes, PEERS_BYTES_MAX);
}

static void who_is_in_the_cache_is_dialled_as_who_they_are(void **state)
{
    uint8_t bytes[PEERS_BYTES_MAX];
    const struct action *a;
    struct address at = address_of(2);
    struct fixture f;
    int n;

    (void)state;
    setup(&f, NULL, 0);
    n = encode(&f, bytes);
    assert_true(n > 0);
    assert_null(tick_until(&f, 2000, ACTION_DIAL, 0)); /* it knows nobody */
    teardown(&f);
    setup(&f, bytes, (size_t)n);
    a = tick_until(&f, 2000, ACTION_DIAL, 0);
    assert_non_null(a);
    assert_true(address_eq(&a->dial.address, &at));
    assert_memory_equal(a->dial.peer.b, f.peer[2].id.b, ID_BYTES);
    teardown(&f);
}

static void the_cache_is_written_when_there_is_something_new(void **state)
{
    struct event up = {.type = EVENT_LINK_UP,
                       .link_up.link = 7,
                       .link_up.inbound =
                           false, /* we dialled it, so others can */
                       .link_up.address = address_of(1)};
    const struct action *a;
    struct fixture f;
    struct peers p;

    (void)state;
    setup(&f, NULL, 0);
    /* Nothing to be kept; and a silent peer is one only until it fails. */
    assert_null(tick_until(&f, 9800, ACTION_JOB, JOB_PEERS));
    up.now_ms = f.now_ms;
    up.link_up.peer = f.peer[1].id;
    memcpy(up.link_up.public_key, f.peer[1].public,
           sizeof up.link_up.public_key);
    node_step(f.node, &up, f.out);
    a = tick_until(&f, 1000, ACTION_JOB, JOB_PEERS);
    assert_non_null(a);
    assert_int_equal(
        peers_decode(f.out->bytes + a->job.peers.at, a->job.peers.len, &p), 0);
    assert_int_equal(p.n, 1);
    assert_memory_equal(p.contact[0].id.b, f.peer[1].id.b, ID_BYTES);
    assert_int_equal(p.contact[0].port, 4001);
    assert_null(
        tick_until(&f, 130000, ACTION_JOB, JOB_PEERS)); /* and nothing new */
    teardown(&f);
}

static void a_damaged_cache_is_said_and_ignored(void **state)
{
    static const uint8_t garbage[] = "what a full disk left";
    const struct action *a;
    struct fixture f;

    (void)state;
    setup(&f, garbage, sizeof garbage);
    a = tick_until(&f, 1000, ACTION_JOB, JOB_LOG);
    assert_non_null(a);
    assert_non_null(
        strstr((const char *)f.out->bytes + a->job.log.text.at, "damaged"));
    assert_null(tick_until(&f, 2000, ACTION_DIAL, 0));
    teardown(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_is_in_the_cache_is_dialled_as_who_they_are),
        cmocka_unit_test(the_cache_is_written_when_there_is_something_new),
        cmocka_unit_test(a_damaged_cache_is_said_and_ignored),
    };

    return cmocka_run_group_tests_name("node_peers", tests, NULL, NULL);
}
