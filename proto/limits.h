/* limits.h - every bound of the protocol, each with its derivation.
 *
 * A bound is checked before memory is taken or a loop is entered. Sizes are
 * bytes on the wire unless the name says otherwise. Changing one of these is a
 * change of the protocol version where the comment says "wire".
 */
#ifndef LOCO_PROTO_LIMITS_H
#define LOCO_PROTO_LIMITS_H

/* The version of the protocol: it changes where the form or the meaning of a
 * message does. */
#define PROTO_VERSION 11

/* Said in HELLO: the versions that are spoken after it. Two peers use the
 * newest that both speak, so that a swarm goes from one to the next peer by
 * peer; whoever shares none with us is refused, and both say which versions
 * they speak (node/admit.c). Version 11 makes other views than 10 and speaks no
 * other. */
#define PROTO_OLDEST 11
#define PROTO_NEWEST PROTO_VERSION

/* In the prologue of the handshake. Peers of another one cannot read each
 * other's first word, so neither can tell why. It changes only where the
 * handshake, records, frames, ADMISSION, HELLO or REFUSED do: the protocol's
 * version then changes, too. */
#define HANDSHAKE_VERSION 4

/* Sentences for people: callers pass buffers of exactly this size. */
#define LOCO_ERRMSG_MAX 256

/* Wire. One control frame: the largest message is a view of 64 members with
 * addresses and signatures (64 * ~500 bytes), with room to spare. */
#define FRAME_CONTROL_MAX (64U << 10)

/* Wire. One bulk frame: a segment of 1 MiB (design 3) with its header words
 * and scales, rounded up. */
#define FRAME_BULK_MAX ((1U << 20) + (64U << 10))

/* Nesting of structs in one message: deeper tables are a local bug. */
#define MSG_DEPTH_MAX 8

/* Wire. Members of one averaging group and therefore of one view: "tens of
 * peers" (design 6); all of it stays below FRAME_CONTROL_MAX. */
#define VIEW_MEMBERS_MAX 64

/* Wire. Of them who does not count yet: a quarter (p2p/round/probation.h). */
#define VIEW_PROBATION_MAX (VIEW_MEMBERS_MAX / 4)

/* Wire. Who comes in by one view: each shows its JOIN in the proposal, and an
 * ACCEPT stays below FRAME_CONTROL_MAX. */
#define VIEW_JOINS_MAX 16

/* Wire. Of these who come back and are full at once, as one member says; an
 * ACCEPT has 128 times as many. */
#define VIEW_BACK_MAX 2

/* Wire. Attempts at one round whose finished parts a plan can inherit: what a
 * fourth failure in a row leaves is done again. */
#define ROUND_RANGES_MAX 3

/* Wire. Ranges of one lease: some of what was returned, then new text. */
#define LEASE_RANGES_MAX 6

/* Wire. Who is in the view, and as many that were: what they held is returned
 * after a few commits. 128 leases of a range or two take 3 KiB, encoded, with
 * six ranges each 14 KiB at most. */
#define LEDGER_HELD_MAX     (2 * VIEW_MEMBERS_MAX)
#define LEDGER_RETURNED_MAX 64

/* Joiners between two commits who get something to train at once. */
#define LEDGER_SLOTS_MAX 256

/* Wire. "[" IPv6 text (45) "]:" port (5) and the final zero, or a DNS name of
 * 253 characters with its port. */
#define ADDR_TEXT_MAX 272

/* Hosts in one invitation: enough for several operators, short enough for one
 * line of a chat message. */
#define URI_HOSTS_MAX 8
#define URI_HOST_MAX  254 /* DNS name, RFC 1035 2.3.4, and the final zero */
#define URI_TEXT_MAX  2600

/* Wire. DHT record values carry addresses and one hash, never bulk. */
#define RECORD_VALUE_MAX 512

/* A record dies with its publisher within a day; half of Kademlia's customary
 * 24 h republishing would be lost to clocks that are wrong by hours. */
#define RECORD_LIFETIME_MAX_S 86400U

/* Wire. 512 shards of 1 GiB are more text than any run here will read. */
#define MANIFEST_SHARDS_MAX 512
#define MANIFEST_URLS_MAX   4
#define MANIFEST_URL_MAX    256
#define MANIFEST_NAME_MAX   64
/* Elements of a model that is a list of tensors: 4 TB as fp32. */
#define MANIFEST_PARAMS_MAX 1000000000000ULL
/* Bytes, and tokens, of all shards together. */
#define MANIFEST_SUM_MAX 1000000000000000000ULL
/* Tokens of one forward pass: what it takes of memory is counted in 64 bits. */
#define MANIFEST_PASS_MAX (1U << 26)
/* Bytes of its layout: as of the header of a safetensors file. */
#define MANIFEST_LAYOUT_MAX (16U << 20)
/* MANIFEST_SHARDS_MAX * (4 URLs + name + hash + numbers) = 0.6 MB, rounded. */
#define MANIFEST_BYTES_MAX (1U << 20)

#endif
