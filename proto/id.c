/* id.c - see id.h. */
#include "proto/id.h"

#include <sodium.h>

#include "proto/base/err.h"

#define SHORT_MODULUS 1021U /* largest prime below 32 * 32 */

/* Crockford's base 32 in lower case: no i, l, o, u. */
static const char short_digits[] = "0123456789abcdefghjkmnpqrstvwxyz";

static const uint8_t zero[ID_BYTES];

struct peer_id id_of_public(const uint8_t public_key[32])
{
    struct peer_id id;

    (void)crypto_generichash(id.b, sizeof id.b, public_key, 32, NULL, 0);
    return id;
}

bool id_is_zero(const struct peer_id *id)
{
    return memcmp(id->b, zero, ID_BYTES) == 0;
}

bool hash32_is_zero(const struct hash32 *hash)
{
    return memcmp(hash->b, zero, ID_BYTES) == 0;
}

int id_xor_bucket(const struct peer_id *a, const struct peer_id *b)
{
    for (int i = 0; i < ID_BYTES; i++) {
        unsigned x = a->b[i] ^ b->b[i];
        int bit = 7;

        if (x == 0) {
            continue;
        }
        while ((x >> bit) == 0) {
            bit--;
        }
        return 8 * (ID_BYTES - 1 - i) + bit;
    }
    return -1;
}

int id_xor_cmp(const struct peer_id *target,
               const struct peer_id *a,
               const struct peer_id *b)
{
    for (int i = 0; i < ID_BYTES; i++) {
        int x = a->b[i] ^ target->b[i];
        int y = b->b[i] ^ target->b[i];

        if (x != y) {
            return x - y;
        }
    }
    return 0;
}

void hex_encode(const uint8_t *bytes, size_t n, char *out)
{
    static const char digits[] = "0123456789abcdef";

    for (size_t i = 0; i < n; i++) {
        out[2 * i] = digits[bytes[i] >> 4];
        out[2 * i + 1] = digits[bytes[i] & 15];
    }
    out[2 * n] = '\0';
}

static int hex_value(char c)
{
    if (c >= '0' && c <= '9') {
        return c - '0';
    }
    if (c >= 'a' && c <= 'f') {
        return c - 'a' + 10;
    }
    return -1;
}

int hex_decode(const char *text, uint8_t *bytes, size_t n)
{
    for (size_t i = 0; i < 2 * n; i++) {
        if (hex_value(text[i]) < 0) {
            return LOCO_EINVAL; /* also at an early final zero */
        }
    }
    if (text[2 * n] != '\0') {
        return LOCO_EINVAL;
    }
    for (size_t i = 0; i < n; i++) {
        int high = hex_value(text[2 * i]), low = hex_value(text[2 * i + 1]);

        bytes[i] = (uint8_t)(high * 16 + low);
    }
    return 0;
}

void id_hex(const struct peer_id *id, char out[ID_HEX_MAX])
{
    hex_encode(id->b, ID_BYTES, out);
}

int id_parse_hex(const char *text, struct peer_id *id)
{
    return hex_decode(text, id->b, ID_BYTES);
}

void hash32_hex(const struct hash32 *hash, char out[ID_HEX_MAX])
{
    hex_encode(hash->b, ID_BYTES, out);
}

int hash32_parse_hex(const char *text, struct hash32 *hash)
{
    return hex_decode(text, hash->b, ID_BYTES);
}

void id_short(const struct peer_id *id, char out[ID_SHORT_MAX])
{
    uint64_t n = 0;
    unsigned check;

    for (int i = 0; i < 5; i++) {
        n = n << 8 | id->b[i];
    }
    check = (unsigned)(n % SHORT_MODULUS);
    for (int i = 0; i < 8; i++) {
        /* Four digits, a dash, four digits. */
        out[i < 4 ? i : i + 1] = short_digits[(n >> (35 - 5 * i)) & 31];
    }
    out[4] = '-';
    out[9] = '-';
    out[10] = short_digits[check >> 5];
    out[11] = short_digits[check & 31];
    out[12] = '\0';
}
