/* core.c - see core.h. */
#include "p2p/core.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "proto/base/log.h"

struct action *out_add(struct out *out, enum action_type type)
{
    struct action *a;

    if (out->n == CORE_OUT_MAX) {
        out->dropped++;
        return NULL;
    }
    a = &out->action[out->n++];
    memset(a, 0, sizeof *a);
    a->type = type;
    return a;
}

struct job *out_job(struct out *out, enum job_type type)
{
    struct action *a = out_add(out, ACTION_JOB);

    if (a == NULL) {
        return NULL;
    }
    a->job.type = type;
    return &a->job;
}

uint32_t out_bytes(struct out *out, const void *bytes, size_t len)
{
    uint32_t at = out->n_bytes;

    if (len > CORE_OUT_BYTES_MAX - out->n_bytes) {
        out->dropped++;
        return UINT32_MAX;
    }
    if (len > 0) {
        memcpy(out->bytes + at, bytes, len);
    }
    out->n_bytes += (uint32_t)len;
    return at;
}

bool out_send(struct out *out,
              uint32_t link,
              uint16_t message,
              const void *bytes,
              size_t len)
{
    uint32_t at = out_bytes(out, bytes, len);

    return at != UINT32_MAX && out_send_again(out, link, message, at, len);
}

bool out_send_again(
    struct out *out, uint32_t link, uint16_t message, uint32_t at, size_t len)
{
    struct action *a = out_add(out, ACTION_SEND);

    if (a == NULL) {
        return false;
    }
    a->send = (struct action_send){link, message, {at, (uint32_t)len}};
    return true;
}

void out_log(struct out *out, int level, const char *fmt, ...)
{
    char text[CORE_TEXT_MAX];
    struct job *job;
    va_list ap;
    uint32_t at;
    int n;

    va_start(ap, fmt);
    n = vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (n < 0) {
        return;
    }
    at = out_bytes(out, text, strlen(text) + 1);
    if (at == UINT32_MAX) {
        return;
    }
    job = out_job(out, JOB_LOG);
    if (job != NULL) {
        job->log.level = level;
        job->log.event = log_event(fmt);
        job->log.text = (struct out_span){at, (uint32_t)strlen(text)};
    }
}
