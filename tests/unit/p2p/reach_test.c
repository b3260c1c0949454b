/* reach_test.c - whether others can dial us, from what they say. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "p2p/swarm/reach.h"
#include "proto/sign.h"

#define SETTLE_MS 5000
#define RETEST_MS 300000
#define ANSWER_MS 4000

struct fixture {
    struct reach r;
    struct identity peer[6];
    struct reach_candidate c[6];
    uint32_t who[REACH_TESTS_MAX];
    uint64_t request[REACH_TESTS_MAX];
    unsigned n_asked;
    uint64_t now_ms;
};

static struct address at(uint8_t a, uint8_t b, uint8_t c, uint8_t d)
{
    return (struct address){.ip = {[10] = 0xff, 0xff, a, b, c, d},
                            .port = 7700};
}

static int open_fixture(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    struct reach_options opt = {.listens = true,
                                .seed = 1,
                                .answer_ms = ANSWER_MS,
                                .settle_ms = SETTLE_MS,
                                .retest_ms = RETEST_MS};

    assert_non_null(f);
    for (uint8_t i = 0; i < 6; i++) {
        identity_fake(&f->peer[i], i);
        f->c[i] = (struct reach_candidate){f->peer[i].id, at(11, 0, i, 1)};
    }
    f->now_ms = 1000;
    reach_init(&f->r, &opt, f->now_ms);
    *state = f;
    return 0;
}

static int close_fixture(void **state)
{
    free(*state);
    return 0;
}

static void ask(struct fixture *f, uint32_t n)
{
    assert_true(reach_due(&f->r, f->now_ms));
    f->n_asked = reach_begin(&f->r, f->c, n, f->now_ms, f->who, f->request);
}

static void tell(struct fixture *f, unsigned i, bool reached)
{
    reach_answer(&f->r, &f->c[f->who[i]].peer, f->request[i], reached,
                 f->now_ms);
}

/* One round in which these answer. */
static void round_of(struct fixture *f, unsigned yes, unsigned no)
{
    f->now_ms = f->r.next_ms;
    ask(f, yes + no);
    assert_int_equal(f->n_asked, yes + no);
    for (unsigned i = 0; i < f->n_asked; i++) {
        tell(f, i, i < yes);
    }
    assert_false(f->r.testing);
}

static void nothing_is_known_before_an_answer(void **state)
{
    struct fixture *f = *state;
    char why[CORE_TEXT_MAX];

    assert_int_equal(reach_class(&f->r), REACH_UNKNOWN);
    ask(f, 3);
    f->now_ms += ANSWER_MS;
    reach_tick(&f->r, f->now_ms);
    assert_false(f->r.testing);
    assert_int_equal(reach_class(&f->r), REACH_UNKNOWN);
    reach_reason(&f->r, why);
    assert_non_null(strstr(why, "yet"));
    assert_false(reach_due(&f->r, f->now_ms));
    assert_true(reach_due(&f->r, f->r.next_ms));
}

static void half_of_the_answers_decide_at_first(void **state)
{
    static const struct {
        unsigned yes, no;
        enum reach_class is;
    } cases[] = {
        {2, 0, REACH_PUBLIC}, {0, 2, REACH_RESTRICTED},
        {1, 1, REACH_PUBLIC}, {1, 2, REACH_RESTRICTED},
        {1, 0, REACH_PUBLIC}, {0, 1, REACH_RESTRICTED},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        (void)close_fixture(state);
        (void)open_fixture(state);
        round_of(*state, cases[i].yes, cases[i].no);
        assert_int_equal(reach_class(&((struct fixture *)*state)->r),
                         cases[i].is);
    }
}

static void it_takes_two_rounds_to_change_the_verdict(void **state)
{
    struct fixture *f = *state;

    round_of(f, 3, 0);
    assert_int_equal(f->r.next_ms, f->now_ms + RETEST_MS);
    round_of(f, 0, 3);
    assert_int_equal(reach_class(&f->r), REACH_PUBLIC);
    assert_int_equal(f->r.next_ms, f->now_ms + SETTLE_MS); /* doubtful: soon */
    round_of(f, 3, 0);
    round_of(f, 0, 3);
    assert_int_equal(reach_class(&f->r), REACH_PUBLIC); /* not in a row */
    round_of(f, 0, 3);
    assert_int_equal(reach_class(&f->r), REACH_RESTRICTED);
}

static void peers_of_different_prefixes_are_asked(void **state)
{
    struct fixture *f = *state;
    bool elsewhere = false;

    for (uint8_t i = 0; i < 5; i++) {
        f->c[i].address = at(11, 0, 7, i);
    }
    f->c[5].address = at(12, 0, 0, 1);
    ask(f, 6);
    assert_int_equal(f->n_asked, 3);
    for (unsigned i = 0; i < 3; i++) {
        elsewhere = elsewhere || f->who[i] == 5;
        for (unsigned k = 0; k < i; k++) {
            assert_int_not_equal(f->who[i], f->who[k]);
        }
    }
    assert_true(elsewhere);
}

static void a_neighbour_on_the_lan_is_not_asked_beside_the_world(void **state)
{
    struct fixture *f = *state;

    f->c[0].address = at(192, 168, 1, 2);
    f->c[1].address = at(10, 0, 0, 2);
    f->c[2].address = at(100, 64, 0, 2);
    ask(f, 4);
    assert_int_equal(f->n_asked, 1);
    assert_int_equal(f->who[0], 3);
    tell(f, 0, false);
    f->now_ms = f->r.next_ms;
    ask(f, 3); /* nobody else is here: then they are */
    assert_int_equal(f->n_asked, 3);
}

static void only_who_was_asked_is_believed(void **state)
{
    struct fixture *f = *state;

    ask(f, 2);
    reach_answer(&f->r, &f->peer[5].id, f->request[0], false, f->now_ms);
    reach_answer(&f->r, &f->c[f->who[0]].peer, 99, false, f->now_ms);
    tell(f, 0, true);
    tell(f, 0, false); /* twice */
    assert_true(f->r.testing);
    tell(f, 1, true);
    assert_int_equal(reach_class(&f->r), REACH_PUBLIC);
    assert_int_equal(f->r.n_no, 0);
    tell(f, 1, false); /* too late */
    assert_int_equal(f->r.n_no, 0);
}

static void what_changes_is_tested_again(void **state)
{
    struct fixture *f = *state;
    struct address here = at(11, 0, 9, 1), lan = at(192, 168, 1, 5), moved;

    reach_seen(&f->r, &here, f->now_ms);
    round_of(f, 0, 2);
    f->now_ms += 1000;
    reach_seen(&f->r, &here, f->now_ms); /* the same */
    reach_seen(&f->r, &lan, f->now_ms);  /* as a neighbour sees us */
    assert_false(reach_due(&f->r, f->now_ms));
    moved = at(11, 0, 10, 1);
    reach_seen(&f->r, &moved, f->now_ms);
    round_of(f, 0, 2);
    f->now_ms += 1000;
    reach_dialled(&f->r, f->now_ms); /* somebody did */
    assert_true(reach_due(&f->r, f->now_ms));
    round_of(f, 2, 0);
    assert_int_equal(reach_class(&f->r), REACH_PUBLIC);
    f->now_ms += 1000;
    reach_dialled(&f->r, f->now_ms);
    assert_false(reach_due(&f->r, f->now_ms));
}

static void a_mapped_port_counts_when_others_get_in(void **state)
{
    struct fixture *f = *state;
    struct address outer = at(11, 0, 9, 1);

    round_of(f, 0, 2);
    reach_mapped(&f->r, &outer, f->now_ms);
    assert_int_equal(reach_class(&f->r), REACH_RESTRICTED);
    assert_true(reach_due(&f->r, f->now_ms));
    round_of(f, 2, 0);
    assert_int_equal(reach_class(&f->r), REACH_MAPPED);
    reach_mapped(&f->r, NULL, f->now_ms);
    assert_int_equal(reach_class(&f->r), REACH_PUBLIC);
    assert_true(reach_due(&f->r, f->now_ms));
    round_of(f, 0, 2);
    assert_int_equal(reach_class(&f->r), REACH_RESTRICTED);
}

static void who_is_relayed_is_told_what_to_do(void **state)
{
    struct fixture *f = *state;
    struct address here = at(11, 0, 9, 1);
    char why[CORE_TEXT_MAX];

    reach_seen(&f->r, &here, f->now_ms);
    round_of(f, 0, 2);
    assert_string_equal(reach_name(reach_class(&f->r)), "restricted");
    reach_relayed(&f->r, 2);
    assert_string_equal(reach_name(reach_class(&f->r)), "relayed");
    reach_reason(&f->r, why);
    assert_non_null(strstr(why, "11.0.9.1:7700"));
    assert_non_null(strstr(why, "forward TCP port 7700"));
    assert_non_null(strstr(why, "2 of 2"));
    /* And where there is nobody who relays. */
    reach_apart(&f->r, 3, 1);
    reach_reason(&f->r, why);
    assert_null(strstr(why, "3 others"));
    reach_apart(&f->r, 3, 0);
    reach_reason(&f->r, why);
    assert_non_null(strstr(why, "3 others"));
    assert_non_null(strstr(why, "forward TCP port 7700"));
}

static void a_mapping_that_does_not_help_is_explained(void **state)
{
    struct fixture *f = *state;
    struct address outer = at(100, 64, 0, 9);
    char why[CORE_TEXT_MAX];

    reach_mapped(&f->r, &outer, f->now_ms);
    round_of(f, 0, 2);
    assert_int_equal(reach_class(&f->r), REACH_RESTRICTED);
    reach_reason(&f->r, why);
    assert_non_null(strstr(why, "another NAT"));
}

static void a_lone_tester_is_asked_ever_less_often(void **state)
{
    struct fixture *f = *state;
    uint64_t last = 0;

    for (int i = 0; i < 10; i++) {
        round_of(f, 1, 0);
        assert_true(f->r.next_ms - f->now_ms >= last);
        last = f->r.next_ms - f->now_ms;
    }
    assert_int_equal(last, 6 * SETTLE_MS);
}

static void who_does_not_listen_asks_nobody(void **state)
{
    struct fixture *f = *state;
    struct reach_options opt = {.listens = false};

    reach_init(&f->r, &opt, f->now_ms);
    assert_int_equal(reach_class(&f->r), REACH_RESTRICTED);
    assert_false(reach_due(&f->r, f->now_ms + RETEST_MS));
}

static void addresses_of_the_world_and_of_houses(void **state)
{
    static const struct {
        uint8_t b[4];
        bool global;
    } v4[] = {
        {{11, 0, 0, 1}, true},     {{10, 1, 2, 3}, false},
        {{172, 15, 0, 1}, true},   {{172, 16, 0, 1}, false},
        {{172, 31, 0, 1}, false},  {{172, 32, 0, 1}, true},
        {{192, 168, 0, 1}, false}, {{192, 167, 0, 1}, true},
        {{100, 63, 0, 1}, true},   {{100, 64, 0, 1}, false},
        {{100, 128, 0, 1}, true},  {{169, 254, 9, 9}, false},
        {{127, 0, 0, 1}, false},   {{0, 0, 0, 0}, false},
    };
    struct address a = {.ip = {0x20, 0x01, 0x0d, 0xb8}};

    (void)state;
    for (size_t i = 0; i < sizeof v4 / sizeof v4[0]; i++) {
        struct address b = at(v4[i].b[0], v4[i].b[1], v4[i].b[2], v4[i].b[3]);

        assert_int_equal(reach_is_global(&b), v4[i].global);
    }
    assert_true(reach_is_global(&a));
    a.ip[0] = 0xfd;
    assert_false(reach_is_global(&a));
    a.ip[0] = 0xfe;
    a.ip[1] = 0x80;
    assert_false(reach_is_global(&a));
    memset(&a, 0, sizeof a);
    assert_false(reach_is_global(&a));
    a.ip[15] = 1;
    assert_false(reach_is_global(&a));
}

#define T(name)                                                                \
    cmocka_unit_test_setup_teardown(name, open_fixture, close_fixture)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(nothing_is_known_before_an_answer),
        T(half_of_the_answers_decide_at_first),
        T(it_takes_two_rounds_to_change_the_verdict),
        T(peers_of_different_prefixes_are_asked),
        T(a_neighbour_on_the_lan_is_not_asked_beside_the_world),
        T(only_who_was_asked_is_believed),
        T(what_changes_is_tested_again),
        T(a_mapped_port_counts_when_others_get_in),
        T(who_is_relayed_is_told_what_to_do),
        T(a_mapping_that_does_not_help_is_explained),
        T(a_lone_tester_is_asked_ever_less_often),
        T(who_does_not_listen_asks_nobody),
        T(addresses_of_the_world_and_of_houses),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
