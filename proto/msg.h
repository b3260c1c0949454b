/* msg.h - messages as plain structs, described by const tables.
 *
 * A *message* is a C struct of fixed size; every array in it has a named
 * maximum and a count field beside it. A *schema* lists its fields in wire
 * order. On the wire a struct is one msgpack array with exactly one element
 * per field, in that order:
 *     U8 U16 U32 U64  shortest integer     BOOL     true / false
 *     FIXED, BYTES    bin                  STRUCT   array
 *     ARRAY_x         array of x
 * Only the shortest encoding of a value is accepted, so one value has exactly
 * one byte string, and hashing or signing the encoding is sound.
 *
 * Cost: one pass, no allocation; stack bounded by MSG_DEPTH_MAX. Decoding
 * fails with LOCO_EPROTO for any wrong type, count above its maximum, integer
 * that does not fit, longer-than-needed form, missing, extra or trailing
 * bytes; the object is then all zero. Encoding fails with LOCO_ERANGE (does
 * not fit `cap`, count above its maximum): a local bug, reported so that tests
 * can see it.
 *
 * How to make one (the file that declares the struct stays free of tables):
 *
 *     struct member { struct peer_id id; uint16_t port; };
 *     struct view {
 *         uint64_t epoch;
 *         uint32_t n_members;
 *         struct member members[VIEW_MEMBERS_MAX];
 *     };
 *
 *     MSG_PART(member,
 *              MSG_FIELD_FIXED(struct member, id),
 *              MSG_FIELD_U16(struct member, port));
 *     MSG_DEFINE(view,
 *                MSG_FIELD_U64(struct view, epoch),
 *                MSG_ARRAY_STRUCT(struct view, members, n_members,
 *                                 member_schema));
 *
 * A count field is uint8_t, uint16_t or uint32_t and is not a wire field of its
 * own. A wrong member type does not compile. Arrays of BYTES need a struct
 * around each element, for its length.
 */
#ifndef LOCO_PROTO_MSG_H
#define LOCO_PROTO_MSG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/limits.h"

enum msg_kind {
    MSG_U8,
    MSG_U16,
    MSG_U32,
    MSG_U64,
    MSG_BOOL,
    MSG_FIXED,
    MSG_BYTES,
    MSG_STRUCT,
    MSG_KIND_COUNT
};

struct msg_schema;

struct msg_field {
    const char *name;
    enum msg_kind kind;
    bool array;
    uint8_t count_size;  /* bytes of the count or length field; 0: none */
    size_t offset;       /* of the member */
    size_t count_offset; /* of the count (ARRAY) or length (BYTES) member */
    size_t size;         /* bytes of one element in the struct */
    size_t max;          /* elements at most; 1 without array */
    const struct msg_schema *sub; /* STRUCT */
};

struct msg_schema {
    const char *name;
    size_t size; /* of the struct */
    const struct msg_field *fields;
    size_t n_fields;
};

/* Encode into out[cap]: the number of bytes, or a negative code. */
int msg_encode(const struct msg_schema *s,
               const void *obj,
               uint8_t *out,
               size_t cap);

/* Decode in[len], all of it, into *obj (s->size bytes): 0 or LOCO_EPROTO. */
int msg_decode(const struct msg_schema *s,
               const uint8_t *in,
               size_t len,
               void *obj);

/* Longest encoding that the schema allows: for buffers and frame rules. */
size_t msg_bytes_max(const struct msg_schema *s);

/* Whether the table is consistent (offsets, counts, depth): for unit tests. */
bool msg_schema_ok(const struct msg_schema *s);

/* clang-format off */
#define MSG_MEMBER_(t, m)  (((t *)0)->m)
#define MSG_REQUIRE_(cond) (sizeof(char[(cond) ? 1 : -1]) - 1)
#define MSG_COUNT_SIZE_(t, c)                                                  \
    _Generic(MSG_MEMBER_(t, c), uint8_t: 1, uint16_t: 2, uint32_t: 4)

#define MSG_SCALAR_(t, m, k, ctype)                                            \
    {.name = #m, .kind = (k), .offset = offsetof(t, m), .max = 1,              \
     .size = _Generic(MSG_MEMBER_(t, m), ctype: sizeof(ctype))}

#define MSG_LIST_(t, m, c, k, elem_size, schema)                               \
    {.name = #m, .kind = (k), .array = true,                                   \
     .count_size = MSG_COUNT_SIZE_(t, c),                                      \
     .offset = offsetof(t, m), .count_offset = offsetof(t, c),                 \
     .size = (elem_size),                                                      \
     .max = sizeof(MSG_MEMBER_(t, m)) / sizeof(MSG_MEMBER_(t, m)[0]),          \
     .sub = (schema)}

#define MSG_SCALARS_(t, m, c, k, ctype)                                        \
    MSG_LIST_(t, m, c, k,                                                      \
              _Generic(MSG_MEMBER_(t, m)[0], ctype: sizeof(ctype)), NULL)

#define MSG_FIELD_U8(t, m)   MSG_SCALAR_(t, m, MSG_U8, uint8_t)
#define MSG_FIELD_U16(t, m)  MSG_SCALAR_(t, m, MSG_U16, uint16_t)
#define MSG_FIELD_U32(t, m)  MSG_SCALAR_(t, m, MSG_U32, uint32_t)
#define MSG_FIELD_U64(t, m)  MSG_SCALAR_(t, m, MSG_U64, uint64_t)
#define MSG_FIELD_BOOL(t, m) MSG_SCALAR_(t, m, MSG_BOOL, bool)

/* Exactly sizeof member bytes: struct peer_id, struct hash32, uint8_t x[64].
 * Only for types without padding. */
#define MSG_FIELD_FIXED(t, m)                                                  \
    {.name = #m, .kind = MSG_FIXED, .offset = offsetof(t, m), .max = 1,        \
     .size = sizeof(MSG_MEMBER_(t, m))}

/* uint8_t m[MAX] of which the first `l` bytes count. */
#define MSG_FIELD_BYTES(t, m, l)                                               \
    {.name = #m, .kind = MSG_BYTES, .offset = offsetof(t, m), .max = 1,        \
     .count_size = MSG_COUNT_SIZE_(t, l), .count_offset = offsetof(t, l),      \
     .size = sizeof(MSG_MEMBER_(t, m)) +                                       \
             MSG_REQUIRE_(sizeof(MSG_MEMBER_(t, m)[0]) == 1)}

#define MSG_FIELD_STRUCT(t, m, schema)                                         \
    {.name = #m, .kind = MSG_STRUCT, .offset = offsetof(t, m), .max = 1,       \
     .size = sizeof(MSG_MEMBER_(t, m)), .sub = &(schema)}

/* Arrays: member m[MAX], count member c. */
#define MSG_ARRAY_U16(t, m, c)  MSG_SCALARS_(t, m, c, MSG_U16, uint16_t)
#define MSG_ARRAY_U32(t, m, c)  MSG_SCALARS_(t, m, c, MSG_U32, uint32_t)
#define MSG_ARRAY_U64(t, m, c)  MSG_SCALARS_(t, m, c, MSG_U64, uint64_t)
#define MSG_ARRAY_BOOL(t, m, c) MSG_SCALARS_(t, m, c, MSG_BOOL, bool)
#define MSG_ARRAY_FIXED(t, m, c)                                               \
    MSG_LIST_(t, m, c, MSG_FIXED, sizeof(MSG_MEMBER_(t, m)[0]), NULL)
#define MSG_ARRAY_STRUCT(t, m, c, schema)                                      \
    MSG_LIST_(t, m, c, MSG_STRUCT, sizeof(MSG_MEMBER_(t, m)[0]), &(schema))

#define MSG_SCHEMA(t, f)                                                       \
    {.name = #t, .size = sizeof(t), .fields = (f),                             \
     .n_fields = sizeof(f) / sizeof((f)[0])}

#define MSG_FIELDS_(name, ...)                                                 \
    static const struct msg_field name##_fields[] = {__VA_ARGS__}

/* The schema of struct NAME with these fields, as NAME_schema. */
#define MSG_DEFINE(name, ...)                                                  \
    MSG_FIELDS_(name, __VA_ARGS__);                                            \
    const struct msg_schema name##_schema =                                    \
        MSG_SCHEMA(struct name, name##_fields)

/* The same for this file alone: a part of what it defines. */
#define MSG_PART(name, ...)                                                    \
    MSG_FIELDS_(name, __VA_ARGS__);                                            \
    static const struct msg_schema name##_schema =                             \
        MSG_SCHEMA(struct name, name##_fields)
/* clang-format on */

#endif
