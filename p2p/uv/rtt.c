/* rtt.c - see rtt.h. */
#include "p2p/uv/rtt.h"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <stddef.h>
#include <sys/socket.h>

uint32_t rtt_of_socket(int fd)
{
    struct tcp_info info;
    socklen_t len = sizeof info;
    size_t need =
        offsetof(struct tcp_info, tcpi_min_rtt) + sizeof info.tcpi_min_rtt;

    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len) != 0 || len < need ||
        info.tcpi_min_rtt == UINT32_MAX) {
        return 0;
    }
    return info.tcpi_min_rtt;
}
