/* evidence_file.h - how a file of evidence is read: for evidence_check.c and
 * evidence_work.c. Both kinds begin with a magic, a version and the run's
 * manifest (evidence.h).
 */
#ifndef LOCO_DAEMON_JOBS_EVIDENCE_FILE_H
#define LOCO_DAEMON_JOBS_EVIDENCE_FILE_H

#include "daemon/jobs/evidence.h"

/* The bytes that are not read yet, and what they are read for. */
struct evidence_file {
    const uint8_t *at;
    size_t left;
    const struct signer *signer; /* verifies */
    char *errmsg;                /* ERRMSG_SIZE bytes or NULL */
    struct manifest manifest;
    struct hash32 run; /* of the manifest */
};

/* LOCO_EFORMAT, in that sentence. */
int evidence_malformed(struct evidence_file *f, const char *what);

/* The next n bytes; NULL: there are not so many. */
const uint8_t *evidence_take(struct evidence_file *f, uint64_t n);

/* The next section; NULL: it ends behind the file. */
const uint8_t *evidence_take_section(struct evidence_file *f, size_t *n);

/* Magic (8 bytes) and version; then the manifest, which has to be valid. */
int evidence_read_start(struct evidence_file *f,
                        const char *magic,
                        uint32_t version);

/* A struct of the next section, and the hash of its bytes where `hash` is
 * given. A struct has one encoding, every other one is refused (msg.h). */
int evidence_read_part(struct evidence_file *f,
                       const struct msg_schema *schema,
                       const char *domain,
                       void *obj,
                       struct hash32 *hash);

/* evidence_work.c: as evidence_check(), of a conviction. */
int evidence_check_work(struct evidence_file *f, struct evidence_verdict *v);

#endif
