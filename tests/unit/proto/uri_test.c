/* uri_test.c - invitations: what is read, what is said about the rest. */
#include "tests/unit/proto/suite.h"

#include <stdio.h>
#include <string.h>

#include "proto/base/err.h"
#include "proto/uri.h"

#define RUN  "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"
#define PEER "ff112233445566778899aabbccddeeff00112233445566778899aabbccddee00"

static void good_invitations_are_read_and_written_back(void **state)
{
    static const char *const good[] = {
        "loco://127.0.0.1:4001/" RUN,
        "loco://a.example.org:1,b-2.example:65535/" RUN,
        "loco://[::1]:4001/" RUN "?peer=" PEER,
        "loco://[2001:db8::1]:4001,10.0.0.1:2,host:3/" RUN "?peer=" PEER,
        "loco://h:1,h:2,h:3,h:4,h:5,h:6,h:7,h:8/" RUN,
    };
    char text[URI_TEXT_MAX], errmsg[LOCO_ERRMSG_MAX];
    struct uri u;

    (void)state;
    for (size_t i = 0; i < N_OF(good); i++) {
        assert_int_equal(uri_parse(good[i], &u, errmsg), 0);
        assert_int_equal(uri_format(&u, text, sizeof text), strlen(good[i]));
        assert_string_equal(text, good[i]);
        assert_int_equal(uri_format(&u, text, strlen(good[i])), LOCO_ERANGE);
    }
    assert_int_equal(uri_parse(good[3], &u, NULL), 0);
    assert_int_equal(u.n_hosts, 3);
    assert_true(u.hosts[0].ipv6);
    assert_string_equal(u.hosts[0].host, "2001:db8::1");
    assert_int_equal(u.hosts[0].port, 4001);
    assert_false(u.hosts[1].ipv6);
    assert_true(u.has_peer);
    assert_int_equal(u.run.b[1], 0x11);
    assert_int_equal(u.peer.b[0], 0xff);
}

static void bad_invitations_are_refused_with_a_reason(void **state)
{
    static const struct {
        const char *text, *reason;
    } rows[] = {
        {"", "begins with loco://"},
        {"http://h:1/" RUN, "begins with loco://"},
        {"loco://h:1", "no /RUNID"},
        {"loco:///" RUN, "empty HOST:PORT"},
        {"loco://h:1,/" RUN, "empty HOST:PORT"},
        {"loco://h/" RUN, ":PORT is missing"},
        {"loco://h:/" RUN, "port must be"},
        {"loco://h:0/" RUN, "port must be"},
        {"loco://h:65536/" RUN, "port must be"},
        {"loco://h:99999999999/" RUN, "port must be"},
        {"loco://h:1x/" RUN, "port must be"},
        {"loco://h:-1/" RUN, "port must be"},
        {"loco://::1:1/" RUN, "IPv6"},
        {"loco://[::1/" RUN, "IPv6"},
        {"loco://[::1]/" RUN, "IPv6"},
        {"loco://[::g]:1/" RUN, "not an IPv6 address"},
        {"loco://[1.2.3.4]:1/" RUN, "not an IPv6 address"},
        {"loco://:1/" RUN, "host name"},
        {"loco://a b:1/" RUN, "host name"},
        {"loco://-h:1/" RUN, "host name"},
        {"loco://a..b:1/" RUN, "host name"},
        {"loco://user@h:1/" RUN, "host name"},
        {"loco://h:1/", "run id"},
        {"loco://h:1/abc", "run id"},
        {"loco://h:1/" RUN "0", "only ?peer=ID"},
        {"loco://h:1/" RUN "?", "only ?peer=ID"},
        {"loco://h:1/" RUN "?key=1", "only ?peer=ID"},
        {"loco://h:1/" RUN "?peer=", "peer id"},
        {"loco://h:1/" RUN "?peer=" PEER "&x=1", "only ?peer=ID"},
        {"loco://h:1/" RUN "?invite=", "not an invitation"},
        {"loco://h:1/" RUN "?invite=AAAA", "cut"},
        {"loco://h:1/" RUN "&invite=AAAA", "only ?peer=ID"},
        {"loco://h:1,h:1,h:1,h:1,h:1,h:1,h:1,h:1,h:1/" RUN, "at most 8"},
    };
    char errmsg[LOCO_ERRMSG_MAX];
    struct uri u;

    (void)state;
    for (size_t i = 0; i < N_OF(rows); i++) {
        errmsg[0] = '\0';
        assert_int_equal(uri_parse(rows[i].text, &u, errmsg), LOCO_EINVAL);
        if (strstr(errmsg, rows[i].reason) == NULL) {
            fail_msg("%s: %s", rows[i].text, errmsg);
        }
    }
}

static void the_longest_host_fits_and_one_more_does_not(void **state)
{
    char host[300], text[400], errmsg[LOCO_ERRMSG_MAX];
    struct uri_host h;
    struct uri u;

    (void)state;
    memset(host, 'a', sizeof host);
    host[253] = '\0';
    (void)snprintf(text, sizeof text, "%s:65535", host);
    assert_int_equal(uri_host_parse(text, false, &h, errmsg), 0);
    assert_int_equal(strlen(h.host), 253);
    (void)snprintf(text, sizeof text, "loco://%s:65535/" RUN, host);
    assert_int_equal(uri_parse(text, &u, errmsg), 0);
    host[253] = 'a';
    host[254] = '\0';
    (void)snprintf(text, sizeof text, "%s:65535", host);
    assert_int_equal(uri_host_parse(text, false, &h, errmsg), LOCO_EINVAL);
}

static void listen_addresses_may_leave_the_port_to_the_system(void **state)
{
    char text[64];
    struct uri_host h;

    (void)state;
    assert_int_equal(uri_host_parse("[::]:0", true, &h, NULL), 0);
    assert_int_equal(h.port, 0);
    assert_int_equal(uri_host_format(&h, text, sizeof text), 6);
    assert_string_equal(text, "[::]:0");
    assert_int_equal(uri_host_parse("[::]:0", false, &h, NULL), LOCO_EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_invitations_are_read_and_written_back),
        cmocka_unit_test(bad_invitations_are_refused_with_a_reason),
        cmocka_unit_test(the_longest_host_fits_and_one_more_does_not),
        cmocka_unit_test(listen_addresses_may_leave_the_port_to_the_system),
    };

    return cmocka_run_group_tests_name("proto/uri", tests, NULL, NULL);
}
