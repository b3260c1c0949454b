/* upnp_test.c - what a router that speaks UPnP is asked, and what is believed
 * of what somebody says in its place. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "p2p/swarm/upnp.h"
#include "proto/base/err.h"

#define TYPE "urn:schemas-upnp-org:service:WANIPConnection:1"

static const struct address router = {
    .ip = {[10] = 0xff, 0xff, 192, 168, 1, 254}, .port = 40000};

static int search(const char *location, struct upnp_place *out)
{
    char bytes[512];
    int n =
        snprintf(bytes, sizeof bytes,
                 "HTTP/1.1 200 OK\r\nST: x\r\nLocation:%s\r\n\r\n", location);

    return upnp_search_decode((const uint8_t *)bytes, (size_t)n, &router, out);
}

static void an_answer_counts_only_for_the_address_it_comes_from(void **state)
{
    static const char *const wrong[] = {
        "http://192.168.1.12:5000/d", /* a third machine of the LAN */
        "http://11.0.0.1:5000/d",
        "http://127.0.0.1:5000/d",
        "http://router:5000/d",
        "http://192.168.1.254.evil/d",
        "http://192.168.1.254@11.0.0.1/d",
        "http://192.168.1.254:0/d",
        "http://192.168.1.254:65536/d",
        "http://192.168.1.2544/d",
        "https://192.168.1.254/d",
        "ftp://192.168.1.254/d",
        "http://192.168.1.254:5000/d d",
        "",
    };
    struct address outside = {.ip = {[10] = 0xff, 0xff, 11, 0, 0, 1}};
    static const char global[] =
        "HTTP/1.1 200 OK\r\nLOCATION: http://11.0.0.1/d\r\n\r\n";
    struct upnp_place at;

    (void)state;
    assert_int_equal(search(" http://192.168.1.254:5000/root.xml", &at), 0);
    assert_int_equal(at.at.port, 5000);
    assert_string_equal(at.path, "/root.xml");
    assert_int_equal(search("http://192.168.1.254", &at), 0);
    assert_int_equal(at.at.port, 80);
    assert_string_equal(at.path, "/");
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        assert_int_equal(search(wrong[i], &at), LOCO_EPROTO);
    }
    assert_int_equal(upnp_search_decode((const uint8_t *)global,
                                        sizeof global - 1, &outside, &at),
                     LOCO_EPROTO); /* a router has a private address here */
}

static int service(const char *control, struct upnp_service *out)
{
    struct upnp_place described = {.at = router, .path = "/root.xml"};
    char xml[2048];
    int n = snprintf(xml, sizeof xml,
                     "<root><service><serviceType>urn:x:Layer3:1</serviceType>"
                     "<controlURL>/no</controlURL></service><service>"
                     "<serviceType> " TYPE "\r\n</serviceType><controlURL>%s"
                     "</controlURL></service></root>",
                     control);

    return upnp_service_find(xml, (size_t)n, &described, out);
}

static void a_service_lies_where_its_description_lies(void **state)
{
    struct upnp_service s;
    char path[400];

    (void)state;
    assert_int_equal(service("/ctl/IPConn", &s), 0);
    assert_string_equal(s.type, TYPE);
    assert_string_equal(s.control.path, "/ctl/IPConn");
    assert_int_equal(service("ctl", &s), 0);
    assert_string_equal(s.control.path, "/ctl");
    assert_int_equal(service("http://192.168.1.254:81/c", &s), 0);
    assert_int_equal(s.control.at.port, 81);
    assert_int_equal(service("http://192.168.1.12:5000/c", &s), LOCO_EPROTO);
    assert_int_equal(service("/c HTTP/1.1\r\nX: y", &s), LOCO_EPROTO);
    memset(path, 'a', sizeof path);
    path[0] = '/';
    path[sizeof path - 1] = '\0';
    assert_int_equal(service(path, &s), LOCO_EPROTO);
}

static void a_call_names_what_is_mapped(void **state)
{
    struct upnp_port port = {.inner = 7700,
                             .outer = 7701,
                             .lease_s = 3600,
                             .client = "192.168.1.11"};
    struct upnp_service s;
    char ask[UPNP_ASK_MAX], value[UPNP_VALUE_MAX];
    const char *body;
    int n;

    (void)state;
    assert_int_equal(service("/c", &s), 0);
    n = upnp_call_encode(&s, UPNP_ADD, &port, ask, sizeof ask);
    assert_true(n > 0);
    assert_non_null(strstr(ask, "POST /c HTTP/1.1\r\n"));
    assert_non_null(strstr(ask, "SOAPAction: \"" TYPE "#AddPortMapping\""));
    body = strstr(ask, "\r\n\r\n") + 4;
    assert_int_equal(
        upnp_value_find(body, strlen(body), "NewExternalPort", value), 0);
    assert_string_equal(value, "7701");
    assert_int_equal(
        upnp_value_find(body, strlen(body), "NewLeaseDuration", value), 0);
    assert_string_equal(value, "3600");
    (void)snprintf(value, sizeof value, "Content-Length: %zu\r\n",
                   strlen(body));
    assert_non_null(strstr(ask, value));
    assert_int_equal(upnp_call_encode(&s, UPNP_ADD, &port, ask, 100),
                     LOCO_ERANGE);
}

static int http(const char *text, bool ended, char out[512], size_t *n)
{
    size_t at;
    int status;

    memcpy(out, text, strlen(text));
    if (upnp_http_decode(out, strlen(text), ended, &status, &at, n) != 0) {
        return -1;
    }
    memmove(out, out + at, *n);
    return status;
}

static void an_answer_ends_by_its_length_its_chunks_or_the_connection(void **s)
{
    char out[512];
    size_t n;

    (void)s;
    assert_int_equal(http("HTTP/1.1 500 No\r\ncontent-length: 3\r\n\r\nabcd",
                          false, out, &n),
                     500);
    assert_int_equal(n, 3);
    assert_int_equal(http("HTTP/1.1 200 OK\r\n\r\nab", false, out, &n), -1);
    assert_int_equal(http("HTTP/1.1 200 OK\r\n\r\nab", true, out, &n), 200);
    assert_int_equal(n, 2);
    assert_int_equal(
        http("HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
             "A;x\r\n0123456789\r\n2\r\nab\r\n0\r\n\r\n",
             true, out, &n),
        200);
    assert_memory_equal(out, "0123456789ab", 12);
    assert_int_equal(n, 12);
    /* Cut, longer than all, or no sizes at all. */
    assert_int_equal(
        http("HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
             "A\r\n0123",
             true, out, &n),
        -1);
    assert_int_equal(
        http("HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
             "ffffffffffffffff\r\n0123",
             true, out, &n),
        -1);
    assert_int_equal(
        http("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nab", true, out, &n),
        -1);
    assert_int_equal(http("SIP/2.0 200 OK\r\n\r\n", true, out, &n), -1);
}

static void a_value_is_cut_nowhere(void **state)
{
    static const char xml[] = "<a><n:NewIP> 1.2.3.4 </n:NewIP><x>",
                      open[] = "<x>12";
    char value[UPNP_VALUE_MAX], large[200] = "<x>";

    (void)state;
    assert_int_equal(upnp_value_find(xml, sizeof xml - 1, "NewIP", value), 0);
    assert_string_equal(value, "1.2.3.4");
    assert_int_equal(upnp_value_find(xml, sizeof xml - 1, "New", value),
                     LOCO_EPROTO);
    assert_int_equal(upnp_value_find(open, sizeof open - 1, "x", value), 0);
    memset(large + 3, '1', 100);
    assert_int_equal(upnp_value_find(large, strlen(large), "x", value),
                     LOCO_ERANGE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_answer_counts_only_for_the_address_it_comes_from),
        cmocka_unit_test(a_service_lies_where_its_description_lies),
        cmocka_unit_test(a_call_names_what_is_mapped),
        cmocka_unit_test(
            an_answer_ends_by_its_length_its_chunks_or_the_connection),
        cmocka_unit_test(a_value_is_cut_nowhere),
    };

    return cmocka_run_group_tests_name("upnp", tests, NULL, NULL);
}
