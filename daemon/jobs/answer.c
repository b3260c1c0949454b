/* answer.c - see answer.h. */
#include "daemon/jobs/answer.h"

static struct local_event report(enum local_type type, int rc)
{
    return (struct local_event){.type = type, .rc = rc};
}

/* What other members did. */
static struct local_event about_others(const struct job *job, int rc)
{
    struct local_event e = report(LOCAL_STRAYS, rc);

    if (job->type == JOB_STRAYS) {
        e.strays.attempt = job->strays.attempt;
    } else if (job->type == JOB_AUDIT) {
        e.type = LOCAL_AUDITED;
        e.audited.round = job->audit.round;
        e.audited.offset = job->audit.offset;
    } else {
        e.type = LOCAL_REPEATED;
        e.repeated.round = job->repeat.round;
        e.repeated.maker = job->repeat.maker;
    }
    return e;
}

struct local_event job_answer(const struct job *job, int rc)
{
    struct local_event e;

    switch (job->type) {
    case JOB_CONFIGURE:
        return report(LOCAL_CONFIGURED, rc);
    case JOB_LOAD:
        e = report(LOCAL_LOADED, rc);
        e.loaded.round = job->load.round;
        return e;
    case JOB_TRAIN:
        return report(LOCAL_TRAINED, rc);
    case JOB_APPLY:
        e = report(LOCAL_APPLIED, rc);
        e.applied.round = job->apply.round;
        return e;
    case JOB_PAIR:
        e = report(LOCAL_APPLIED, rc);
        e.applied.round = job->pair.turn;
        return e;
    case JOB_EVAL:
        e = report(LOCAL_EVALUATED, rc);
        e.evaluated.round = job->eval.round;
        e.evaluated.draw = job->eval.draw;
        return e;
    case JOB_HASH:
        e = report(LOCAL_HASHED, rc);
        e.hashed.buffer = job->hash.buffer;
        e.hashed.index = job->hash.index;
        e.hashed.request = job->hash.request;
        return e;
    case JOB_VERIFY:
        e = report(LOCAL_VERIFIED, rc);
        e.verified.buffer = job->verify.buffer;
        e.verified.index = job->verify.index;
        e.verified.request = job->verify.request;
        return e;
    case JOB_INHERIT:
        e = report(LOCAL_INHERITED, rc);
        e.inherited.request = job->inherit.to;
        return e;
    case JOB_DOWNLOAD:
        e = report(LOCAL_DOWNLOADED, rc);
        e.downloaded.index = job->download.index;
        return e;
    case JOB_STAGE:
        e = report(LOCAL_STAGED, rc);
        e.staged.stage = job->stage.stage;
        return e;
    case JOB_PIPE:
        e = report(LOCAL_PIPED, rc);
        e.piped.op = job->pipe.op;
        e.piped.attempt = job->pipe.attempt;
        e.piped.index = job->pipe.index;
        return e;
    case JOB_AUDIT:
    case JOB_STRAYS:
    case JOB_REPEAT:
        return about_others(job, rc);
    default:
        return report(LOCAL_TYPE_COUNT, rc);
    }
}
