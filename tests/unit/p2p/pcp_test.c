/* pcp_test.c - the bytes that a router is asked with, and what it may say. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "p2p/swarm/pcp.h"
#include "proto/base/err.h"

static const struct pcp_map ask = {
    .client = {[10] = 0xff, 0xff, 192, 168, 1, 11},
    .nonce = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12},
    .inner = 7700,
    .outer = 7701,
    .lease_s = 3600,
};

/* By hand from RFC 6887, figures 2 and 9. */
static const uint8_t asked[PCP_MAP_BYTES] = {
    2,   1,   0, 0,  0,    0,    0x0e, 0x10, /* 3600 s */
    0,   0,   0, 0,  0,    0,    0,    0,    0, 0,  0xff, 0xff,
    192, 168, 1, 11,                                          /* client */
    1,   2,   3, 4,  5,    6,    7,    8,    9, 10, 11,   12, /* nonce */
    6,   0,   0, 0,  0x1e, 0x14, 0x1e, 0x15,                  /* TCP, ports */
    0,   0,   0, 0,  0,    0,    0,    0,    0, 0,  0xff, 0xff,
    0,   0,   0, 0, /* no address */
};

/* Figures 3 and 10: 120 s at 11.0.5.1 port 9000. */
static const uint8_t answered[PCP_MAP_BYTES] = {
    2,  0x81, 0, 0, 0,    0,    0,    120, /* lifetime */
    0,  0,    1, 0, 0,    0,    0,    0,    0, 0,  0,    0,
    0,  0,    0, 0, /* epoch, reserved */
    1,  2,    3, 4, 5,    6,    7,    8,    9, 10, 11,   12, /* nonce */
    6,  0,    0, 0, 0x1e, 0x14, 0x23, 0x28,                  /* TCP, ports */
    0,  0,    0, 0, 0,    0,    0,    0,    0, 0,  0xff, 0xff,
    11, 0,    5, 1, /* outer address */
};

static void the_question_is_as_the_rfc_has_it(void **state)
{
    uint8_t bytes[PCP_MAP_BYTES];
    struct pcp_map end = ask;

    (void)state;
    pcp_map_encode(&ask, bytes);
    assert_memory_equal(bytes, asked, sizeof asked);
    end.lease_s = 0; /* a removal wishes for nothing */
    pcp_map_encode(&end, bytes);
    assert_int_equal(bytes[6] | bytes[7] | bytes[42] | bytes[43], 0);
}

static void an_answer_says_where_we_are_and_for_how_long(void **state)
{
    static const uint8_t ip[16] = {[10] = 0xff, 0xff, 11, 0, 5, 1};
    struct pcp_mapped got;

    (void)state;
    assert_int_equal(pcp_map_decode(&ask, answered, sizeof answered, &got), 0);
    assert_int_equal(got.lease_s, 120);
    assert_int_equal(got.at.port, 9000);
    assert_memory_equal(got.at.ip, ip, sizeof ip);
}

static void a_refusal_has_a_reason(void **state)
{
    uint8_t bytes[PCP_MAP_BYTES];
    struct pcp_mapped got;

    (void)state;
    memcpy(bytes, answered, sizeof bytes);
    bytes[3] = 12;
    assert_int_equal(pcp_map_decode(&ask, bytes, sizeof bytes, &got),
                     LOCO_EBUSY);
    assert_int_equal(got.result, 12);
}

static void a_router_of_the_version_before_is_told_apart(void **state)
{
    static const uint8_t old[8] = {0, 0x81, 0, 1, 0, 0, 1, 0};
    uint8_t bytes[24] = {2, 0x81, 0, 1};
    struct pcp_mapped got;

    (void)state;
    assert_int_equal(pcp_map_decode(&ask, old, sizeof old, &got), LOCO_ENOENT);
    assert_int_equal(pcp_map_decode(&ask, bytes, sizeof bytes, &got),
                     LOCO_ENOENT);
}

static void what_answers_something_else_is_dropped(void **state)
{
    static const uint8_t at[] = {0, 1, 24, 35, 36, 40, 41};
    uint8_t bytes[PCP_MAP_BYTES];
    struct pcp_mapped got;

    (void)state;
    for (size_t k = 0; k < sizeof at; k++) {
        memcpy(bytes, answered, sizeof bytes);
        bytes[at[k]] ^= 4;
        assert_int_equal(pcp_map_decode(&ask, bytes, sizeof bytes, &got),
                         LOCO_EPROTO);
    }
    for (size_t len = 0; len < sizeof bytes; len++) {
        assert_int_equal(pcp_map_decode(&ask, answered, len, &got),
                         LOCO_EPROTO);
    }
    assert_int_equal(pcp_map_decode(&ask, asked, sizeof asked, &got),
                     LOCO_EPROTO); /* our own question */
    memcpy(bytes, answered, sizeof bytes);
    bytes[42] = bytes[43] = 0; /* mapped, at no port */
    assert_int_equal(pcp_map_decode(&ask, bytes, sizeof bytes, &got),
                     LOCO_EPROTO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_question_is_as_the_rfc_has_it),
        cmocka_unit_test(an_answer_says_where_we_are_and_for_how_long),
        cmocka_unit_test(a_refusal_has_a_reason),
        cmocka_unit_test(a_router_of_the_version_before_is_told_apart),
        cmocka_unit_test(what_answers_something_else_is_dropped),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
