/* internal.h - shared by doctor.c and doctor/net.c only. */
#ifndef LOCO_DAEMON_DOCTOR_INTERNAL_H
#define LOCO_DAEMON_DOCTOR_INTERNAL_H

#include <stdarg.h>

#include "daemon/doctor/doctor.h"

#define DOCTOR_BYTES_MAX 24

void doctor_say(struct doctor_line *l,
                enum doctor_level level,
                const char *fmt,
                ...) __attribute__((format(printf, 3, 4)));
void doctor_fix(struct doctor_line *l, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* "1.2 GB" */
const char *doctor_bytes(uint64_t bytes, char out[DOCTOR_BYTES_MAX]);

/* Says so, and true, when the fact was not found in time. */
bool doctor_late(const struct doctor_facts *f,
                 enum fact_state state,
                 struct doctor_line *l);

/* doctor/net.c */
void doctor_judge_dns(const struct doctor_facts *f, struct doctor_line *l);
void doctor_judge_ipv6(const struct doctor_facts *f, struct doctor_line *l);
void doctor_judge_nat(const struct doctor_facts *f, struct doctor_line *l);
void doctor_judge_port(const struct doctor_facts *f, struct doctor_line *l);
void doctor_judge_bandwidth(const struct doctor_facts *f,
                            struct doctor_line *l);
void doctor_judge_bootstrap(const struct doctor_facts *f,
                            struct doctor_line *l);

#endif
