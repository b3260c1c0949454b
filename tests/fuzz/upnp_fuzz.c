/* upnp_fuzz.c - what somebody in the LAN says in a router's place: the answer
 * to the search, an HTTP answer, a description, a SOAP answer. */
#include <stdlib.h>
#include <string.h>

#include "p2p/swarm/upnp.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* It is where the answer came from, and can stand in a request's first line. */
static void check_place(const struct upnp_place *p, const struct address *from)
{
    if (memcmp(p->at.ip, from->ip, 16) != 0 || p->at.port == 0 ||
        p->path[0] != '/' || memchr(p->path, '\0', UPNP_PATH_MAX) == NULL ||
        strpbrk(p->path, " \r\n") != NULL) {
        abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct address from = {.ip = {[10] = 0xff, 0xff, 192, 168, 1, 254}};
    struct upnp_place place = {.at = from, .path = "/d"}, found;
    struct upnp_service service;
    char value[UPNP_VALUE_MAX], ask[UPNP_ASK_MAX], *copy;
    size_t at = 0, n = 0;
    int status;

    place.at.port = 80;
    if (size > UPNP_ANSWER_MAX) {
        return 0;
    }
    if (upnp_search_decode(data, size, &from, &found) == 0) {
        check_place(&found, &from);
    }
    if (upnp_service_find((const char *)data, size, &place, &service) == 0) {
        struct upnp_port port = {.inner = 1, .outer = 2, .client = "10.0.0.1"};

        check_place(&service.control, &from);
        if (upnp_call_encode(&service, UPNP_ADD, &port, ask, sizeof ask) < 0) {
            abort();
        }
    }
    if (upnp_value_find((const char *)data, size, "errorCode", value) == 0 &&
        memchr(value, '\0', sizeof value) == NULL) {
        abort();
    }
    copy = malloc(size + 1);
    if (copy == NULL) {
        return 0;
    }
    for (int ended = 0; ended < 2; ended++) {
        memcpy(copy, data, size);
        if (upnp_http_decode(copy, size, ended == 1, &status, &at, &n) == 0 &&
            (at > size || n > size - at)) {
            abort();
        }
    }
    free(copy);
    return 0;
}
