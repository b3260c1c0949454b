/* Unit tests of the laboratory's pure parts: wires, packets, ways. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first. */
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "tests/netlab/topology.h"

#define MS INT64_C(1000000)

/* ---- wires ------------------------------------------------------------ */

static struct packet *plain(uint32_t len)
{
    struct virtio_net_hdr none = {0};
    uint8_t bytes[1500] = {0};
    struct packet *p = packet_new(&none, bytes, len);

    assert_non_null(p);
    return p;
}

static void sends_any_number_of_bytes_in_exactly_their_time(void **state)
{
    /* 3 bytes at 7 bit/s take 24/7 s, no whole number of ns: seven of them
     * take 24 s, to the nanosecond. */
    struct wire w;
    struct wire_options o = {.rate_bps = 7};
    bool dropped;

    (void)state;
    wire_init(&w, 1);
    wire_set(&w, &o);
    for (int i = 0; i < 7; i++) {
        assert_true(wire_enter(&w, plain(3), 0));
    }
    assert_int_equal(w.free_at_ns, 24000 * MS);
    for (int i = 0; i < 7; i++) {
        struct packet *p = wire_leave(&w, 24000 * MS, &dropped);

        assert_int_equal(p->at_ns, INT64_C(24000000000) * (i + 1) / 7);
        free(p);
    }
    assert_int_equal(wire_due(&w), WIRE_NEVER);
    assert_int_equal(w.count.bytes, 21);
}

static void arrives_after_the_delay_and_not_before(void **state)
{
    struct wire w;
    struct wire_options o = {.delay_ns = 25 * MS};
    bool dropped;

    (void)state;
    wire_init(&w, 1);
    wire_set(&w, &o);
    assert_true(wire_enter(&w, plain(100), 5 * MS));
    assert_int_equal(wire_due(&w), 30 * MS);
    assert_null(wire_leave(&w, 30 * MS - 1, &dropped));
    free(wire_leave(&w, 30 * MS, &dropped));
    assert_false(dropped);
}

/* Packets of 1 byte that enter 1 ms apart and leave in another order. */
static int out_of_order(bool reorder)
{
    struct wire w;
    struct wire_options o = {.jitter_ns = 20 * MS, .reorder = reorder};
    uint32_t last = 0;
    int wrong = 0;
    bool dropped;

    wire_init(&w, 1);
    wire_set(&w, &o);
    for (uint32_t i = 1; i <= 200; i++) {
        struct packet *p = plain(i);
        assert_true(wire_enter(&w, p, i * MS));
    }
    for (int i = 0; i < 200; i++) {
        struct packet *p = wire_leave(&w, 1000 * MS, &dropped);

        assert_non_null(p);
        assert_in_range(p->at_ns, p->len * (uint64_t)MS,
                        (p->len + 20) * (uint64_t)MS);
        wrong += p->len < last;
        last = p->len;
        free(p);
    }
    return wrong;
}

static void jitter_reorders_only_when_asked_to(void **state)
{
    (void)state;
    assert_int_equal(out_of_order(false), 0);
    assert_in_range(out_of_order(true), 20, 180);
}

static void a_full_queue_drops_the_newest(void **state)
{
    struct wire w;
    struct wire_options bytes = {.rate_bps = 8000, .queue_bytes = 1000};
    struct wire_options time = {.rate_bps = 8000, .queue_ns = 1000 * MS};
    bool dropped;

    (void)state;
    for (int by_time = 0; by_time < 2; by_time++) {
        int taken = 0;

        wire_init(&w, 1);
        wire_set(&w, by_time ? &time : &bytes);
        for (int i = 0; i < 10; i++) {
            struct packet *p = plain(300);

            if (wire_enter(&w, p, 0)) {
                taken++;
            } else {
                free(p);
            }
        }
        /* By bytes: 300 on the interface count, and 1,000 is the bound. By
         * time: whoever would wait 1.2 s is too late. */
        assert_int_equal(taken, by_time ? 4 : 3);
        assert_int_equal(w.count.dropped_queue, 10 - taken);
        while (taken-- > 0) {
            free(wire_leave(&w, 10000 * MS, &dropped));
        }
    }
}

static void loses_the_asked_share_and_charges_it(void **state)
{
    struct wire w;
    struct wire_options o = {.loss = 0.01, .rate_bps = 8000};
    uint64_t lost;
    bool dropped;

    (void)state;
    wire_init(&w, 1);
    wire_set(&w, &o);
    for (int i = 0; i < 100000; i++) {
        struct packet *p = plain(1);

        if (!wire_enter(&w, p, 0)) {
            free(p);
        }
    }
    lost = w.count.dropped_loss;
    assert_in_range(lost, 840, 1160); /* 1,000 and 5 standard deviations */
    assert_int_equal(w.free_at_ns, 100000 * MS);
    for (uint64_t i = lost; i < 100000; i++) {
        free(wire_leave(&w, 100000 * MS, &dropped));
    }
    assert_int_equal(w.count.packets, 100000 - lost);
}

static void a_cut_loses_what_enters_and_what_is_under_way(void **state)
{
    struct wire w;
    struct wire_options o = {.delay_ns = 10 * MS};
    struct packet *p = plain(10);
    bool dropped;

    (void)state;
    wire_init(&w, 1);
    wire_set(&w, &o);
    assert_true(wire_enter(&w, plain(10), 0));
    o.cut = true;
    wire_set(&w, &o);
    assert_false(wire_enter(&w, p, 1 * MS));
    free(p);
    free(wire_leave(&w, 10 * MS, &dropped));
    assert_true(dropped);
    assert_int_equal(w.count.dropped_cut, 2);
    assert_int_equal(w.count.packets, 0);
}

/* ---- super-packets ---------------------------------------------------- */

enum { SEGMENT = 100, PAYLOAD = 250 };

static void put32(uint8_t *at, uint32_t value)
{
    for (int i = 0; i < 4; i++) {
        at[i] = (uint8_t)(value >> (24 - 8 * i));
    }
}

/* TCP with 12 bytes of options: sequence 0xffffff00, FIN, PSH and CWR. */
static struct packet *super_packet(bool v6)
{
    struct virtio_net_hdr h = {.gso_size = SEGMENT};
    uint8_t b[60 + 12 + PAYLOAD] = {0};
    size_t ip = v6 ? 40 : 20, len = ip + 32 + PAYLOAD;

    h.gso_type = v6 ? VIRTIO_NET_HDR_GSO_TCPV6 : VIRTIO_NET_HDR_GSO_TCPV4;
    b[0] = v6 ? 0x60 : 0x45;
    b[v6 ? 6 : 9] = 6;
    if (v6) {
        memset(b + 8, 0x11, 32);
    } else {
        b[5] = 7;
        put32(b + 12, 0x0b000101);
        put32(b + 16, 0x0b000201);
    }
    put32(b + ip + 4, 0xffffff00);
    b[ip + 12] = 8 << 4;
    b[ip + 13] = 0x01 | 0x08 | 0x80 | 0x10;
    for (size_t i = 0; i < PAYLOAD; i++) {
        b[ip + 32 + i] = (uint8_t)i;
    }
    return packet_new(&h, b, len);
}

static uint32_t sum(uint32_t start, const uint8_t *at, size_t len)
{
    for (size_t i = 0; i < len; i += 2) {
        start += (uint32_t)(at[i] << 8 | (i + 1 < len ? at[i + 1] : 0));
    }
    while (start >> 16 != 0) {
        start = (start & 0xffff) + (start >> 16);
    }
    return start;
}

/* What a card would do: the sum from csum_start to the end, complemented, into
 * its field. Then the receiver's check over pseudo header and segment. */
static void check_sums(struct packet *s, size_t ip)
{
    size_t part = s->len - ip;
    const struct virtio_net_hdr *h = &s->offload;
    uint8_t *field = s->bytes + h->csum_start + h->csum_offset;
    uint32_t pseudo =
        ip == 20 ? sum(0, s->bytes + 12, 8) : sum(0, s->bytes + 8, 32);
    uint32_t made = ~sum(0, s->bytes + ip, part) & 0xffff;

    assert_int_equal(h->flags, VIRTIO_NET_HDR_F_NEEDS_CSUM);
    assert_int_equal(h->csum_start, ip);
    field[0] = (uint8_t)(made >> 8);
    field[1] = (uint8_t)made;
    assert_int_equal(sum(pseudo + 6 + (uint32_t)part, s->bytes + ip, part),
                     0xffff);
    if (ip == 20) {
        assert_int_equal(sum(0, s->bytes, 20), 0xffff);
    }
}

static void check_segment(const struct packet *p, unsigned i, size_t ip)
{
    struct packet *s = packet_segment(p, i);
    size_t from = i * SEGMENT;
    size_t len = i == 2 ? PAYLOAD - 2 * SEGMENT : SEGMENT;
    uint8_t seq[4], flags = 0x10 | (i == 0 ? 0x80 : 0) | (i == 2 ? 9 : 0);

    assert_non_null(s);
    assert_int_equal(s->segments, 1);
    assert_int_equal(s->len, ip + 32 + len);
    assert_int_equal(s->wire_bytes, s->len);
    put32(seq, 0xffffff00 + (uint32_t)from);
    assert_memory_equal(s->bytes + ip + 4, seq, 4);
    assert_int_equal(s->bytes[ip + 13], flags);
    for (size_t k = 0; k < len; k++) {
        assert_int_equal(s->bytes[ip + 32 + k], (uint8_t)(from + k));
    }
    if (ip == 20) {
        assert_int_equal(s->bytes[2] << 8 | s->bytes[3], s->len);
        assert_int_equal(s->bytes[4] << 8 | s->bytes[5], 7 + i);
    } else {
        assert_int_equal(s->bytes[4] << 8 | s->bytes[5], s->len - 40);
    }
    check_sums(s, ip);
    free(s);
}

static void a_super_packet_is_cut_as_a_card_would(void **state)
{
    (void)state;
    for (int v6 = 0; v6 < 2; v6++) {
        struct packet *p = super_packet(v6);
        size_t ip = v6 ? 40 : 20;

        assert_int_equal(p->segments, 3);
        assert_int_equal(p->wire_bytes, PAYLOAD + 3 * (ip + 32));
        for (unsigned i = 0; i < 3; i++) {
            check_segment(p, i, ip);
        }
        free(p);
    }
}

static void a_super_packet_takes_the_time_of_its_segments(void **state)
{
    struct wire w;
    struct wire_options o = {.rate_bps = 8000, .overhead = 14};
    struct packet *p = super_packet(false);
    bool dropped;

    (void)state;
    wire_init(&w, 1);
    wire_set(&w, &o);
    assert_true(wire_takes_whole(&w, p, 0));
    assert_true(wire_enter(&w, p, 0));
    assert_int_equal(w.free_at_ns, (PAYLOAD + 3 * (52 + 14)) * MS);
    free(wire_leave(&w, WIRE_NEVER - 1, &dropped));
    assert_int_equal(w.count.packets, 3);
    assert_int_equal(w.count.bytes, PAYLOAD + 3 * 52);
}

static void a_wire_that_may_lose_a_segment_takes_none_whole(void **state)
{
    struct wire w;
    struct wire_options o = {.loss = 0.5};
    struct packet *p = super_packet(false);

    (void)state;
    wire_init(&w, 1);
    wire_set(&w, &o);
    assert_false(wire_takes_whole(&w, p, 0));
    o = (struct wire_options){.rate_bps = 8000, .queue_bytes = 400};
    wire_set(&w, &o);
    assert_true(wire_enter(&w, plain(100), 0)); /* not idle */
    assert_false(wire_takes_whole(&w, p, 0));
    free(p);
    free(w.head);
}

static void what_lies_about_its_headers_is_one_plain_packet(void **state)
{
    struct virtio_net_hdr h = {.gso_size = SEGMENT,
                               .gso_type = VIRTIO_NET_HDR_GSO_TCPV4};
    uint8_t b[200] = {[0] = 0x45, [9] = 6, [32] = 0xf0};

    (void)state;
    for (size_t len = 1; len <= 80; len++) {
        struct packet *p = packet_new(&h, b, len);

        /* The TCP header is said to be 60 bytes long. */
        assert_int_equal(p->segments, 1);
        assert_int_equal(p->wire_bytes, len);
        free(p);
    }
}

/* ---- ways ------------------------------------------------------------- */

static void to_ip(uint8_t packet[40], uint32_t ip)
{
    memset(packet, 0, 40);
    packet[0] = 0x45;
    put32(packet + 16, ip);
}

static void the_longest_prefix_answers(void **state)
{
    static struct topology t;
    uint16_t a, b;
    uint8_t p[40];

    (void)state;
    topology_init(&t, 1);
    a = topology_node(&t, "a");
    b = topology_node(&t, "b");
    assert_true(topology_address(&t, a, "11.0.0.0/8"));
    assert_true(topology_address(&t, b, "11.0.2.128/25"));
    assert_true(topology_address(&t, b, "2001:db8:2::/48"));
    to_ip(p, 0x0b00027f);
    assert_int_equal(topology_route(&t, p, 20), a);
    to_ip(p, 0x0b000280);
    assert_int_equal(topology_route(&t, p, 20), b);
    to_ip(p, 0x0c000000);
    assert_int_equal(topology_route(&t, p, 20), NOWHERE);
    assert_int_equal(topology_route(&t, p, 19), NOWHERE);
    p[0] = 0x60;
    memcpy(p + 24, "\x20\x01\x0d\xb8\x00\x02", 6);
    assert_int_equal(topology_route(&t, p, 40), b);
}

static void bad_names_and_addresses_are_refused(void **state)
{
    static const char *const bad[] = {"",           "11.0.0",     "11.0.0.0/33",
                                      "11.0.0.0/",  "11.0.0.0/x", "::/129",
                                      "11.0.0.0/-1"};
    static struct topology t;
    uint16_t a;

    (void)state;
    topology_init(&t, 1);
    a = topology_node(&t, "a");
    assert_int_equal(topology_node(&t, "a"), NOWHERE);
    assert_int_equal(topology_node(&t, ""), NOWHERE);
    assert_int_equal(
        topology_node(&t, "a-name-of-more-than-thirty-one-letters"), NOWHERE);
    assert_null(topology_link(&t, a, a));
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_false(topology_address(&t, a, bad[i]));
    }
    assert_int_equal(t.n_prefixes, 0);
}

static void packets_take_the_way_with_the_fewest_links(void **state)
{
    static struct topology t;
    uint16_t n[5];
    static const char *const names[] = {"a", "b", "c", "d", "alone"};

    (void)state;
    topology_init(&t, 1);
    for (int i = 0; i < 5; i++) {
        n[i] = topology_node(&t, names[i]);
    }
    topology_link(&t, n[0], n[1]);
    topology_link(&t, n[1], n[2]);
    topology_link(&t, n[2], n[3]);
    assert_int_equal(t.links[t.next[n[0]][n[3]]].to, n[1]);
    topology_link(&t, n[0], n[2]);
    assert_int_equal(t.links[t.next[n[0]][n[3]]].to, n[2]);
    assert_int_equal(t.links[t.next[n[3]][n[0]]].to, n[2]);
    assert_int_equal(t.next[n[0]][n[4]], NOWHERE);
    /* The wire back exists, and asking again makes no other. */
    assert_ptr_equal(topology_link(&t, n[2], n[0]), &t.links[7]);
    assert_int_equal(t.n_links, 8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sends_any_number_of_bytes_in_exactly_their_time),
        cmocka_unit_test(arrives_after_the_delay_and_not_before),
        cmocka_unit_test(jitter_reorders_only_when_asked_to),
        cmocka_unit_test(a_full_queue_drops_the_newest),
        cmocka_unit_test(loses_the_asked_share_and_charges_it),
        cmocka_unit_test(a_cut_loses_what_enters_and_what_is_under_way),
        cmocka_unit_test(a_super_packet_is_cut_as_a_card_would),
        cmocka_unit_test(a_super_packet_takes_the_time_of_its_segments),
        cmocka_unit_test(a_wire_that_may_lose_a_segment_takes_none_whole),
        cmocka_unit_test(what_lies_about_its_headers_is_one_plain_packet),
        cmocka_unit_test(the_longest_prefix_answers),
        cmocka_unit_test(bad_names_and_addresses_are_refused),
        cmocka_unit_test(packets_take_the_way_with_the_fewest_links),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
