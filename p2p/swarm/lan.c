/* lan.c - see lan.h. */
#include "p2p/swarm/lan.h"

#include <string.h>

#include "p2p/prefix.h"
#include "proto/base/bytes.h"
#include "proto/hash.h"

#define AT_TAG      8
#define AT_INSTANCE 40
#define AT_PORT     48
#define AT_FLAGS    50
#define FLAG_ANSWER 1
#define HEARD_PER_S 10
#define ANSWER_MS   1000
#define EVERY_MS    60000

static const uint8_t magic[8] = {'l', 'o', 'c', 'o', 'l', 'a', 'n', '1'};

void lan_init(struct lan *l,
              const struct hash32 *run,
              uint64_t instance,
              uint16_t port,
              uint64_t now_ms)
{
    memset(l, 0, sizeof *l);
    hash_bytes("loco-lan-1", run->b, sizeof run->b, &l->tag);
    l->instance = instance;
    l->port = port;
    l->say_ms = now_ms;
}

bool lan_say(struct lan *l, uint64_t now_ms, uint8_t out[LAN_BYTES])
{
    static const uint32_t after_ms[] = {1000, 2000, 7000};

    if (now_ms < l->say_ms) {
        return false;
    }
    memcpy(out, magic, sizeof magic);
    memcpy(out + AT_TAG, l->tag.b, sizeof l->tag.b);
    put_u64(out + AT_INSTANCE, l->instance);
    put_u16(out + AT_PORT, l->port);
    put_u16(out + AT_FLAGS, l->n_said < 2 ? FLAG_ANSWER : 0);
    l->say_ms = now_ms + (l->n_said < 3 ? after_ms[l->n_said] : EVERY_MS);
    l->answer_ms = now_ms + ANSWER_MS;
    l->n_said++;
    return true;
}

bool lan_hear(struct lan *l,
              const uint8_t *bytes,
              size_t len,
              uint64_t now_ms,
              uint16_t *port)
{
    if (now_ms - l->second_ms >= 1000) {
        l->second_ms = now_ms;
        l->n_heard = 0;
    }
    if (++l->n_heard > HEARD_PER_S || len != LAN_BYTES ||
        memcmp(bytes, magic, sizeof magic) != 0 ||
        (get_u16(bytes + AT_FLAGS) & ~FLAG_ANSWER) != 0 ||
        get_u16(bytes + AT_PORT) == 0) {
        l->n_dropped++;
        return false;
    }
    if (memcmp(bytes + AT_TAG, l->tag.b, sizeof l->tag.b) != 0 ||
        get_u64(bytes + AT_INSTANCE) == l->instance) {
        return false;
    }
    *port = get_u16(bytes + AT_PORT);
    if ((get_u16(bytes + AT_FLAGS) & FLAG_ANSWER) != 0 &&
        l->answer_ms < l->say_ms) {
        l->say_ms = l->answer_ms > now_ms ? l->answer_ms : now_ms;
    }
    return true;
}

bool lan_is_near(const uint8_t ip[16],
                 const uint8_t own[16],
                 const uint8_t mask[16])
{
    int from = prefix_is_v4(own) ? 12 : 0;
    uint8_t differ = 0, any = 0;

    for (int i = from; i < 16; i++) {
        differ |= (uint8_t)((ip[i] ^ own[i]) & mask[i]);
        any |= mask[i]; /* zeros are no network */
    }
    return prefix_is_v4(ip) == prefix_is_v4(own) && differ == 0 && any != 0;
}

uint64_t lan_deadline(const struct lan *l)
{
    return l->say_ms;
}
