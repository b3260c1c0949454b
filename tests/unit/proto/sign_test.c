/* sign_test.c - identities, key files, both signers. */
#include "tests/unit/proto/suite.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/base/err.h"
#include "proto/sign.h"

static char folder[64];

static int make_folder(void **state)
{
    (void)state;
    (void)snprintf(folder, sizeof folder, "sign_test.XXXXXX");
    return mkdtemp(folder) == NULL;
}

static int drop_folder(void **state)
{
    (void)state;
    return rmdir(folder);
}

static void path_of(char *out, size_t cap, const char *name)
{
    (void)snprintf(out, cap, "%s/%s", folder, name);
}

static void the_same_seed_gives_the_same_identity(void **state)
{
    /* RFC 8032 section 7.1, test 1. */
    static const char seed_hex[] =
        "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60";
    static const char public_hex[] =
        "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a";
    uint8_t seed[32], public[32];
    struct identity a, b;

    (void)state;
    assert_int_equal(hex_decode(seed_hex, seed, 32), 0);
    assert_int_equal(hex_decode(public_hex, public, 32), 0);
    assert_int_equal(identity_generate(&a, seed), 0);
    assert_memory_equal(a.public, public, 32);
    assert_int_equal(identity_generate(&b, NULL), 0);
    assert_false(id_eq(&a.id, &b.id));
    identity_wipe(&b);
    assert_true(id_is_zero(&b.id));
}

/* What holds for every signer. */
static void check_signer(const struct signer *s, const uint8_t *stranger)
{
    uint8_t sig[SIGN_BYTES], text[200];

    memset(text, 7, sizeof text);
    for (size_t len = 0; len < sizeof text; len += 13) {
        assert_int_equal(s->sign(s->self, "loco-a", text, len, sig), 0);
        assert_true(s->verify(s->self, s->public, "loco-a", text, len, sig));
        assert_false(s->verify(s->self, s->public, "loco-b", text, len, sig));
        assert_false(s->verify(s->self, stranger, "loco-a", text, len, sig));
        assert_false(
            s->verify(s->self, s->public, "loco-a", text, len + 1, sig));
        for (int i = 0; i < SIGN_BYTES; i += 21) {
            sig[i] ^= 1;
            assert_false(
                s->verify(s->self, s->public, "loco-a", text, len, sig));
            sig[i] ^= 1;
        }
        if (len > 0) {
            text[len - 1] ^= 1;
            assert_false(
                s->verify(s->self, s->public, "loco-a", text, len, sig));
            text[len - 1] ^= 1;
        }
    }
}

static void both_signers_bind_key_domain_length_and_bytes(void **state)
{
    static const uint8_t one[32] = {1}, two[32] = {2};
    struct identity a, b, fake, other;
    struct signer s;

    (void)state;
    assert_int_equal(identity_generate(&a, one), 0);
    assert_int_equal(identity_generate(&b, two), 0);
    s = signer_sodium(&a);
    check_signer(&s, b.public);
    identity_fake(&fake, 1);
    identity_fake(&other, 2);
    assert_false(id_eq(&fake.id, &other.id));
    s = signer_keyed(&fake);
    check_signer(&s, other.public);
    s = signer_keyed(&a); /* a real identity works in a simulation too */
    check_signer(&s, b.public);
}

static void a_signer_without_a_key_verifies_and_cannot_sign(void **state)
{
    static const uint8_t seed[32] = {3};
    struct signer all[2] = {signer_sodium(NULL), signer_keyed(NULL)};
    struct identity a;
    struct signer with;
    uint8_t sig[SIGN_BYTES];

    (void)state;
    assert_int_equal(identity_generate(&a, seed), 0);
    for (int i = 0; i < 2; i++) {
        assert_null(all[i].public);
        assert_int_equal(all[i].sign(all[i].self, "d", "x", 1, sig),
                         LOCO_EINVAL);
        with = i == 0 ? signer_sodium(&a) : signer_keyed(&a);
        assert_int_equal(with.sign(with.self, "d", "x", 1, sig), 0);
        assert_true(all[i].verify(all[i].self, a.public, "d", "x", 1, sig));
    }
}

static void a_key_file_is_private_and_read_back(void **state)
{
    char path[128], errmsg[LOCO_ERRMSG_MAX];
    struct identity a, b;
    struct stat st;

    (void)state;
    path_of(path, sizeof path, "key");
    assert_int_equal(identity_generate(&a, NULL), 0);
    assert_int_equal(identity_save(&a, path, errmsg), 0);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_int_equal(identity_load(&b, path, errmsg), 0);
    assert_memory_equal(&a, &b, sizeof a);
    assert_int_equal(unlink(path), 0);
}

static void a_key_that_exists_is_never_overwritten(void **state)
{
    char path[128], errmsg[LOCO_ERRMSG_MAX];
    struct identity a, b, c;

    (void)state;
    path_of(path, sizeof path, "key");
    assert_int_equal(identity_generate(&a, NULL), 0);
    assert_int_equal(identity_generate(&b, NULL), 0);
    assert_int_equal(identity_save(&a, path, errmsg), 0);
    assert_int_equal(identity_save(&b, path, errmsg), LOCO_EBUSY);
    assert_non_null(strstr(errmsg, path));
    assert_int_equal(identity_load(&c, path, NULL), 0);
    assert_true(id_eq(&a.id, &c.id));
    assert_int_equal(unlink(path), 0);
}

static void a_key_that_others_can_read_is_refused(void **state)
{
    static const mode_t modes[] = {0640, 0604, 0620, 0602, 0610};
    char path[128], errmsg[LOCO_ERRMSG_MAX];
    struct identity a;

    (void)state;
    path_of(path, sizeof path, "key");
    assert_int_equal(identity_generate(&a, NULL), 0);
    assert_int_equal(identity_save(&a, path, errmsg), 0);
    for (size_t i = 0; i < N_OF(modes); i++) {
        assert_int_equal(chmod(path, modes[i]), 0);
        assert_int_equal(identity_load(&a, path, errmsg), LOCO_EIO);
        assert_non_null(strstr(errmsg, "chmod 600"));
    }
    assert_int_equal(unlink(path), 0);
    assert_int_equal(identity_load(&a, path, errmsg), LOCO_ENOENT);
    assert_int_equal(identity_load(&a, folder, errmsg), LOCO_EIO);
}

static void write_text(const char *path, const char *text, size_t len)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);

    assert_true(fd >= 0);
    assert_true(write(fd, text, len) == (ssize_t)len);
    assert_int_equal(close(fd), 0);
}

static void a_damaged_key_file_is_refused_at_every_byte(void **state)
{
    char path[128], text[256], errmsg[LOCO_ERRMSG_MAX];
    struct identity a, b;
    ssize_t n;
    int fd;

    (void)state;
    path_of(path, sizeof path, "key");
    assert_int_equal(identity_generate(&a, NULL), 0);
    assert_int_equal(identity_save(&a, path, errmsg), 0);
    fd = open(path, O_RDONLY);
    n = read(fd, text, sizeof text);
    assert_int_equal(close(fd), 0);
    assert_true(n > 80 && n < 120);
    for (ssize_t i = 0; i < n; i++) {
        text[i] = (char)(text[i] ^ 1);
        write_text(path, text, (size_t)n);
        assert_int_equal(identity_load(&b, path, errmsg), LOCO_EFORMAT);
        text[i] = (char)(text[i] ^ 1);
        write_text(path, text, (size_t)i);
        assert_int_equal(identity_load(&b, path, errmsg), LOCO_EFORMAT);
    }
    text[n] = 'x';
    write_text(path, text, (size_t)n + 1);
    assert_int_equal(identity_load(&b, path, errmsg), LOCO_EFORMAT);
    write_text(path, text, (size_t)n);
    assert_int_equal(identity_load(&b, path, errmsg), 0);
    assert_int_equal(unlink(path), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_seed_gives_the_same_identity),
        cmocka_unit_test(both_signers_bind_key_domain_length_and_bytes),
        cmocka_unit_test(a_signer_without_a_key_verifies_and_cannot_sign),
        cmocka_unit_test(a_key_file_is_private_and_read_back),
        cmocka_unit_test(a_key_that_exists_is_never_overwritten),
        cmocka_unit_test(a_key_that_others_can_read_is_refused),
        cmocka_unit_test(a_damaged_key_file_is_refused_at_every_byte),
    };

    return cmocka_run_group_tests_name("proto/sign", tests, make_folder,
                                       drop_folder);
}
