/* noise_test.c - the handshake against published vectors, and what must fail.
 *
 * Vectors: every published entry Noise_XX_25519_ChaChaPoly_BLAKE2b that we know
 * of. `cacophony` is of the set that the cacophony project publishes and
 * noise-c and snow carry, `snow` of snow's own (GitHub, mcginty/snow,
 * tests/vectors/cacophony.txt and snow.txt), `noise_c` of noise-c's own
 * (rweather/noise-c, tests/vector/noise-c-basic.txt).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "p2p/link/handshake.h"
#include "p2p/link/noise.h"
#include "proto/base/err.h"
#include "proto/sign.h"

#define VECTOR_MESSAGES_MAX 6

struct vector {
    const char *prologue;
    const char *init_static, *init_ephemeral;
    const char *resp_static, *resp_ephemeral;
    const char *hash; /* NULL: not published */
    struct {
        const char *payload, *ciphertext;
    } message[VECTOR_MESSAGES_MAX]; /* ended by NULL */
};

/* clang-format off */
static const struct vector cacophony = {
    .prologue = "4a6f686e2047616c74",
    .init_static =
        "e61ef9919cde45dd5f82166404bd08e38bceb5dfdfded0a34c8df7ed542214d1",
    .init_ephemeral =
        "893e28b9dc6ca8d611ab664754b8ceb7bac5117349a4439a6b0569da977c464a",
    .resp_static =
        "4a3acbfdb163dec651dfa3194dece676d437029c62a408b4c5ea9114246e4893",
    .resp_ephemeral =
        "bbdb4cdbd309f1a1f2e1456967fe288cadd6f712d65dc7b7793d5e63da6b375b",
    .hash =
        "8cf47d7b3cb5804c0109d48e8bcdbee2cbb65687d8ea2c92994ca361fb86151a"
        "d93627b98936cbb32de56e8abb21def3925011ac3e35db9cbeea73ab9a4392c2",
    .message = {
        {"4c756477696720766f6e204d69736573",
         "ca35def5ae56cec33dc2036731ab14896bc4c75dbb07a61f879f8e3afa4c7944"
         "4c756477696720766f6e204d69736573"},
        {"4d757272617920526f746862617264",
         "95ebc60d2b1fa672c1f46a8aa265ef51bfe38e7ccb39ec5be34069f144808843"
         "0505b6745ce64a5f33f0e8e3b83f11ce8802bca507f4f2d8b564dbe277e19661"
         "16e132faa2dfd70b8b077b9f94b913df5056ae1319469b824a98d54bbaa82c32"
         "5595587064f978c4b6d104f7596e6f"},
        {"462e20412e20486179656b",
         "99579e1c1ee15e422a57ddd6b16d37087b17558e8369c18991b4b2ca3a824abf"
         "904cdcf5458b5431a75af034ca9e9b982de039eaaf156775e2d580cd4e5ebae8"
         "9c3f8cb2594b556d8a8169"},
        {"4361726c204d656e676572",
         "fc56eea290b3f3a21aac0c70cd5787b5ee99be37d2f4d751329b55"},
        {"4a65616e2d426170746973746520536179",
         "bb31c9da10d5639a4cdb88a12f5c61de41bbc7df09bf75d94f8184fe4157f5c6"
         "8f"},
        {"457567656e2042f6686d20766f6e2042617765726b",
         "f6199cadb152fb27f82be0a0891ec76a33598ae92a46cab2fb5a8ed5bf48b7f2"
         "67f8370af7"},
    },
};

static const struct vector snow = {
    .prologue =
        "5468657265206973206e6f20726967687420616e642077726f6e672e20546865"
        "72652773206f6e6c792066756e20616e6420626f72696e672e",
    .init_static =
        "842752777821bd4c9a6a84c777cb9028ba2446c864e035c8d380632dca3a7702",
    .init_ephemeral =
        "5dfce6be0b767fc60a51e1d627711c67d63e97115cb3957a64a66919747ea47c",
    .resp_static =
        "8885e7006b27a44bec4a6e7bfcc37032a3564a73bf9588585bd1166829d80d8a",
    .resp_ephemeral =
        "9c012e056ed37994a4bfb09f57a7505bf44c07e9784c3c2bcefd8880b2d85e21",
    .message = {
        {"bcb708376354e0dc837fc3f7e0e9c8c59849fd907a129a3c0afde64e79d1ac09",
         "50a7da541baa50d563e3fd3526f53e9b7e4af8083a4180b5d1f8cd49fbe30518"
         "bcb708376354e0dc837fc3f7e0e9c8c59849fd907a129a3c0afde64e79d1ac09"},
        {"77783888d07aa30dfeccf96d8da0a293546232bc8a460b5fbca479e3da54d3b2",
         "6b0ae570deada82b6f3071c87bd361014c34f8d15fee49ed0078f38a9c05bb70"
         "3c2eb46ccc2734a9c07555b85d6f0b5ae29f24aaa2c351d815acd2e1de777034"
         "4339d0d854daf5a4468b189caf7ff643d6c5645e9e7fd5edcad6755ea0a01f51"
         "f552650ab99b7a0eba09f64b9dc0737f5756688682897c0912890a6ec56d72f8"},
        {"420d0154f4e26a4224c201f3ecceddc06eb8896b78386978fb25b21dd276c6fb",
         "386d9e2549dcb9a016db7e05f45c19d2c4fd4e7a61d1c06dbd01d21012d448b3"
         "4761826aa7b3fc8d0c5cc73d487c1f19ac29de837b4ccd361603f03d12f8971a"
         "e0534fbd8096fd5bc2c7bdc77026207623514afa5804d07a3b0c316f9e5a9c1"
         "2"},
        {"58f929d4d8eda457fb01b3a09bb6391aac0d93477df9e3042355741747744571",
         "c81ba3d22336cd78d64ff9e2161d339db9fd3a5407a3fb594fb7a59d718e83c6"
         "054b1002721e63ffb2a2d2d8bfd670bc"},
        {"c86af330a6b59de9d7ead76260204ef7e897a1323bdc0a9c5ea4450556ed0bf6",
         "1207c87bc8ec9b6d5db3a3d3ed5caab43c98e71492a424b7d7302ea8313d1b0e"
         "3644c9b3c479a80cdb3da1e92466b8ac"},
    },
};

static const struct vector noise_c = {
    .prologue = "50726f6c6f677565313233",
    .init_static =
        "e61ef9919cde45dd5f82166404bd08e38bceb5dfdfded0a34c8df7ed542214d1",
    .init_ephemeral =
        "893e28b9dc6ca8d611ab664754b8ceb7bac5117349a4439a6b0569da977c464a",
    .resp_static =
        "4a3acbfdb163dec651dfa3194dece676d437029c62a408b4c5ea9114246e4893",
    .resp_ephemeral =
        "bbdb4cdbd309f1a1f2e1456967fe288cadd6f712d65dc7b7793d5e63da6b375b",
    .hash =
        "7f6b8a1de1faf8b5e153ded74c950d09c5caf62a8e2eeb73277671d4e65ef9ca"
        "2421a748a4af050284fa6f3eb40bb77f4ace99b7f3ea01db2953233a546a72d2",
    .message = {
        {"4c756477696720766f6e204d69736573",
         "ca35def5ae56cec33dc2036731ab14896bc4c75dbb07a61f879f8e3afa4c7944"
         "4c756477696720766f6e204d69736573"},
        {"4d757272617920526f746862617264",
         "95ebc60d2b1fa672c1f46a8aa265ef51bfe38e7ccb39ec5be34069f144808843"
         "0505b6745ce64a5f33f0e8e3b83f11ce8802bca507f4f2d8b564dbe277e19661"
         "57671ea3b8853f41ae9fb01b5198b7355056ae1319469b824a98d54bbaa82c26"
         "4bbb329d7b104cdeeda568b40a097c"},
        {"462e20412e20486179656b",
         "99579e1c1ee15e422a57ddd6b16d37087b17558e8369c18991b4b2ca3a824abf"
         "55433b8625300437ffbe733f1c6cf40b2de039eaaf156775e2d58021e5d46b9c"
         "b99b280c73026b50f27736"},
        {"4361726c204d656e676572",
         "fc56eea290b3f3a21aac0c70cd5787b5ee99be37d2f4d751329b55"},
        {"4a65616e2d426170746973746520536179",
         "bb31c9da10d5639a4cdb88a12f5c61de41bbc7df09bf75d94f8184fe4157f5c6"
         "8f"},
        {"457567656e2042f6686d20766f6e2042617765726b",
         "f6199cadb152fb27f82be0a0891ec76a33598ae92a46cab2fb5a8ed5bf48b7f2"
         "67f8370af7"},
    },
};
/* clang-format on */

static size_t unhex(const char *text, uint8_t *out)
{
    size_t n = strlen(text) / 2;

    assert_int_equal(hex_decode(text, out, n), 0);
    return n;
}

static void start(struct noise *n, const struct vector *v, bool initiator)
{
    uint8_t prologue[128], s[32], e[32];
    size_t len = unhex(v->prologue, prologue);

    unhex(initiator ? v->init_static : v->resp_static, s);
    unhex(initiator ? v->init_ephemeral : v->resp_ephemeral, e);
    noise_init(n, initiator, prologue, len, s, e);
}

/* One message of either phase, from `a` to `b`, compared with the vector. */
static void exchange(struct noise *a,
                     struct noise *b,
                     const char *payload_hex,
                     const char *cipher_hex)
{
    uint8_t payload[256], expect[256], wire[256], got[256];
    size_t len = unhex(payload_hex, payload);
    size_t wire_len = unhex(cipher_hex, expect);

    memset(wire, 0, sizeof wire);
    if (noise_done(a)) {
        assert_int_equal(noise_seal(&a->send, payload, len, wire), wire_len);
        assert_memory_equal(wire, expect, wire_len);
        assert_int_equal(noise_open(&b->recv, wire, wire_len, got), len);
    } else {
        assert_true(noise_my_turn(a) && !noise_my_turn(b));
        assert_int_equal(noise_write(a, payload, len, wire, sizeof wire),
                         wire_len);
        assert_memory_equal(wire, expect, wire_len);
        assert_int_equal(noise_read(b, wire, wire_len, got, sizeof got), len);
        assert_memory_equal(a->payload_hash, b->payload_hash, 64);
    }
    assert_memory_equal(got, payload, len);
}

static void run_vector(const struct vector *v)
{
    struct noise init, resp;
    uint8_t hash[64];

    start(&init, v, true);
    start(&resp, v, false);
    for (int i = 0; i < VECTOR_MESSAGES_MAX; i++) {
        if (v->message[i].payload == NULL) {
            break;
        }
        exchange(i % 2 == 0 ? &init : &resp, i % 2 == 0 ? &resp : &init,
                 v->message[i].payload, v->message[i].ciphertext);
    }
    assert_true(noise_done(&init) && noise_done(&resp));
    assert_memory_equal(init.hash, resp.hash, sizeof hash);
    if (v->hash != NULL) {
        unhex(v->hash, hash);
        assert_memory_equal(init.hash, hash, sizeof hash);
    }
    assert_memory_equal(init.remote_static, resp.static_public, 32);
    assert_memory_equal(resp.remote_static, init.static_public, 32);
}

static void cacophony_vector_is_reproduced(void **state)
{
    (void)state;
    run_vector(&cacophony);
}

static void snow_vector_is_reproduced(void **state)
{
    (void)state;
    run_vector(&snow);
}

static void noise_c_vector_is_reproduced(void **state)
{
    (void)state;
    run_vector(&noise_c);
}

static void every_flipped_bit_of_a_handshake_is_refused(void **state)
{
    (void)state;
    for (int m = 1; m < 3; m++) {
        uint8_t wire[256];
        size_t len = unhex(cacophony.message[m].ciphertext, wire);

        for (size_t bit = 0; bit < len * 8; bit++) {
            struct noise init, resp;
            struct noise *to = m == 1 ? &init : &resp;
            uint8_t got[256];
            int rv;

            /* X25519 ignores the top bit of a public key; the hash does
             * not, so even that bit must be found. */
            start(&init, &cacophony, true);
            start(&resp, &cacophony, false);
            exchange(&init, &resp, cacophony.message[0].payload,
                     cacophony.message[0].ciphertext);
            if (m == 2) {
                exchange(&resp, &init, cacophony.message[1].payload,
                         cacophony.message[1].ciphertext);
            }
            wire[bit / 8] ^= (uint8_t)(1U << bit % 8);
            rv = noise_read(to, wire, len, got, sizeof got);
            assert_true(rv == LOCO_ESIG || rv == LOCO_EPROTO);
            assert_false(noise_done(to));
            wire[bit / 8] ^= (uint8_t)(1U << bit % 8);
            bit += 6; /* every 7th bit: all bytes, all positions */
        }
    }
}

static void every_shorter_message_is_refused(void **state)
{
    uint8_t wire[256], got[256];
    size_t len = unhex(cacophony.message[1].ciphertext, wire);

    (void)state;
    for (size_t n = 0; n < len; n++) {
        struct noise init, resp;

        start(&init, &cacophony, true);
        start(&resp, &cacophony, false);
        exchange(&init, &resp, cacophony.message[0].payload,
                 cacophony.message[0].ciphertext);
        assert_true(noise_read(&init, wire, n, got, sizeof got) < 0);
        assert_false(noise_done(&init));
    }
}

static void low_order_points_are_refused(void **state)
{
    /* The points of order 1, 2, 4 and 8 and their non-canonical forms
     * (RFC 7748 section 7; https://cr.yp.to/ecdh.html#validate). */
    static const char *const points[] = {
        "0000000000000000000000000000000000000000000000000000000000000000",
        "0100000000000000000000000000000000000000000000000000000000000000",
        "e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800",
        "5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157",
        "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
        "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
        "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    };

    (void)state;
    for (size_t i = 0; i < sizeof points / sizeof points[0]; i++) {
        struct noise resp;
        uint8_t point[32], out[256];

        unhex(points[i], point);
        start(&resp, &cacophony, false);
        assert_int_equal(noise_read(&resp, point, 32, out, sizeof out), 0);
        assert_int_equal(noise_write(&resp, NULL, 0, out, sizeof out),
                         LOCO_EPROTO);
        assert_false(noise_my_turn(&resp) || noise_done(&resp));
    }
}

static void nonces_are_used_once_and_end(void **state)
{
    struct noise_cipher a = {.keyed = true}, b = {.keyed = true};
    uint8_t wire[32], again[32], got[32];

    (void)state;
    assert_int_equal(noise_seal(&a, (const uint8_t *)"x", 1, wire), 17);
    assert_int_equal(noise_seal(&a, (const uint8_t *)"x", 1, again), 17);
    assert_memory_not_equal(wire, again, 17);
    assert_int_equal(noise_open(&b, wire, 17, got), 1);
    assert_int_equal(noise_open(&b, wire, 17, got), LOCO_ESIG); /* replay */
    a.nonce = b.nonce = UINT64_MAX;
    assert_int_equal(noise_seal(&a, wire, 1, got), LOCO_ERANGE);
    assert_int_equal(noise_open(&b, wire, 17, got), LOCO_ERANGE);
}

static void the_largest_record_survives_in_place(void **state)
{
    static uint8_t buf[NOISE_MESSAGE_MAX];
    struct noise_cipher a = {.keyed = true}, b = {.keyed = true};

    (void)state;
    for (size_t i = 0; i < NOISE_PLAIN_MAX; i++) {
        buf[i] = (uint8_t)(i * 31);
    }
    assert_int_equal(noise_seal(&a, buf, NOISE_PLAIN_MAX, buf), sizeof buf);
    assert_int_equal(noise_open(&b, buf, sizeof buf, buf), NOISE_PLAIN_MAX);
    for (size_t i = 0; i < NOISE_PLAIN_MAX; i++) {
        assert_int_equal(buf[i], (uint8_t)(i * 31));
    }
    assert_int_equal(noise_open(&b, buf, 15, buf), LOCO_EPROTO);
}

/* ---- identities ------------------------------------------------------- */

struct side {
    struct identity id;
    struct signer signer;
    struct handshake_options opt;
};

static void side_init(struct side *s, uint8_t seed)
{
    uint8_t bytes[32];

    memset(bytes, seed, sizeof bytes);
    assert_int_equal(identity_generate(&s->id, bytes), 0);
    s->signer = signer_sodium(&s->id);
    s->opt = (struct handshake_options){
        .signer = &s->signer,
        .version = 1,
        .listen_port = (uint16_t)(4000 + seed),
        .features = 0x0123456789abcdefU + seed,
    };
    memset(s->opt.static_secret, seed + 100, 32);
}

/* Pump messages until one side is done on both ends or fails: its code. */
static int shake(struct handshake *a, struct handshake *b)
{
    struct handshake *from = a, *to = b, *t;
    uint8_t wire[HANDSHAKE_MESSAGE_MAX];
    int n, rv;

    for (int i = 0; i < 3; i++) {
        n = handshake_write(from, wire);
        if (n < 0) {
            return n;
        }
        assert_int_equal(n, handshake_expects(to));
        rv = handshake_read(to, wire, (size_t)n);
        if (rv < 0) {
            assert_false(handshake_done(to));
            return rv;
        }
        t = from;
        from = to;
        to = t;
    }
    assert_int_equal(handshake_write(a, wire), 0);
    return 0;
}

static void begin(struct handshake *h,
                  const struct side *s,
                  enum connection_kind kind,
                  const struct peer_id *expected)
{
    uint8_t ephemeral[32];

    memset(ephemeral, s->id.public[0], sizeof ephemeral);
    handshake_init(h, &s->opt, ephemeral, kind, expected);
}

static void both_sides_learn_who_the_other_is(void **state)
{
    struct side a, b;
    struct handshake ha, hb;

    (void)state;
    side_init(&a, 1);
    side_init(&b, 2);
    begin(&ha, &a, CONNECTION_BULK, &b.id.id);
    begin(&hb, &b, CONNECTION_NONE, NULL);
    assert_int_equal(shake(&ha, &hb), 0);
    assert_true(handshake_done(&ha) && handshake_done(&hb));
    assert_true(id_eq(&ha.remote.id, &b.id.id));
    assert_true(id_eq(&hb.remote.id, &a.id.id));
    assert_memory_equal(hb.remote.public_key, a.id.public, 32);
    assert_int_equal(ha.remote.listen_port, 4002);
    assert_int_equal(hb.remote.listen_port, 4001);
    assert_int_equal(hb.remote.kind, CONNECTION_BULK);
    assert_int_equal(ha.remote.kind, CONNECTION_NONE);
    assert_true(hb.remote.features == a.opt.features);
    assert_memory_equal(ha.noise.hash, hb.noise.hash, 64);
}

static void another_run_or_version_is_told_apart(void **state)
{
    struct side a, b;
    struct handshake ha, hb;

    (void)state;
    side_init(&a, 1);
    side_init(&b, 2);
    b.opt.run_id.b[31] ^= 1;
    begin(&ha, &a, CONNECTION_CONTROL, NULL);
    begin(&hb, &b, CONNECTION_NONE, NULL);
    assert_int_equal(shake(&ha, &hb), LOCO_ERUN);
    b.opt.run_id.b[31] ^= 1;
    b.opt.version = 2;
    begin(&ha, &a, CONNECTION_CONTROL, NULL);
    begin(&hb, &b, CONNECTION_NONE, NULL);
    assert_int_equal(shake(&ha, &hb), LOCO_ERUN);
}

static void the_wrong_peer_and_oneself_are_refused(void **state)
{
    struct side a, b;
    struct handshake ha, hb;
    struct peer_id wrong;

    (void)state;
    side_init(&a, 1);
    side_init(&b, 2);
    wrong = b.id.id;
    wrong.b[0] ^= 1;
    begin(&ha, &a, CONNECTION_CONTROL, &wrong);
    begin(&hb, &b, CONNECTION_NONE, NULL);
    assert_int_equal(shake(&ha, &hb), LOCO_ESIG);
    begin(&ha, &a, CONNECTION_CONTROL, NULL);
    begin(&hb, &a, CONNECTION_NONE, NULL);
    assert_int_equal(shake(&ha, &hb), LOCO_EINVAL);
    /* The same identity in another process: with another static key. */
    b = a;
    b.signer.self = &b.id;
    b.opt.signer = &b.signer;
    b.opt.static_secret[7] ^= 1;
    begin(&ha, &a, CONNECTION_CONTROL, NULL);
    begin(&hb, &b, CONNECTION_NONE, NULL);
    assert_int_equal(shake(&ha, &hb), LOCO_ETWIN);
}

/* Somebody who relays a hello between two sessions, or claims another's key. */
static int sign_as_other(void *self,
                         const char *domain,
                         const void *bytes,
                         size_t len,
                         uint8_t sig[SIGN_BYTES])
{
    return sign_detached(self, domain, bytes, len, sig);
}

static void a_key_that_did_not_sign_is_refused(void **state)
{
    struct side a, b, victim;
    struct handshake ha, hb;

    (void)state;
    side_init(&a, 1);
    side_init(&b, 2);
    side_init(&victim, 3);
    b.signer.public = victim.id.public;
    b.signer.sign = sign_as_other;
    b.signer.self = &b.id;
    begin(&ha, &a, CONNECTION_CONTROL, NULL);
    begin(&hb, &b, CONNECTION_NONE, NULL);
    assert_int_equal(shake(&ha, &hb), LOCO_ESIG);
}

static void a_message_of_another_length_is_refused(void **state)
{
    struct side b;
    struct handshake hb;
    uint8_t wire[HANDSHAKE_MESSAGE_MAX] = {9};

    (void)state;
    side_init(&b, 2);
    for (size_t n = 0; n <= sizeof wire; n++) {
        begin(&hb, &b, CONNECTION_NONE, NULL);
        if (n == HANDSHAKE_1_BYTES) {
            continue;
        }
        assert_int_equal(handshake_read(&hb, wire, n), LOCO_EPROTO);
        assert_int_equal(handshake_expects(&hb), 0);
        assert_int_equal(handshake_write(&hb, wire), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cacophony_vector_is_reproduced),
        cmocka_unit_test(snow_vector_is_reproduced),
        cmocka_unit_test(noise_c_vector_is_reproduced),
        cmocka_unit_test(every_flipped_bit_of_a_handshake_is_refused),
        cmocka_unit_test(every_shorter_message_is_refused),
        cmocka_unit_test(low_order_points_are_refused),
        cmocka_unit_test(nonces_are_used_once_and_end),
        cmocka_unit_test(the_largest_record_survives_in_place),
        cmocka_unit_test(both_sides_learn_who_the_other_is),
        cmocka_unit_test(another_run_or_version_is_told_apart),
        cmocka_unit_test(the_wrong_peer_and_oneself_are_refused),
        cmocka_unit_test(a_key_that_did_not_sign_is_refused),
        cmocka_unit_test(a_message_of_another_length_is_refused),
    };

    if (sign_start() != 0) {
        return 1;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
