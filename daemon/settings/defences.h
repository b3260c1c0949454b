/* defences.h - which defences against members that lie a run can have.
 *
 * The defences: a *robust mean* (the owner of a slice of a butterfly computes a
 * centre that few members cannot move far: codec_sum.centred in
 * train/sync/codec/codec.h); an *audit of sums* (after a round members make
 * parts of an owner's sum again, and keep the proof if it lied); an *audit of
 * work* (members repeat the steps of another one); a *gate* (members measure
 * the model after a round, and take it back where it is worse:
 * daemon/node/judge.h). Rows of defences.def say where one cannot work.
 *
 * What a robust mean promises holds from 3 members on: of two contributions
 * nobody can say which one is wrong. Pure; constant tables.
 */
#ifndef LOCO_DAEMON_SETTINGS_DEFENCES_H
#define LOCO_DAEMON_SETTINGS_DEFENCES_H

#include <stdbool.h>

#include "proto/manifest.h"
#include "train/sync/method.h"

/* clang-format off */
enum defence {
#define DEFENCE(name, title) DEFENCE_##name,
#include "daemon/settings/defences.def"
    DEFENCE_COUNT
};
/* clang-format on */

struct defence_lack {
    enum defence of;
    const char *who;     /* the runs that it is about */
    const char *reason;  /* a sentence without a full stop */
    const char *nearest; /* words for `run create`: a run that can have it */
};

/* For people: "robust mean". */
const char *defence_title(enum defence d);

/* Why this run cannot have it; NULL: it can. m is f's method. Topology and
 * radius are not looked at: defence_robust() and defence_audit() set them. */
const struct defence_lack *
defence_lack(enum defence d, const struct method *m, const struct manifest *f);

/* The i-th row, for the table of people; NULL at the end. */
const struct defence_lack *defence_lack_at(size_t i);

/* The settings of a robust mean. */
void defence_robust(struct manifest_sync *sync);

/* Owners of slices, whom a robust mean and audits need. */
void defence_slices(struct manifest_sync *sync);

/* The settings of an audit of sums. */
void defence_audit(struct manifest_sync *sync);

/* The setting of a gate. */
void defence_gate(struct manifest_sync *sync);

/* Whether these settings ask for a robust mean. */
bool defence_is_robust(const struct manifest_sync *sync);

/* Whether they ask for an audit of sums. */
bool defence_is_audited(const struct manifest_sync *sync);

#endif
