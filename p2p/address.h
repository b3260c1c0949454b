/* address.h - where a peer can be reached: an IP address and a port. */
#ifndef LOCO_P2P_ADDRESS_H
#define LOCO_P2P_ADDRESS_H

#include <stdbool.h>
#include <stdint.h>

/* IPv4 addresses are mapped (::ffff:a.b.c.d). Port in host order. */
struct address {
    uint8_t ip[16];
    uint16_t port;
};

/* "192.0.2.1:7700" or "[2001:db8:0:0:0:0:0:1]:7700", for logs. */
#define ADDRESS_TEXT_MAX 48
void address_text(const struct address *a, char out[ADDRESS_TEXT_MAX]);

bool address_eq(const struct address *a, const struct address *b);

#endif
