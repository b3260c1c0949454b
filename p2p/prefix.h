/* prefix.h - how much of an address its operator cannot choose for free.
 *
 * Ids cost nothing; public addresses do. The *prefix* of an address is its
 * IPv4 /24 or IPv6 /48: the smallest nets that are handed out and routed on
 * their own. Tables that strangers fill cap how many of their entries may share
 * one. *Private* addresses have no such price and are exempt, so that machines
 * in one LAN, behind one carrier's NAT or in one test are not hampered: RFC
 * 1918, 3927, 6598, loopback, RFC 4193, 4291.
 *
 * Pure, cannot fail. Addresses are the 16 bytes of struct address.
 */
#ifndef LOCO_P2P_PREFIX_H
#define LOCO_P2P_PREFIX_H

#include <stdbool.h>
#include <stdint.h>

/* Whether it is an IPv4 address, mapped (RFC 4291, 2.5.5.2); its last four
 * bytes are those of IPv4. */
bool prefix_is_v4(const uint8_t ip[16]);

/* Make it one; the last four bytes stay. */
void prefix_map_v4(uint8_t ip[16]);

bool prefix_is_private(const uint8_t ip[16]);

/* Whether it is all zeros: the address is not known. */
bool prefix_is_nowhere(const uint8_t ip[16]);

/* How many bytes of it are the prefix. */
unsigned prefix_bytes(const uint8_t ip[16]);

bool prefix_eq(const uint8_t a[16], const uint8_t b[16]);

#endif
