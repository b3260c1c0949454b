/* peers_test.c - the peers cache: what is kept, what is not believed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "p2p/swarm/peers.h"
#include "proto/base/err.h"

#define K 4

struct fixture {
    struct kbucket_table t;
    void *memory;
    struct peers p;
};

static void setup(struct fixture *f)
{
    struct kbucket_options opt = {
        .contacts_max = 512, .k = K, .cache = 2, .failures_max = 2};

    f->memory = malloc(kbucket_bytes(&opt));
    assert_non_null(f->memory);
    kbucket_init(&f->t, &opt, f->memory, 0);
}

/* Member i of bucket b; our id is zero. */
static struct peer_id id_of(int b, uint8_t i)
{
    struct peer_id id = {.b = {[31] = i}};

    id.b[(255 - b) / 8] |= (uint8_t)(1U << (b % 8));
    return id;
}

static void see(struct fixture *f, int b, uint8_t i, uint64_t now_ms)
{
    struct peer_id id = id_of(b, i);
    struct address a = {.ip = {[15] = i}, .port = (uint16_t)(1000 + b)};

    (void)kbucket_seen(&f->t, &id, &a, now_ms);
}

static void the_oldest_of_every_bucket_come_first(void **state)
{
    struct fixture f;

    (void)state;
    setup(&f);
    for (int b = 230; b < 256; b++) {
        for (uint8_t i = 1; i <= K; i++) {
            see(&f, b, i, 100 - i); /* the last one is the oldest */
        }
    }
    peers_collect(&f.p, &f.t);
    assert_int_equal(f.p.n, PEERS_CACHE_MAX);
    for (int b = 255; b >= 230; b--) {
        const struct peers_contact *c = &f.p.contact[255 - b];
        struct peer_id oldest = id_of(b, K);

        assert_memory_equal(c->id.b, oldest.b, ID_BYTES);
        assert_int_equal(c->port, 1000 + b);
        assert_int_equal(c->ip[15], K);
    }
    free(f.memory);
}

static void who_failed_is_not_kept(void **state)
{
    struct peer_id id = id_of(255, 1);
    struct fixture f;

    (void)state;
    setup(&f);
    see(&f, 255, 1, 1);
    see(&f, 255, 2, 1);
    kbucket_failed(&f.t, &id);
    peers_collect(&f.p, &f.t);
    assert_int_equal(f.p.n, 1);
    assert_int_equal(f.p.contact[0].ip[15], 2);
    free(f.memory);
}

static void bytes_come_back_and_no_other_bytes_are_a_list(void **state)
{
    uint8_t bytes[PEERS_BYTES_MAX + 1], bad[PEERS_BYTES_MAX + 1];
    struct fixture f;
    struct peers back;
    int n;

    (void)state;
    setup(&f);
    for (int b = 230; b < 256; b++) {
        for (uint8_t i = 1; i <= K; i++) {
            see(&f, b, i, i);
        }
    }
    peers_collect(&f.p, &f.t);
    n = peers_encode(&f.p, bytes, PEERS_BYTES_MAX);
    assert_in_range(n, 1, PEERS_BYTES_MAX);
    assert_int_equal(peers_decode(bytes, (size_t)n, &back), 0);
    assert_int_equal(back.n, f.p.n);
    for (uint32_t i = 0; i < back.n; i++) {
        assert_memory_equal(back.contact[i].id.b, f.p.contact[i].id.b,
                            ID_BYTES);
        assert_memory_equal(back.contact[i].ip, f.p.contact[i].ip, 16);
        assert_int_equal(back.contact[i].port, f.p.contact[i].port);
    }
    for (int cut = 0; cut < n; cut++) {
        assert_int_equal(peers_decode(bytes, (size_t)cut, &back), LOCO_EFORMAT);
    }
    bytes[n] = 0;
    assert_int_equal(peers_decode(bytes, (size_t)n + 1, &back), LOCO_EFORMAT);
    memcpy(bad, bytes, sizeof bad);
    bad[5] ^= 1; /* the magic */
    assert_int_equal(peers_decode(bad, (size_t)n, &back), LOCO_EFORMAT);
    f.p.contact[3].port = 0;
    n = peers_encode(&f.p, bytes, PEERS_BYTES_MAX);
    assert_int_equal(peers_decode(bytes, (size_t)n, &back), LOCO_EFORMAT);
    free(f.memory);
}

static void an_empty_table_gives_an_empty_list(void **state)
{
    uint8_t bytes[PEERS_BYTES_MAX];
    struct fixture f;
    struct peers back;
    int n;

    (void)state;
    setup(&f);
    peers_collect(&f.p, &f.t);
    n = peers_encode(&f.p, bytes, sizeof bytes);
    assert_int_equal(peers_decode(bytes, (size_t)n, &back), 0);
    assert_int_equal(back.n, 0);
    free(f.memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_oldest_of_every_bucket_come_first),
        cmocka_unit_test(who_failed_is_not_kept),
        cmocka_unit_test(bytes_come_back_and_no_other_bytes_are_a_list),
        cmocka_unit_test(an_empty_table_gives_an_empty_list),
    };

    return cmocka_run_group_tests_name("peers", tests, NULL, NULL);
}
