/* evidence_file.c - see evidence_file.h. */
#include "daemon/jobs/evidence_file.h"

#include <string.h>

#include "proto/base/bytes.h"
#include "proto/base/err.h"
#include "proto/base/errmsg.h"
#include "proto/hash.h"

#define MAGIC_BYTES 8

int evidence_malformed(struct evidence_file *f, const char *what)
{
    return errmsg_fail(f->errmsg, LOCO_EFORMAT, "%s", what);
}

const uint8_t *evidence_take(struct evidence_file *f, uint64_t n)
{
    const uint8_t *at = f->at;

    if (n > f->left) {
        return NULL;
    }
    f->at += n;
    f->left -= (size_t)n;
    return at;
}

const uint8_t *evidence_take_section(struct evidence_file *f, size_t *n)
{
    const uint8_t *head = evidence_take(f, 4);

    *n = head == NULL ? 0 : get_u32(head);
    return head == NULL ? NULL : evidence_take(f, *n);
}

static int
read_head(struct evidence_file *f, const char *magic, uint32_t version)
{
    const uint8_t *begin = evidence_take(f, MAGIC_BYTES), *word;

    if (begin == NULL || memcmp(begin, magic, MAGIC_BYTES) != 0) {
        return evidence_malformed(f, "this is no file of evidence: it does not "
                                     "begin with " EVIDENCE_MAGIC
                                     " or " EVIDENCE_WORK_MAGIC);
    }
    word = evidence_take(f, 4);
    if (word == NULL) {
        return evidence_malformed(f, "the file ends within its first 12 bytes");
    }
    if (get_u32(word) != version) {
        return errmsg_fail(
            f->errmsg, LOCO_EFORMAT,
            "the evidence is of version %u, this program reads version %u: "
            "take %s program",
            get_u32(word), version,
            get_u32(word) < version ? "an older" : "a newer");
    }
    return 0;
}

static int read_manifest(struct evidence_file *f)
{
    char why[ERRMSG_SIZE] = "";
    size_t n;
    const uint8_t *bytes = evidence_take_section(f, &n);
    int rv;

    if (bytes == NULL) {
        return evidence_malformed(f, "the file ends within the manifest");
    }
    rv = manifest_unpack(bytes, n, f->signer, &f->manifest, NULL, &f->run, why);
    if (rv != 0) {
        return errmsg_fail(f->errmsg, rv == LOCO_EPROTO ? LOCO_EFORMAT : rv,
                           "the manifest in the file is not valid: %.180s",
                           why[0] == '\0' ? loco_strerror(rv) : why);
    }
    return 0;
}

int evidence_read_start(struct evidence_file *f,
                        const char *magic,
                        uint32_t version)
{
    int rv = read_head(f, magic, version);

    return rv != 0 ? rv : read_manifest(f);
}

int evidence_read_part(struct evidence_file *f,
                       const struct msg_schema *schema,
                       const char *domain,
                       void *obj,
                       struct hash32 *hash)
{
    size_t n;
    const uint8_t *bytes = evidence_take_section(f, &n);

    if (bytes == NULL || msg_decode(schema, bytes, n, obj) != 0) {
        return errmsg_fail(f->errmsg, LOCO_EFORMAT,
                           "the %s in the file is cut, or not well formed",
                           schema->name);
    }
    if (hash != NULL) {
        hash_bytes(domain, bytes, n, hash);
    }
    return 0;
}
