/* rtt.h - how near the other end of a TCP connection is.
 *
 * In a file of its own: the kernel's header, which has the field, and the C
 * library's, which uv.h needs, define the same names.
 */
#ifndef LOCO_P2P_UV_RTT_H
#define LOCO_P2P_UV_RTT_H

#include <stdint.h>

/* Microseconds of the shortest round trip in the kernel's last minutes
 * (tcp_min_rtt_wlen, 5 minutes by default): a queue in front of it does not
 * make the other end farther. 0: not known. Nothing is sent for it. */
uint32_t rtt_of_socket(int fd);

#endif
