/* kbucket_test.c - the routing table, its limiter and its shortlist. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "p2p/dht/kbucket.h"
#include "p2p/dht/shortlist.h"
#include "p2p/limiter.h"
#include "proto/base/rng.h"

#define K 8

struct fixture {
    struct kbucket_table t;
    void *memory;
};

static struct kbucket_options options(uint32_t contacts_max,
                                      uint32_t prefix_max)
{
    return (struct kbucket_options){.contacts_max = contacts_max,
                                    .k = K,
                                    .cache = 4,
                                    .failures_max = 2,
                                    .prefix_max = prefix_max};
}

static void setup_with(struct fixture *f, const struct kbucket_options *opt)
{
    f->memory = malloc(kbucket_bytes(opt));
    assert_non_null(f->memory);
    kbucket_init(&f->t, opt, f->memory, 0);
}

static void setup(struct fixture *f, uint32_t contacts_max, uint32_t prefix_max)
{
    struct kbucket_options opt = options(contacts_max, prefix_max);

    setup_with(f, &opt);
}

/* Our id is zero, so first byte 0x80..0xff is bucket 255. */
static struct peer_id id_make(uint8_t first, uint32_t number)
{
    struct peer_id id = {.b = {first}};

    put_u32(id.b + 28, number);
    return id;
}

static struct address address_make(uint8_t a, uint8_t c, uint16_t port)
{
    struct address address = {.port = port};

    address.ip[10] = address.ip[11] = 255;
    address.ip[12] = a;
    address.ip[13] = 1;
    address.ip[14] = c;
    address.ip[15] = 1;
    return address;
}

static enum kbucket_result
see(struct fixture *f, uint8_t first, uint32_t number, uint64_t now_ms)
{
    struct peer_id id = id_make(first, number);
    struct address address = address_make(10, 0, 4000);

    return kbucket_seen(&f->t, &id, &address, now_ms);
}

static bool has(const struct fixture *f, uint8_t first, uint32_t number)
{
    struct peer_id id = id_make(first, number);

    return kbucket_find(&f->t, &id) != NULL;
}

static void miss(struct fixture *f, uint8_t first, uint32_t number)
{
    struct peer_id id = id_make(first, number);

    kbucket_failed(&f->t, &id);
}

static void refuses_ourselves_and_clients(void **state)
{
    struct address client = address_make(10, 0, 0);
    struct peer_id id = id_make(0x80, 1);
    struct fixture f;

    (void)state;
    setup(&f, 64, 0);
    assert_int_equal(see(&f, 0, 0, 1), KBUCKET_REFUSED);
    assert_int_equal(kbucket_seen(&f.t, &id, &client, 1), KBUCKET_REFUSED);
    assert_int_equal(f.t.n, 0);
    assert_int_equal(see(&f, 0x80, 1, 2), KBUCKET_ADDED);
    assert_int_equal(see(&f, 0x80, 1, 3), KBUCKET_KNOWN);
    /* It turned into a client: it can no longer be asked. */
    assert_int_equal(kbucket_seen(&f.t, &id, &client, 4), KBUCKET_REFUSED);
    assert_int_equal(f.t.n, 0);
    free(f.memory);
}

static void a_full_bucket_keeps_the_old_live_contact(void **state)
{
    const struct kbucket_contact *c;
    struct fixture f;

    (void)state;
    setup(&f, 64, 0);
    for (uint32_t i = 0; i < K; i++) {
        assert_int_equal(see(&f, 0x80, i, i), KBUCKET_ADDED);
    }
    assert_null(kbucket_next_check(&f.t));
    assert_int_equal(see(&f, 0x80, 100, 50), KBUCKET_CACHED);
    assert_false(has(&f, 0x80, 100));
    assert_int_equal(f.t.n_wanted, 1);
    c = kbucket_next_check(&f.t);
    assert_non_null(c);
    assert_memory_equal(c->id.b, id_make(0x80, 0).b, ID_BYTES);
    assert_null(kbucket_next_check(&f.t)); /* one at a time */
    assert_int_equal(see(&f, 0x80, 0, 60), KBUCKET_KNOWN);
    assert_true(has(&f, 0x80, 0));
    assert_false(has(&f, 0x80, 100));
    /* The next newcomer asks for the next oldest, number 1. */
    assert_int_equal(see(&f, 0x80, 101, 70), KBUCKET_CACHED);
    c = kbucket_next_check(&f.t);
    assert_non_null(c);
    assert_memory_equal(c->id.b, id_make(0x80, 1).b, ID_BYTES);
    free(f.memory);
}

static void a_dead_contact_gives_its_place_to_the_newest_newcomer(void **state)
{
    struct fixture f;

    (void)state;
    setup(&f, 64, 0);
    for (uint32_t i = 0; i < K; i++) {
        (void)see(&f, 0x80, i, i);
    }
    (void)see(&f, 0x80, 100, 50);
    (void)see(&f, 0x80, 101, 51);
    assert_non_null(kbucket_next_check(&f.t));
    miss(&f, 0x80, 0);
    assert_true(has(&f, 0x80, 0)); /* one failure may be the network's */
    assert_non_null(kbucket_next_check(&f.t));
    miss(&f, 0x80, 0);
    assert_false(has(&f, 0x80, 0));
    assert_true(has(&f, 0x80, 101));
    assert_false(has(&f, 0x80, 100));
    assert_int_equal(f.t.n, K);
    free(f.memory);
}

static void stale_contacts_are_kept_but_not_told(void **state)
{
    const struct kbucket_contact *out[KBUCKET_K_MAX];
    struct peer_id target = id_make(0x80, 0);
    struct fixture f;

    (void)state;
    setup(&f, 64, 0);
    (void)see(&f, 0x80, 1, 1);
    (void)see(&f, 0x80, 2, 1);
    for (int i = 0; i < 300; i++) {
        miss(&f, 0x80, 1); /* saturates */
    }
    assert_true(has(&f, 0x80, 1));
    assert_int_equal(kbucket_closest(&f.t, &target, 8, false, out), 1);
    assert_int_equal(kbucket_closest(&f.t, &target, 8, true, out), 2);
    assert_int_equal(get_u32(out[0]->id.b + 28), 2); /* live before stale */
    assert_int_equal(see(&f, 0x80, 1, 9), KBUCKET_KNOWN);
    assert_int_equal(kbucket_closest(&f.t, &target, 8, false, out), 2);
    free(f.memory);
}

static void closest_agrees_with_sorting_everything(void **state)
{
    const struct kbucket_contact *out[KBUCKET_K_MAX];
    struct address address = address_make(10, 0, 4000);
    struct peer_id known[400];
    uint64_t rng = 7;
    uint32_t n_known = 0;
    struct fixture f;

    (void)state;
    setup(&f, 512, 0);
    for (int i = 0; i < 400; i++) {
        struct peer_id id = kbucket_random_id(&f.t, 255 - i % 60, &rng);

        assert_int_equal(id_xor_bucket(&f.t.opt.self, &id), 255 - i % 60);
        if (kbucket_seen(&f.t, &id, &address, 1) == KBUCKET_ADDED) {
            known[n_known++] = id;
        }
    }
    assert_int_equal(n_known, f.t.n);
    for (int i = 0; i < 50; i++) {
        struct peer_id target = kbucket_random_id(&f.t, 255 - i, &rng);
        size_t n = kbucket_closest(&f.t, &target, K, false, out);

        assert_int_equal(n, K);
        for (size_t j = 0; j < n; j++) {
            size_t closer = 0;

            for (uint32_t m = 0; m < n_known; m++) {
                closer += id_xor_cmp(&target, &known[m], &out[j]->id) < 0;
            }
            assert_int_equal(closer, j);
        }
    }
    free(f.memory);
}

static void one_prefix_cannot_fill_a_bucket(void **state)
{
    struct address a = address_make(93, 7, 4000), b = address_make(93, 8, 4000);
    struct peer_id id;
    struct fixture f;

    (void)state;
    setup(&f, 64, 2);
    for (uint32_t i = 0; i < 5; i++) {
        id = id_make(0x80, i);
        assert_int_equal(kbucket_seen(&f.t, &id, &a, i),
                         i < 2 ? KBUCKET_ADDED : KBUCKET_REFUSED);
    }
    id = id_make(0x80, 9);
    assert_int_equal(kbucket_seen(&f.t, &id, &b, 9), KBUCKET_ADDED);
    id = id_make(0x40, 9); /* another bucket counts for itself */
    assert_int_equal(kbucket_seen(&f.t, &id, &a, 9), KBUCKET_ADDED);
    id = id_make(0x80, 9); /* moving into the full prefix keeps the address */
    assert_int_equal(kbucket_seen(&f.t, &id, &a, 10), KBUCKET_KNOWN);
    assert_memory_equal(kbucket_find(&f.t, &id)->address.ip, b.ip, 16);
    free(f.memory);
}

static void one_prefix_cannot_fill_the_table(void **state)
{
    struct kbucket_options opt = options(64, 2);
    struct fixture f;
    uint32_t n = 0;

    (void)state;
    opt.table_prefix_max = 5;
    setup_with(&f, &opt);
    for (int b = 0; b < 8; b++) { /* two a bucket would be sixteen */
        for (uint32_t i = 0; i < 3; i++) {
            struct peer_id id = id_make((uint8_t)(0x80 >> b), i);
            struct address public = address_make(93, 7, 4000);

            n += kbucket_seen(&f.t, &id, &public, 1) == KBUCKET_ADDED;
        }
    }
    assert_int_equal(n, 5);
    assert_int_equal(f.t.n, 5);
    assert_int_equal(f.t.n_crowded, 19);
    for (uint32_t i = 0; i < 6; i++) { /* private ones are exempt */
        struct peer_id id = id_make(0x80, 100 + i);
        struct address carrier = address_make(100, 7, 4000);

        carrier.ip[13] = 64;
        assert_int_equal(kbucket_seen(&f.t, &id, &carrier, 2), KBUCKET_ADDED);
    }
    free(f.memory);
}

static void one_network_alone_fills_the_table_until_others_come(void **state)
{
    struct kbucket_options opt = options(64, 2);
    struct fixture f;
    uint32_t n = 0;

    (void)state;
    opt.table_prefix_max = 5;
    opt.diverse_min = 10;
    setup_with(&f, &opt);
    for (uint32_t i = 0; i < K; i++) {
        struct peer_id id = id_make(0x80, i);
        struct address public = address_make(93, 7, 4000);

        assert_int_equal(kbucket_seen(&f.t, &id, &public, i), KBUCKET_ADDED);
    }
    for (uint32_t i = 0; i < K; i++) { /* they take all places but two */
        struct peer_id id = id_make(0x80, 100 + i);
        struct address other = address_make(94, (uint8_t)i, 4000);

        n += kbucket_seen(&f.t, &id, &other, 100 + i) == KBUCKET_ADDED;
    }
    assert_int_equal(n, K - 2);
    assert_true(has(&f, 0x80, 0)); /* who was there first stays */
    assert_true(has(&f, 0x80, 1));
    assert_false(has(&f, 0x80, 2));
    for (uint32_t i = 0; i < 4; i++) {
        (void)see(&f, 0x40, i, 200);
    }
    {
        struct peer_id id = id_make(0x80, 50);
        struct address public = address_make(93, 7, 4000);

        assert_int_equal(kbucket_seen(&f.t, &id, &public, 201),
                         KBUCKET_REFUSED);
    }
    free(f.memory);
}

static void an_empty_pool_takes_from_caches_then_refuses(void **state)
{
    struct fixture f;

    (void)state;
    setup(&f, K + 2, 0);
    for (uint32_t i = 0; i < K + 2; i++) {
        (void)see(&f, 0x80, i, i); /* 8 members, 2 newcomers */
    }
    assert_int_equal(f.t.n_cached, 2);
    assert_int_equal(see(&f, 0x40, 0, 20), KBUCKET_ADDED);
    assert_int_equal(see(&f, 0x40, 1, 20), KBUCKET_ADDED);
    assert_int_equal(see(&f, 0x40, 2, 20), KBUCKET_REFUSED);
    assert_int_equal(f.t.n, K + 2);
    assert_int_equal(f.t.n_cached, 0);
    free(f.memory);
}

static void counts_stay_right_under_random_use(void **state)
{
    struct fixture f;
    uint64_t rng = 3;

    (void)state;
    setup(&f, 40, 0);
    for (uint64_t step = 0; step < 20000; step++) {
        uint8_t first = (uint8_t)(0x80 >> rng_below(&rng, 8));
        uint32_t number = (uint32_t)rng_below(&rng, 20);
        struct peer_id id = id_make(first, number);
        uint32_t n = 0, n_cached = 0, n_wanted = 0;

        switch (rng_below(&rng, 5)) {
        case 0:
            kbucket_failed(&f.t, &id);
            break;
        case 1:
            kbucket_remove(&f.t, &id);
            break;
        case 2:
            (void)kbucket_next_check(&f.t);
            break;
        default:
            (void)see(&f, first, number, step);
            break;
        }
        for (int b = 0; b < KBUCKET_COUNT; b++) {
            n += f.t.bucket[b].live.n;
            n_cached += f.t.bucket[b].cache.n;
            n_wanted += f.t.bucket[b].check == KBUCKET_CHECK_WANTED;
            assert_true(f.t.bucket[b].live.n <= K);
            assert_true(f.t.bucket[b].cache.n <= 4);
        }
        assert_int_equal(n, f.t.n);
        assert_int_equal(n_cached, f.t.n_cached);
        assert_int_equal(n_wanted, f.t.n_wanted);
        assert_true(n + n_cached <= 40);
    }
    for (int b = 0; b < KBUCKET_COUNT; b++) {
        const struct kbucket_contact *c = kbucket_first(&f.t, b);
        uint16_t n = 0;

        for (; c != NULL; c = kbucket_after(&f.t, c)) {
            assert_int_equal(id_xor_bucket(&f.t.opt.self, &c->id), b);
            assert_false(c->cached);
            n++;
        }
        assert_int_equal(n, f.t.bucket[b].live.n);
    }
    free(f.memory);
}

static void refresh_walks_every_bucket_down_to_the_closest(void **state)
{
    struct fixture f;
    uint64_t rng = 1;
    int n = 0;

    (void)state;
    setup(&f, 64, 0);
    assert_int_equal(kbucket_refresh_next(&f.t, 5000, 1000), -1);
    (void)see(&f, 0x08, 1, 1); /* bucket 251 */
    assert_int_equal(kbucket_refresh_next(&f.t, 999, 1000), -1);
    for (int b; (b = kbucket_refresh_next(&f.t, 1000, 1000)) >= 0; n++) {
        struct peer_id target = kbucket_random_id(&f.t, b, &rng);

        assert_int_equal(b, 255 - n);
        kbucket_touch(&f.t, &target, 1000);
    }
    assert_int_equal(n, 5);
    kbucket_expire_refresh(&f.t, 1000, 5000); /* wraps below zero */
    assert_int_equal(kbucket_refresh_next(&f.t, 1000, 5000), 255);
    free(f.memory);
}

static void limiter_grants_the_rate_and_no_more(void **state)
{
    struct limiter_options opt = {.peers_max = 3, .per_s = 10, .burst = 5};
    struct limiter_entry memory[3];
    struct peer_id a = id_make(1, 1), other;
    struct limiter l;
    int n = 0;

    (void)state;
    assert_int_equal(limiter_bytes(&opt), sizeof memory);
    limiter_init(&l, &opt, memory);
    for (int i = 0; i < 100; i++) {
        n += limiter_take(&l, &a, 1, 1000);
    }
    assert_int_equal(n, 5);
    for (uint64_t t = 1000; t <= 11000; t += 7) {
        n += limiter_take(&l, &a, 1, t);
    }
    assert_in_range(n, 5 + 98, 5 + 100);
    /* Time that jumps or stands does not give more than a burst. */
    n = 0;
    for (int i = 0; i < 100; i++) {
        n += limiter_take(&l, &a, 1, UINT64_MAX - 1);
    }
    assert_int_equal(n, 5);
    assert_false(limiter_take(&l, &a, 6, UINT64_MAX));
    for (uint32_t i = 0; i < 10; i++) { /* the table stays bounded */
        other = id_make(2, i);
        assert_true(limiter_take(&l, &other, 1, UINT64_MAX));
    }
    assert_int_equal(l.n, 3);
}

static void shortlist_stays_sorted_and_never_drops_whom_it_asks(void **state)
{
    struct address address = address_make(10, 0, 1);
    struct peer_id target = {.b = {0}}, asked = {.b = {0xFF, 0xFF}};
    struct shortlist s;
    uint64_t rng = 5;
    bool settled;

    (void)state;
    shortlist_init(&s, &target, 2);
    assert_true(shortlist_add(&s, &asked, &address, 1));
    assert_false(shortlist_add(&s, &asked, &address, 1));
    assert_ptr_equal(shortlist_next(&s, 8, &settled), &s.entry[0]);
    assert_false(settled);
    s.entry[0].state = SHORTLIST_ASKED;
    assert_null(shortlist_next(&s, 8, &settled));
    assert_false(settled);
    for (int i = 0; i < 500; i++) {
        struct peer_id id;

        for (int b = 0; b < ID_BYTES; b++) {
            id.b[b] = (uint8_t)rng_next(&rng);
        }
        (void)shortlist_add(&s, &id, &address, 2);
        for (uint32_t j = 1; j < s.n; j++) {
            assert_true(
                id_xor_cmp(&target, &s.entry[j - 1].id, &s.entry[j].id) < 0);
        }
    }
    assert_int_equal(s.n, SHORTLIST_MAX);
    assert_non_null(shortlist_find(&s, &asked));
    /* Who answered stays when closer names flood the list. */
    for (uint32_t j = 0; j < s.n; j++) {
        s.entry[j].state = j >= 40 ? SHORTLIST_ANSWERED : SHORTLIST_NEW;
    }
    for (uint32_t i = 0; i < 200; i++) {
        struct peer_id id = {.b = {[31] = (uint8_t)i}};

        (void)shortlist_add(&s, &id, &address, 2);
    }
    assert_int_equal(s.n, SHORTLIST_MAX);
    for (uint32_t j = 0; j < s.n; j++) {
        assert_int_equal(s.entry[j].state,
                         j >= 40 ? SHORTLIST_ANSWERED : SHORTLIST_NEW);
    }
    for (uint32_t j = 0; j < s.n; j++) {
        s.entry[j].state = j < 4 ? SHORTLIST_FAILED : SHORTLIST_ANSWERED;
    }
    s.entry[12].state = SHORTLIST_NEW; /* number 9 of those that live */
    assert_null(shortlist_next(&s, 8, &settled));
    assert_true(settled);
    assert_ptr_equal(shortlist_next(&s, 9, &settled), &s.entry[12]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refuses_ourselves_and_clients),
        cmocka_unit_test(a_full_bucket_keeps_the_old_live_contact),
        cmocka_unit_test(a_dead_contact_gives_its_place_to_the_newest_newcomer),
        cmocka_unit_test(stale_contacts_are_kept_but_not_told),
        cmocka_unit_test(closest_agrees_with_sorting_everything),
        cmocka_unit_test(one_prefix_cannot_fill_a_bucket),
        cmocka_unit_test(one_prefix_cannot_fill_the_table),
        cmocka_unit_test(one_network_alone_fills_the_table_until_others_come),
        cmocka_unit_test(an_empty_pool_takes_from_caches_then_refuses),
        cmocka_unit_test(counts_stay_right_under_random_use),
        cmocka_unit_test(refresh_walks_every_bucket_down_to_the_closest),
        cmocka_unit_test(limiter_grants_the_rate_and_no_more),
        cmocka_unit_test(shortlist_stays_sorted_and_never_drops_whom_it_asks),
    };

    return cmocka_run_group_tests_name("kbucket", tests, NULL, NULL);
}
