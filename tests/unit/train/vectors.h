/* vectors.h - the published vectors of the methods, from vectors.json.
 *
 * One entry a key, computed in double precision by a program of its own
 * (algorithms page, appendix V). LOCO_VECTORS is the file.
 */
#ifndef LOCO_TESTS_UNIT_TRAIN_VECTORS_H
#define LOCO_TESTS_UNIT_TRAIN_VECTORS_H

#include <jansson.h>

static json_t *vectors_file;

static inline json_t *vector_of(const char *key)
{
    json_t *v;

    if (vectors_file == NULL) {
        json_error_t error;

        vectors_file = json_load_file(LOCO_VECTORS, 0, &error);
        if (vectors_file == NULL) {
            fail_msg("%s:%d: %s", LOCO_VECTORS, error.line, error.text);
        }
    }
    v = json_object_get(vectors_file, key);
    if (v == NULL) {
        fail_msg("no vector \"%s\"", key);
    }
    return v;
}

static inline json_t *vector_at(const json_t *v, size_t i)
{
    json_t *item = json_array_get(v, i);

    if (item == NULL) {
        fail_msg("a vector has no element %zu", i);
    }
    return item;
}

static inline json_t *vector_field(const json_t *v, const char *name)
{
    json_t *item = json_object_get(v, name);

    if (item == NULL) {
        fail_msg("a vector has no field %s", name);
    }
    return item;
}

static inline double vector_number(const json_t *v)
{
    assert_true(json_is_number(v));
    return json_number_value(v);
}

static inline int vectors_free(void **state)
{
    (void)state;
    json_decref(vectors_file);
    vectors_file = NULL;
    return 0;
}

#endif
